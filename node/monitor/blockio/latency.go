package blockio

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"penstock/bpf"
	"penstock/node/monitor/owner"
)

const (
	maxLatencies   = 1024 // cgroups, of all devices together, as in bpf/blockio.c
	manyLatencies  = maxLatencies * 3 / 4
	maxLatencySums = 1024 // owners, of all devices together, without those of Others
	ownCgroup      = 1<<64 - 1
)

// Groups of requests without an owner of their own, by Group.Name.
const (
	Daemon = "penstock"             // this process, which stages and drains for applications
	Nobody = "no container or unit" // kernel threads, the root cgroup, and cgroups that are not recognised
	Others = "others"               // beyond the bounds
)

// usersCgroups is the owner of all cgroups that users and containers have made: they may make any number.
// Package processes has the same group.
var usersCgroups = owner.Owner{Kind: owner.Unit, ID: "cgroups of users and containers"}

// Group is whose requests are counted together: an owner, or else one of the names above.
type Group struct {
	Owner owner.Owner
	Name  string
}

// String returns a short name for people.
func (g Group) String() string { return cmp.Or(g.Name, g.Owner.String()) }

// Latency has the latencies of a group's requests on one device; read, written.
type Latency struct {
	Device uint32
	Group  Group
	Total  [2]Histogram // since the group appeared
	Window [2]Histogram // of Total, those since the call before
}

// latencies adds up what the kernel counts for each cgroup.
type latencies struct {
	keys   []bpf.BlockioLatencyKey
	values []bpf.BlockioLatencyCount
	taken  map[bpf.BlockioLatencyKey]*takenLatency
	sums   map[latencyID]*Latency
	others map[uint32]*takenLatency // by device
}

type latencyID struct {
	device uint32
	group  Group
}

// takenLatency is the part of an entry that is in the sums.
type takenLatency struct {
	counts [2]Histogram
	at     time.Time // of its last change
	group  Group     // of its cgroup
	sure   bool      // the group is final
}

func newLatencies() latencies {
	return latencies{
		keys: make([]bpf.BlockioLatencyKey, maxLatencies), values: make([]bpf.BlockioLatencyCount, maxLatencies),
		taken: map[bpf.BlockioLatencyKey]*takenLatency{}, sums: map[latencyID]*Latency{}, others: map[uint32]*takenLatency{},
	}
}

// Latencies returns the latencies of all groups on all devices, sorted by their requests in the
// window, the largest number first. A window begins at the call before.
func (w *Watch) Latencies() ([]Latency, error) { return w.readLatencies(time.Now()) }

func (w *Watch) readLatencies(now time.Time) ([]Latency, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &w.latencies
	for _, sum := range l.sums {
		sum.Window = [2]Histogram{}
	}
	if err := w.takeOthers(); err != nil {
		return nil, err
	}
	if err := w.takeCgroups(now); err != nil {
		return nil, err
	}
	type entry struct {
		window, total int64 // requests
		name          string
		*Latency
	}
	requests := func(h *[2]Histogram) int64 { return h[0].Requests() + h[1].Requests() }
	order := make([]entry, 0, len(l.sums))
	for _, sum := range l.sums {
		order = append(order, entry{requests(&sum.Window), requests(&sum.Total), sum.Group.String(), sum})
	}
	slices.SortFunc(order, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.window, a.window), cmp.Compare(b.total, a.total), cmp.Compare(a.Device, b.Device), cmp.Compare(a.name, b.name))
	})
	all := make([]Latency, len(order))
	for i, e := range order {
		all[i] = *e.Latency
	}
	return all, nil
}

// takeOthers adds what the kernel has counted for cgroups beyond its bound.
func (w *Watch) takeOthers() error {
	l := &w.latencies
	var device uint32
	var value bpf.BlockioLatencyCount
	all := w.objects.OtherLatencies.Iterate()
	for all.Next(&device, &value) {
		past := l.others[device]
		if past == nil {
			past = &takenLatency{}
			l.others[device] = past
		}
		if more := past.take(&value); more != [2]Histogram{} {
			l.add(latencyID{device, Group{Name: Others}}, &more)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read the latencies of devices: %w", err)
	}
	return nil
}

// takeCgroups adds what the kernel has counted for each cgroup. Like users, an entry is dropped when
// it is idle; a group is forgotten with the last of its entries.
func (w *Watch) takeCgroups(now time.Time) error {
	l := &w.latencies
	var cursor ebpf.MapBatchCursor
	n, err := w.objects.Latencies.BatchLookup(&cursor, l.keys, l.values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("read the latencies of devices: %w", err)
	}
	known := make(map[bpf.BlockioLatencyKey]*takenLatency, n)
	living := make(map[latencyID]bool, n)
	for i, k := range l.keys[:n] {
		past := l.taken[k]
		if past == nil {
			past = &takenLatency{at: now}
		}
		if !past.sure {
			past.group, past.sure = w.groupOf(k.Cgroup, now)
		}
		group, sure := past.group, past.sure
		id := latencyID{uint32(k.Device), group}
		// Latencies of an unknown cgroup wait for the next walk of the hierarchy.
		if sure {
			if more := past.take(&l.values[i]); more != [2]Histogram{} {
				past.at = now
				l.add(id, &more)
			}
		}
		if idle := now.Sub(past.at); idle >= forget || n >= manyLatencies && idle >= forgetAt {
			var last bpf.BlockioLatencyCount
			err := w.objects.Latencies.LookupAndDelete(k, &last)
			if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("forget latencies of a cgroup: %w", err)
			}
			if more := past.take(&last); err == nil && more != [2]Histogram{} {
				l.add(id, &more)
				living[id] = true
			}
			continue
		}
		known[k], living[id] = past, true
	}
	l.taken = known
	for id := range l.sums {
		if id.group.Name != Others && !living[id] {
			delete(l.sums, id)
		}
	}
	return nil
}

// take returns what an entry has counted since the call before.
func (t *takenLatency) take(v *bpf.BlockioLatencyCount) (more [2]Histogram) {
	if v.TimeNs == [2]uint64{uint64(t.counts[0].Time), uint64(t.counts[1].Time)} {
		// Most owners are idle. A request that the kernel has not counted yet comes with the next one.
		return more
	}
	for i, counts := range [2]*[Buckets]uint64{&v.Reads, &v.Writes} {
		h := Histogram{Counts: *counts, Time: time.Duration(v.TimeNs[i])}
		more[i] = h.since(&t.counts[i])
		t.counts[i].add(&more[i])
	}
	return more
}

// add adds requests to a group, or to Others if there are too many groups.
func (l *latencies) add(id latencyID, more *[2]Histogram) {
	sum := l.sums[id]
	if sum == nil {
		if id.group.Name != Others && len(l.sums) >= maxLatencySums {
			l.add(latencyID{id.device, Group{Name: Others}}, more)
			return
		}
		sum = &Latency{Device: id.device, Group: id.group}
		l.sums[id] = sum
	}
	for i := range more {
		sum.Total[i].add(&more[i])
		sum.Window[i].add(&more[i])
	}
}

// groupOf returns the group of a cgroup. sure is false if a later call may return another one,
// because the cgroup is not known yet.
func (w *Watch) groupOf(cgroup uint64, now time.Time) (g Group, sure bool) {
	if cgroup == ownCgroup {
		return Group{Name: Daemon}, true
	}
	path := w.cgroups.path(cgroup, now)
	sure = path != "" || cgroup == 0 || w.cgroups.root == "" || w.cgroups.walked.Equal(now)
	switch o := owner.Of(path); {
	case o.Kind == owner.None:
		return Group{Name: Nobody}, sure
	case o.Delegated:
		return Group{Owner: usersCgroups}, sure
	default:
		return Group{Owner: o}, sure
	}
}
