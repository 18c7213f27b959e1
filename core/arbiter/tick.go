package arbiter

import "time"

// tick does the work that becomes due with time. It visits flows at work and waiting streams, not
// all open streams.
func (a *Arbiter) tick(now time.Duration) {
	if a.cfg.Network {
		a.freeSlots(now)
	}
	late := false
	for _, r := range a.running {
		late = late || !a.cfg.Network && now-r.started > a.cfg.Stuck
	}
	if late != a.stuck {
		a.setStuck(late, now)
	}
	a.pricing.verdict = a.pricing.tracker.Look(now)
	a.backlog.measure(a, now)
	a.anticipation.measure(a, now)
	a.admit(now)
	a.measureStrict(now)
	a.measureLatency(now)
	a.ageClaims(now)
	a.measureFree(now)
	a.sched.Trim()
	for i := 0; i < len(a.active); {
		f := a.active[i]
		a.shrinkBounds(f)
		a.judgePromise(f, now)
		for f.tails.len() > 0 && now-f.tails.first().unflushed > a.cfg.FlushAge {
			s := f.tails.first()
			a.flush(s, now)
			if s.unflushed = now; s.tailIndex > 0 { // the rest fills no page, and waits for more bytes
				f.tails.set(s)
			}
		}
		if f.deferredQueue.len() > 0 {
			a.drainAged(f, now)
			a.drainExcess(f, now) // the bound may have decreased
			a.drainInTime(f, now)
		}
		a.grantParked(f, now)
		if i < len(a.active) && a.active[i] == f {
			if f.atWork(now) || f.deferred > 0 || f.tails.len() > 0 || f.users.parked > 0 {
				i++
			} else {
				f.inactiveSince = now
				a.active = without(a.active, f)
			}
		}
	}
	a.retryStaging(now)
	if now-a.swept >= forgetEvery {
		a.swept = now
		for i := 0; i < len(a.all); {
			f := a.all[i]
			if f.streams > 0 || f.name == UnattributedFlow || now-f.idle <= idleFlowAge || !a.forgetFlow(f) {
				i++
			}
		}
	}
}

// setStuck opens all marks when a request is overdue: the device does not answer, and streams then
// wait for the device itself, as without the daemon. It restores the marks when no request is
// overdue.
func (a *Arbiter) setStuck(late bool, now time.Duration) {
	a.stuck = late
	for _, s := range a.streams {
		a.restartWait(s, now)
		a.sendMark(s)
	}
}

// Stuck reports whether a request has been at the device for too long.
func (a *Arbiter) Stuck() bool { return a.stuck }
