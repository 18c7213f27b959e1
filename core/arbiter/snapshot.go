package arbiter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/foreign"
	"penstock/core/reserve"
)

// Snapshot is the state at one moment, for metrics and status.
type Snapshot struct {
	Algorithm   string
	Depth       int
	Outstanding int
	Backlog     int64   // bytes of all flows
	Staged      int64   // bytes staged ahead of readers
	Rate        float64 // the device's recent bytes per second while it had requests
	Stuck       bool
	Free        bool  // small reads do not wait
	Passed      int64 // small reads so far that did not wait
	// Guaranteeable is the rate up to which parts of rates of whole applications are admitted beside the guaranteed rates of this device, in bytes
	// per second; 0: not known.
	Guaranteeable int64
	StrictPart    float64       // of the device's time, that strict rates keep from other flows
	StrictIdle    time.Duration // for which the device had no request because of strict rates, while a flow was backlogged
	Errors        int64
	Control       *depth.Report  // nil if the depth is fixed
	Slow          cost.Verdict   // whether the device has become slow
	Scale         [2]float64     // factors of the model's costs for reads and writes
	Others        foreign.Result // recent foreign I/O
	Flows         []FlowSnapshot
}

// KindSnapshot is a flow's account of one kind. Counts only grow.
type KindSnapshot struct {
	Kind     Kind
	Streamed [2]int64      // bytes that streams have read and written, including reads from the page cache
	Remote   int64         // of these, bytes of streams from or to another machine
	Bytes    [2]int64      // bytes that the device has read and written
	Service  time.Duration // device time
}

// FlowSnapshot is one flow's account. Byte counts only grow.
type FlowSnapshot struct {
	Name      string
	Weight    int
	Part      float64       // the part that replaces Weight; 0 if there is none
	Queue     string        // the flow's queue; empty for the root
	Queues    []string      // paths of the queues from the root to Queue
	Entitled  float64       // weight that would give the flow the same share among the flows at work if there were no queues
	Wanted    time.Duration // total time with a backlog
	Mode      Mode
	Limit     int64 // bytes per second; 0 if there is none
	Reserve   ReserveSnapshot
	Latency   LatencySnapshot
	Streams   int            // open streams
	Queued    int            // streams with a queued request
	Waiting   int            // writers that wait for a lease
	Backlog   int64          // bytes
	Kinds     []KindSnapshot // kinds of the flow's streams so far
	Bytes     [2]int64       // bytes that the device has read and written
	Resident  int64          // bytes read that needed no device I/O
	Behind    int64          // part of Bytes that the kernel moved outside of the schedule
	Service   time.Duration  // device time
	Requests  int64
	Waits     int64
	Forced    int64 // forced packets
	WouldWait time.Duration
	Stalls    Waits // how long streams waited, and the device was contended

	ForcedBytes  int64
	Standing     int   // streams at their marks or, in observe mode, beyond them
	Refused      int64 // operations refused because too many streams of the flow waited
	LimitWaits   int64 // number of waits for the limit
	Lazy         int64 // deferred bytes
	Kept         int   // closed files with deferred bytes
	Dropped      int64 // files deleted before they were drained
	DroppedBytes int64
}

// ReserveSnapshot is the account of a flow's reservation. Counts only grow.
type ReserveSnapshot struct {
	reserve.Rate
	Promised float64 // part of the device's time that the reservation takes at the device's present speed
	Verdict  reserve.Verdict
	Moved    int64         // bytes of reserved requests
	Kept     time.Duration // time in which the flow was backlogged and had its rate
	Broken   time.Duration // time in which reserved service was overdue by more than a bound
}

// Snapshot returns the state.
func (a *Arbiter) Snapshot(now time.Duration) Snapshot {
	p := &a.pricing
	snap := Snapshot{
		Algorithm: a.cfg.Algorithm, Depth: a.depth, Outstanding: len(a.running),
		Backlog: a.backlog.all, Staged: a.staged, Rate: a.backlog.rate(), Stuck: a.stuck, Errors: a.faults.count,
		Slow: p.verdict, Scale: [2]float64{p.tracker.Scale(false), p.tracker.Scale(true)}, Others: p.others,
		Flows: make([]FlowSnapshot, 0, len(a.all)),
	}
	snap.StrictPart, snap.StrictIdle = a.strict.part, a.strict.idle
	snap.Guaranteeable = a.guaranteeable()
	snap.Free, snap.Passed = a.free.is, a.free.reads
	if a.strict.since > 0 {
		snap.StrictIdle += now - a.strict.since
	}
	if a.control != nil {
		r := a.control.Report()
		snap.Control = &r
	}
	for _, f := range a.all {
		flow := FlowSnapshot{
			Name: f.name, Weight: f.rule.Weight, Part: a.tree.parts.Flows[f.name], Queue: f.rule.Queue.Name(),
			Entitled: f.leaf.entitled, Wanted: f.readyTimeAt(now), Mode: a.modeOf(f), Limit: f.rule.Limit,
			Streams: f.streams - f.kept, Queued: f.ready.len(), Waiting: f.users.parked, Backlog: f.backlog,
			Kinds: f.snapshotKinds(), Resident: f.resident, Behind: f.unscheduled, Requests: f.requests,
			Waits: f.waits, Forced: f.forced, ForcedBytes: f.forcedBytes, WouldWait: f.wouldWait,
			Standing: f.stalled, Refused: f.refused, LimitWaits: f.limitWaits, Lazy: f.deferred, Kept: f.kept, Dropped: f.dropped, DroppedBytes: f.droppedBytes,
		}
		if v := &f.reserve; v.clock != nil && !(a.cfg.Network && a.cfg.Rate == 0) { // such a device is only observed
			flow.Reserve = ReserveSnapshot{Rate: v.rule, Promised: a.promised(f, now), Verdict: v.verdict, Moved: v.bytes, Kept: v.kept, Broken: v.broken}
		}
		flow.Latency = a.latencySnapshot(f, now)
		flow.Stalls = a.waitsOf(f, now)
		if q := f.rule.Queue; q != nil {
			flow.Queues = q.paths
		}
		for _, k := range flow.Kinds {
			flow.Bytes[0] += k.Bytes[0]
			flow.Bytes[1] += k.Bytes[1]
			flow.Service += k.Service
		}
		snap.Flows = append(snap.Flows, flow)
	}
	slices.SortFunc(snap.Flows, func(a, b FlowSnapshot) int { return strings.Compare(a.Name, b.Name) })
	return snap
}

// Use returns the device time that a flow has received so far, and its total time with a backlog.
// Both are 0 if there is no such flow.
func (a *Arbiter) Use(now time.Duration, flow string) (service, wanted time.Duration) {
	f := a.flows[flow]
	if f == nil {
		return 0, 0
	}
	for k := range f.kinds {
		service += time.Duration(f.kinds[k].service)
	}
	return service, f.readyTimeAt(now)
}

// snapshotKinds returns the accounts of the kinds of the flow's streams so far.
func (f *flow) snapshotKinds() (all []KindSnapshot) {
	for k, acc := range f.kinds {
		if acc.opened > 0 || acc.streamed != [2]int64{} {
			all = append(all, KindSnapshot{Kind: Kind(k), Streamed: acc.streamed, Remote: acc.remote, Bytes: acc.bytes, Service: time.Duration(acc.service)})
		}
	}
	return all
}

// Held describes the resources held for streams. It is empty if no stream is open or waits to be
// drained. Tests check that at their end.
func (a *Arbiter) Held() string {
	var b strings.Builder
	if a.backlog.all != 0 || a.backlog.writing != 0 || a.backlog.kept != 0 || a.staged != 0 || len(a.streams) != 0 || len(a.running) != 0 || a.forced.waiting.len() != 0 || a.anticipation.ready != 0 {
		fmt.Fprintf(&b, "backlog %d, %d flows that write, %d kept, staged %d, %d streams, %d running, %d with deadlines, %d flows ready\n",
			a.backlog.all, a.backlog.writing, a.backlog.kept, a.staged, len(a.streams), len(a.running), a.forced.waiting.len(), a.anticipation.ready)
	}
	for _, f := range a.all {
		if f.backlog != 0 || f.deferred != 0 || f.kept != 0 || f.streams != 0 || f.inFlight != 0 || f.writing != 0 || f.reading != 0 || f.stalled != 0 || f.writers != 0 || f.ready.len() != 0 || f.users.parked != 0 || len(f.users.byName) != 0 || f.tails.len() != 0 || f.deferredQueue.len() != 0 {
			fmt.Fprintf(&b, "%s: backlog %d, lazy %d, kept %d, %d streams, %d in flight, %d writers, %d of them open, %d ready, %d parked, %d tails, %d spilled\n",
				f.name, f.backlog, f.deferred, f.kept, f.streams, f.inFlight, f.writers, f.writing, f.ready.len(), f.users.parked, f.tails.len(), f.deferredQueue.len())
		}
	}
	return b.String()
}
