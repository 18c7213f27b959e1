package device

import (
	"time"

	"penstock/core/sfq"
	"penstock/node/blockfile"
)

// File is what the loop needs of a block or meta file; blockfile.File is the
// real one.
type File interface {
	Query(off, length int64) (blockfile.Pages, error)
	Stage(off, length int64) error
	Drain(off, length int64) error
	Deleted() bool
	Size() (int64, error)
	Close() error
}

// Marker takes marks to the agent. It is called in the loop's goroutine and
// must not block.
type Marker interface {
	Mark(stream uint32, position int64)
}

// OpenRequest describes a stream that an agent has opened.
type OpenRequest struct {
	Marker   Marker
	ID       uint32
	Flow     string
	Kind     Kind
	Write    bool
	Block    File  // nil for a network device
	Meta     File  // nil if there is none
	Asked    bool  // whose it is is being found out: Reassign will say
	From, To int64 // block-file offsets; To is used for reads, and for what is sent (0: nobody knows)

	Patience  time.Duration // that the stream's client bears one wait; 0: not known
	User      string        // who asked for it, by a block token or the process; "" where nobody knows
	Refusable bool          // wire.Refused may be its first mark: the agent then refuses the operation
}

// Stream is one operation of an agent's process on one file: the loop's state of
// it. All positions are offsets of that file in bytes.
//
//	read:   from <= done <= next <= to; pos is where the reader is
//	write:  from <= done <= next <= pos; pos is where the writer is
//	sent:   from <= pos, done <= next <= to; pos is how far it was sent
//
// done is how far everything is staged, drained or may be sent, next how far it
// has been asked for.
type Stream struct {
	OpenRequest
	flow     *flow
	pos      int64
	next     int64
	done     int64
	pending  []*request // asked for and not yet done, in order of offset
	inFlight int        // of them, dispatched
	ramp     int64      // read: length of the next quantum
	mark     int64      // how far the stream may go under enforcement
	sent     int64      // what the agent was last told; -1 before the first mark
	starved  bool       // it has more to ask for than its flow's queue has room
	closed   bool
	released bool  // the loop holds nothing for it any more
	unowned  int64 // bytes that it has passed while it was Asked

	missing   []int64   // read: bytes that were not resident at open, per quantum from `from` on
	unflushed time.Time // write: since when the oldest bytes wait that are not queued
	latest    time.Time // write: when the newest were reported
	looked    time.Time // lazy: when it was last asked whether the file is deleted
	kept      bool      // lazy: closed, and counted as kept
	gone      bool      // lazy: the file is deleted
	waiting   time.Time // since when the stream stands at (or, observed, beyond) its mark
}

// request is one quantum: the unit that the scheduler dispatches.
type request struct {
	stream   *Stream
	flow     *flow // that it was started for
	file     File
	write    bool
	meta     bool
	offset   int64
	length   int64
	end      int64 // where the stream's done is once this is done
	queued   time.Time
	started  time.Time
	cost     int64
	handle   sfq.Handle // the scheduler's; 0 if let through outside of it
	taken    int64      // bytes that the flow's limit has given for it
	settled  bool       // network: the scheduler has its cost already
	kept     bool       // started while slots were kept: its latency says nothing about D
	finished bool
}

// result is what a worker reports of a request.
type result struct {
	request *request
	bytes   int64         // that the device moved for it, now or behind our back
	io      bool          // this request moved them
	latency time.Duration // of the I/O
	err     error
}

// firstOpen reports residency at open: bytes missing of each quantum of
// [from, to). It runs outside of the loop since it asks the kernel per quantum.
func missingAtOpen(f File, from, to, quantum int64) []int64 {
	const bound = 4096 // quanta; a block beyond that is charged as if cold
	var missing []int64
	for off := from; off < to && len(missing) < bound; off += quantum {
		n := min(quantum, to-off)
		missing = append(missing, missingBytes(f, off, n))
	}
	return missing
}

// missingBytes is how much of a range the device would have to deliver. An
// error counts as all of it.
func missingBytes(f File, off, length int64) int64 {
	pages, err := f.Query(off, length)
	if err != nil {
		return length
	}
	span := (off+length+pageBytes-1)/pageBytes*pageBytes - off/pageBytes*pageBytes
	return min(length, max(0, span-pages.Resident))
}

// skipped is how many bytes of [a, b) were not resident at open, spread evenly
// over each quantum that the range touches.
func (s *Stream) skipped(a, b, quantum int64) (bytes int64) {
	for i, m := range s.missing {
		lo := s.From + int64(i)*quantum
		hi := min(lo+quantum, s.To)
		if overlap := min(b, hi) - max(a, lo); overlap > 0 && hi > lo {
			bytes += m * overlap / (hi - lo)
		}
	}
	return bytes
}

// advance moves done over the finished requests at the head.
func (s *Stream) advance() {
	for len(s.pending) > 0 && s.pending[0].finished {
		s.done = max(s.done, s.pending[0].end)
		s.pending = s.pending[1:]
	}
	if len(s.pending) == 0 {
		s.pending = nil
	}
}
