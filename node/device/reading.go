package device

import "time"

// Staged reads (IBIS, section 3, persistent I/O; the departure is that the
// DataNode's own read never queues: it finds its range in the page cache).

// openRead stages the checksums of the range first: the DataNode reads them
// before the first byte of data, and the first mark says that they are there.
func (l *Loop) openRead(s *Stream) {
	s.To = max(s.To, s.From)
	s.ramp = min(firstStage, l.cfg.Quantum)
	s.mark = -1
	if s.Meta != nil {
		if r := metaRange(s); r != nil {
			s.done = -1 // until it is there
			l.submit(r, time.Now())
		}
	}
	l.stage(s)
}

// metaRange is the part of the meta file that belongs to the stream's range,
// nil if it is resident. The meta file is a header and one checksum per chunk
// in order, so its parts correspond to parts of the block.
func metaRange(s *Stream) *request {
	block, err := s.Block.Size()
	if err != nil || block <= 0 {
		return nil
	}
	meta, err := s.Meta.Size()
	if err != nil || meta <= 0 {
		return nil
	}
	part := func(pos int64) int64 { return int64(float64(meta) * float64(min(pos, block)) / float64(block)) }
	start := part(s.From) / pageBytes * pageBytes
	end := min(meta, part(s.To)+pageBytes)
	if missingBytes(s.Meta, start, end-start) == 0 {
		return nil
	}
	return &request{stream: s, file: s.Meta, meta: true, offset: start, length: end - start, end: s.From}
}

// stage asks for the next quanta and tells the reader how far it may go.
//
// Quanta are asked for up to Ahead quanta beyond the reader, starting small and
// doubling: a client that opens a block for a few bytes does not cost a
// quantum. What is resident costs nothing and takes up no room ahead. What is in
// flight does not count either while the flow has little queued: else the D
// slots swallow all that a single reader asks for, its queue is empty whenever
// one of its requests ends, and its weight binds nothing.
func (l *Loop) stage(s *Stream) {
	const freeRanges = 64 // resident quanta skipped over in one go
	now, quantum := time.Now(), l.quantum(s.flow)
	base := s.pos + max(int64(l.cfg.Ahead)*quantum, packetBytes)
	for free := 0; s.next < s.To; {
		window := base
		if len(s.flow.ready) <= l.sched.Depth() {
			window += int64(s.inFlight) * quantum
		}
		s.ramp = min(s.ramp, quantum)
		n := min(s.ramp, s.To-s.next)
		// Quanta end on multiples of the ramp, so that requests stay aligned.
		if over := (s.next + n) % s.ramp; over < n {
			n -= over
		}
		missing := missingBytes(s.Block, s.next, n)
		if missing == 0 {
			if free++; free > freeRanges {
				break
			}
			s.flow.resident += n
			s.next += n
			if len(s.pending) == 0 {
				s.done = s.next
			} else {
				s.pending = append(s.pending, &request{stream: s, offset: s.next - n, length: n, end: s.next, started: now, finished: true})
			}
			continue
		}
		if s.next >= window {
			break
		}
		if s.starved = s.flow.full(); s.starved {
			break
		}
		s.next += n
		l.submit(&request{stream: s, file: s.Block, offset: s.next - n, length: n, end: s.next}, now)
		s.ramp = min(2*s.ramp, quantum)
	}
	s.mark = s.done
	if s.done >= s.To {
		s.mark = Open
	}
	l.observeWait(s, now)
	l.tell(s)
}

// read takes the reader's progress.
func (l *Loop) read(s *Stream, pos int64) {
	pos = min(pos, s.To)
	if pos <= s.pos {
		return
	}
	s.pass(pos - s.pos)
	s.pos = pos
	if pos > s.next {
		// The reader was not held (observe mode, or the daemon was away) and
		// the kernel fetched for it: charge what was not there at the open.
		if bytes := s.skipped(s.next, pos, l.cfg.Quantum); bytes > 0 {
			l.behind(s, bytes, time.Now())
		}
		s.next = pos
		if len(s.pending) == 0 {
			s.done = pos
		}
	}
	if !s.closed {
		l.stage(s)
	}
}

// observeWait keeps the time that a stream stands at its mark, or in observe
// mode beyond the mark that enforcing would have set.
func (l *Loop) observeWait(s *Stream, now time.Time) {
	at := s.mark != Open && s.pos >= s.mark
	if !s.Write {
		// A reader's mark is checked a packet ahead of its position.
		at = s.mark != Open && s.pos+leaseFloor > s.mark
	}
	switch {
	case at && s.waiting.IsZero():
		s.waiting = now
		s.flow.waits++
	case !at && !s.waiting.IsZero():
		if l.modeOf(s.flow) == Observe {
			s.flow.wouldWait += now.Sub(s.waiting)
		}
		s.waiting = time.Time{}
	}
}

// endWait ends the wait of a closed stream. In observe mode a fast writer is
// done before a quantum is drained, and would have waited until now.
func (l *Loop) endWait(s *Stream, now time.Time) {
	if !s.waiting.IsZero() {
		s.mark = Open
		l.observeWait(s, now)
	}
}
