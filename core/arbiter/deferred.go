package arbiter

import "time"

// Deferred writes. A task often merges and deletes its spilled bytes so early that, without the
// daemon, the kernel would never write them to the device. To drain such bytes at once would be
// wasted work. So bytes of kind intermediate are deferred: they stay in the page cache while the
// flow has no more of them than deferredBound. Beyond that, the oldest bytes are drained first. Old
// bytes are always drained before the kernel writes them back, after 30 s, because the kernel's
// writeback follows no shares. The more deferred bytes there are, the earlier their draining
// begins.
//
// A closed stream with deferred bytes is kept, with its file descriptor, until it is drained or its
// file is deleted. The descriptor is needed to drain it and to check for deletion.

const (
	deletedCheckEvery = time.Second // between two checks for deleted files
	maxKept           = 4096        // bound of the device's kept streams
)

// drainTo releases the deferred bytes of a stream up to a position, so that they can be drained.
func (a *Arbiter) drainTo(s *Stream, to int64) {
	if to = min(to, s.pos); to <= s.flushTo {
		return
	}
	bytes := to - s.flushTo
	if s.deferredBytes > 0 {
		// The bytes are assumed to be written evenly over time.
		part := float64(bytes) / float64(s.deferredBytes)
		s.unflushed += time.Duration(part * float64(s.latest-s.unflushed))
	}
	s.flushTo = to
	s.deferredBytes -= bytes
	s.flow.deferred -= bytes
	if s.deferredBytes == 0 {
		s.unflushed = 0
	}
	s.flow.updateDeferred(s)
}

// drainExcess releases the flow's oldest deferred bytes beyond its bound.
func (a *Arbiter) drainExcess(f *flow, now time.Duration) {
	for {
		over := f.deferred - a.deferredBound(f)
		if over <= 0 || !a.drainOldest(f, over, now) {
			return
		}
	}
}

// drainOldest releases the given number of bytes of the flow's oldest deferred stream, in whole
// quanta. If the stream's file is deleted, it drops the stream from the backlog instead. It reports
// whether there was a deferred stream.
func (a *Arbiter) drainOldest(f *flow, bytes int64, now time.Duration) bool {
	s := f.oldest()
	switch {
	case s == nil:
		return false
	case s.Opening.File.Deleted():
		a.dropDeleted(s, now)
	default:
		a.drainMore(s, bytes, now)
	}
	return true
}

// drainMore releases the given number of further deferred bytes of a stream, in whole quanta.
func (a *Arbiter) drainMore(s *Stream, bytes int64, now time.Duration) {
	quantum := a.quantum(s.flow)
	to := s.pos
	if bytes < s.deferredBytes {
		to = min(to, s.flushTo+(bytes+quantum-1)/quantum*quantum)
	}
	a.drainTo(s, s.wholePages(to))
	a.updateReady(s, now)
}

// updateDeferred adds a stream to the flow's deferred streams, or removes it. An open stream
// belongs there if its deferred bytes contain at least one full page, and a closed one if it has
// any.
func (f *flow) updateDeferred(s *Stream) {
	if s.deferredBytes >= 2*pageBytes || s.closed && s.deferredBytes > 0 {
		f.deferredQueue.set(s)
	} else {
		f.deferredQueue.remove(s)
	}
}

// unlist removes a stream from the queues of undrained streams.
func (f *flow) unlist(s *Stream) {
	if s.deferred() {
		f.deferredQueue.remove(s)
	} else {
		f.tails.remove(s)
	}
}

// oldest returns the stream with the oldest deferred bytes, or nil if there is none.
func (f *flow) oldest() *Stream {
	if f.deferredQueue.len() == 0 {
		return nil
	}
	return f.deferredQueue.first()
}

// drainInTime drains the flow's oldest deferred bytes early enough that the flow's share can drain
// all of them before the kernel would write them back. It runs at every tick and releases no more
// bytes than the share drains, because the share may be small only for a moment.
func (a *Arbiter) drainInTime(f *flow, now time.Duration) {
	second := a.drainable(f, time.Second)
	if second <= 0 {
		return
	}
	for f.early = min(f.early, a.quantum(f)) + a.drainable(f, tickPeriod); f.early >= a.quantum(f); {
		left := kernelAge - time.Duration(float64(f.deferred)/float64(second)*float64(time.Second))
		s, before := f.oldest(), f.deferred
		if s == nil || now-s.unflushed <= max(a.cfg.FlushAge, left) || !a.drainOldest(f, 1, now) {
			return
		}
		f.early -= before - f.deferred
	}
}

// keepOpen keeps a closed stream that has deferred bytes. If the flow or the device then has too
// many kept streams, its oldest one is drained.
func (a *Arbiter) keepOpen(s *Stream, now time.Duration) {
	if s.deferredBytes == 0 {
		return
	}
	s.kept = true
	s.flow.kept++
	a.backlog.kept++
	s.flow.updateDeferred(s)
	switch {
	case s.flow.kept > a.cfg.LazyFiles:
		a.flush(s.flow.oldestKept(), now)
	case a.backlog.kept > maxKept:
		var oldest *Stream
		for _, f := range a.active {
			if o := f.oldestKept(); o != nil && (oldest == nil || o.before(oldest)) {
				oldest = o
			}
		}
		if oldest != nil {
			a.flush(oldest, now)
		}
	}
}

// oldestKept returns the flow's kept stream with the oldest bytes, or nil if there is none.
func (f *flow) oldestKept() (oldest *Stream) {
	for _, s := range f.deferredQueue.items {
		if s.kept && (oldest == nil || s.before(oldest)) {
			oldest = s
		}
	}
	return oldest
}

// before orders streams by the age of their bytes, oldest first, and then by the name of the flow.
func (s *Stream) before(o *Stream) bool {
	if s.unflushed != o.unflushed {
		return s.unflushed < o.unflushed
	}
	return s.flow.name < o.flow.name
}

// endKeeping stops keeping a stream once all its bytes are requested.
func (a *Arbiter) endKeeping(s *Stream) {
	if s.kept && s.next == s.pos {
		s.kept = false
		s.flow.kept--
		a.backlog.kept--
	}
}

// drainAged drops a flow's deferred streams with deleted files, and drains deferred bytes that are
// older than Config.LazyAge.
func (a *Arbiter) drainAged(f *flow, now time.Duration) {
	if now-f.deletedCheck >= deletedCheckEvery {
		f.deletedCheck = now
		for i := 0; i < f.deferredQueue.len(); {
			if s := f.deferredQueue.items[i]; s.Opening.File.Deleted() {
				a.dropDeleted(s, now) // another stream takes this index; a stream that is missed is checked next time
			} else {
				i++
			}
		}
	}
	for s := f.oldest(); s != nil && now-s.unflushed > a.cfg.LazyAge; s = f.oldest() {
		before := s.flushTo
		bytes := s.deferredBytes
		if over := now - a.cfg.LazyAge - s.unflushed; now-s.latest <= a.cfg.LazyAge { // the bytes are assumed to be written evenly over time
			bytes = int64(float64(over) / float64(s.latest-s.unflushed) * float64(s.deferredBytes))
		}
		a.drainMore(s, max(1, bytes), now)
		if s.flushTo == before {
			return
		}
	}
}

// dropDeleted drops a deleted file from the backlog. Bytes that are not requested yet need not be
// drained; bytes that a sync or the kernel has written are charged to the flow. A writer with the
// file still open continues, and its further bytes do not count.
func (a *Arbiter) dropDeleted(s *Stream, now time.Duration) {
	f := s.flow
	before := f.backlog
	start := s.next
	a.dropUndrained(s, now)
	s.deleted = true
	if bytes := before - f.backlog; bytes > 0 {
		saved := s.Opening.File.Saved(start, bytes)
		if saved > 0 {
			a.bookUnscheduled(s, saved, now)
		}
		f.dropped++
		f.droppedBytes += bytes - saved
	}
	a.clearWant(s, now)
	a.release(s, now)
	a.grantParked(f, now)
}

// dropUndrained removes from the backlog those bytes of the stream that are not requested yet.
func (a *Arbiter) dropUndrained(s *Stream, now time.Duration) {
	left := s.pos - s.next
	if s.deferred() {
		s.flow.deferred -= s.deferredBytes
		s.deferredBytes = 0
	}
	s.addUndrained(-left)
	a.backlog.all -= left
	s.next, s.flushTo = s.pos, s.pos
	if len(s.pending) == 0 {
		s.done = s.pos
	}
	s.unflushed = 0
	s.flow.unlist(s)
	a.endKeeping(s)
	a.updateReady(s, now)
}
