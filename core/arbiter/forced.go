package arbiter

import "time"

// Forced packets. With a small share or a low limit, a client may give up before its stream's turn
// comes. The client then requests another replica, which makes the overload worse. So a stream
// counts as starved when it has waited as long as its patience allows. It then gets one packet,
// regardless of its flow's share or limit:
//
//   - Normally one packet is in flight at a time, and it counts within the depth. Flows with
//     starved streams take turns. Within a flow, the stream with the earliest deadline goes first.
//     A packet waits until the requests that are already at the device have ended. If many streams
//     are starved at once, one packet at a time is too slow. So the later the first stream is, the
//     more packets are in flight.
//   - Packets are paid from a small budget of device time, so that other flows keep their shares
//     whatever the number of starved streams is. If many streams begin to starve at once, the
//     budget cannot serve all of them at their deadlines. So a stream that has waited for a quarter
//     of its patience reserves device time for its packet in the second of its deadline or, if that
//     second is full, in a slightly later or earlier one (packetschedule.go).
//   - A packet is charged to the flow and to the flow's limit, so that over time the flow gets no
//     more than its entitlement.
//
// After the packet, a new wait begins. If the packet is smaller than the reader needs at once, more
// packets follow soon, up to packetBytes. The number of bytes that a reader needs at once is
// unknown. So a reader with less than packetBytes ahead may be stalled, and gets a deadline.
//
// Nearly all waits are short. So when a stream's wait ends, the stream stays in the heap
// forced.waiting with its old key. If it reaches the top of the heap too early, it is moved.
type forced struct {
	waiting   indexedHeap[*Stream] // streams that are or were stalled, by the time of the next check
	overdue   indexedHeap[*flow]   // flows with starved readers, ordered by the time of their last forced packet
	schedule  packetSchedule
	inFlight  int           // forced packets in flight
	tokens    time.Duration // budget of device time, as of refilled
	nextCheck time.Duration // time of the next check; 0 if the next event suffices
	refilled  time.Duration
	notBefore time.Duration // no packet starts before this time
}

const (
	forcedBytes  = 64 << 10  // one HDFS packet
	readAtOnce   = 128 << 10 // bytes that most servers read at once
	ownChecksums = 48 << 10  // kernel readahead for a process that reads checksums itself
	// The budget is a tenth of the device time, and a quarter in a burst of forcedBurst. If 200
	// readers begin to starve at once on a slow disk, where a packet takes 20 ms, the budget serves
	// all of them in 40 s. With the default patience, 49 s pass between a quarter of the patience
	// and the moment when the clients give up. If quanta of other flows delay packets, the budget
	// makes up for up to forcedCredit of delay.
	forcedFraction = 10
	burstSpacing   = 4
	forcedBurst    = time.Second
	forcedCredit   = 500 * time.Millisecond
	// Clients give up after 5 s at the earliest. A client that states a patience of less than 3 s
	// would only overtake others.
	minPatience = 3 * time.Second
	// A packet that was too small is followed by another one after a sixteenth of the patience. The
	// client's own time-out is 4/3 of the patience.
	repeatAfter = 16
	// A stream reserves device time for its packet after a quarter of its patience.
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

// stalledSince returns the time at which a stream became stalled, or 0 if it is not stalled. A
// reader with few bytes ahead may need more at once than it has. It counts as stalled since its
// last progress if it has less than packetBytes ahead, or less than readAtOnce once Config.Staged
// is used up.
func (a *Arbiter) stalledSince(s *Stream) time.Duration {
	if s.waiting == 0 && !s.Write && s.Kind != Network && s.mark != Open {
		if ahead := s.done - s.pos; ahead < readAtOnce || ahead < packetBytes && a.staged < a.cfg.Staged {
			return s.moved
		}
	}
	return s.waiting
}

// watch sets a stream's deadline when the stream begins to wait, and clears it when the stream
// continues.
func (l *forced) watch(a *Arbiter, s *Stream, now time.Duration) {
	if s.probe > 0 && s.pos >= s.probe { // the stream has made progress: its present wait is a new one
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

// startWait sets the deadline of a wait that began at the given time.
func (l *forced) startWait(a *Arbiter, s *Stream, since time.Duration) {
	s.deadline, s.reservation = since+a.patience(s), notReserved
	if at := a.reservationTime(s); s.forcedIndex == 0 || at < s.checkAt {
		s.checkAt = at
		l.waiting.set(s)
	}
}

// reservationTime returns the time at which a stream makes its reservation.
func (a *Arbiter) reservationTime(s *Stream) time.Duration {
	p := a.patience(s)
	return s.deadline - p + p/reserveAfter
}

// reserve makes the reservation of a stream.
func (l *forced) reserve(a *Arbiter, s *Stream, now time.Duration) {
	if s.reservation = noReservation; s.Write || s.Kind == Network {
		return // it needs no device request
	}
	s.deadline, s.reservation = l.schedule.reserve(now, s.deadline, s.deadline+a.patience(s)/repeatAfter, a.packetTime(forcedBytes))
}

// packetTime returns the device time of a packet, including a seek to it and a seek back.
func (a *Arbiter) packetTime(bytes int64) time.Duration {
	return 2*a.pricing.served(false, false, bytes) - a.pricing.served(false, true, bytes)
}

// check handles all streams whose check is due. Starved writers and senders continue at once,
// because they need no request. Readers make their reservations. Starved readers are queued.
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

// candidate returns the reader that gets a forced packet now, or nil if there is none.
func (l *forced) candidate(a *Arbiter, now time.Duration) *Stream {
	l.nextCheck = 0
	l.check(a, now)
	for l.overdue.len() > 0 {
		s := l.overdue.first().overdue.first()
		if s.meta.next < s.meta.end && s.inFlight == 0 {
			// The checksums are not staged either. Two packets would take longer than one, so the
			// reader's process reads the checksums itself. They are 1/128 of the data.
			bytes := min(s.meta.end-s.meta.next, ownChecksums)
			s.meta, s.done = span{}, max(s.done, s.From)
			a.bookUnscheduled(s, bytes, now)
		}
		if _, _, bytes := a.nextOf(s); bytes == 0 && s.inFlight == 0 {
			if a.stage(s, now); s.deadline == 0 {
				continue // the stream is not starved
			}
			if s.want == 0 && s.next < s.To && s.next-s.pos < packetBytes { // there was no room to stage
				s.want = min(forcedBytes, s.To-s.next)
				a.updateReady(s, now)
			}
		}
		if _, _, bytes := a.nextOf(s); bytes == 0 || s.inFlight > 0 { // a request of the stream is in flight
			l.setDeadline(s, now+a.patience(s)/repeatAfter)
			continue
		}
		if l.inFlight > 0 && l.inFlight >= l.maxInFlight(a, s, now) {
			return nil // the end of a packet will cause the next call
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

// clearDeadline clears a stream's deadline and reservation.
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

// forget removes a stream that has ended.
func (l *forced) forget(s *Stream) {
	l.clearDeadline(s)
	l.waiting.remove(s)
}

// setDeadline gives a stream another deadline, without a reservation.
func (l *forced) setDeadline(s *Stream, at time.Duration) {
	if l.clearDeadline(s); s.closed {
		return
	}
	s.deadline, s.reservation, s.checkAt = at, noReservation, at
	l.waiting.set(s)
}

// wait returns the time until the budget allows a packet.
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

// maxInFlight returns how many forced packets may be in flight while s is the first starved stream.
func (l *forced) maxInFlight(a *Arbiter, s *Stream, now time.Duration) int {
	return 1 + int((now-s.deadline)/(a.patience(s)/repeatAfter))
}

// spend takes a packet's device time from the budget.
func (l *forced) spend(took, now time.Duration) {
	l.tokens -= took
	l.notBefore = max(l.notBefore, now-forcedCredit) + took*burstSpacing
}

// refund gives a packet's device time back to the budget. It is called if the packet was resident.
func (l *forced) refund(took time.Duration) {
	l.tokens = min(forcedBurst, l.tokens+took)
	l.notBefore -= took * burstSpacing
}

// admitPacket lets a writer or sender continue by one packet.
func (a *Arbiter) admitPacket(s *Stream, now time.Duration) {
	s.flow.forced++
	s.flow.forcedBytes += leaseFloor
	s.waiting = now
	a.forced.clearDeadline(s)
	s.mark = max(s.mark, s.pos+leaseFloor)
	if s.parkedIndex > 0 { // the stream moves to the end of the queue
		s.flow.users.park(s, now)
	}
	a.updateWait(s, now)
	a.sendMark(s)
}

// force starts a packet for a reader, out of turn.
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

// ended handles the end of a reader's forced packet. If the reader is still stalled, the packet was
// smaller than the reader needs at once.
func (l *forced) ended(a *Arbiter, s *Stream, now time.Duration) {
	if a.stalledSince(s) > 0 {
		l.setDeadline(s, now+a.patience(s)/repeatAfter)
	} else { // the reader has enough bytes: its client is slow
		s.probe = 0
		l.clearDeadline(s)
	}
}
