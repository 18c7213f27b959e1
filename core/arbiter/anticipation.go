package arbiter

import (
	"time"

	"penstock/core/sfq"
)

// Anticipation. A flow may read one block or column after the other, each as a separate stream.
// During the milliseconds of think time in between, the flow is not backlogged. A work-conserving
// scheduler then serves other flows, and the flow returns behind their quanta. At a weight of
// 100:1, a flow with 5 ms of think time completes 54 reads in 20 s of a modelled disk's virtual
// time, and 890 if the device waits for it ("deceptive idleness": Iyer and Druschel, Anticipatory
// scheduling, SOSP 2001, sections 2 and 3). The scheduler of IBIS (section 4) is work-conserving.
//
// So half of D is reserved for a flow under three conditions: the flow mostly returns at once, its
// entitlement is at least twice that of all backlogged flows together, and it would be the next
// flow if it were backlogged. If nothing is in flight, the device idles for this flow for a moment.
// The scheduler charges the idle time to the flow, so idling does not increase the flow's share.
// The account of service does not contain the idle time.
type anticipation struct {
	ready      int     // number of backlogged flows
	waiting    float64 // sum of their entitlements
	candidates []*flow // flows that mostly return at once

	flow  *flow // the flow that the device idles for, or nil
	since time.Duration
	until time.Duration // 0 if the device does not idle
}

const (
	reserveSlotsFor = recently / 4 // slots are reserved for a flow that used the device this recently
	idleFraction    = 8            // the device idles for 1/8 of a quantum's time
	minIdle         = time.Millisecond
	maxIdle         = 25 * time.Millisecond
	soonGain        = 0.2 // weight of one return in the moving average
	mostlySoon      = 0.5 // minimum part of returns that must come soon
	outweighing     = 2   // minimum entitlement, as a multiple of the sum of the backlogged flows' entitlements
	maxCandidates   = 16  // bounds the work of a decision
)

// measure finds the flows for which the device may idle. It runs at every tick.
func (e *anticipation) measure(a *Arbiter, now time.Duration) {
	clear(e.candidates)
	e.candidates, e.waiting = e.candidates[:0], 0
	for _, f := range a.active {
		if f.addedEntitlement = 0; f.announced > 0 {
			f.addedEntitlement = f.leaf.entitled
			e.waiting += f.addedEntitlement
		}
		if f.recent(now) && a.returnsSoon(f) && len(e.candidates) < maxCandidates {
			e.candidates = append(e.candidates, f)
		}
	}
}

// enter counts a flow that becomes backlogged.
func (e *anticipation) enter(f *flow) {
	e.ready++
	f.addedEntitlement = f.leaf.entitled
	e.waiting += f.addedEntitlement
}

// leave counts a flow that stops being backlogged.
func (e *anticipation) leave(f *flow) {
	e.ready--
	e.waiting -= f.addedEntitlement
	f.addedEntitlement = 0
}

// drop forgets a flow.
func (e *anticipation) drop(f *flow) {
	e.candidates = without(e.candidates, f)
	if e.flow == f {
		e.flow, e.until = nil, 0
	}
}

// returnsSoon reports whether slots may be reserved for the flow: it mostly returns at once, has no
// limit, and is in enforce mode.
func (a *Arbiter) returnsSoon(f *flow) bool {
	return f.soonAverage >= mostlySoon && f.limit == nil && a.modeOf(f) == Enforce
}

// expected looks for flows that are not backlogged and outweigh all backlogged flows. keep reports
// whether slots are reserved. idle is the flow that an otherwise idle device waits for, or nil, and
// until is the end of this wait.
func (a *Arbiter) expected(now time.Duration) (keep bool, idle *flow, until time.Duration) {
	e := &a.anticipation
	if a.control == nil || len(e.candidates) == 0 || e.ready == 0 {
		return false, nil, 0
	}
	window := a.idleFor()
	for _, f := range e.candidates {
		if f.ready.len() > 0 || !a.returnsSoon(f) || f.leaf.entitled < outweighing*e.waiting || !a.sched.Due(f.id) {
			continue
		}
		keep = keep || f.inFlight > 0 || now-f.used < reserveSlotsFor
		if end := f.used + window; f.inFlight == 0 && now < end && end > until {
			idle, until = f, end
		}
	}
	return keep, idle, until
}

// slots returns how many requests may be in flight now: D, or half of D while a flow is expected,
// or none while the device idles for a flow.
func (a *Arbiter) slots(now time.Duration) int {
	e := &a.anticipation
	keep, idle, until := a.expected(now)
	if len(a.running) > 0 {
		idle = nil
	}
	if e.flow != idle {
		a.endIdle(now)
	}
	switch {
	case idle != nil:
		if e.flow == nil {
			e.flow, e.since = idle, now
		}
		e.until = until
		return 0
	case keep:
		return max(1, a.depth/2)
	}
	return a.depth
}

// endIdle ends the device's idling, if it idles, and charges the idle time to the flow that the
// device waited for.
func (a *Arbiter) endIdle(now time.Duration) {
	e := &a.anticipation
	f, waited := e.flow, min(now, e.until)-e.since
	e.flow, e.until = nil, 0
	if f != nil && waited > 0 {
		a.chargeUnscheduled(f, a.pricing.tagOf(waited))
	}
}

// chargeUnscheduled charges a flow for service outside of the schedule.
func (a *Arbiter) chargeUnscheduled(f *flow, cost int64) {
	if err := a.sched.Charge(f.id, min(max(cost, 1), sfq.MaxCost)); err != nil {
		a.fault("charge", err)
	}
}

// idleFor returns how long the device idles for a flow: a part of the time of another flow's
// quantum, or 0 on a device that is too fast for idling.
func (a *Arbiter) idleFor() time.Duration {
	d := a.pricing.served(false, true, a.cfg.Quantum) / idleFraction
	if d < minIdle {
		return 0
	}
	return min(d, maxIdle)
}

// arrives records that a stream of the flow wants a request. If the flow was not backlogged,
// arrives also records whether the flow returned soon.
func (a *Arbiter) arrives(f *flow, write bool, now time.Duration) {
	a.activate(f, now)
	if f.ready.len() > 0 {
		return
	}
	if f.inFlight == 0 && f.users.parked == 0 { // the flow had no demand
		if f.limit != nil {
			f.limit.Forfeit(now, idleCredit)
		}
		a.forfeitOverdue(f, 0, now)
	} else {
		a.forfeitOverdue(f, a.depth+1, now)
	}
	if a.control == nil || write || f.used == 0 || f.inFlight > 0 {
		return
	}
	was, soon := f.soonAverage, 0.0
	if now-f.used < a.idleFor() {
		soon = 1
	}
	f.soonAverage += soonGain * (soon - f.soonAverage)
	if e := &a.anticipation; was < mostlySoon && f.soonAverage >= mostlySoon && a.returnsSoon(f) && len(e.candidates) < maxCandidates {
		e.candidates = append(without(e.candidates, f), f)
	}
}
