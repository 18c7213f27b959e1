package arbiter

import "time"

// Staged reads (IBIS, section 3, persistent I/O). Unlike in IBIS, the server's own read never
// queues, because it finds its range in the page cache.

// openRead begins a read. The checksums of the range are staged first, because the DataNode reads
// them before the data. The first mark implies that they are staged.
func (a *Arbiter) openRead(s *Stream, now time.Duration) {
	s.To = max(s.To, s.From)
	s.ramp = min(firstStage, a.cfg.Quantum)
	if s.Turn { // the process waits for all of it
		s.ramp = a.cfg.Quantum
	}
	s.mark = -1
	if s.Meta != nil {
		if s.meta = metaSpan(s); s.meta.next < s.meta.end {
			s.done = -1 // until the checksums are staged
		}
	}
	a.beginPassing(s)
	a.stage(s, now)
	a.beginSmallRead(s, now)
}

// Format of HDFS's checksum files: a header, and 4 bytes for each 512 bytes of data.
const (
	metaHeader   = 7
	chunkBytes   = 512
	checksumSize = 4
)

// metaSpan returns the part of the checksum file that belongs to the stream's range, in whole
// pages. The span is empty if that part is resident. The checksum file consists of a header and one
// checksum for each chunk in order, so its parts correspond to parts of the block. If the checksum
// file is larger than the block's size allows, only the allowed size counts.
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

// metaBytes returns the largest size of the checksum file of a block of this size.
func metaBytes(block int64) int64 {
	return metaHeader + (block+chunkBytes-1)/chunkBytes*checksumSize
}

// blockedPart bounds the bytes that are staged behind a delayed request of one reader, to a quarter
// of Config.Staged.
const blockedPart = 4

// stage finds the next request that the stream wants, and sends its mark.
//
// Quanta are requested up to Config.Ahead quanta beyond the reader. The first quantum is small and
// each following one is twice as large, so that a client that opens a block for a few bytes does
// not cost a whole quantum. Resident ranges cost nothing and do not count as ahead.
//
// While few streams of the flow wait, bytes that the reader cannot have yet do not count as ahead
// either. These are bytes in flight, and bytes that have arrived before an earlier part, because
// disks reorder requests. Otherwise all requests of a single reader could be in flight in the D
// slots. Its flow would then not be backlogged when one of them ends, and its weight would have no
// effect. Bytes that have just arrived for a reader at its mark do not count either, because the
// reader continues before it reports.
func (a *Arbiter) stage(s *Stream, now time.Duration) {
	const freeRanges = 64 // bound of the resident ranges that are skipped in one call
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
		// Quanta end at multiples of the ramp, so that requests stay aligned.
		if over := (s.next + n) % s.ramp; over < n {
			n -= over
		}
		if s.Opening.File.Missing(s.next, n) == 0 {
			if free++; free > freeRanges {
				break
			}
			s.foundResident(f, n)
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
		a.endSmallRead(s, now)
		s.mark = Open
	}
	a.updateReady(s, now)
	a.updateWait(s, now)
	a.sendMark(s)
}

// readProgress records the reader's progress.
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
		// The reader did not wait (in observe mode, or while the daemon was down), and the kernel
		// fetched pages for it. The pages that were not resident at the open are charged.
		bytes := s.skipped(s.next, s.clampRead(pos), a.cfg.Quantum)
		if bytes > 0 {
			a.bookUnscheduled(s, bytes, now)
		}
		if s.Passing {
			s.foundResident(s.flow, pos-s.next-bytes)
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

// clampRead returns a position that an agent claims. If the position is more than a lease ahead,
// clampRead limits it to the bytes that the file occupies, because the kernel cannot have fetched
// more for the reader.
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
