package device

import (
	"time"

	"penstock/core/sfq"
)

// Expected flows. One that reads a block or a column after the other, each a stream of
// its own, has nothing queued in between, for the milliseconds in which it thinks. A
// scheduler that never idles then gives the device to others, and what comes back meets
// their quanta: at a weight of 100:1 one that thinks for 5 ms between its reads makes 54
// of them in 20 s of a modelled disk's virtual time, and 890 where the device waits
// (expect_test.go; "deceptive idleness": Iyer and Druschel, Anticipatory scheduling, SOSP 2001, sections 2 and 3). IBIS, section 4, is such a
// scheduler. So for a flow that mostly comes back at once, and has at least twice the
// weight of all who wait together, half of D is kept, and when nothing is at the device
// it waits for it for a moment. The scheduler counts the wait as service to the flow, so
// it cannot take more than its share with it; the account of service does not.

const (
	keepSlots   = recently / 4 // for a flow that has just been there
	idlePart    = 8            // of a quantum's time is waited
	leastIdle   = time.Millisecond
	mostIdle    = 25 * time.Millisecond
	soonGain    = 0.2 // of a return, in the average
	mostlySoon  = 0.5 // part of returns that have to come in time
	outweighing = 2   // times the weight of those who wait
)

// expectation is a wait of the device for a flow.
type expectation struct {
	flow  *flow // nil: none
	since time.Time
	until time.Time
}

// soonBack tells whether slots may be kept for the flow: it mostly comes back at once,
// and could use them.
func (l *Loop) soonBack(f *flow) bool {
	return f.soon >= mostlySoon && f.limit == nil && l.modeOf(f) == Enforce
}

// expected tells whether a flow is that outweighs all who wait and has nothing queued,
// and until when the device is to wait for one: the zero time, if for none.
func (l *Loop) expected(now time.Time) (keep bool, idle *flow, until time.Time) {
	if l.control == nil || l.stock.soon == 0 || l.sched.Waiting() == 0 {
		return false, nil, time.Time{}
	}
	waits := 0
	for _, f := range l.stock.recent {
		if len(f.ready) > 0 {
			waits += f.weight
		}
	}
	window := l.idleFor()
	for _, f := range l.stock.recent {
		if len(f.ready) > 0 || !l.soonBack(f) || !l.outweighs(f, waits) { // the last asks all who wait
			continue
		}
		keep = keep || f.inFlight > 0 || now.Sub(f.used) < keepSlots
		if end := f.used.Add(window); f.inFlight == 0 && now.Before(end) && end.After(until) {
			idle, until = f, end
		}
	}
	return keep, idle, until
}

// slots is how many requests may be at the device now: D, or half of it while a flow is
// expected, or none while the device waits for it.
func (l *Loop) slots(now time.Time) int {
	depth := l.sched.Depth()
	keep, idle, until := l.expected(now)
	if l.sched.Outstanding() > 0 {
		idle = nil
	}
	if l.expect.flow != nil && l.expect.flow != idle {
		l.endIdle(now)
	}
	switch {
	case idle != nil:
		if l.expect.flow == nil {
			l.expect = expectation{flow: idle, since: now}
		}
		l.expect.until = until
		return 0
	case keep:
		return max(1, depth/2)
	}
	return depth
}

// endIdle charges the device's wait to the flow that it was for.
func (l *Loop) endIdle(now time.Time) {
	e := l.expect
	l.expect = expectation{}
	if waited := now.Sub(e.since); waited > 0 && l.byID[e.flow.id] == e.flow {
		l.charge(e.flow, l.costs.tag(waited))
	}
}

// tag is what a time of the device is in the scheduler's units.
func (c *costs) tag(d time.Duration) int64 {
	return max(1, int64(min(float64(sfq.MaxCost), float64(d)/c.tracker.Scale(false)*c.tracker.Tilt(false))))
}

// idleFor is how long the device waits for a flow: a part of what a quantum of
// somebody else would take; 0 on a device that is too fast for that.
func (l *Loop) idleFor() time.Duration {
	d := time.Duration(l.costs.price(false, true, l.cfg.Quantum).service) / idlePart
	if d < leastIdle {
		return 0
	}
	return min(d, mostIdle)
}

// arrives notes that a flow has a request, and whether it came back soon if it had none.
func (l *Loop) arrives(r *request, now time.Time) {
	f := r.stream.flow
	if !f.listed {
		f.listed = true
		l.stock.recent = append(l.stock.recent, f)
	}
	if l.control == nil || r.write || f.used.IsZero() || len(f.ready) > 0 || f.inFlight > 0 {
		return
	}
	was, soon := f.soon, 0.0
	if now.Sub(f.used) < l.idleFor() {
		soon = 1
	}
	f.soon += soonGain * (soon - f.soon)
	if was < mostlySoon && f.soon >= mostlySoon {
		l.stock.soon++
	}
}
