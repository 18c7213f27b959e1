package arbiter

import "time"

// backlog is the state from which the bounds of writers are computed. It contains the bytes that
// all flows have written and that have not reached the device, the entitlements of the flows that
// used the device recently, and the device's recent speed. The entitlement of a flow counts in
// proportion to the time in which the flow wants the device. So a flow of large weight that rarely
// writes a few bytes takes no room from other flows.
type backlog struct {
	all      int64          // bytes
	writing  int64          // number of flows with writers
	kept     int            // closed streams with deferred bytes
	deferred deferredTotals // of all flows
	large    float64        // sum of the entitlements of flows with a backlog above half of Config.Backlog
	claims   float64        // sum of flow.demand over the flows that used the device recently

	moved int64   // bytes moved since the last tick
	bytes float64 // moving average of the bytes moved in a tick with a request, starting at 0
	seen  float64 // sum of the weights of the ticks in this average, 0 to 1
}

// deferredTotals sums up the deferred bytes of all flows.
type deferredTotals struct {
	weight float64 // sum of the entitlements of flows with deferred bytes
	using  float64 // sum of the entitlements of flows that use more than half of their part
	others int64   // bytes reserved for the other flows: twice their deferred bytes
}

const (
	// drainTime is the time in which a flow's share must be able to drain the flow's whole backlog,
	// if the backlog is larger than Config.Backlog. If the share becomes small later, the bytes
	// that are already written may still take this much device time. deferredDrainTime is the same
	// for deferred bytes.
	drainTime         = 8 * time.Second
	deferredDrainTime = 12 * time.Second

	// kernelAge is the maximum age of a page before the kernel writes it back. By default, this is
	// 30 s (vm.dirty_expire_centisecs) plus the 5 s between two checks.
	kernelAge = 35 * time.Second

	shrinkRate  = 0.4             // each of a flow's two bounds may decrease by this part of the bytes that the flow's share drains
	recently    = 2 * time.Second // a flow counts as using the device for this long after its last request
	averageGain = 0.03            // weight of one tick in moving averages over about 3 s
	busyGain    = 0.1             // weight of a tick with a request in flow.busy; a flow that begins to work counts almost fully after 2 s

	grantsAtOnce = 64 // leases granted in one call
	tailsAtOnce  = 16 // bounds how many tails one call checks until one fills a page
)

// measure computes the sums over all active flows. It runs at every tick.
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

// rate returns the device's bytes per second, averaged over recent ticks with requests, or 0 if no
// tick had a request.
func (b *backlog) rate() float64 {
	if b.seen <= 0 {
		return 0
	}
	return b.bytes / b.seen / tickPeriod.Seconds()
}

// drainable returns how many bytes the flow's share of the device drains in the given time. The
// share is the flow's entitlement among the flows that used the device recently. It returns 0 if
// the device's rate is unknown.
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

// portion returns the flow's part of a number of bytes that several flows share in proportion to
// their entitlements. all is the sum of these entitlements, including the flow's own.
func (f *flow) portion(bytes int64, all float64) int64 {
	return int64(float64(bytes) * f.leaf.entitled / max(all, f.leaf.entitled))
}

// backlogBound returns the backlog that a flow may have. The bound is Config.Backlog or, if many
// flows write, an equal part of Config.Dirty. If the flow has a limit, the bound is at most the
// number of bytes that the limit allows in the time limitBacklog. A flow with a large share may
// have more, because without the daemon the page cache would absorb a burst, too. Such a flow also
// gets its part of the rest of Config.Dirty, but no more than its share drains well before the
// kernel would write the backlog back.
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

// deferredBound returns how many bytes of a flow may be deferred. The number is the flow's part of
// Config.Lazy, but no more than the flow's share could drain in deferredDrainTime, plus the part of
// the backlog's bound beyond Config.Backlog. If more bytes were deferred, the kernel would write
// some of them back before the daemon does, in its own order. Deferred bytes take this room first,
// and the flow's other writers get what is left. The bytes of the other writers must reach the
// device in any case, whereas deferred bytes may be deleted before that.
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

// deferredPortion returns the flow's part of Config.Lazy by its entitlement. If the flow uses more
// than half of that part, it also gets a share of the room that other flows leave unused.
func (a *Arbiter) deferredPortion(f *flow) int64 {
	s := &a.backlog.deferred
	portion := f.portion(a.cfg.Lazy, s.weight)
	if f.usesDeferred {
		portion = max(portion, f.portion(a.cfg.Lazy-s.others, s.using))
	}
	return portion
}

// shrinkBounds lowers a flow's two bounds slowly, by less than the flow's share drains in a tick.
// If the bounds decreased at once, writers would wait until the whole difference is drained. With a
// small share, that would take longer than a client should wait.
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
		room = min(room+min(f.deferred, wait), bound+f.deferredRoom-f.backlog) // deferred bytes within their own bound do not count
	}
	return room
}

// grant gives a writer a lease while its flow's backlog is below the bound, or its user's below the
// user's part of the bound (writingusers.go), and parks the writer otherwise. The remaining room is
// divided equally among the flow's writers, so that no writer can use all of it.
func (a *Arbiter) grant(s *Stream, now time.Duration) {
	f := s.flow
	room := a.freeRoom(f)
	if room > 0 && f.users.parked == 0 {
		a.giveLease(s, f.each(room), now)
		return
	}
	if room <= 0 {
		a.drainTail(f, now)
	}
	if f.withinPart(s) {
		a.giveLease(s, leaseFloor, now)
		return
	}
	if s.mark <= s.pos && s.parkedIndex == 0 {
		f.users.park(s, now)
	}
	a.updateWait(s, now)
	a.sendMark(s)
	if room > 0 {
		a.grantParked(f, now)
	}
}

// each returns the part of a number of bytes for each of the flow's open writers.
func (f *flow) each(room int64) int64 { return room / int64(max(1, f.writing)) }

// giveLease gives a writer a lease of about the given number of bytes, and ends its waiting.
func (a *Arbiter) giveLease(s *Stream, bytes int64, now time.Duration) (lease int64) {
	lease = min(leaseBytes, max(leaseFloor, bytes))
	before := max(s.mark, s.pos)
	s.mark = max(s.mark, s.pos+lease)
	s.flow.users.unpark(s)
	s.flow.users.charge(s.writer, s.mark-before)
	a.updateWait(s, now)
	// No frame is needed while the agent's mark leaves enough room.
	if s.sent < 0 || s.sent == Open || s.sent-s.pos <= leaseBytes/2 {
		a.sendMark(s)
	}
	return lease
}

// grantParked gives leases to the flow's parked writers while there is room, or while there is room
// in their users' parts. Users take turns; among a user's writers, the longest wait comes first. If many
// writers are parked, some get their leases only in the next call of Decide.
func (a *Arbiter) grantParked(f *flow, now time.Duration) {
	if f.users.parked == 0 || f.granting {
		return
	}
	room := a.freeRoom(f)
	for n := 0; room > 0 && f.users.parked > 0; n++ {
		if n == grantsAtOnce {
			f.granting = true
			a.grantQueue = append(a.grantQueue, f)
			return
		}
		room -= a.giveLease(f.users.next(), f.each(room), now)
	}
	if f.users.parked > 0 {
		a.grantParts(f, now)
	}
	if room <= 0 && f.users.parked > 0 {
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

// drainTail drains a tail, that is, bytes that fill no whole quantum, for a flow with a full
// backlog. If the flow has many writers, for example, its backlog may consist only of tails;
// without drainTail, none of them would be drained, and the flow would stop. drainTail drains the
// oldest tail. If there is no tail, it drains a quantum of the oldest deferred bytes.
func (a *Arbiter) drainTail(f *flow, now time.Duration) {
	if f.ready.dirs[1].n > 0 {
		return // a write is queued already
	}
	for n := 0; n < tailsAtOnce && f.tails.len() > 0; n++ {
		s := f.tails.first()
		if a.flush(s, now); s.queued.index > 0 {
			return
		}
		s.unflushed = now // the tail fills no page, and waits for more bytes
		f.tails.set(s)
	}
	a.drainOldest(f, 1, now)
}
