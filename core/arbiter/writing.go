package arbiter

import "time"

// Drained writes. The writer's threads only fill the page cache. It is written out quantum by
// quantum, and a writer waits only while its flow's backlog is over its bound (backlog.go).

// written takes a writer's progress.
func (a *Arbiter) written(s *Stream, pos int64, now time.Duration) {
	if a.wrote(s, pos, now); s.lazy() {
		a.relieve(s.flow, now)
	}
	a.settleTurn(s, now)
	a.grant(s, now)
}

// wrote adds what was written to the backlog.
func (a *Arbiter) wrote(s *Stream, pos int64, now time.Duration) {
	bytes := s.within(pos) - s.pos
	if bytes <= 0 {
		return
	}
	s.pass(bytes)
	s.pos += bytes
	if s.gone {
		s.next, s.done, s.flushTo = s.pos, s.pos, s.pos
		return
	}
	f := s.flow
	a.activate(f, now)
	a.backlog.all += bytes
	f.backlog += bytes
	s.latest = now
	setDefault(&s.unflushed, now)
	if s.lazy() {
		s.tailing += bytes
		f.lazy += bytes
		f.wait(s)
	} else {
		f.tails.set(s)
	}
}

// within checks a claim that goes beyond a lease against the file, so that no frame makes a backlog
// of bytes that do not exist: anybody can give a file any size, but not the space. HDFS reports what
// it has flushed to the file, never more.
func (s *Stream) within(pos int64) int64 {
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
	if s.lazy() || end > s.pos {
		end = min(end, s.flushTo)
	}
	return max(end, s.next)
}

// flush lets all that is written be drained, as far as it fills pages.
func (a *Arbiter) flush(s *Stream, now time.Duration) {
	if s.lazy() {
		a.drainTo(s, s.pos)
	} else {
		s.flushTo = s.wholePages(s.pos)
	}
	a.settleTurn(s, now)
}

// wholePages returns the position without the page that the writer is filling.
func (s *Stream) wholePages(pos int64) int64 {
	if s.closed {
		return pos
	}
	return max(s.next, pos/pageBytes*pageBytes)
}

// asked notes that a request takes bytes of the stream.
func (a *Arbiter) asked(s *Stream, bytes int64) {
	s.next += bytes
	s.out += bytes
	switch {
	case s.lazy():
		a.unkeep(s)
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
	a.wrote(s, pos, now)
	s.closed = true
	f := s.flow
	f.writing--
	f.parked.remove(s)
	switch {
	case !s.lazy():
		a.flush(s, now)
	case s.Opening.File.Deleted():
		a.vanish(s, now)
		return
	default:
		a.keep(s, now)
		a.relieve(f, now)
	}
	if s.Meta != nil {
		if bytes, ok := s.Meta.Written(); ok {
			s.meta = span{0, min(bytes, metaBytes(s.pos))}
		}
	}
	a.settleTurn(s, now)
	a.wake(f, now)
}
