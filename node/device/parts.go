package device

import (
	"math"
	"time"

	"penstock/core/sfq"
)

// Parts: what a flow is due here of what all devices of the cluster give, as the broker's
// totals have it (core/coord).

// SetParts puts parts into force, by flow, on the scale of the rules' weights; flows that
// are not named keep their own weight beside them. None takes all back. It waits while the
// loop's queue is full.
func (l *Loop) SetParts(parts Parts) {
	flows := parts.Flows
	if len(parts.Queues) > 0 { // the rules' weights hold in the tree
		flows = nil
	}
	l.send(event{kind: evCall, call: func() { l.setParts(flows) }})
}

func (l *Loop) setParts(parts map[string]float64) {
	l.parts = parts
	for name, f := range l.flows {
		f.part = parts[name]
	}
	l.reweigh()
}

// The scheduler's weights are whole, parts are not. One scale for all on the device makes whole
// numbers of them, so that those who have a part and those who have none can be compared; it is
// as large as the largest of them allows (reweigh). So the largest is above half of sfq.MaxWeight,
// unless all are below 1, and nobody is off by more than two millionths of the
// largest, or of 1 if that is more. A change of scale changes nothing but that: the scheduler keeps what a
// flow is ahead or behind as service. In queues weights are whole as they are, and need none.

// reweigh weighs all flows, on the scale that fits them.
func (l *Loop) reweigh() {
	largest := 0.0
	for _, f := range l.flows {
		if l.wants(f) == nil {
			l.enqueue(f) // out of it: what it weighs among all depends on that
		}
		largest = max(largest, l.top(f))
	}
	l.scale = l.cfg.WeightScale
	for l.scale > 1 && largest > l.largest() {
		l.scale /= 2
	}
	for _, f := range l.flows {
		l.weigh(f)
	}
}

// largest is up to which weight the scale fits.
func (l *Loop) largest() float64 { return sfq.MaxWeight / float64(l.scale) }

// top is what counts of a flow among all: the weight of its topmost queue, or its own.
func (l *Loop) top(f *flow) float64 {
	if q := l.wants(f); q != nil {
		return float64(q.levels[0].Weight)
	}
	return f.entitled()
}

// weigh puts a flow into its queue and gives it the scheduler's weight, its part or its rule's.
func (l *Loop) weigh(f *flow) {
	l.enqueue(f)
	if l.queued == 0 {
		f.among = f.entitled()
	}
	weight := l.whole(f)
	if weight == f.weight {
		return
	}
	f.weight = weight
	if err := l.sched.SetWeight(f.id, weight); err != nil {
		l.fault("set weight of "+f.name, err)
	}
}

func (l *Loop) whole(f *flow) int {
	if f.queue != nil {
		return min(int(f.entitled()), sfq.MaxWeight)
	}
	return int(min(max(math.Round(f.entitled()*float64(l.scale)), 1), sfq.MaxWeight))
}

// entitled is the flow's part, or its rule's weight where it has none: among those of its queue,
// if it is in one.
func (f *flow) entitled() float64 {
	switch q := f.rule.Queue; {
	case f.part > 0:
		return f.part
	case q != nil && f.queue == nil && q.flat > 0:
		return q.flat
	}
	return float64(max(f.rule.Weight, 1))
}

// asks closes the account of a flow that has nothing offered any more.
func (f *flow) asks(now time.Time) {
	if len(f.offers) == 0 && !f.asked.IsZero() {
		f.wanted += now.Sub(f.asked)
		f.asked = time.Time{}
	}
}

// wantedBy is how long, until now, something of the flow was offered to the scheduler.
func (f *flow) wantedBy(now time.Time) time.Duration {
	if f.asked.IsZero() {
		return f.wanted
	}
	return f.wanted + now.Sub(f.asked)
}
