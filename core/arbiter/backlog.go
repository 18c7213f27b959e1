package arbiter

import "time"

// backlog is the state for the bounds of writers. It counts the bytes that all flows have written
// and the device does not have yet, the flows that have used the device recently, and the device's
// speed in that time. An entitlement counts only by the part of the time in which its flow wants
// the device. So a flow of large weight that rarely writes a few bytes takes no room from other
// flows.
type backlog struct {
	all      int64          // bytes
	writing  int64          // number of flows with writers
	kept     int            // closed streams with deferred bytes
	deferred deferredTotals // of all flows
	large    float64        // entitlement of the flows with more than the basic backlog
	claims   float64        // sum of flow.demand over the flows that used the device recently

	moved int64   // bytes moved since the last tick
	bytes float64 // moving average of bytes in a tick with a request, starting at 0
	seen  float64 // weight of the ticks in the average, 0 to 1
}

// deferredTotals sums up the deferred bytes of all flows.
type deferredTotals struct {
	weight float64 // entitlement of the flows with deferred bytes
	using  float64 // entitlement of the flows that use more than half of their part
	others int64   // bytes reserved for the other flows: twice their deferred bytes
}

const (
	// drainTime is the time in which a flow's share must be able to drain the part of its backlog
	// beyond the basic backlog. If the share then becomes small, this much device time may go to
	// earlier writes. deferredDrainTime is the same for deferred bytes.
	drainTime         = 8 * time.Second
	deferredDrainTime = 12 * time.Second

	// kernelAge is the maximum age of a page before the kernel writes it back. By default, this is
	// 30 s (vm.dirty_expire_centisecs) plus the 5 s between two checks.
	kernelAge = 35 * time.Second

	shrinkRate  = 0.4             // each of a flow's two bounds may decrease by this part of the flow's drained bytes
	recently    = 2 * time.Second // a flow counts as using the device for this long after its last request
	averageGain = 0.03            // weight of one tick in moving averages over about 3 s
	busyGain    = 0.1             // weight of a tick with a request in flow.busy: a flow that begins to work soon counts fully

	grantsAtOnce = 64 // leases granted in one call
	tailsAtOnce  = 16 // tails that are checked until one fills a page
)

// measure visits all flows at work. It runs at every tick.
func (b *backlog) measure(a *Arbiter, now time.Duration) {
	a.tree.measure(a, now)
	b.deferred, b.large, b.claims = deferredTotals{}, 0, 0
	enough := a.cfg.Backlog / 2
	for _, f := range a.active {
		entitled := f.leaf.entitled
		if f.deferred > 0 {
			b.deferred.weight += entitled
		}
		if f.backlog-min(f.deferred, f.deferredRoom) > enough {
			b.large += entitled
		}
		if f.ready.len() > 0 || f.inFlight > 0 {
			f.used = now
			f.busy += busyGain * (1 - f.busy)
		} else {
			f.busy -= averageGain * f.busy
		}
		if f.recent(now) {
			b.claims += f.demand()
		}
	}
	for _, f := range a.active {
		if f.usesDeferred = 2*f.deferred > f.portion(a.cfg.Lazy, b.deferred.weight); f.usesDeferred {
			b.deferred.using += f.leaf.entitled
		} else {
			b.deferred.others += 2 * f.deferred
		}
	}
	if b.moved > 0 || len(a.running) > 0 {
		b.bytes += averageGain * (float64(b.moved) - b.bytes)
		b.seen += averageGain * (1 - b.seen)
		b.moved = 0
	}
}

// rate returns the device's bytes per second, averaged over recent ticks with requests, or 0 if
// there were none.
func (b *backlog) rate() float64 {
	if b.seen <= 0 {
		return 0
	}
	return b.bytes / b.seen / tickPeriod.Seconds()
}

// drainable returns how many bytes the flow's share of the device drains in the given time, beside
// the flows that used the device recently. It returns 0 if the device's rate is unknown.
func (a *Arbiter) drainable(f *flow, in time.Duration) int64 {
	others := a.backlog.claims
	if f.inactiveSince == 0 && f.used > 0 {
		others -= f.demand()
	}
	share := f.leaf.entitled / (f.leaf.entitled + max(0, others))
	return int64(a.backlog.rate() * share * in.Seconds())
}

// demand returns the flow's entitlement times the part of the recent time in which it wanted the
// device.
func (f *flow) demand() float64 { return f.leaf.entitled * f.busy }

// portion returns the flow's part of bytes that are divided by entitlement. all is the sum of the
// entitlements, including the flow's own.
func (f *flow) portion(bytes int64, all float64) int64 {
	return int64(float64(bytes) * f.leaf.entitled / max(all, f.leaf.entitled))
}

// backlogBound returns the backlog that a flow may have. It is Config.Backlog, or an equal part of
// Config.Dirty if many flows write. With a limit, it is at most the bytes that the limit drains in
// limitBacklog. A flow with a large share may have more, because the page cache would also absorb a
// burst without the daemon: it gets its part of the rest of Config.Dirty, as far as its share
// drains the whole backlog well before the kernel writes it back.
func (a *Arbiter) backlogBound(f *flow) int64 {
	writing := max(1, a.backlog.writing)
	bound := min(a.cfg.Backlog, a.cfg.Dirty/writing)
	if f.limit != nil {
		f.room = max(leaseFloor, min(bound, int64(limitBacklog.Seconds()*float64(f.limit.Rate()))))
		return f.room
	}
	bound += min(f.portion(a.cfg.Dirty-writing*bound, a.backlog.large), max(0, a.drainable(f, drainTime)-bound))
	f.room = max(f.room, leaseFloor, bound)
	return f.room
}

// deferredBound returns how many bytes of a flow may be deferred. It is the flow's part of
// Config.Lazy, as far as the flow's share could drain it in deferredDrainTime, plus the part of the
// backlog's bound beyond Config.Backlog. With more deferred bytes, the kernel would write some back
// first, in its own order. The flow's other writers get the room that deferred bytes leave. The
// opposite order would be wrong: their bytes must reach the device, and deferred bytes may not have
// to.
func (a *Arbiter) deferredBound(f *flow) int64 {
	backlog := a.backlogBound(f)
	half := backlog / 2
	if f.limit != nil {
		f.deferredRoom = half
		return half
	}
	bound := a.deferredPortion(f)
	if drains := a.drainable(f, deferredDrainTime); drains > 0 {
		bound = min(bound, max(half, drains))
	}
	f.deferredRoom = max(f.deferredRoom, leaseFloor, bound)
	return f.deferredRoom + backlog - min(backlog, a.cfg.Backlog)
}

// deferredPortion returns the flow's part of Config.Lazy by its entitlement. If the flow uses that
// part, it also gets a share of the room that other flows leave unused.
func (a *Arbiter) deferredPortion(f *flow) int64 {
	s := &a.backlog.deferred
	portion := f.portion(a.cfg.Lazy, s.weight)
	if f.usesDeferred {
		portion = max(portion, f.portion(a.cfg.Lazy-s.others, s.using))
	}
	return portion
}

// shrinkBounds lowers bounds slowly, by less than the flow's share drains in a tick. If the bounds
// decreased at once, writers would wait until the whole difference is drained. With a small share,
// that takes longer than a client should wait.
func (a *Arbiter) shrinkBounds(f *flow) {
	room, lazy, step := f.room, f.deferredRoom, f.room+f.deferredRoom // decrease at once if the drain rate is unknown
	if drains := a.drainable(f, tickPeriod); drains > 0 {
		step = int64(shrinkRate * float64(drains))
	}
	f.room, f.deferredRoom = 0, 0
	a.deferredBound(f) // sets both to their present values
	if f.limit == nil {
		f.room, f.deferredRoom = max(f.room, room-step), max(f.deferredRoom, lazy-step)
	}
}

// freeRoom returns how many bytes the flow's writers may still write within its bounds.
func (a *Arbiter) freeRoom(f *flow) int64 {
	bound := a.backlogBound(f)
	room := bound - f.backlog
	if f.limit == nil && f.deferred > 0 {
		wait := a.deferredBound(f)
		room = min(room+min(f.deferred, wait), bound+f.deferredRoom-f.backlog) // deferred bytes do not count
	}
	return room
}

// grant gives a writer a lease while its flow's backlog is below the bound, and parks the writer
// otherwise. The remaining room is divided equally among the flow's writers, so that no writer can
// use all of it.
func (a *Arbiter) grant(s *Stream, now time.Duration) {
	f := s.flow
	room := a.freeRoom(f)
	if room > 0 && f.parked.len() == 0 {
		a.giveLease(s, room, now)
		return
	}
	if room <= 0 {
		a.drainTail(f, now)
	}
	if s.mark <= s.pos && s.parkedIndex == 0 {
		s.parked = now
		f.parked.set(s)
	}
	a.updateWait(s, now)
	a.sendMark(s)
	if room > 0 {
		a.grantParked(f, now)
	}
}

func (a *Arbiter) giveLease(s *Stream, room int64, now time.Duration) (lease int64) {
	lease = min(leaseBytes, max(leaseFloor, room/int64(max(1, s.flow.writing))))
	s.mark = max(s.mark, s.pos+lease)
	a.updateWait(s, now)
	// No frame is needed while the agent's mark leaves enough room.
	if s.sent < 0 || s.sent == Open || s.sent-s.pos <= leaseBytes/2 {
		a.sendMark(s)
	}
	return lease
}

// grantParked gives leases to the flow's parked writers, longest wait first, while there is room.
// If there are many, it continues in the next call of Decide.
func (a *Arbiter) grantParked(f *flow, now time.Duration) {
	if f.parked.len() == 0 || f.granting {
		return
	}
	room := a.freeRoom(f)
	for n := 0; room > 0 && f.parked.len() > 0; n++ {
		if n == grantsAtOnce {
			f.granting = true
			a.grantQueue = append(a.grantQueue, f)
			return
		}
		s := f.parked.first()
		f.parked.remove(s)
		room -= a.giveLease(s, room, now)
	}
	if room <= 0 && f.parked.len() > 0 {
		a.drainTail(f, now)
	}
}

// continueGrants continues with the flows that grantParked did not finish.
func (a *Arbiter) continueGrants(now time.Duration) {
	flows := len(a.grantQueue)
	for range flows {
		f := a.grantQueue[0]
		a.grantQueue = append(a.grantQueue[:0], a.grantQueue[1:]...)
		f.granting = false
		a.grantParked(f, now)
	}
}

// drainTail drains a part of a quantum for a flow with a full backlog. The backlog may consist only
// of parts of quanta, for example with many writers, and the flow would stop otherwise. drainTail
// drains the oldest part. If there is no part, it drains a quantum of the oldest deferred bytes.
func (a *Arbiter) drainTail(f *flow, now time.Duration) {
	if f.ready.dirs[1].n > 0 {
		return // a write is queued already
	}
	for n := 0; n < tailsAtOnce && f.tails.len() > 0; n++ {
		s := f.tails.first()
		if a.flush(s, now); s.queued.index > 0 {
			return
		}
		s.unflushed = now // the part fills no page, and waits for more bytes
		f.tails.set(s)
	}
	a.drainOldest(f, 1, now)
}
