package arbiter

import "time"

// Staged reads (IBIS, section 3, persistent I/O; the departure is that the
// server's own read never queues: it finds its range in the page cache).

// openRead begins a read. The checksums of the range are staged first: the DataNode reads them
// before the first byte of data, and the first mark says that they are there.
func (a *Arbiter) openRead(s *Stream, now time.Duration) {
	s.To = max(s.To, s.From)
	s.ramp = min(firstStage, a.cfg.Quantum)
	s.mark = -1
	if s.Meta != nil {
		if s.meta = metaSpan(s); s.meta.next < s.meta.end {
			s.done = -1 // until they are there
		}
	}
	a.stage(s, now)
}

// Bounds of HDFS's checksum files: a header, and 4 bytes for each 512 of data.
const (
	metaHeader   = 7
	chunkBytes   = 512
	checksumSize = 4
)

// metaSpan returns the part of the checksums' file that belongs to the stream's range, in whole
// pages; empty if all of it is resident. The file is a header and a checksum for each chunk, in
// order, so its parts correspond to parts of the block. It counts as no longer than the block
// allows, whatever its size.
func metaSpan(s *Stream) span {
	block, ok := s.Opening.File.Written()
	if !ok || block <= 0 {
		return span{}
	}
	meta, ok := s.Meta.Written()
	if meta = min(meta, metaBytes(block)); !ok || meta <= 0 {
		return span{}
	}
	part := func(pos int64) int64 { return int64(float64(meta) * float64(min(pos, block)) / float64(block)) }
	start := part(s.From) / pageBytes * pageBytes
	end := min(meta, part(s.To)+pageBytes)
	if end <= start || s.Meta.Missing(start, end-start) == 0 {
		return span{}
	}
	return span{start, end}
}

// metaBytes returns how many bytes the checksums of so much data take at most.
func metaBytes(block int64) int64 {
	return metaHeader + (block+chunkBytes-1)/chunkBytes*checksumSize
}

// blockedPart says how much of Config.Staged, one part in so many, may stand behind a request of
// one reader that the device delays.
const blockedPart = 4

// stage finds what the stream wants next, and sends its mark.
//
// Quanta are asked for up to Ahead quanta beyond the reader. The first is small, and each is
// twice as large as the one before: a client that opens a block for a few bytes does not cost a
// quantum. What is resident costs nothing and does not count as ahead. Nor does what the reader
// cannot have yet, while few of the flow's streams wait: what is at the device and, as a disk
// serves first what is nearest, what has come before an earlier part. Otherwise the D slots take
// all that a single reader asks for, its flow has nothing ready when one of its requests ends, and
// its weight has no effect. What has just come for a reader that stood at its mark does not count
// either: it reads on before it reports.
func (a *Arbiter) stage(s *Stream, now time.Duration) {
	const freeRanges = 64 // resident quanta that are skipped in one call
	f, quantum := s.flow, a.quantum(s.flow)
	at := s.pos
	if s.waiting > 0 {
		at = max(at, s.done)
	}
	s.want = 0
	for free := 0; s.meta.next >= s.meta.end && s.next < s.To; {
		window := at + max(int64(a.cfg.Ahead)*quantum, packetBytes)
		if f.ready.len() <= a.depth {
			window += min(int64(len(s.pending))*quantum, a.cfg.Staged/blockedPart)
		}
		s.ramp = min(s.ramp, quantum)
		n := min(s.ramp, s.To-s.next)
		// Quanta end on multiples of the ramp, so that requests stay aligned.
		if over := (s.next + n) % s.ramp; over < n {
			n -= over
		}
		if s.Opening.File.Missing(s.next, n) == 0 {
			if free++; free > freeRanges {
				break
			}
			f.resident += n
			s.next += n
			if len(s.pending) == 0 {
				s.done = max(s.done, s.next)
			} else {
				s.addPending(s.next, true)
			}
			continue
		}
		if s.next >= window || s.Flight > 0 && s.inFlight >= s.Flight {
			break
		}
		if n = a.stagingRoom(s, n); n == 0 {
			a.waitForRoom(s)
			break
		}
		s.want = n
		break
	}
	if s.mark = s.done; s.done >= s.To {
		s.mark = Open
	}
	a.updateReady(s, now)
	a.updateWait(s, now)
	a.sendMark(s)
}

// read takes the reader's progress.
func (a *Arbiter) readProgress(s *Stream, pos int64, now time.Duration) {
	pos = min(pos, s.To)
	if pos <= s.pos {
		return
	}
	s.countStreamed(pos - s.pos)
	s.pos = pos
	if s.moved = now; s.waiting == 0 {
		a.forced.clearDeadline(s)
	}
	if pos > s.next {
		// The reader was not held (in observe mode, or the daemon was away), and the kernel
		// fetched pages for it: charge those that were not resident at the open.
		if bytes := s.skipped(s.next, s.clampRead(pos), a.cfg.Quantum); bytes > 0 {
			a.bookUnscheduled(s, bytes, now)
		}
		s.next = pos
		if len(s.pending) == 0 {
			s.done = max(s.done, pos)
		}
	}
	a.setStaged(s, s.next-s.pos)
	if !s.closed {
		a.stage(s, now)
	}
}

// readable checks a claim to have read, of more than a lease, against the file: the kernel fetches
// no more for a reader than the file takes of its device.
func (s *Stream) clampRead(pos int64) int64 {
	if pos-s.next <= leaseBytes {
		return pos
	}
	written, ok := s.Opening.File.Written()
	if !ok {
		return s.next
	}
	return max(s.next, min(pos, written))
}
