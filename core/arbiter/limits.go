package arbiter

import (
	"time"

	"penstock/core/limit"
)

// MinLimit is the lowest limit, in bytes per second.
const MinLimit = limit.MinLimit

// Limits. A flow with a limit is backlogged for the scheduler only while the limit allows its next
// request. While other flows are served first, the flow saves the bytes that its limit would allow,
// up to those of the time limitCredit. Otherwise a flow with a share above its limit would not
// reach the limit on a busy device. A flow without demand saves only up to those of the time
// idleCredit.

const (
	limitCredit = 800 * time.Millisecond
	idleCredit  = 10 * time.Millisecond
	limitDebt   = 10 * time.Second // see limit.Config

	// limitQuantum determines the quantum of a flow with a limit: the bytes that the limit gives in
	// this time. The rate is then exact over seconds, and the flow causes at most ten seeks a
	// second.
	limitQuantum = 100 * time.Millisecond

	// limitBacklog bounds the backlog of a flow with a limit: the bytes that the limit drains in
	// this time. The kernel would write back a larger backlog by itself.
	limitBacklog = 2 * time.Second
)

// heldBack reports whether the flow's limit delays its next request. If so, the flow is checked
// again when the limit allows the request.
func (a *Arbiter) heldBack(f *flow, now time.Duration) bool {
	if f.limit == nil {
		return false
	}
	wait := f.limit.Wait(now)
	if wait == 0 {
		a.held.remove(f)
		return false
	}
	if f.heldIndex == 0 {
		f.limitWaits++
	}
	f.due = now + wait
	a.held.set(f)
	return true
}

// releaseHeld announces to the scheduler the flows whose limits allow a request now.
func (a *Arbiter) releaseHeld(now time.Duration) {
	for a.held.len() > 0 && a.held.first().due <= now {
		f := a.held.first()
		a.held.remove(f)
		a.announce(f, now)
	}
}

// takeLimit charges bytes to the flow's limit. A negative number gives back bytes that were charged
// but not used.
func (a *Arbiter) takeLimit(f *flow, bytes int64, now time.Duration) {
	if f.limit == nil || bytes == 0 {
		return
	}
	f.limit.Charge(now, bytes)
	a.announce(f, now)
}

// setRule sets the rule of a flow.
func (a *Arbiter) setRule(f *flow, rule Rule, now time.Duration) {
	f.rule = rule
	a.setReserve(f, rule.Reserve, now)
	a.setLatency(f, rule.Latency)
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

// quantum returns the size of the flow's requests in bytes.
func (a *Arbiter) quantum(f *flow) int64 {
	if f.limit == nil {
		return a.cfg.Quantum
	}
	n := int64(limitQuantum.Seconds() * float64(f.limit.Rate()))
	return min(a.cfg.Quantum, max(minQuantum, n/pageBytes*pageBytes))
}
