package device

import (
	"slices"
	"strings"
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
)

// Snapshot is the loop's state at one moment, for metrics.
type Snapshot struct {
	Device      string
	Algorithm   string
	Depth       int
	Outstanding int
	Backlog     int64 // bytes, all flows
	Stuck       bool
	Errors      int64
	Control     *depth.Report // nil but for sfqd2
	Slow        cost.Verdict  // whether the device has become slow
	Scale       [2]float64    // what the model's costs of reads and writes are multiplied with
	Flows       []FlowSnapshot
}

// FlowSnapshot is one flow's account. Byte counts grow only.
type FlowSnapshot struct {
	Name      string
	Weight    int
	Part      float64       // of what all devices of the cluster give, on the scale of weights; 0: none
	Queue     string        // that Weight counts in; empty: none
	Among     float64       // the weight as if there were no queues, of those at work; 0: no queues are in force
	Wanted    time.Duration // how long something waited for the scheduler
	Mode      Mode
	Limit     int64 // bytes a second; 0: none
	Streams   int   // open
	Queued    int
	Backlog   int64          // bytes
	Kinds     []KindSnapshot // those that it has had streams of
	Bytes     [2]int64       // read, written by the device
	Resident  int64          // bytes read that needed no device
	Behind    int64          // bytes of Bytes that the kernel moved unscheduled
	Service   time.Duration  // of the device's time
	Requests  int64
	Waits     int64
	Forced    int64
	WouldWait time.Duration

	LimitWaits   int64 // requests that waited for the limit
	Kept         int   // closed files of kind intermediate that wait to be deleted or drained
	Dropped      int64 // of them, deleted before they were drained
	DroppedBytes int64
}

// Entitled is the weight in force: the flow's part, or its rule's weight where it has none, and
// then as if there were no queues.
func (f FlowSnapshot) Entitled() float64 {
	switch {
	case f.Part > 0:
		return f.Part
	case f.Among > 0:
		return f.Among
	}
	return float64(f.Weight)
}

// Snapshot asks the loop; ok is false when it has ended.
func (l *Loop) Snapshot() (snap Snapshot, ok bool) {
	reply := make(chan Snapshot, 1)
	if !l.send(event{kind: evCall, call: func() { reply <- l.snapshot() }}) {
		return Snapshot{}, false
	}
	select {
	case snap = <-reply:
		return snap, true
	case <-l.ended:
		return Snapshot{}, false
	}
}

func (l *Loop) snapshot() Snapshot {
	snap := Snapshot{
		Device: l.Name, Algorithm: l.cfg.Algorithm,
		Depth: l.sched.Depth(), Outstanding: l.sched.Outstanding(),
		Backlog: l.backlog, Stuck: l.stuck, Errors: l.errors,
		Slow: l.costs.verdict, Scale: [2]float64{l.costs.tracker.Scale(false), l.costs.tracker.Scale(true)},
	}
	if l.control != nil {
		r := l.control.Report()
		snap.Control = &r
	}
	for _, f := range l.flows {
		flow := FlowSnapshot{
			Name: f.name, Weight: f.rule.Weight, Part: f.part, Queue: f.rule.Queue.Name(), Wanted: f.wantedBy(time.Now()), Mode: l.modeOf(f), Limit: f.rule.Limit, Streams: f.streams - f.kept,
			Queued: len(f.ready), Backlog: f.backlog, Kinds: f.snapshotKinds(), Resident: f.resident,
			Behind: f.behind, Requests: f.requests,
			Waits: f.waits, Forced: f.forced, WouldWait: f.wouldWait,
			LimitWaits: f.limitWaits, Kept: f.kept, Dropped: f.dropped, DroppedBytes: f.droppedBytes,
		}
		if l.queued > 0 {
			flow.Among = f.among
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
