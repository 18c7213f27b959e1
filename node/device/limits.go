package device

import (
	"container/heap"
	"time"

	"penstock/core/limit"
	"penstock/core/sfq"
)

// Limits. What a limited flow has ready stays ready, but the scheduler is told of
// it only as fast as the limit lets: for the scheduler the flow has nothing queued
// in between, and nobody waits for it.
//
// The scheduler knows of a few requests at a time and not of one: where the device
// is shared, a request stands in the queue for a while, and meanwhile the next
// ones fall due. Without room for them a flow whose share is above its limit would
// not reach the limit.

const (
	maxOffered  = 8 // requests of a limited flow that the scheduler knows of
	limitCredit = 10 * time.Millisecond
	limitDebt   = 10 * time.Second // under the least MaxWait that is of use; see core/limit

	// A limited flow's quantum is what its limit gives in this time, so that the
	// rate holds over seconds. It still makes the disk seek ten times a second only.
	limitQuantum = 100 * time.Millisecond

	// What a limited flow may have as backlog is what its limit drains in this
	// time, else the kernel would write it out by itself.
	limitBacklog = 2 * time.Second
)

// MinLimit is the least limit, in bytes a second. A stream is let through after
// MaxWait whatever the limit says, so less would not be kept.
const MinLimit = 64 << 10

// offer is a request that the scheduler knows of. Which of the flow's ready
// requests it stands for is open until it is dispatched.
type offer struct {
	handle sfq.Handle
	bytes  int64 // taken from the flow's limit for it
}

// offer tells the scheduler of the flow's ready requests, as many as its limit
// lets.
func (l *Loop) offer(f *flow, now time.Time) {
	for len(f.offers) < len(f.ready) {
		r := f.ready[len(f.offers)]
		o := offer{}
		if f.limit != nil {
			if len(f.offers) >= maxOffered {
				return // asked again when one is dispatched
			}
			if wait := f.limit.Take(l.clock(now), r.length); wait > 0 {
				l.hold(f, now.Add(wait))
				return
			}
			o.bytes = r.length
		}
		h, err := l.sched.Submit(f.id, r.cost, 0)
		if err != nil { // ready is bounded as the scheduler's queue is: a fault of ours
			l.fault("submit", err)
			l.chargeLimit(f, now, -o.bytes)
			return
		}
		o.handle = h
		if len(f.offers) == 0 {
			f.asked = now
		}
		f.offers = append(f.offers, o)
	}
}

// retract cancels offers that no ready request stands behind any more, the newest
// first.
func (l *Loop) retract(f *flow, now time.Time) {
	l.withdraw(f, len(f.ready), now)
	l.offer(f, now)
}

// withdraw cancels offers until so many are left, the newest first.
func (l *Loop) withdraw(f *flow, left int, now time.Time) {
	for len(f.offers) > left {
		last := len(f.offers) - 1
		o := f.offers[last]
		f.offers = f.offers[:last]
		l.chargeLimit(f, now, -o.bytes)
		if err := l.sched.Cancel(o.handle); err != nil {
			l.fault("cancel", err)
		}
	}
	f.asks(now)
}

// chargeLimit books bytes that went past the flow's limit, or gives back what
// was taken and not used.
func (l *Loop) chargeLimit(f *flow, now time.Time, bytes int64) {
	if f.limit != nil && bytes != 0 {
		f.limit.Charge(l.clock(now), bytes)
	}
}

// correctLimit settles what was taken for a request with what it really moved.
// One that was dispatched before there was a limit is not counted.
func (l *Loop) correctLimit(r *request, bytes int64, now time.Time) {
	if r.taken == 0 || r.taken == bytes {
		return
	}
	l.chargeLimit(r.flow, now, bytes-r.taken)
	l.offer(r.flow, now)
}

// hold has the flow asked again at a time.
func (l *Loop) hold(f *flow, at time.Time) {
	f.due = at
	if f.held {
		heap.Fix(&l.held, f.heldAt)
		return
	}
	f.limitWaits++
	heap.Push(&l.held, f)
}

// offerDue asks for the flows whose time has come.
func (l *Loop) offerDue(now time.Time) {
	for len(l.held) > 0 && !l.held[0].due.After(now) {
		l.offer(heap.Pop(&l.held).(*flow), now)
	}
}

// setRule puts the flow's rule in force.
func (l *Loop) setRule(f *flow, rule Rule, now time.Time) {
	f.rule = rule
	switch {
	case rule.Limit <= 0:
		f.limit = nil
	case f.limit == nil:
		b, err := limit.New(limit.Config{Rate: max(rule.Limit, MinLimit), Credit: limitCredit, Debt: limitDebt})
		if err != nil {
			l.fault("limit of "+f.name, err)
			return
		}
		l.withdraw(f, 0, now) // what was offered without a limit may be seconds of the device
		f.limit = b
	default:
		if err := f.limit.SetRate(l.clock(now), max(rule.Limit, MinLimit)); err != nil {
			l.fault("limit of "+f.name, err)
		}
	}
	if f.held {
		heap.Remove(&l.held, f.heldAt)
	}
	l.offer(f, now)
}

// quantum is the bytes of one of the flow's requests.
func (l *Loop) quantum(f *flow) int64 {
	if f.limit == nil {
		return l.cfg.Quantum
	}
	n := int64(limitQuantum.Seconds() * float64(f.limit.Rate()))
	return min(l.cfg.Quantum, max(minQuantum, n/pageBytes*pageBytes))
}

// clock is the time of the core's packages.
func (l *Loop) clock(now time.Time) time.Duration { return now.Sub(l.costs.epoch) }

// setAlarm wakes the loop when it next has something to do that no event brings:
// the limits' times, the pace of a device with a rate, and the end of a wait for a flow.
func (l *Loop) setAlarm(now time.Time) {
	var at time.Time
	if len(l.held) > 0 {
		at = l.held[0].due
	}
	for _, other := range []time.Time{l.paced, l.expect.until} {
		if !other.IsZero() && (at.IsZero() || other.Before(at)) {
			at = other
		}
	}
	if at.Equal(l.alarmAt) {
		return
	}
	if l.alarmAt = at; at.IsZero() {
		l.alarm.Stop()
	} else {
		l.alarm.Reset(at.Sub(now))
	}
}

// heldFlows are the flows that wait for their limit, the first one first.
type heldFlows []*flow

func (h heldFlows) Len() int           { return len(h) }
func (h heldFlows) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h heldFlows) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heldAt, h[j].heldAt = i, j
}

// Push implements heap.Interface.
func (h *heldFlows) Push(x any) {
	f := x.(*flow)
	f.held, f.heldAt = true, len(*h)
	*h = append(*h, f)
}

// Pop implements heap.Interface.
func (h *heldFlows) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	f.held = false
	return f
}
