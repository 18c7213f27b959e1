package device

import "time"

// Drained writes. The writer's threads only fill the page cache; the daemon
// empties it quantum by quantum, and a writer waits only while its
// application's backlog is over its bound.

// written takes the writer's progress.
func (l *Loop) written(s *Stream, pos int64) {
	now := time.Now()
	if l.wrote(s, pos, now); s.lazy() {
		l.relieve(s.flow, now)
	} else {
		l.drain(s, false, now)
	}
	l.grant(s.flow)
}

// wrote adds what has been written to the backlog.
func (l *Loop) wrote(s *Stream, pos int64, now time.Time) {
	bytes := s.within(pos) - s.pos
	if bytes <= 0 {
		return
	}
	s.pass(bytes)
	s.pos += bytes
	if s.gone {
		s.next, s.done = s.pos, s.pos
		return
	}
	l.backlog += bytes
	s.flow.backlog += bytes
	if s.lazy() {
		s.flow.lazy += bytes
		setDefault(&s.unflushed, now)
		s.latest = now
	}
}

// within holds a claim that goes beyond a lease against the file, so that no
// frame makes the loop queue what does not exist. HDFS reports what it has
// flushed to the file, never more.
func (s *Stream) within(pos int64) int64 {
	if pos-s.pos <= leaseBytes {
		return pos
	}
	size, err := s.Block.Size()
	if err != nil {
		return s.pos
	}
	return max(s.pos, min(pos, size))
}

// drain cuts what is written into quanta and queues them. Pages that are still
// being filled wait, unless all is to go.
func (l *Loop) drain(s *Stream, all bool, now time.Time) {
	for l.drainOne(s, all, now) {
		s.unflushed = time.Time{} // what is left is younger than a quantum
	}
	if s.next < s.pos {
		setDefault(&s.unflushed, now)
	}
}

// drainOne queues the stream's next quantum, or what there is of it if a part
// will do. It tells whether there was one.
func (l *Loop) drainOne(s *Stream, part bool, now time.Time) bool {
	end := (s.next + l.quantum(s.flow)) / pageBytes * pageBytes
	if end > s.pos && part {
		if end = s.pos; !s.closed {
			end = end / pageBytes * pageBytes
		}
	}
	if end > s.pos || end <= s.next {
		return false
	}
	r := &request{stream: s, file: s.Block, write: true, offset: s.next, length: end - s.next, end: end}
	if s.lazy() {
		// As if it had been written evenly.
		part := float64(r.length) / float64(s.pos-s.next)
		s.unflushed = s.unflushed.Add(time.Duration(part * float64(s.latest.Sub(s.unflushed))))
		s.flow.lazy -= r.length
	}
	if s.next = end; s.next == s.pos {
		s.unflushed = time.Time{}
		l.unkeep(s)
	}
	l.submit(r, now)
	return true
}

// closeWrite queues the tail and the checksums. The DataNode's close does not
// wait for them.
func (l *Loop) closeWrite(s *Stream, pos int64) {
	if pos < 0 {
		// The agent is gone with its DataNode or its connection: what it had
		// not reported yet is in the file.
		if size, err := s.Block.Size(); err == nil {
			pos = size
		}
	}
	now := time.Now()
	l.wrote(s, pos, now)
	s.closed = true
	s.flow.writing--
	switch {
	case !s.lazy():
		l.drain(s, true, now)
	case s.Block.Deleted():
		l.vanish(s, now)
		return
	default:
		l.keep(s, now)
		l.relieve(s.flow, now)
	}
	if s.Meta != nil {
		if size, err := s.Meta.Size(); err == nil && size > 0 {
			l.submit(&request{stream: s, file: s.Meta, write: true, meta: true, length: size, end: s.pos}, now)
		}
	}
	l.grant(s.flow)
}

// drained takes bytes off the backlog.
func (l *Loop) drained(s *Stream, bytes int64) {
	l.backlog -= bytes
	s.flow.backlog -= bytes
}

// bound is the backlog that a flow may have: what each may have, or an equal part
// of the device's where many applications write, or what its limit drains in time. A
// flow whose share of the device is large may have more, as natively the page cache
// takes a burst: its weight's part of what the others leave, as far as its share
// drains all of it well before the kernel writes by itself.
func (l *Loop) bound(f *flow, now time.Time) int64 {
	writing := max(1, l.writing)
	bound := min(l.cfg.Backlog, l.cfg.Dirty/writing)
	if f.limit != nil {
		f.room = max(leaseFloor, min(bound, int64(limitBacklog.Seconds()*float64(f.limit.Rate()))))
		return f.room
	}
	bound += min(f.portion(l.cfg.Dirty-writing*bound, l.stock.writing), max(0, l.drains(f, drainTime)-bound))
	bound = min(bound, maxQueued/2*l.quantum(f))
	f.room = max(f.room, leaseFloor, bound)
	return f.room
}

// lessen lets bounds that have become less sink by less than what the flow's share
// drains in a tick. At once would make its writers wait until all of the difference has
// gone, which at a small share takes longer than a client should wait.
func (l *Loop) lessen(f *flow, now time.Time) {
	room, lazy, step := f.room, f.lazyRoom, f.room+f.lazyRoom // nothing drained yet: at once
	if drains := l.drains(f, tickPeriod); drains > 0 {
		step = int64(lessening * float64(drains))
	}
	f.room, f.lazyRoom = 0, 0
	l.lazyBound(f, now) // sets both as they would be now
	if f.limit == nil {
		f.room, f.lazyRoom = max(f.room, room-step), max(f.lazyRoom, lazy-step)
	}
}

// drainLargest keeps an application with many writers going whose backlog is
// all in parts of quanta: the largest part goes out as it is. A spill goes if there is
// nothing else, the oldest and a quantum of it.
func (l *Loop) drainLargest(f *flow) {
	var largest *Stream
	for _, s := range f.writers {
		if len(s.pending) > 0 {
			return // something is on its way
		}
		if !s.lazy() && s.next < s.pos && (largest == nil || s.pos-s.next > largest.pos-largest.next) {
			largest = s
		}
	}
	if now := time.Now(); largest != nil {
		l.drain(largest, true, now)
	} else {
		l.drainOldest(f.oldest(hasPages), now)
	}
}

// grant gives the flow's writers leases while its backlog is under the bound.
// What is left of the bound is divided equally, so that no writer of the
// application can fill it alone.
func (l *Loop) grant(f *flow) {
	if len(f.writers) == 0 {
		return
	}
	now := time.Now()
	bound := l.bound(f, now)
	room := bound - f.backlog
	if f.limit == nil {
		wait := l.lazyBound(f, now)
		room = min(room+min(f.lazy, wait), bound+f.lazyRoom-f.backlog) // what waits is no backlog yet
	}
	if room <= 0 {
		l.drainLargest(f)
	} else {
		lease := min(leaseBytes, max(leaseFloor, room/int64(max(1, f.writing))))
		for _, s := range f.writers {
			if !s.closed {
				s.mark = max(s.mark, s.pos+lease)
			}
		}
	}
	for _, s := range f.writers {
		if s.closed {
			if room > 0 {
				l.endWait(s, now)
			}
			continue
		}
		l.observeWait(s, now)
		// A mark that moves little beyond one that still leaves room is not
		// worth a frame.
		if s.sent < 0 || s.sent == Open || s.sent-s.pos <= leaseBytes/2 {
			l.tell(s)
		}
	}
}
