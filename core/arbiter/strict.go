package arbiter

import (
	"time"

	"penstock/core/limit"
)

// Strict rates. Usually, other flows use what a flow does not use of its guaranteed rate. When the flow returns,
// their requests are still at the device, and on a hard disk the head is elsewhere. A strict rate is not
// work-conserving: the other flows together are limited to the rest of the device's time, also while the flow is
// idle. IBIS (section 9) names this choice. Its cost is device time that nobody uses, which is counted.
//
// The limit applies to requests that start by weight, and to reserved requests of flows whose rate is not strict. It
// does not count forced packets and kernel I/O: a flow could otherwise stop all others with such I/O. A flow
// counts until promisedFor after the last request of a verified stream, so nobody can reserve a device by a
// claim, or with applications that have ended.
type strict struct {
	part  float64       // of the device's time, that strict rates take
	rest  *limit.Bucket // account of the other flows' device time; nil without strict reservations
	at    time.Duration // when the account allows the next request; 0 if it does not delay one
	since time.Duration // since when the device has had no request because of the delay; 0 if it has one
	idle  time.Duration // total of such times
}

const (
	strictMost   = 0.9                    // the largest part of the device's time that strict rates take
	strictCredit = 100 * time.Millisecond // unused device time that the other flows may use later
)

// measureStrict sets the rate of the other flows. It runs at every tick, because the part that a rate in bytes
// takes depends on the device's speed.
func (a *Arbiter) measureStrict(now time.Duration) {
	k, part := &a.strict, 0.0
	for _, f := range a.all {
		if f.reserve.rule.Strict {
			part += a.promised(f, now) * f.reserve.enforced()
		}
	}
	if part == 0 {
		a.endStrictIdle(now)
		k.part, k.rest = 0, nil
		return
	}
	part = min(part, strictMost)
	rate := max(limit.MinRate, int64((1-part)*float64(time.Second)))
	switch {
	case k.rest == nil:
		rest, err := limit.New(limit.Config{Rate: rate, Credit: strictCredit})
		if err != nil {
			a.fault("strict rate", err)
			return
		}
		rest.Forfeit(now, 0)
		k.rest = rest
	case rate != k.rest.Rate():
		if err := k.rest.SetRate(now, rate); err != nil {
			a.fault("strict rate", err)
		}
	}
	k.part = part
}

// strictWait returns how long strict rates delay the next request by weight, also one of a flow with a strict rate.
func (a *Arbiter) strictWait(now time.Duration) time.Duration {
	if a.strict.rest == nil {
		return 0
	}
	return a.strict.rest.Wait(now)
}

// takeStrict charges a request that starts to the account of the other flows.
func (a *Arbiter) takeStrict(f *flow, r *Request, now time.Duration) {
	if r.rest = nil; a.strict.rest == nil || r.forced || r.reserved && f.reserve.rule.Strict {
		return
	}
	r.rest = a.strict.rest
	r.rest.Add(now, r.served)
}

// settleStrict corrects the charge of takeStrict to the device time of the request.
func (a *Arbiter) settleStrict(r *Request, service int64, now time.Duration) {
	if r.rest != nil && r.rest == a.strict.rest {
		r.rest.Add(now, service-r.served)
	}
}

// delayStrict records that strict rates delay the next request until at.
func (a *Arbiter) delayStrict(at, now time.Duration) {
	if len(a.running) > 0 {
		a.endStrictIdle(now)
	} else if a.strict.since == 0 {
		a.strict.since = now
	}
	a.strict.at = at
}

// endStrictIdle records that the device has a request again, or that nothing delays the next one.
func (a *Arbiter) endStrictIdle(now time.Duration) {
	k := &a.strict
	if k.at = 0; k.since > 0 {
		k.idle += now - k.since
		k.since = 0
	}
}
