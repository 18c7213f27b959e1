package arbiter

import (
	"time"

	"penstock/core/limit"
)

// Limits. A limited flow is ready, for the scheduler, only while its limit lets its next
// request go; in between it has nothing, and nobody waits for it. What falls due while it is
// ready and others are served first is made up for, up to limitCredit: else a flow whose share
// is above its limit would not reach the limit on a busy device. A flow that wanted nothing
// has no such credit.

const (
	limitCredit = 800 * time.Millisecond
	idleCredit  = 10 * time.Millisecond
	limitDebt   = 10 * time.Second // see core/limit

	// A limited flow's quantum is what its limit gives in this time, so that the
	// rate holds over seconds. It still makes the disk seek ten times a second only.
	limitQuantum = 100 * time.Millisecond

	// What a limited flow may have as backlog is what its limit drains in this
	// time, else the kernel would write it out by itself.
	limitBacklog = 2 * time.Second
)

// heldBack reports whether the flow's limit holds its next request back, and has the flow
// looked at again when it does not any more.
func (a *Arbiter) heldBack(f *flow, now time.Duration) bool {
	if f.limit == nil {
		return false
	}
	wait := f.limit.Wait(now)
	if wait == 0 {
		a.held.remove(f)
		return false
	}
	if f.heldAt == 0 {
		f.limitWaits++
	}
	f.due = now + wait
	a.held.set(f)
	return true
}

// releaseHeld looks at the flows whose time has come.
func (a *Arbiter) releaseHeld(now time.Duration) {
	for a.held.len() > 0 && a.held.first().due <= now {
		f := a.held.first()
		a.held.remove(f)
		a.announce(f, now)
	}
}

// takeLimit books bytes on the flow's limit, or gives back what was taken and not used.
func (a *Arbiter) takeLimit(f *flow, bytes int64, now time.Duration) {
	if f.limit == nil || bytes == 0 {
		return
	}
	f.limit.Charge(now, bytes)
	a.announce(f, now)
}

// setRule puts the flow's rule in force.
func (a *Arbiter) setRule(f *flow, rule Rule, now time.Duration) {
	f.rule = rule
	switch {
	case rule.Limit <= 0:
		f.limit = nil
		a.held.remove(f)
	case f.limit == nil:
		b, err := limit.New(limit.Config{Rate: max(rule.Limit, MinLimit), Credit: limitCredit, Debt: limitDebt})
		if err != nil {
			a.fault("limit of "+f.name, err)
			return
		}
		b.Forfeit(now, idleCredit)
		f.limit = b
	default:
		if err := f.limit.SetRate(now, max(rule.Limit, MinLimit)); err != nil {
			a.fault("limit of "+f.name, err)
		}
	}
	a.announce(f, now)
}

// quantum is the bytes of one of the flow's requests.
func (a *Arbiter) quantum(f *flow) int64 {
	if f.limit == nil {
		return a.cfg.Quantum
	}
	n := int64(limitQuantum.Seconds() * float64(f.limit.Rate()))
	return min(a.cfg.Quantum, max(minQuantum, n/pageBytes*pageBytes))
}
