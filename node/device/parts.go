package device

import (
	"time"

	"penstock/core/sfq"
)

// Parts: what a flow is due here of what all devices of the cluster give, as the broker's
// totals have it (core/coord).

// SetParts puts parts into force, by flow, on the scale of the rules' weights; flows that
// are not named keep their own weight beside them. nil takes all back. It waits while the
// loop's queue is full.
func (l *Loop) SetParts(parts map[string]float64) {
	l.send(event{kind: evCall, call: func() {
		l.parts = parts
		for name, f := range l.flows {
			f.part = parts[name]
			l.weigh(f)
		}
	}})
}

// weigh gives a flow the scheduler's weight, its part or its rule's, and puts it into its
// queue. Whole numbers are made of parts by a scale that never changes, so that those who
// have a part and those who have none can be compared.
func (l *Loop) weigh(f *flow) {
	l.enqueue(f)
	weight := l.whole(f)
	if weight == f.weight {
		return
	}
	if f.weight = weight; l.queued == 0 {
		f.among = float64(weight)
	}
	if err := l.sched.SetWeight(f.id, weight); err != nil {
		l.fault("set weight of "+f.name, err)
	}
}

func (l *Loop) whole(f *flow) int {
	return int(min(max(f.entitled()*float64(l.cfg.WeightScale), 1), sfq.MaxWeight))
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
	return float64(f.rule.Weight)
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
