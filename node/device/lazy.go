package device

import "time"

// Lazily drained writes. What a task spills to a local disk is often merged and
// deleted before a device would natively have seen it, and what is drained at once
// is then work for nothing. So a stream of kind intermediate is left in the page
// cache while no more of the flow waits than lazyBound, and the rest goes out oldest
// first. What is old is drained all the same before the kernel's own 30 s are over,
// since what the kernel writes out has no share; the earlier the more there is of it.
//
// A closed stream is kept, descriptor and all, until it is drained or its file
// deleted: the descriptor is what tells that, and what can drain it.

const (
	lookEvery = time.Second // at whether a file that waits has been deleted
	maxKept   = 4096        // closed streams kept on the device
)

// lazy tells whether the stream is drained lazily.
func (s *Stream) lazy() bool { return s.Write && s.Kind == Intermediate }

// relieve queues quanta of the flow's oldest lazy streams until no more than its
// bound is left waiting.
func (l *Loop) relieve(f *flow, now time.Time) {
	for f.lazy > l.lazyBound(f, now) && !f.full() {
		if !l.drainOldest(f.oldest(hasPages), now) {
			return
		}
	}
}

// hasPages leaves out parts of pages, in files that are being written.
func hasPages(s *Stream) bool { return s.closed || s.pos-s.next >= 2*pageBytes }

// drainOldest queues a quantum of a stream, if there is one, or takes it off the backlog
// where its file is gone.
func (l *Loop) drainOldest(s *Stream, now time.Time) bool {
	switch {
	case s == nil:
		return false
	case s.Block.Deleted():
		l.vanish(s, now)
		return true
	default:
		return l.drainOne(s, true, now)
	}
}

// drainInTime begins with the flow's oldest streams while its share of the device could
// still drain all of them before the kernel would. It runs at every tick and queues no more
// than the share drains: a share may be a small one for a moment only.
func (l *Loop) drainInTime(f *flow, now time.Time) {
	second := l.drains(f, time.Second)
	if second <= 0 {
		return
	}
	for f.early = min(f.early, l.quantum(f)) + l.drains(f, tickPeriod); f.early >= l.quantum(f) && !f.full(); {
		left := kernelAge - time.Duration(float64(f.lazy)/float64(second)*float64(time.Second))
		s, before := f.oldest(hasPages), f.lazy
		if s == nil || now.Sub(s.unflushed) <= max(l.cfg.FlushAge, left) || !l.drainOldest(s, now) {
			return
		}
		f.early -= before - f.lazy
	}
}

// lazyBound is what a flow may have waiting without being drained: its part
// of what the device lets wait, as far as its share of the device could drain that in
// lazyTime, and of the bound of its backlog all but what each flow may have anyway. Else a
// flow of little weight would have more than goes out before the kernel takes it, in its
// own order. Its other writers have what the spills leave, and not the other way about:
// what they write has to reach the device, and a spill perhaps has not.
func (l *Loop) lazyBound(f *flow, now time.Time) int64 {
	backlog := l.bound(f, now)
	half := backlog / 2
	if f.limit != nil {
		f.lazyRoom = half
		return half
	}
	bound := l.lazyPart(f)
	if drains := l.drains(f, lazyTime); drains > 0 {
		bound = min(bound, max(half, drains))
	}
	f.lazyRoom = max(f.lazyRoom, leaseFloor, bound)
	return f.lazyRoom + backlog - min(backlog, l.cfg.Backlog)
}

// oldest is the flow's lazy stream whose bytes have waited the longest.
func (f *flow) oldest(among func(*Stream) bool) (oldest *Stream) {
	for _, s := range f.writers {
		if s.lazy() && s.next < s.pos && among(s) && (oldest == nil || s.unflushed.Before(oldest.unflushed)) {
			oldest = s
		}
	}
	return oldest
}

// keep holds on to a closed stream that has bytes waiting, and past the bound
// drains the oldest of the flow's that are kept.
func (l *Loop) keep(s *Stream, now time.Time) {
	if s.next == s.pos {
		return
	}
	s.kept = true
	s.flow.kept++
	l.kept++
	kept := func(s *Stream) bool { return s.kept }
	switch {
	case s.flow.kept > l.cfg.LazyFiles:
		l.drain(s.flow.oldest(kept), true, now)
	case l.kept > maxKept:
		var oldest *Stream
		for _, f := range l.flows {
			if o := f.oldest(kept); o != nil && (oldest == nil || o.before(oldest)) {
				oldest = o
			}
		}
		l.drain(oldest, true, now)
	}
}

// before orders streams by how long their bytes have waited, and those of one time by
// the flow's name, so that nothing depends on the order of a map.
func (s *Stream) before(o *Stream) bool {
	if !s.unflushed.Equal(o.unflushed) {
		return s.unflushed.Before(o.unflushed)
	}
	return s.flow.name < o.flow.name
}

// unkeep lets go of a stream that has nothing waiting any more.
func (l *Loop) unkeep(s *Stream) {
	if s.kept && s.next == s.pos {
		s.kept = false
		s.flow.kept--
		l.kept--
	}
}

// ageLazy looks at a lazy stream at a tick.
func (l *Loop) ageLazy(s *Stream, now time.Time) {
	if s.gone || s.done >= s.pos {
		return
	}
	if now.Sub(s.looked) >= lookEvery {
		s.looked = now
		if s.Block.Deleted() {
			l.vanish(s, now)
			return
		}
	}
	for !s.unflushed.IsZero() && now.Sub(s.unflushed) > l.cfg.LazyAge && !s.flow.full() && l.drainOne(s, true, now) {
	}
}

// vanish takes a deleted file off the backlog: what is not at the device by now
// need not go there, and what somebody's sync or the kernel has brought there is on the
// flow's account. Its writer, if there is one, may go on; nothing of it counts.
func (l *Loop) vanish(s *Stream, now time.Time) {
	f := s.flow
	before := f.backlog
	l.cancel(s)
	l.skipRest(s)
	s.gone = true
	if bytes := before - f.backlog; bytes > 0 {
		saved := savedBytes(s.Block, s.pos-bytes, bytes) // cut in order: it is the end
		if saved > 0 {
			l.behind(s, saved, now)
		}
		f.dropped++
		f.droppedBytes += bytes - saved
	}
	l.release(s)
	l.grant(f)
}

// skipRest takes what has not been queued off the backlog.
func (l *Loop) skipRest(s *Stream) {
	left := s.pos - s.next
	if s.lazy() {
		s.flow.lazy -= left
	}
	l.drained(s, left)
	s.next = s.pos // taken back once
	if len(s.pending) == 0 {
		s.done = s.pos
	}
	s.unflushed = time.Time{}
	l.unkeep(s)
}
