package arbiter

import (
	"time"

	"penstock/core/limit"
	"penstock/core/reserve"
	"penstock/core/sfq"
)

// Guaranteed rates. A flow with a guaranteed rate gets at least this rate while it is backlogged, whatever the
// weights are. The method is that of mClock (Gulati, Merchant and Varman, OSDI 2010, section 3): in addition to
// the start tag of its weight, a flow has a reservation tag, which says when its next request is due. Requests
// that are due go first. Otherwise the scheduler selects a flow by weight.
//
//   - The tag is kept in time, by the account of package limit: each reserved request moves it by the
//     request's size divided by the rate. The size is in bytes, or in device time. Service by weight does not
//     move the tag, so past surplus does not count against the guaranteed rate. Of the requests that are due, the one
//     with the earliest deadline goes first (reservedQueue).
//   - The tag of a flow that becomes backlogged is at least the present time, if the flow had no demand before (no
//     request in flight, no parked writer): an idle flow saves nothing, and delays nobody.
//   - Reserved service is charged to the flow's start tag, so a flow whose share is above its guaranteed rate
//     has no more than its share. If the rate is above the share, reserved service moves the start tag ahead of
//     virtual time. Config.Debt bounds this lead, so that the flow has its share again soon after others have ended.
//   - Tags are compared with reserve time (reserveTime). It passes like time, but it stops while the smallest tag
//     is overdueMost behind. So a device that cannot give all guaranteed rates is divided in proportion to
//     them, and what it cannot give is lost. This is not in mClock, which leaves overload to admission.
//   - Of a rate in bytes, a request counts for at least half of the bytes that the device could move sequentially in
//     the request's time (bytesFactor), or as many as quanta at random places in this time, if these are fewer. Otherwise a small rate of random
//     reads could take the whole device. mClock has
//     no such bound, because its rates are in requests of similar cost.
//
// A flow that is always backlogged gets, over any time t, at least rate*t less the reserved service that is
// overdue at the end: at most what D requests and the flow's own one take, if the device can give all
// guaranteed rates together.

const (
	// overdueMost bounds the reserved service that can be overdue, in reserve time.
	overdueMost = 2 * time.Second
	// A rate is broken while reserved service is overdue by more than the time in which the rate moves D+1
	// quanta, but at least brokenAfter, and at most a tick less than overdueMost.
	brokenAfter = time.Second
	// A rate is also broken if more than this part of its last brokenAfter is lost, because reserve time has stopped, or because
	// overdue service was dropped when the flow was backlogged again while it had requests in flight or parked writers. In
	// overload, a flow can lose service in both ways while little of it is overdue.
	lostMost    = 0.02
	bytesFactor = 2
	// promisedFor is the time after its last request for which a flow's rate counts as wanted.
	promisedFor = 10 * time.Second
)

// reservation is the state of a flow's guaranteed rate.
type reservation struct {
	rule  reserve.Rate
	clock *limit.Bucket // nil without a guaranteed rate; counts bytes, or nanoseconds of device time, in reserve time
	// The reservation tag and the deadline of the next reserved request, in reserve time, and the flow's places in Arbiter.reserved.
	due, deadline                         time.Duration
	pendingIndex, dueIndex, deadlineIndex int
	used                                  time.Duration // when a request of a verified stream last ended; 0 if none has
	bytes                                 int64         // moved by reserved requests
	kept                                  time.Duration // time in which the flow was backlogged and its rate was kept
	broken                                time.Duration // time in which it was backlogged and its rate was broken
	looked                                time.Duration // time of the last look; 0 if the flow was not backlogged then
	lost                                  time.Duration // reserve time whose overdue service was dropped while the flow had demand
	losses                                lossWindow
	spared                                float64 // device time that requests which a goal has cut may take beyond their size, in ns (reservedCut)
	// The last verdict of the admission, and when the flow began to use the device (admit).
	verdict reserve.Verdict
	since   time.Duration
}

// enforced returns the part of the rate that is enforced, 0 to 1.
func (v *reservation) enforced() float64 {
	if v.verdict.State == reserve.Unused {
		return 1
	}
	return v.verdict.Granted
}

// reserveTime returns the time with which reservation tags are compared.
func (a *Arbiter) reserveTime(now time.Duration) time.Duration {
	t := now - a.reserveLag
	if tag, ok := a.reserved.earliest(); ok {
		if late := t - overdueMost - tag; late > 0 {
			a.reserveLag += late
			t -= late
		}
	}
	return t
}

// setReserve sets the guaranteed rate of a flow.
func (a *Arbiter) setReserve(f *flow, rule reserve.Rate, now time.Duration) {
	v, at := &f.reserve, a.reserveTime(now)
	rate := rule.Bytes
	if rule.Part > 0 {
		rate = int64(min(rule.Part, 1) * float64(time.Second))
	}
	if rate > 0 {
		rate = max(1, int64(float64(rate)*v.enforced()))
	}
	switch sameUnit := (rule.Part > 0) == (v.rule.Part > 0); {
	case rate <= 0:
		v.clock = nil
	case v.clock != nil && sameUnit:
		if err := v.clock.SetRate(at, max(rate, limit.MinRate)); err != nil {
			a.fault("guaranteed rate of "+f.name, err)
		}
	default:
		clock, err := limit.New(limit.Config{Rate: max(rate, limit.MinRate), Credit: overdueMost})
		if err != nil {
			a.fault("guaranteed rate of "+f.name, err)
			return
		}
		clock.Forfeit(at, 0)
		v.clock = clock
	}
	v.rule = rule
	a.updateReserved(f, now)
}

// updateReserved adds a flow to Arbiter.reserved with its present tag, or removes it if it is not backlogged, has no
// guaranteed rate or is not in enforce mode.
func (a *Arbiter) updateReserved(f *flow, now time.Duration) {
	v := &f.reserve
	if v.clock == nil || f.announced == 0 || a.modeOf(f) != Enforce || v.enforced() == 0 {
		a.reserved.remove(f)
		return
	}
	at := a.reserveTime(now)
	v.due = v.clock.PaidUntil(at)
	v.deadline = v.due + a.timeReserved(f, a.quantum(f))
	a.reserved.set(f, at)
}

// reservedDue reports whether a reserved request is due.
func (a *Arbiter) reservedDue(now time.Duration) bool {
	return a.reserved.first(a.reserveTime(now)) != nil
}

// nextReservedAt returns the time at which the next reserved request will be due; 0 if there is none, or if one is due.
func (a *Arbiter) nextReservedAt(now time.Duration) time.Duration {
	tag, ok := a.reserved.earliest()
	if !ok || a.reservedDue(now) {
		return 0
	}
	return tag + a.reserveLag
}

// nextReserved dispatches a request of the flow whose reserved request is due and has the earliest deadline. ok is false
// if none is due.
func (a *Arbiter) nextReserved(now time.Duration) (t sfq.Ticket, ok bool) {
	f := a.reserved.first(a.reserveTime(now))
	if f == nil {
		return t, false
	}
	t, err := a.sched.Force(f.id, f.announced)
	if err != nil {
		a.fault("reserve", err)
		a.reserved.remove(f)
		return t, false
	}
	return t, true
}

// takeReserve charges the flow's guaranteed rate for a reserved request that starts.
func (a *Arbiter) takeReserve(f *flow, r *Request, now time.Duration) {
	v := &f.reserve
	if v.clock == nil || !r.reserved {
		return
	}
	r.clock, r.reservedSize = v.clock, r.Length
	if v.rule.Part > 0 {
		r.reservedSize = r.served
	}
	v.clock.Add(a.reserveTime(now), r.reservedSize)
	a.updateReserved(f, now)
}

// settleReserve corrects the charge of a reserved request to its actual size: the bytes that it moved, and its device
// time.
func (a *Arbiter) settleReserve(f *flow, r *Request, bytes, service int64, now time.Duration) {
	v := &f.reserve
	if v.clock == nil || v.clock != r.clock {
		return
	}
	v.bytes += bytes
	used := a.reservedBytes(r, bytes, service)
	switch {
	case v.rule.Part > 0:
		used = service
	case r.cut:
		used = a.reservedCut(v, r, bytes, service)
		v.lost += time.Duration(float64(used-bytes) / float64(v.clock.Rate()) * float64(time.Second))
	}
	v.clock.Add(a.reserveTime(now), used-r.reservedSize)
	a.updateReserved(f, now)
}

// reservedBytes returns the bytes for which a request counts.
func (a *Arbiter) reservedBytes(r *Request, bytes, service int64) int64 {
	quantum := a.cfg.Quantum
	// A request may take the time that the admission counts for it, even if bytesFactor allows less.
	most := max(bytesFactor*float64(a.pricing.served(r.Write, true, r.Length)), float64(a.pricing.served(r.Write, false, quantum))*float64(r.Length)/float64(quantum))
	if most <= 0 {
		return bytes
	}
	return max(bytes, int64(float64(r.Length)*float64(service)/most))
}

// reservedCut returns the bytes for which a request counts that a latency goal has cut. The flow does not pay for the cut:
//
//   - The slices of a quantum together may take the time that the admission counts for the quantum. What one of them does not
//     take, later ones may, up to a quantum's time. So the seek to the first slice costs the flow nothing.
//   - The seek back after a small read with a goal costs the flow nothing.
//
// Other seeks count, as for other requests. If each slice could seek, a hard disk would soon have no time left for the goal: its
// reads would be late, slices would become shorter and cost more seeks, until two rates of 0.22 of the disk, beside one of 0.4
// and 20 small reads per second, had half of their bytes (TestRatesBesideAGoal).
func (a *Arbiter) reservedCut(v *reservation, r *Request, bytes, service int64) int64 {
	quantum := a.cfg.Quantum
	whole := float64(a.pricing.served(r.Write, false, quantum))
	if whole <= 0 {
		return bytes
	}
	ofByte := whole / float64(quantum)
	allowed := float64(ofByte*float64(r.Length)) + v.spared
	if r.back {
		allowed += float64(a.pricing.served(r.Write, false, r.Length) - a.pricing.served(r.Write, true, r.Length))
	}
	v.spared = min(max(0, allowed-float64(service)), whole)
	excess := float64(service) - max(allowed, bytesFactor*float64(a.pricing.served(r.Write, true, r.Length)))
	return bytes + int64(max(0, excess)/ofByte)
}

// payOverdue reduces the flow's overdue service by service that it got outside of the schedule.
func (a *Arbiter) payOverdue(f *flow, bytes, service int64, now time.Duration) {
	v := &f.reserve
	if v.clock == nil {
		return
	}
	size := bytes
	if v.rule.Part > 0 {
		size = service
	}
	v.clock.TakeCredit(a.reserveTime(now), size)
	a.updateReserved(f, now)
}

// forfeitOverdue drops the overdue service of a flow, except for the time that keep quanta take at its rate.
func (a *Arbiter) forfeitOverdue(f *flow, keep int, now time.Duration) {
	if v := &f.reserve; v.clock != nil {
		at := a.reserveTime(now)
		before := v.clock.PaidUntil(at)
		v.clock.Forfeit(at, a.timeReserved(f, int64(keep)*a.quantum(f)))
		if keep > 0 {
			v.lost += v.clock.PaidUntil(at) - before
		}
		a.updateReserved(f, now)
	}
}

// lossWindow holds the reserve time that a flow had lost at the ticks of the last brokenAfter.
type lossWindow struct {
	looks  [brokenAfter / tickPeriod]struct{ at, lost time.Duration }
	oldest int
	grows  bool // more than lostMost of the time is lost
}

// measure runs at every tick.
func (w *lossWindow) measure(lost, now time.Duration) {
	look := &w.looks[w.oldest]
	w.grows = look.at > 0 && float64(lost-look.lost) > lostMost*float64(now-look.at)
	look.at, look.lost = now, lost
	w.oldest = (w.oldest + 1) % len(w.looks)
}

// judgePromise adds the time since the last look to the time in which the flow's rate was kept or broken.
// Only time counts in which the flow was backlogged at both looks.
func (a *Arbiter) judgePromise(f *flow, now time.Duration) {
	v := &f.reserve
	v.losses.measure(a.reserveLag+v.lost, now)
	if v.clock == nil || f.announced == 0 || a.modeOf(f) != Enforce {
		v.looked = 0
		return
	}
	if v.looked > 0 && v.enforced() < 1 {
		if v.verdict.State == reserve.Reduced { // a rate that is not admitted is no promise
			v.broken += now - v.looked
		}
	} else if v.looked > 0 {
		most := min(max(brokenAfter, a.timeReserved(f, int64(a.depth+1)*a.quantum(f))), overdueMost-tickPeriod)
		if at := a.reserveTime(now); at-v.clock.PaidUntil(at) > most || v.losses.grows {
			v.broken += now - v.looked
		} else {
			v.kept += now - v.looked
		}
	}
	v.looked = now
}

// timeReserved returns the time in which the guaranteed rate moves a number of bytes.
func (a *Arbiter) timeReserved(f *flow, bytes int64) time.Duration {
	size := float64(bytes)
	if f.reserve.rule.Part > 0 {
		size = float64(a.pricing.served(false, true, bytes))
	}
	return time.Duration(size / float64(f.reserve.clock.Rate()) * float64(time.Second))
}

// admit decides which guaranteed rates the device keeps. It runs at every tick, because the part that a rate takes
// depends on the device's speed, and does no work if there are no guaranteed rates.
func (a *Arbiter) admit(now time.Duration) {
	claims, flows := a.admission.claims[:0], a.admission.flows[:0]
	for _, f := range a.all {
		v := &f.reserve
		if part := a.promised(f, now); part > 0 {
			if v.verdict.State == reserve.Unused {
				v.since = now
			}
			claims = append(claims, reserve.Claim{Part: part, Order: f.rule.Order, Since: v.since, State: v.verdict.State})
			flows = append(flows, f)
		} else if v.verdict.State != reserve.Unused {
			a.setVerdict(f, reserve.Verdict{}, now)
		}
	}
	a.admission.claims, a.admission.flows, a.admission.own = claims, flows, 0
	if len(claims) == 0 {
		return
	}
	a.admission.order, a.admission.verdicts = reserve.Admit(claims, a.admission.order, a.admission.verdicts)
	for i, v := range a.admission.verdicts {
		a.setVerdict(flows[i], v, now)
		if !flows[i].rule.OfTotal {
			a.admission.own += claims[i].Part * v.Granted
		}
	}
}

// setVerdict puts a verdict of the admission into force.
func (a *Arbiter) setVerdict(f *flow, verdict reserve.Verdict, now time.Duration) {
	before := f.reserve.enforced()
	f.reserve.verdict = verdict
	if f.reserve.enforced() == before {
		return
	}
	a.setReserve(f, f.reserve.rule, now)
	if before == 0 && f.reserve.clock != nil { // nothing is overdue from the time before
		f.reserve.clock.Forfeit(a.reserveTime(now), 0)
		a.updateReserved(f, now)
	}
}

// admission is the memory of admit, which is reused.
type admission struct {
	claims   []reserve.Claim
	flows    []*flow
	order    []int
	verdicts []reserve.Verdict
	own      float64 // part of the device's time that is guaranteed to flows by rates of this device alone
}

// promised returns the part of the device's time that a flow's whole guaranteed rate takes at the device's present speed (timeOfByte). It
// is 0 if the flow has not used the device for promisedFor.
func (a *Arbiter) promised(f *flow, now time.Duration) float64 {
	v := &f.reserve
	switch {
	case v.clock == nil || a.modeOf(f) != Enforce || v.used == 0 || now-v.used > promisedFor:
		return 0
	case v.rule.Part > 0:
		return v.rule.Part
	}
	return float64(v.rule.Bytes) * a.timeOfByte(a.quantum(f))
}

// timeOfByte returns the seconds of device time that a byte takes at the device's present speed, in requests of a quantum that come
// between those of other flows. So each request pays for a random place, even if the application reads in order: a device that keeps
// guaranteed rates serves one flow after the other. The slower one of a read and a write counts. The size of slices beside a
// latency goal does not count: mostly all slices of a quantum run in a row, and with their sizes, which change all the time, rates would
// be refused and admitted again and again.
func (a *Arbiter) timeOfByte(quantum int64) float64 {
	return max(a.pricing.served(false, false, quantum), a.pricing.served(true, false, quantum)).Seconds() / float64(quantum)
}

// guaranteeable returns the bytes per second that the admission guarantees at most to rates of whole applications: beside the
// rates of this device alone. It is 0 only if it is not known.
func (a *Arbiter) guaranteeable() int64 {
	if t := a.timeOfByte(a.cfg.Quantum); t > 0 {
		return max(1, int64((reserve.AdmitMost-a.admission.own)/t))
	}
	return 0
}
