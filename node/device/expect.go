package device

import "time"

// Expected flows. One that reads a block or a column after the other, each a stream of
// its own, has nothing queued in between, for the milliseconds in which it thinks. A
// scheduler that never idles then gives the device to others, and what comes back meets
// their quanta: at a weight of 100:1 a query that thinks for 5 ms after each 10 ms of
// reading waits for 90 ms in between ("deceptive idleness": Iyer and Druschel,
// Anticipatory scheduling, SOSP 2001, sections 2 and 3). IBIS, section 4, is such a
// scheduler. So where the flow has at least twice the weight of all who wait, some of D
// is kept for it, and if it mostly comes back at once the device waits for it. The wait
// is the flow's, as if it had been served, so that it cannot take more than its share.

const (
	keepSlots   = recently / 4     // for a flow that has just been there
	idlePart    = 8                // of a quantum's time is waited
	leastIdle   = time.Millisecond // a device that is faster needs no such thing
	mostIdle    = 25 * time.Millisecond
	soonGain    = 0.2 // of a return, in the average
	mostlySoon  = 0.5 // part of returns that have to come in time
	outweighing = 2   // times the weight of whoever waits
)

// expectation is the idling that is going on.
type expectation struct {
	flow  *flow // nil: none
	since time.Time
	until time.Time
}

// expected is the heaviest flow that has just been served, or is being served and
// mostly comes back at once, has nothing queued, and outweighs all who wait; nil if
// there is none.
func (l *Loop) expected(now time.Time) *flow {
	if l.control == nil || l.sched.Waiting() == 0 {
		return nil
	}
	var absent *flow
	waits := 1
	for _, f := range l.stock.recent {
		switch {
		case len(f.ready) > 0:
			waits = max(waits, f.rule.Weight)
		case f.inFlight > 0 && f.soon < mostlySoon || now.Sub(f.used) >= keepSlots && f.inFlight == 0:
		case absent == nil || f.rule.Weight > absent.rule.Weight:
			absent = f
		}
	}
	if absent == nil || absent.rule.Weight < outweighing*waits {
		return nil
	}
	return absent
}

// leaves tells how many requests may be at the device now: D, or half of it while a
// flow is expected, or none while the device waits for it.
func (l *Loop) leaves(now time.Time) int {
	depth, f := l.sched.Depth(), l.expected(now)
	until := time.Time{}
	if f != nil && f.soon >= mostlySoon && l.sched.Outstanding() == 0 {
		until = f.used.Add(l.idleFor())
	}
	if idles := now.Before(until); l.expect.flow != nil && (!idles || f != l.expect.flow) {
		l.endIdle(now)
	}
	switch {
	case now.Before(until):
		if l.expect.flow == nil {
			l.expect = expectation{flow: f, since: now}
		}
		l.expect.until = until
		return 0
	case f != nil:
		return max(1, depth/2)
	}
	return depth
}

// endIdle charges the device's wait to the flow that it was for.
func (l *Loop) endIdle(now time.Time) {
	f := l.expect.flow
	l.expect = expectation{}
	if waited := now.Sub(l.expect.since); waited > 0 && l.byID[f.id] == f {
		l.charge(f, max(1, int64(float64(waited)/l.costs.tracker.Scale(false))))
	}
}

// idleFor is how long the device waits for a flow: a part of what a quantum of
// somebody else would take; 0 where that is too short to be worth it.
func (l *Loop) idleFor() time.Duration {
	d := time.Duration(l.costs.price(false, true, l.cfg.Quantum).service) / idlePart
	if d < leastIdle {
		return 0
	}
	return min(d, mostIdle)
}

// returns notes that a flow without a request has one again.
func (l *Loop) returns(f *flow, now time.Time) {
	if l.control == nil || f.used.IsZero() || len(f.ready) > 0 || f.inFlight > 0 {
		return
	}
	soon := 0.0
	if now.Sub(f.used) < l.idleFor() {
		soon = 1
	}
	f.soon += soonGain * (soon - f.soon)
}
