package node

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/monitor/blockio"
	"penstock/node/monitor/owner"
	"penstock/node/orchestrators"
)

// This file bounds the label values of metrics by owner: applications, containers and units come and go
// all the time, and their number is unlimited. The first owners that appear have a series each until
// they are gone; what further owners do is added up under one label. An owner never moves between its
// own series and the common one, so that both never decrease.

const (
	maxOwnerSeries      = 64 // owners with series of their own
	maxLatencySeries    = 16 // the same of latencies, for each device
	maxConnectionSeries = 64 // applications with connections
	otherOwners         = blockio.Others
	noApplication       = "none" // of connections of which no stream was seen
)

// boundedCounters are counters by owner, each with a row of figures. The zero value is not ready; see
// newBoundedCounters.
type boundedCounters struct {
	bound  int
	series map[string]*counterSeries // of all known owners
	own    int                       // those with a series of their own
	others []float64                 // nil: there was no owner beyond the bound
}

type counterSeries struct {
	own   bool
	last  []float64 // the owner's figures at the last call of take
	total []float64 // of its own series
}

func newBoundedCounters(bound int) *boundedCounters {
	return &boundedCounters{bound: bound, series: map[string]*counterSeries{}}
}

// take takes the present figures of all owners. An owner that is missing is gone.
func (b *boundedCounters) take(now map[string][]float64) {
	maps.DeleteFunc(b.series, func(name string, s *counterSeries) bool {
		_, is := now[name]
		if !is && s.own {
			b.own--
		}
		return !is
	})
	for _, name := range slices.Sorted(maps.Keys(now)) {
		figures, s := now[name], b.series[name]
		if s == nil {
			s = &counterSeries{own: name != otherOwners && b.own < b.bound, last: make([]float64, len(figures))}
			if s.own {
				b.own++
				s.total = make([]float64, len(figures))
			}
			b.series[name] = s
		}
		to := s.total
		if !s.own {
			if b.others == nil {
				b.others = make([]float64, len(figures))
			}
			to = b.others
		}
		for i, f := range figures {
			before := s.last[i]
			if f < before {
				before = 0 // the owner was forgotten meanwhile, and has begun again
			}
			to[i] += f - before
			s.last[i] = f
		}
	}
}

// each calls send with each series' label and figures.
func (b *boundedCounters) each(send func(name string, figures []float64)) {
	for name, s := range b.series {
		if s.own {
			send(name, s.total)
		}
	}
	if b.others != nil {
		send(otherOwners, b.others)
	}
}

var (
	ownerBytesDesc       = desc("owner_bytes_total", "Bytes that the processes of an application, container or unit read from storage and wrote to it, by the kernel's account of each process.", "owner", "direction")
	ownerBlockDelayDesc  = desc("owner_block_delay_seconds_total", "Time for which their threads waited for block I/O; missing while the kernel does not count it.", "owner")
	ownerRunDelayDesc    = desc("owner_run_delay_seconds_total", "Time for which their threads waited for a CPU.", "owner")
	ownerLatencyDesc     = desc("owner_latency_seconds", "Latency of the device's requests from issue to completion, by the owner of the cgroup that the kernel charges.", "device", "owner", "direction")
	connectionsOwnerDesc = desc("application_connections", "Established connections between DataNodes of this machine and an application.", "application")
)

// ownerMetrics are the metrics by owner. They must not be collected concurrently.
type ownerMetrics struct {
	processes *boundedCounters
	latencies map[string]*boundedCounters // by device
}

func newOwnerMetrics() *ownerMetrics {
	return &ownerMetrics{processes: newBoundedCounters(maxOwnerSeries), latencies: map[string]*boundedCounters{}}
}

// ownerLabel returns the label value of an owner: the application if it is known, since an application
// has many containers.
func ownerLabel(names *orchestrators.Directory, flow string, o owner.Owner) string {
	application := cmp.Or(o.Application, names.Application(o))
	if o.Delegated {
		application = ""
	}
	return cmp.Or(flow, application, o.String())
}

func (m *ownerMetrics) collect(d *Daemon, out chan<- prometheus.Metric) {
	if d.processes.Watch != nil {
		m.collectProcesses(d, out)
	}
	m.collectLatencies(d, out)
	byApplication := d.connections.ByFlow()
	for name, n := range boundedGauges(byApplication, maxConnectionSeries) {
		out <- prometheus.MustNewConstMetric(connectionsOwnerDesc, prometheus.GaugeValue, float64(n), name)
	}
}

func (m *ownerMetrics) collectProcesses(d *Daemon, out chan<- prometheus.Metric) {
	now := map[string][]float64{}
	all := d.processes.Snapshot(math.MaxInt)
	for _, s := range all.Sums {
		label := ownerLabel(d.orchestrators, s.Flow, s.Owner)
		figures := now[label]
		if figures == nil {
			figures = make([]float64, 4)
			now[label] = figures
		}
		for i, f := range []float64{float64(s.Read), float64(s.Written), s.BlockDelay.Seconds(), s.RunDelay.Seconds()} {
			figures[i] += f
		}
	}
	m.processes.take(now)
	count := func(desc *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, v, labels...)
	}
	m.processes.each(func(name string, f []float64) {
		count(ownerBytesDesc, f[0], name, "read")
		count(ownerBytesDesc, f[1], name, "write")
		if all.Accounting {
			count(ownerBlockDelayDesc, f[2], name)
		}
		count(ownerRunDelayDesc, f[3], name)
	})
}

// bucketsApart is the number of a histogram's buckets that a bucket of the metric has: two octaves.
const bucketsApart = 8

func (m *ownerMetrics) collectLatencies(d *Daemon, out chan<- prometheus.Metric) {
	now := map[string]map[string][]float64{}
	d.users.deviceLatencies(func(device string, l *blockio.Latency) {
		if now[device] == nil {
			now[device] = map[string][]float64{}
		}
		label := cmp.Or(l.Group.Name, ownerLabel(d.orchestrators, "", l.Group.Owner))
		row := now[device][label]
		if row == nil {
			row = make([]float64, 2*(blockio.Buckets+1))
			now[device][label] = row
		}
		for direction := range l.Total {
			part := row[direction*(blockio.Buckets+1):]
			for i, n := range l.Total[direction].Counts {
				part[i] += float64(n)
			}
			part[blockio.Buckets] += l.Total[direction].Time.Seconds()
		}
	})
	for device, owners := range now {
		if m.latencies[device] == nil {
			m.latencies[device] = newBoundedCounters(maxLatencySeries)
		}
		m.latencies[device].take(owners)
	}
	maps.DeleteFunc(m.latencies, func(device string, _ *boundedCounters) bool { return now[device] == nil })
	for device, counters := range m.latencies {
		counters.each(func(name string, row []float64) {
			for i, direction := range []string{"read", "write"} {
				out <- latencyHistogram(row[i*(blockio.Buckets+1):][:blockio.Buckets+1], device, name, direction)
			}
		})
	}
}

// latencyHistogram returns a histogram from the counts of all buckets, followed by the sum in seconds.
func latencyHistogram(row []float64, labels ...string) prometheus.Metric {
	buckets, n := map[float64]uint64{}, uint64(0)
	for i, count := range row[:blockio.Buckets] {
		if n += uint64(count); i%bucketsApart == 0 && i < blockio.Buckets-1 {
			buckets[blockio.Below(i).Seconds()] = n
		}
	}
	return prometheus.MustNewConstHistogram(ownerLatencyDesc, n, row[blockio.Buckets], buckets, labels...)
}

// boundedGauges returns the largest values, and the sum of the others under one label.
func boundedGauges(all map[string]int, bound int) map[string]int {
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b)) })
	bounded := map[string]int{}
	for i, name := range names {
		if i >= bound {
			bounded[otherOwners] += all[name]
			continue
		}
		bounded[cmp.Or(name, noApplication)] += all[name]
	}
	return bounded
}
