package arbiter

import "time"

// The forced lane. A share may be so small, or a limit so low, that a stream's turn does not come
// before its client gives up. The client then asks another replica, which makes everything worse.
// So a stream that has waited for its patience gets one packet, whatever its flow's share or limit
// says:
//
//   - inside the depth, one at a time. Flows with such streams take turns, and within a flow the
//     stream that is longest past its time goes first. At the device a packet waits for what is
//     there before it. So if many streams are past their time at once, one at a time is too slow,
//     and more go together the later the first of them is;
//   - out of a small budget of the device's time, so that other flows keep their shares however
//     many streams starve. If many begin to starve at once, the budget is not enough for all at
//     their deadlines. So a stream that has waited for a quarter of its patience books a place
//     (places.go): at its deadline or, if that is taken, a little later or earlier;
//   - charged to the flow and to its limit, so that over time the flow gets no more than its due.
//
// Then the stream's patience begins again. If one packet is less than its reader needs at a time,
// the next ones come soon, up to packetBytes. How much a reader needs at a time is not known, so
// one that has less than packetBytes ahead may stand still, and has a deadline.
//
// Nearly all waits are short, so the end of one leaves the stream where it is in the pile, and the
// next one begins there. A stream is moved when it comes up too early.
type forced struct {
	waiting   indexedHeap[*Stream] // streams that may stand still, or did, by when they are looked at
	overdue   indexedHeap[*flow]   // flows with readers past their deadlines; the flow that had a packet longest ago is first
	schedule  packetSchedule
	inFlight  int           // packets at the device
	tokens    time.Duration // of the budget, at since
	nextCheck time.Duration // when to look again; 0: at the next event
	refilled  time.Duration
	notBefore time.Duration // no packet before this
}

const (
	forcedBytes  = 64 << 10  // one packet of HDFS
	readAtOnce   = 128 << 10 // what most servers read at a time
	ownChecksums = 48 << 10  // what the kernel reads ahead for a process whose checksums are not staged
	// The budget: a tenth of the device's time, and a quarter in a burst of forcedBurst. So if
	// 200 readers begin to starve at once, each has its packet of 20 ms on a slow disk, 40 s for
	// all, between a quarter of its patience and the moment at which its client gives up. Up to
	// forcedCredit of delay by other flows' quanta is made up for.
	forcedFraction = 10
	burstSpacing   = 4
	forcedBurst    = time.Second
	forcedCredit   = 500 * time.Millisecond
	// Clients give up after 5 s at the earliest. One that names less than 3 s would only be first
	// in line.
	minPatience = 3 * time.Second
	// A packet that was too small is followed by another one after a sixteenth of the patience.
	// A client's own time-out is 4/3 of it.
	repeatAfter = 16
	// A place is booked after a quarter of the patience.
	reserveAfter = 4
)

func newForced(maxWait time.Duration) forced {
	return forced{
		tokens: forcedBurst,
		waiting: indexedHeap[*Stream]{
			less:  func(s, t *Stream) bool { return s.checkAt < t.checkAt },
			index: func(s *Stream) *int { return &s.forcedIndex },
		},
		overdue: indexedHeap[*flow]{
			less: func(f, g *flow) bool {
				return f.lastPacket < g.lastPacket || f.lastPacket == g.lastPacket && f.id < g.id
			},
			index: func(f *flow) *int { return &f.overdueIndex },
		},
		schedule: newPacketSchedule(maxWait + maxWait/repeatAfter),
	}
}

// patience returns how long a stream may wait.
func (a *Arbiter) patience(s *Stream) time.Duration {
	if s.Patience > 0 {
		return min(max(s.Patience, minPatience), a.cfg.MaxWait)
	}
	return a.cfg.MaxWait
}

// standsSince returns when a stream began to stand still; 0: it does not stand. A reader with little
// ahead of it may need more at a time than it has. It counts as standing since it last went on: with
// less than packetBytes ahead, or with less than readAtOnce once Config.Staged is used up.
func (a *Arbiter) stalledSince(s *Stream) time.Duration {
	if s.waiting == 0 && !s.Write && s.Kind != Network && s.mark != Open {
		if ahead := s.done - s.pos; ahead < readAtOnce || ahead < packetBytes && a.staged < a.cfg.Staged {
			return s.moved
		}
	}
	return s.waiting
}

// watch sets a stream's deadline when it begins to wait, and clears it when it goes on.
func (l *forced) watch(a *Arbiter, s *Stream, now time.Duration) {
	if s.probe > 0 && s.pos >= s.probe { // it has gone on: what it waits for now is something else
		l.clearDeadline(s)
		s.probe = 0
	}
	since := a.stalledSince(s)
	if since == 0 || s.closed || a.stuck || a.modeOf(s.flow) != Enforce {
		if since > 0 || s.probe <= s.pos || s.closed {
			l.clearDeadline(s)
		}
		return
	}
	if s.deadline == 0 {
		l.startWait(a, s, since)
	}
}

// expect sets the deadline of a wait that has begun at some time.
func (l *forced) startWait(a *Arbiter, s *Stream, since time.Duration) {
	s.deadline, s.reservation = since+a.patience(s), notReserved
	if at := a.reservationTime(s); s.forcedIndex == 0 || at < s.checkAt {
		s.checkAt = at
		l.waiting.set(s)
	}
}

// bookingTime returns when a stream books its place.
func (a *Arbiter) reservationTime(s *Stream) time.Duration {
	p := a.patience(s)
	return s.deadline - p + p/reserveAfter
}

// book books a place for a stream.
func (l *forced) reserve(a *Arbiter, s *Stream, now time.Duration) {
	if s.reservation = noReservation; s.Write || s.Kind == Network {
		return // its lease moves on without a packet
	}
	s.deadline, s.reservation = l.schedule.reserve(now, s.deadline, s.deadline+a.patience(s)/repeatAfter, a.packetTime(forcedBytes))
}

// packetTime returns the device's time for a packet: a seek to it, and one back.
func (a *Arbiter) packetTime(bytes int64) time.Duration {
	return 2*a.pricing.served(false, false, bytes) - a.pricing.served(false, true, bytes)
}

// look lets writers and senders through whose patience is over, since they need no request. It
// has readers book their places, and puts those whose time has come in line.
func (l *forced) check(a *Arbiter, now time.Duration) {
	for l.waiting.len() > 0 {
		s := l.waiting.first()
		switch {
		case s.checkAt > now:
			l.nextCheck = s.checkAt
			return
		case s.deadline == 0 || s.overdueIndex > 0:
			l.waiting.remove(s)
		case s.reservation == notReserved && a.reservationTime(s) > now:
			s.checkAt = a.reservationTime(s)
			l.waiting.set(s)
		case s.reservation == notReserved:
			l.reserve(a, s, now)
			s.checkAt = s.deadline
			l.waiting.set(s)
		case s.deadline > now:
			s.checkAt = s.deadline
			l.waiting.set(s)
		case s.Write || s.Kind == Network:
			a.admitPacket(s, now)
		default:
			l.waiting.remove(s)
			s.flow.overdue.set(s)
			l.overdue.set(s.flow)
		}
	}
}

// candidate returns the reader that is to be let through now; nil if there is none.
func (l *forced) candidate(a *Arbiter, now time.Duration) *Stream {
	l.nextCheck = 0
	l.check(a, now)
	for l.overdue.len() > 0 {
		s := l.overdue.first().overdue.first()
		if s.meta.next < s.meta.end && s.inFlight == 0 {
			// Not even its checksums are staged. Two packets would take longer than one, so its
			// process reads them by itself as it goes: 1/128 of the data.
			bytes := min(s.meta.end-s.meta.next, ownChecksums)
			s.meta, s.done = span{}, max(s.done, s.From)
			a.bookUnscheduled(s, bytes, now)
		}
		if _, _, bytes := a.nextOf(s); bytes == 0 && s.inFlight == 0 {
			if a.stage(s, now); s.deadline == 0 {
				continue // it does not wait any more
			}
			if s.want == 0 && s.next < s.To && s.next-s.pos < packetBytes { // there was no room to stage
				s.want = min(forcedBytes, s.To-s.next)
				a.updateReady(s, now)
			}
		}
		if _, _, bytes := a.nextOf(s); bytes == 0 || s.inFlight > 0 { // it is at the device
			l.setDeadline(s, now+a.patience(s)/repeatAfter)
			continue
		}
		if l.inFlight > 0 && l.inFlight >= l.maxInFlight(a, s, now) {
			return nil // its end is an event
		}
		if wait := l.wait(now); wait > 0 {
			if at := now + wait; l.nextCheck == 0 || at < l.nextCheck {
				l.nextCheck = at
			}
			return nil
		}
		return s
	}
	return nil
}

// drop forgets a stream's deadline.
func (l *forced) clearDeadline(s *Stream) {
	if s.deadline == 0 {
		return
	}
	s.deadline = 0
	l.schedule.release(s.reservation)
	s.reservation = notReserved
	if f := s.flow; s.overdueIndex > 0 {
		if f.overdue.remove(s); f.overdue.len() == 0 {
			l.overdue.remove(f)
		}
	}
}

// forget forgets a stream that has ended.
func (l *forced) forget(s *Stream) {
	l.clearDeadline(s)
	l.waiting.remove(s)
}

// put gives a stream another deadline.
func (l *forced) setDeadline(s *Stream, at time.Duration) {
	if l.clearDeadline(s); s.closed {
		return
	}
	s.deadline, s.reservation, s.checkAt = at, noReservation, at
	l.waiting.set(s)
}

// wait returns how long it takes until the budget allows a packet.
func (l *forced) wait(now time.Duration) time.Duration {
	if passed := now - l.refilled; passed > 0 {
		l.tokens = min(forcedBurst, l.tokens+passed/forcedFraction)
		l.refilled = now
	}
	if l.tokens < 0 {
		return max(-l.tokens*forcedFraction, l.notBefore-now)
	}
	return max(0, l.notBefore-now)
}

// atOnce returns how many packets may be at the device while s is the first in line.
func (l *forced) maxInFlight(a *Arbiter, s *Stream, now time.Duration) int {
	return 1 + int((now-s.deadline)/(a.patience(s)/repeatAfter))
}

// spend takes a packet's device time from the budget.
func (l *forced) spend(took, now time.Duration) {
	l.tokens -= took
	l.notBefore = max(l.notBefore, now-forcedCredit) + took*burstSpacing
}

// giveBack gives the budget the time of a packet that proved resident.
func (l *forced) refund(took time.Duration) {
	l.tokens = min(forcedBurst, l.tokens+took)
	l.notBefore -= took * burstSpacing
}

// letThrough lets a writer or a sender go on for a packet.
func (a *Arbiter) admitPacket(s *Stream, now time.Duration) {
	s.flow.forced++
	s.flow.forcedBytes += leaseFloor
	s.waiting = now
	a.forced.clearDeadline(s)
	s.mark = max(s.mark, s.pos+leaseFloor)
	if s.parkedIndex > 0 { // it goes to the end
		s.parked = now
		s.flow.parked.set(s)
	}
	a.updateWait(s, now)
	a.sendMark(s)
}

// force starts a packet for a reader, out of its flow's turn.
func (a *Arbiter) force(s *Stream, now time.Duration) {
	l, f := &a.forced, s.flow
	r := a.makeRequest(s, forcedBytes)
	r.forced = true
	r.cost = a.pricing.charge(false, r.Length)
	t, err := a.sched.Force(f.id, r.cost)
	if err != nil {
		a.fault("force", err)
	}
	r.ticket = t
	l.inFlight++
	l.spend(a.packetTime(r.Length), now)
	f.forced++
	f.forcedBytes += r.Length
	if s.moved = now; s.waiting > 0 {
		s.waiting = now
	}
	s.probe = s.pos + 1
	l.clearDeadline(s)
	l.startWait(a, s, now)
	if f.lastPacket = now; f.overdueIndex > 0 {
		l.overdue.set(f)
	}
	a.startRequest(r, now)
}

// ended looks at a reader whose packet has been staged. If it does not go on, the packet was less
// than it reads at a time.
func (l *forced) ended(a *Arbiter, s *Stream, now time.Duration) {
	if a.stalledSince(s) > 0 {
		l.setDeadline(s, now+a.patience(s)/repeatAfter)
	} else { // it has enough: its client is slow
		s.probe = 0
		l.clearDeadline(s)
	}
}
