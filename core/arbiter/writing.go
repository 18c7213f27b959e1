package arbiter

import "time"

// Drained writes. The writer's threads only fill the page cache. It is written out quantum by
// quantum, and a writer waits only while its flow's backlog is over its bound (backlog.go).

// written takes a writer's progress.
func (a *Arbiter) writeProgress(s *Stream, pos int64, now time.Duration) {
	if a.addBacklog(s, pos, now); s.deferred() {
		a.drainExcess(s.flow, now)
	}
	a.updateReady(s, now)
	a.grant(s, now)
}

// wrote adds what was written to the backlog.
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
	f.backlog += bytes
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

// within checks a claim that goes beyond a lease against the file, so that no frame makes a backlog
// of bytes that do not exist: anybody can give a file any size, but not the space. HDFS reports what
// it has flushed to the file, never more.
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

// drainEnd returns where the stream's next request ends; s.next if there is none. Pages that are
// still being filled wait, unless everything is to be drained.
func (a *Arbiter) drainEnd(s *Stream) int64 {
	end := (s.next + a.quantum(s.flow)) / pageBytes * pageBytes
	if s.deferred() || end > s.pos {
		end = min(end, s.flushTo)
	}
	return max(end, s.next)
}

// flush lets all that is written be drained, as far as it fills pages.
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

// asked notes that a request takes bytes of the stream.
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
		s.unflushed = s.latest // what is left is younger than a quantum
		s.flow.tails.set(s)
	}
}

// closeWrite ends a writer. The tail and the checksums are drained; the process does not wait.
func (a *Arbiter) closeWrite(s *Stream, pos int64, now time.Duration) {
	if pos < 0 {
		// The agent is gone, with its process or its connection. What it did not report is
		// in the file.
		if written, ok := s.Opening.File.Written(); ok {
			pos = written
		}
	}
	a.addBacklog(s, pos, now)
	s.closed = true
	f := s.flow
	f.writing--
	f.parked.remove(s)
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
