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
	Mode      Mode
	Streams   int
	Queued    int
	Backlog   int64         // bytes
	Bytes     [2]int64      // read, written by the device
	Resident  int64         // bytes read that needed no device
	Behind    int64         // bytes of Bytes that the kernel moved unscheduled
	Service   time.Duration // of the device's time
	Requests  int64
	Waits     int64
	Forced    int64
	WouldWait time.Duration
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
		snap.Flows = append(snap.Flows, FlowSnapshot{
			Name: f.name, Weight: f.rule.Weight, Mode: l.modeOf(f), Streams: f.streams,
			Queued: len(f.ready), Backlog: f.backlog, Bytes: f.bytes, Resident: f.resident,
			Behind: f.behind, Service: time.Duration(f.service), Requests: f.requests,
			Waits: f.waits, Forced: f.forced, WouldWait: f.wouldWait,
		})
	}
	slices.SortFunc(snap.Flows, func(a, b FlowSnapshot) int { return strings.Compare(a.Name, b.Name) })
	return snap
}
