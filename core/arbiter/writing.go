package arbiter

import "time"

// Drained writes. The writer's threads only fill the page cache. The daemon writes the pages out,
// quantum by quantum. A writer waits only while its flow's backlog is above the bound (backlog.go).

// writeProgress records the writer's progress.
func (a *Arbiter) writeProgress(s *Stream, pos int64, now time.Duration) {
	if a.addBacklog(s, pos, now); s.deferred() {
		a.drainExcess(s.flow, now)
	}
	a.updateReady(s, now)
	a.grant(s, now)
}

// addBacklog adds newly written bytes to the backlog.
func (a *Arbiter) addBacklog(s *Stream, pos int64, now time.Duration) {
	bytes := s.clampToFile(pos) - s.pos
	if bytes <= 0 {
		return
	}
	s.countStreamed(bytes)
	s.pos += bytes
	if s.deleted {
		s.next, s.done, s.flushTo = s.pos, s.pos, s.pos
		return
	}
	f := s.flow
	a.activate(f, now)
	a.backlog.all += bytes
	s.addUndrained(bytes)
	s.latest = now
	setDefault(&s.unflushed, now)
	if s.deferred() {
		s.deferredBytes += bytes
		f.deferred += bytes
		f.updateDeferred(s)
	} else {
		f.tails.set(s)
	}
}

// clampToFile returns a position that an agent claims. If the position is more than a lease ahead,
// clampToFile limits it to the bytes that the file occupies. So no frame can create a backlog of
// bytes that do not exist: a file can have any size, but it occupies only the space of written
// bytes. HDFS never reports more than it has flushed to the file.
func (s *Stream) clampToFile(pos int64) int64 {
	if pos-s.pos <= leaseBytes {
		return pos
	}
	written, ok := s.Opening.File.Written()
	if !ok {
		return s.pos
	}
	return max(s.pos, min(pos, written))
}

// drainEnd returns the end of the stream's next request, or s.next if there is none. Pages that are
// still being filled wait, unless all bytes must be drained.
func (a *Arbiter) drainEnd(s *Stream) int64 {
	end := (s.next + a.quantum(s.flow)) / pageBytes * pageBytes
	if s.deferred() || end > s.pos {
		end = min(end, s.flushTo)
	}
	return max(end, s.next)
}

// flush releases all written bytes of a stream, as far as they fill pages.
func (a *Arbiter) flush(s *Stream, now time.Duration) {
	if s.deferred() {
		a.drainTo(s, s.pos)
	} else {
		s.flushTo = s.wholePages(s.pos)
	}
	a.updateReady(s, now)
}

// wholePages returns the position without the page that the writer is filling.
func (s *Stream) wholePages(pos int64) int64 {
	if s.closed {
		return pos
	}
	return max(s.next, pos/pageBytes*pageBytes)
}

// noteRequested records that a request takes bytes of the stream.
func (a *Arbiter) noteRequested(s *Stream, bytes int64) {
	s.next += bytes
	s.out += bytes
	switch {
	case s.deferred():
		a.endKeeping(s)
	case s.next == s.pos:
		s.unflushed = 0
		s.flow.tails.remove(s)
	default:
		s.unflushed = s.latest // the rest was written after a whole quantum
		s.flow.tails.set(s)
	}
}

// closeWrite ends a writer. The tail and the checksums are drained, but the process does not wait
// for that.
func (a *Arbiter) closeWrite(s *Stream, pos int64, now time.Duration) {
	if pos < 0 {
		// The agent's process or connection is gone. The file contains the bytes that the agent did
		// not report.
		if written, ok := s.Opening.File.Written(); ok {
			pos = written
		}
	}
	a.addBacklog(s, pos, now)
	s.closed = true
	f := s.flow
	a.settleWaits(f, now)
	f.writing--
	f.users.unpark(s)
	switch {
	case !s.deferred():
		a.flush(s, now)
	case s.Opening.File.Deleted():
		a.dropDeleted(s, now)
		return
	default:
		a.keepOpen(s, now)
		a.drainExcess(f, now)
	}
	if s.Meta != nil {
		if bytes, ok := s.Meta.Written(); ok {
			s.meta = span{0, min(bytes, metaBytes(s.pos))}
		}
	}
	a.updateReady(s, now)
	a.grantParked(f, now)
}
