package isolation

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"penstock/lab/contest"
	"penstock/lab/daemon"
	"penstock/lab/experiment/counters"
	"penstock/node/device"
)

// megabyte is the unit of every throughput, in bytes.
const megabyte = contest.Megabyte

// Run is one finished run of one phase, as the journal keeps it. Every figure is over the window in
// which both jobs run. The window lasts from the protected job's start to its end as the
// ResourceManager reports them or, for a query, from the query to its answer.
type Run struct {
	Phase   string    `json:"phase"`
	Number  int       `json:"run"`
	Build   string    `json:"build"` // of penstock
	Started time.Time `json:"started"`

	Protected  string  `json:"protected"`           // application id
	Aggressor  string  `json:"aggressor,omitempty"` // application id, or ids with spaces between them
	RuntimeS   float64 `json:"runtime_s"`           // the window's length: run time of the protected job, or of the aggressor when that runs alone
	ReadBytes  float64 `json:"device_read_bytes"`   // all modelled disks
	WriteBytes float64 `json:"device_write_bytes"`
	DeviceMBps float64 `json:"device_mb_s"`
	DemandMBps float64 `json:"demand_mb_s"` // device MB/s between 5 % and 95 % of the window's bytes

	Depth        *Periods `json:"depth_periods,omitempty"`  // control periods of busy devices in the window
	LatencyP99MS *float64 `json:"request_p99_ms,omitempty"` // of Penstock's requests
	AfterS       float64  `json:"after_s"`                  // from the window's end until the outputs were checked
	// AggressorRuntimeS is the time from the aggressor's start to its end; 0 without Setup.Both.
	AggressorRuntimeS float64          `json:"aggressor_runtime_s,omitempty"`
	AggressorVerdict  *contest.Verdict `json:"aggressor_verdict,omitempty"` // over AggressorRuntimeS, without a series

	Killed   bool             `json:"aggressor_killed,omitempty"` // the aggressor was killed after the window, so its output was not checked
	Series   Series           `json:"series"`                     // for the plots
	Verdict  *contest.Verdict `json:"verdict,omitempty"`          // the independent judge's account
	Warnings []string         `json:"warnings,omitempty"`         // problems short of failure
}

func (r *Run) aggressors() []string { return strings.Fields(r.Aggressor) }

// Series is the run over time, in steps from the window's start.
type Series struct {
	StepSeconds float64              `json:"step_s"`
	Disks       map[string][]float64 `json:"disks_mb_s"` // read + written, MB/s
	Scrapes     []Scrape             `json:"scrapes,omitempty"`
}

// Scrape holds those metrics of one scrape of the daemon that the charts need.
type Scrape struct {
	At          float64            `json:"at_s"`
	Depth       map[string]float64 `json:"depth,omitempty"`
	LatencyMS   map[string]float64 `json:"latency_ms,omitempty"`
	ReferenceMS map[string]float64 `json:"reference_ms,omitempty"`
	FlowBytes   map[string]float64 `json:"flow_bytes,omitempty"` // by flow, all devices, since the daemon started
}

// scrapeSample holds the metrics of one scrape of the daemon, and its time.
type scrapeSample struct {
	at time.Time
	m  daemon.Metrics
}

const seriesStep = time.Second

// measure computes the run's figures from the samples and the window.
func (r *Run) measure(disks counters.Samples, scrapes []scrapeSample, from, to time.Time) {
	r.RuntimeS = to.Sub(from).Seconds()
	moved := disks.Total(from, to)
	r.ReadBytes, r.WriteBytes = moved.Read, moved.Write
	if r.RuntimeS > 0 {
		r.DeviceMBps = moved.Total() / megabyte / r.RuntimeS
	}
	r.Series = Series{StepSeconds: seriesStep.Seconds(), Disks: map[string][]float64{}}
	for _, name := range disks.Names() {
		for t := from; t.Before(to); t = t.Add(seriesStep) {
			step := min(seriesStep, to.Sub(t))
			r.Series.Disks[name] = append(r.Series.Disks[name], contest.Round3(disks.Grown(t, t.Add(step), name).Total()/megabyte/step.Seconds()))
		}
	}
	r.DemandMBps = demand(r.Series)
	r.measureScrapes(scrapes, from, to)
}

// measureScrapes computes the figures that come from the scrapes within the window.
func (r *Run) measureScrapes(scrapes []scrapeSample, from, to time.Time) {
	inside := slices.DeleteFunc(slices.Clone(scrapes), func(s scrapeSample) bool {
		return s.at.Before(from) || s.at.After(to)
	})
	if len(inside) == 0 {
		return
	}
	for _, s := range inside {
		r.Series.Scrapes = append(r.Series.Scrapes, Scrape{At: contest.Round3(s.at.Sub(from).Seconds()),
			Depth:       onDisks(s.m, "device_depth", "device"),
			LatencyMS:   inMillis(onDisks(s.m, "device_latency_seconds", "device")),
			ReferenceMS: inMillis(onDisks(s.m, "device_latency_reference_seconds", "device")),
			FlowBytes:   onDisks(s.m, "flow_bytes_total", "flow")})
	}
	first, last := inside[0].m, inside[len(inside)-1].m
	// The depth of a nearly idle device says nothing about the controller.
	before, moved := onDisks(first, "flow_bytes_total", "device"), onDisks(last, "flow_bytes_total", "device")
	var p Periods
	add := func(m daemon.Metrics, sign float64) {
		m.Each("device_depth_periods_total", func(labels map[string]string, n float64) {
			if d := labels["device"]; onDisk(labels) && moved[d]-before[d] >= busyBytes {
				p.add(labels["at"], sign*n)
			}
		})
	}
	add(last, 1)
	add(first, -1)
	if p.Min+p.Max+p.Between > 0 {
		r.Depth = &p
	}
	const requests = "request_latency_seconds"
	r.LatencyP99MS = ratio(1000*requestQuantile(first.Histogram(requests, onDisk), last.Histogram(requests, onDisk), 0.99), 1)
}

// A device's depth is part of the figures only if the device moves at least busyBytes bytes in the
// window.
const busyBytes = 16 * mib

// onDisk reports whether a metric's series with these labels is about a disk, and not about the
// network.
func onDisk(labels map[string]string) bool { return labels["device"] != device.NetworkName }

// onDisks returns, for each value of a label, the sum of a metric's series with that value. It
// leaves out the network's series. It returns an empty map if the metric is missing. For example,
// with a fixed depth the daemon has no metrics of the controller.
func onDisks(m daemon.Metrics, name, label string) map[string]float64 {
	sums := map[string]float64{}
	m.Each(name, func(labels map[string]string, v float64) {
		if onDisk(labels) {
			sums[labels[label]] += v
		}
	})
	return sums
}

// Periods counts control periods by whether the depth was at a bound.
type Periods struct{ Min, Max, Between float64 }

func (p *Periods) add(at string, n float64) {
	switch at {
	case "min":
		p.Min += n
	case "max":
		p.Max += n
	default:
		p.Between += n
	}
}

// requestQuantile returns the latency in seconds that a part q of the requests between two scrapes
// did not exceed. The result is the upper bound of one of the histogram's buckets. It returns NaN
// if there were no requests, or if the quantile is above the last finite bucket.
func requestQuantile(before, after []daemon.Bucket, q float64) float64 {
	since := slices.Clone(after)
	for _, b := range before {
		for i := range since {
			if since[i].UpTo == b.UpTo {
				since[i].Count -= b.Count
			}
		}
	}
	if len(since) == 0 || since[len(since)-1].Count <= 0 {
		return math.NaN()
	}
	for _, b := range since {
		if b.Count >= q*since[len(since)-1].Count && !math.IsInf(b.UpTo, 1) {
			return b.UpTo
		}
	}
	return math.NaN()
}

// demand returns the device MB/s between the instants at which 5 % and 95 % of the bytes
// were moved, because a job does no I/O at its start and end.
func demand(s Series) float64 {
	total := s.total()
	var sum float64
	for _, v := range total {
		sum += v
	}
	var before, inner float64
	steps := 0
	for _, v := range total {
		if before+v/2 >= 0.05*sum && before+v/2 <= 0.95*sum {
			inner += v
			steps++
		}
		before += v
	}
	if steps == 0 {
		return 0
	}
	return inner / float64(steps)
}

// total returns the MB/s of all disks by step.
func (s Series) total() (sum []float64) {
	for _, name := range slices.Sorted(maps.Keys(s.Disks)) {
		for i, v := range s.Disks[name] {
			if i == len(sum) {
				sum = append(sum, 0)
			}
			sum[i] += v
		}
	}
	return sum
}

// inMillis turns seconds into milliseconds.
func inMillis(seconds map[string]float64) map[string]float64 {
	for k, v := range seconds {
		seconds[k] = contest.Round3(v * 1000)
	}
	return seconds
}

// ratio returns a/b, or nil if a/b is not a finite number, as when a or b was not measured. JSON
// has no NaN.
func ratio(a, b float64) *float64 {
	r := a / b
	if math.IsNaN(r) || math.IsInf(r, 0) {
		return nil
	}
	return &r
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}
