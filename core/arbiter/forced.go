package arbiter

import "time"

// The forced lane. A share may be so small, or a limit so low, that a stream's turn does not come
// before its client gives up. The client then asks another replica, which makes everything worse.
// So a stream that has waited for its patience gets one packet, whatever its flow's share or limit
// says:
//
//   - inside the depth, one at a time, and first the stream that is longest past its time;
//   - out of a small budget of the device's time, so that other flows keep their shares however
//     many streams starve;
//   - charged to the flow and to its limit, so that over time the flow gets no more than its due.
//
// Then the stream's patience begins again. If one packet is less than its reader needs at a time,
// the next ones come soon, up to packetBytes.
type forced struct {
	waiting pile[*Stream] // streams at their marks, by deadline
	flying  bool          // one is at the device
	took    time.Duration // the device time that it was expected to need
	tokens  time.Duration // of the budget, at since
	at      time.Duration // when to look again; 0: at the next event
	since   time.Duration
	next    time.Duration // no packet before this
	stalled *Stream       // that has got one and may need more
}

const (
	forcedBytes = 64 << 10 // one packet of HDFS
	// The budget: a tenth of the device's time, up to forcedBurst in a row at a fifth.
	forcedPart  = 10
	forcedSpeed = 5
	forcedBurst = 3 * time.Second
	// A packet that was too small is followed by another one after a sixteenth of the patience: a
	// client's own time-out is 4/3 of it.
	forcedSoon = 16
)

func newForced() forced {
	return forced{tokens: forcedBurst, waiting: pile[*Stream]{
		less:  func(s, t *Stream) bool { return s.deadline < t.deadline },
		place: func(s *Stream) *int { return &s.forcedAt },
	}}
}

// patience returns how long a stream may wait.
func (a *Arbiter) patience(s *Stream) time.Duration {
	if s.Patience > 0 {
		return min(s.Patience, a.cfg.MaxWait)
	}
	return a.cfg.MaxWait
}

// watch sets a stream's deadline when it begins to wait, and clears it when it goes on.
func (l *forced) watch(a *Arbiter, s *Stream, now time.Duration) {
	if s.probe > 0 && s.pos >= s.probe { // it has gone on: if it waits now, it waits for something else
		l.waiting.remove(s)
		s.probe, s.deadline = 0, 0
	}
	if s.waiting == 0 || s.closed || a.stuck || a.modeOf(s.flow) != Enforce {
		if s.waiting > 0 || s.probe == 0 || s.closed {
			l.waiting.remove(s)
			s.deadline = 0
		}
		return
	}
	if s.deadline == 0 {
		s.deadline = s.waiting + a.patience(s)
		l.waiting.set(s)
	}
}

// candidate returns the reader that is to be let through now; nil if there is none. Writers and
// senders need no request and are let through at once.
func (l *forced) candidate(a *Arbiter, now time.Duration) *Stream {
	l.at = 0
	for l.waiting.len() > 0 {
		s := l.waiting.first()
		if s.deadline > now {
			l.at = s.deadline
			return nil
		}
		if s.Write || s.Kind == Network {
			a.letThrough(s, now)
			continue
		}
		if _, _, bytes := a.nextOf(s); bytes == 0 && s.flying == 0 {
			if a.stage(s, now); s.deadline == 0 { // it may have had no room
				continue // it does not wait any more
			}
		}
		if _, _, bytes := a.nextOf(s); bytes == 0 || s.flying > 0 { // it is at the device
			l.put(a, s, now+a.patience(s)/forcedSoon)
			continue
		}
		if l.flying {
			return nil // its end is an event
		}
		if wait := l.wait(now); wait > 0 {
			l.at = now + wait
			return nil
		}
		return s
	}
	return nil
}

// put gives a stream another deadline.
func (l *forced) put(a *Arbiter, s *Stream, at time.Duration) {
	if s.closed {
		l.waiting.remove(s)
		s.deadline = 0
		return
	}
	s.deadline = at
	l.waiting.set(s)
}

// wait returns how long it takes until the budget allows a packet.
func (l *forced) wait(now time.Duration) time.Duration {
	if passed := now - l.since; passed > 0 {
		l.tokens = min(forcedBurst, l.tokens+passed/forcedPart)
		l.since = now
	}
	if l.tokens < 0 {
		return max(-l.tokens*forcedPart, l.next-now)
	}
	return max(0, l.next-now)
}

// spend takes a packet's device time from the budget.
func (l *forced) spend(took, now time.Duration) {
	l.took = took
	l.tokens -= took
	l.next = now + took*forcedSpeed
}

// giveBack gives the budget the time of a packet that proved resident.
func (l *forced) giveBack(now time.Duration) {
	l.tokens = min(forcedBurst, l.tokens+l.took)
	l.next = now
}

// letThrough lets a writer or a sender go on for a packet.
func (a *Arbiter) letThrough(s *Stream, now time.Duration) {
	s.flow.forced++
	s.flow.forcedBytes += leaseFloor
	s.waiting = now
	s.deadline = 0
	a.forced.waiting.remove(s)
	s.mark = max(s.mark, s.pos+leaseFloor)
	if s.parkAt > 0 { // it goes to the end
		s.parked = now
		s.flow.parked.set(s)
	}
	a.watchWait(s, now)
	a.tell(s)
}

// force starts a packet for a reader, out of its flow's turn.
func (a *Arbiter) force(s *Stream, now time.Duration) {
	l, f := &a.forced, s.flow
	// Of the checksums only those are staged that the first packets need. Packets come too slowly to
	// stage all before the client gives up. The process reads the rest by itself, at a 128th of the
	// pace of its data.
	s.meta.end = min(s.meta.end, s.meta.next+forcedBytes)
	r := a.cut(s, forcedBytes)
	r.forced = true
	r.cost = a.pricing.charge(false, r.Length)
	t, err := a.sched.Force(f.id, r.cost)
	if err != nil {
		a.fault("force", err)
	}
	r.ticket = t
	l.flying = true
	l.spend(a.pricing.served(false, false, r.Length), now)
	f.forced++
	f.forcedBytes += r.Length
	s.waiting = now
	if !r.Meta {
		s.probe = s.pos + 1
	}
	l.put(a, s, now+a.patience(s))
	a.begin(r, now)
}

// ended looks at a reader whose packet has been staged. If it does not go on, the packet was less
// than it reads at a time.
func (l *forced) ended(a *Arbiter, s *Stream, now time.Duration) {
	if s.done-s.pos < packetBytes {
		l.put(a, s, now+a.patience(s)/forcedSoon)
	} else { // it has enough: its client is slow
		s.probe, s.deadline = 0, 0
		l.waiting.remove(s)
	}
}
