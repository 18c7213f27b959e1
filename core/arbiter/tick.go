package arbiter

import "time"

// tick does what becomes due by time alone. It looks at flows that are at work and at streams that
// wait, not at all that are open.
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
	a.sched.Trim()
	for i := 0; i < len(a.active); {
		f := a.active[i]
		a.shrinkBounds(f)
		for f.tails.len() > 0 && now-f.tails.first().unflushed > a.cfg.FlushAge {
			s := f.tails.first()
			a.flush(s, now)
			if s.unflushed = now; s.tailIndex > 0 { // the rest does not fill a page, and waits for more
				f.tails.set(s)
			}
		}
		if f.deferredQueue.len() > 0 {
			a.drainAged(f, now)
			a.drainExcess(f, now) // its bound may have become smaller
			a.drainInTime(f, now)
		}
		a.grantParked(f, now)
		if i < len(a.active) && a.active[i] == f {
			if f.atWork(now) || f.deferred > 0 || f.tails.len() > 0 || f.parked.len() > 0 {
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

// stick opens all marks when a request is late: the device does not answer, and its streams meet
// its state by themselves, as they would natively. It takes the marks back when none is late.
func (a *Arbiter) setStuck(late bool, now time.Duration) {
	a.stuck = late
	for _, s := range a.streams {
		a.restartWait(s, now)
		a.sendMark(s)
	}
}

// Stuck reports whether the device has held a quantum for too long.
func (a *Arbiter) Stuck() bool { return a.stuck }
