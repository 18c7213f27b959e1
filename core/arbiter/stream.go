package arbiter

import (
	"time"

	"penstock/core/sfq"
)

// Kind says what a stream's bytes are. The values are those of the wire format.
type Kind uint8

// The kinds.
const (
	Persistent   Kind = iota // HDFS's data
	Intermediate             // what tasks keep on local disks for a while
	Network                  // what is sent to another node
	kinds
)

var kindNames = [kinds]string{"persistent", "intermediate", "network"}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "unknown"
}

// File answers questions about a file that only the kernel can answer. The answers hold for the
// moment. None may wait for the device.
type File interface {
	// Missing returns how many bytes of a range are not in the page cache.
	Missing(off, length int64) int64
	// Saved returns how many bytes that were written to a range the device has by now.
	Saved(off, length int64) int64
	// Written returns how far the file can have been written: its size, or the space that it
	// takes if that is less, in bytes. ok is false if neither is known.
	Written() (bytes int64, ok bool)
	// Deleted reports whether the file no longer has a name.
	Deleted() bool
}

// Opening describes a stream.
type Opening struct {
	Flow     string
	User     string // whose streams take turns together, within the flow
	Kind     Kind
	Write    bool
	File     File          // nil on a network device
	Meta     File          // the checksums of a block; nil if there are none
	Asked    bool          // the flow is a claim that is being verified; Reassign follows
	From, To int64         // offsets; To is for reads, and for what is sent (0: not known)
	Missing  []int64       // read: bytes that were not in the page cache at open, by quantum from From on
	Patience time.Duration // how long the client bears a wait; 0: not known
	Ref      any           // for the caller

	// Flight bounds how many of the reader's requests are at the device at a time; 0: only the
	// depth does. It is for comparisons with a kernel, whose readahead asks for little.
	Flight int

	// Refusable says that the operation can still be refused, with the mark Refused. Threads
	// is how many threads its server has for all operations, 0 if that is not known.
	Refusable bool
	Threads   int
}

// Stream is one operation of a process on one file: the arbiter's state of it. All positions
// are offsets of that file in bytes.
//
//	read:   from <= done <= next <= to; pos is where the reader is
//	write:  from <= done <= next <= pos; pos is where the writer is
//	sent:   from <= pos, done <= next <= to; pos is how far it was sent
//
// Up to done everything is staged, drained or may be sent; up to next it has been asked for.
type Stream struct {
	Opening
	flow     *flow
	pos      int64
	next     int64
	done     int64
	pending  []piece // asked for and beyond done, in order
	first    int64   // number of the first of them
	inFlight int     // requests that have started and not ended
	mark     int64   // how far the stream may go under enforcement
	sent     int64   // the last mark that the agent got; -1: none
	closed   bool
	released bool // nothing is held for it any more

	want          int64 // read and network: bytes of the next request; 0: none
	ramp          int64 // read: the most that the next quantum may be
	meta          span  // of the checksums' file, not asked for yet
	ahead         int64 // read: bytes staged, or being staged, ahead of the reader
	roomIndex     int   // read: in Arbiter.shorts
	roomSeq       int64 // and its number there
	probe         int64 // read: where it has to come, or the packet that was let through was too small; 0: there is none
	flushTo       int64 // write: drained up to here although it fills no quantum
	deferredBytes int64 // lazy: bytes that wait and need not be drained yet
	unattributed  int64 // bytes that it has passed while it was Asked
	sending       []*Request
	queued        queueEntry
	index         int           // in Arbiter.streams, from 1
	tailIndex     int           // in flow.tails or flow.spilled
	forcedIndex   int           // in forced.waiting
	overdueIndex  int           // in flow.overdue
	parkedIndex   int           // in flow.parked
	parked        time.Duration // when it came there
	out           int64         // write: bytes of data at the device

	unflushed   time.Duration // write: when the oldest bytes that are not asked for were reported; 0: there are none
	latest      time.Duration // write: when the newest were reported
	kept        bool          // lazy: closed, and counted as kept
	deleted     bool          // lazy: the file is deleted
	waiting     time.Duration // since when it stands at its mark, or beyond it in observe mode; 0: it does not
	deadline    time.Duration // when it is let through; 0: never
	reservation int64         // that it has booked in the forced lane
	checkAt     time.Duration // its key in forced.waiting, no later than what is to be done for it
	moved       time.Duration // read: when it was opened, went on, or had a packet
}

// span is a range of a file.
type span struct{ next, end int64 }

// piece is a part of a stream that is at the device, or that is finished behind such a part.
type piece struct {
	end      int64 // where done stands when this and all before it are finished
	finished bool
}

// Request is one quantum at the device.
type Request struct {
	Stream         *Stream
	Meta           bool // it is of the checksums' file
	Write          bool
	Offset, Length int64

	flow        *flow // pays for it
	ticket      sfq.Ticket
	piece       int64 // number in the stream's pending
	started     time.Duration
	cost        int64 // as charged
	skipLatency bool  // it started while slots were kept free: its latency says nothing about the depth
	settled     bool  // network: it is settled already
	forced      bool
	index       int // in Arbiter.running, from 1

	predicted time.Duration // by the model, and
	part      float64       // of the device that it keeps busy
}

// File returns the file that the request reads or writes.
func (r *Request) File() File {
	if r.Meta {
		return r.Stream.Meta
	}
	return r.Stream.Opening.File
}

// Result is the outcome of a request.
type Result struct {
	Moved   int64         // bytes that the device moved for it
	Earlier int64         // write: bytes of it that the kernel or a sync had written before
	Latency time.Duration // of the I/O; 0: none was needed
	Err     error
}

// drains reports whether the stream's bytes are drained to a device.
func (s *Stream) drains() bool { return s.Write && s.Kind != Network }

// lazy reports whether the stream is drained lazily.
func (s *Stream) deferred() bool { return s.Write && s.Kind == Intermediate }

// add notes a part that is asked for, and returns its number.
func (s *Stream) addPending(end int64, finished bool) int64 {
	s.pending = append(s.pending, piece{end, finished})
	return s.first + int64(len(s.pending)) - 1
}

// advance moves done over the finished parts at the head.
func (s *Stream) advance() {
	n := 0
	for n < len(s.pending) && s.pending[n].finished {
		s.done = max(s.done, s.pending[n].end)
		n++
	}
	if n == 0 {
		return
	}
	s.first += int64(n)
	s.pending = s.pending[:copy(s.pending, s.pending[n:])]
}

// pass counts bytes that the stream has passed, once its flow is certain.
func (s *Stream) countStreamed(bytes int64) {
	if s.Asked {
		s.unattributed += bytes
	} else {
		s.flow.kinds[s.Kind].streamed[direction(s.Write)] += bytes
	}
}

// skipped returns how many bytes of [a, b) were not resident at open. What was missing of a
// quantum counts as spread evenly over it.
func (s *Stream) skipped(a, b, quantum int64) (bytes int64) {
	if a >= s.To {
		return 0
	}
	for i := max(0, (a-s.From)/quantum); i < int64(len(s.Missing)); i++ {
		lo := s.From + i*quantum
		if lo >= b {
			break
		}
		hi := min(lo+quantum, s.To)
		if overlap := min(b, hi) - max(a, lo); overlap > 0 && hi > lo {
			bytes += s.Missing[i] * overlap / (hi - lo)
		}
	}
	return bytes
}

func direction(write bool) int {
	if write {
		return 1
	}
	return 0
}

// Open begins a stream. Its first mark comes with the next Decide.
func (a *Arbiter) Open(now time.Duration, o Opening) *Stream {
	s := &Stream{Opening: o, pos: o.From, next: o.From, done: o.From, flushTo: o.From, sent: -1, moved: now}
	s.flow = a.flow(o.Flow, now)
	if a.modeOf(s.flow) == Off {
		s.released, s.closed = true, true
		a.act(Action{Kind: Mark, Stream: s, Position: Open})
		a.act(Action{Kind: Release, Stream: s})
		return s
	}
	a.streams = append(a.streams, s)
	s.index = len(a.streams)
	a.join(s, s.flow, now)
	s.flow.kinds[s.Kind].opened++
	switch {
	case a.crowded(s):
		a.refuse(s, now)
	case s.drains():
		a.grant(s, now)
	case s.Kind == Network:
		if s.To == 0 {
			s.To = Open
		}
		a.requestSend(s, now)
	default:
		a.openRead(s, now)
	}
	return s
}

// threadsPart says which part of a server's threads may wait for one flow: one in so many.
const threadsPart = 4

// crowded reports whether a stream is to be refused: so many of its flow wait that it would take
// a thread that other flows need.
func (a *Arbiter) crowded(s *Stream) bool {
	return s.Refusable && !s.Write && s.Kind == Persistent && s.Threads > 0 && a.modeOf(s.flow) == Enforce && !a.stuck &&
		s.flow.stalled >= max(1, s.Threads/threadsPart) && s.Opening.File.Missing(s.From, min(leaseFloor, max(1, s.To-s.From))) > 0
}

// refuse has the stream's operation refused, as HDFS does when all threads are busy.
func (a *Arbiter) refuse(s *Stream, now time.Duration) {
	s.flow.refused++
	s.closed = true
	a.act(Action{Kind: Mark, Stream: s, Position: Refused})
	a.release(s, now)
}

// Progress takes how far the stream's reader or writer is.
func (a *Arbiter) Progress(now time.Duration, s *Stream, pos int64) {
	switch {
	case s.closed || s.released:
	case s.drains():
		a.writeProgress(s, pos, now)
	case s.Kind == Network:
		a.sendProgress(s, pos, now)
	default:
		a.readProgress(s, pos, now)
	}
}

// Close ends a stream. pos is its last position, or negative when its process is gone and
// the file itself has to tell.
func (a *Arbiter) Close(now time.Duration, s *Stream, pos int64) {
	if s.closed || s.released {
		return
	}
	switch {
	case s.drains():
		a.closeWrite(s, pos, now)
	case s.Kind == Network:
		s.closed = true
		a.closeSend(s, pos, now)
	default:
		if pos >= 0 {
			a.readProgress(s, pos, now)
		}
		s.closed = true
		a.clearWant(s, now)
	}
	a.forced.clearDeadline(s)
	s.Missing = nil
	if a.modeOf(s.flow) == Enforce { // nobody waits for what is still to be drained
		a.endWait(s, now)
	}
	a.release(s, now)
}

// Ended reports whether nothing is held for the stream any more.
func (s *Stream) Ended() bool { return s.released }

// unwant drops what a stream wants and has not asked for.
func (a *Arbiter) clearWant(s *Stream, now time.Duration) {
	s.want, s.meta = 0, span{}
	a.updateReady(s, now)
}

// release forgets a closed stream once nothing of it is at the device or waits to be drained.
func (a *Arbiter) release(s *Stream, now time.Duration) {
	if !s.closed || s.released || s.inFlight > 0 || s.kept || s.meta.next < s.meta.end {
		return
	}
	if s.drains() && s.next < s.pos {
		return
	}
	a.endWait(s, now)
	a.forced.forget(s)
	a.roomQueue.remove(s)
	s.released = true
	a.setStaged(s, 0)
	a.leave(s, now)
	last := len(a.streams) - 1
	moved := a.streams[last]
	a.streams[last] = nil
	a.streams = a.streams[:last]
	if moved != s {
		a.streams[s.index-1] = moved
		moved.index = s.index
	}
	s.index = 0
	a.act(Action{Kind: Release, Stream: s})
}

// tell sends the stream's mark if the agent has another one.
func (a *Arbiter) sendMark(s *Stream) {
	if s.closed {
		return // gone, or not governed any more
	}
	mark := s.mark
	if a.modeOf(s.flow) != Enforce || a.stuck {
		mark = Open
	} else if mark < 0 && s.sent == Open {
		mark = s.From // it was open and is not any more: its process may read the checksums, its data waits
	}
	if mark >= 0 && mark != s.sent {
		s.sent = mark
		a.act(Action{Kind: Mark, Stream: s, Position: mark})
	}
}

// watchWait notes when a stream comes to stand at its mark, or in observe mode beyond the mark
// that enforcing would have set, and when it goes on.
func (a *Arbiter) updateWait(s *Stream, now time.Duration) {
	at := s.mark != Open && s.pos >= s.mark
	if !s.Write {
		// A reader's mark is checked a packet ahead of its position.
		at = s.mark != Open && s.pos+leaseFloor > s.mark
	}
	switch {
	case at && s.waiting == 0:
		s.waiting = now
		s.flow.waits++
		s.flow.stalled++
	case !at && s.waiting > 0:
		if a.modeOf(s.flow) == Observe {
			s.flow.wouldWait += now - s.waiting
		}
		s.waiting = 0
		s.flow.stalled--
	}
	a.forced.watch(a, s, now)
}

// endWait ends the wait of a closed stream. In observe mode a fast writer is
// done before a quantum is drained, and would have waited until now.
func (a *Arbiter) endWait(s *Stream, now time.Duration) {
	if s.waiting > 0 {
		s.mark = Open
		a.updateWait(s, now)
	}
	a.forced.clearDeadline(s)
}

// restartWait makes a stream's wait begin now. It is for moments after which it waits for another
// reason than before.
func (a *Arbiter) restartWait(s *Stream, now time.Duration) {
	if s.moved = now; s.waiting > 0 {
		s.waiting = now
	}
	a.forced.clearDeadline(s)
	a.forced.watch(a, s, now)
}

// forget stops governing a stream, which stays open in its process.
func (a *Arbiter) ungovern(s *Stream, now time.Duration) {
	if !s.closed {
		s.sent = Open
		a.act(Action{Kind: Mark, Stream: s, Position: Open})
		if s.drains() {
			s.flow.writing--
			s.flow.parked.remove(s)
		}
	}
	s.closed = true
	switch {
	case s.drains():
		a.dropUndrained(s, now)
	case s.Kind == Network:
		a.closeSend(s, -1, now)
	}
	a.forced.clearDeadline(s)
	a.clearWant(s, now)
	a.release(s, now)
}

// Reassign says which flow a stream belongs to. When it was opened that was a claim; now it is
// certain. If it is another flow, what the stream did so far stays charged to the old one, and
// its backlog moves. A stream does not move if it has ended, or if it was opened while its flow
// was off and so goes ungoverned to its end. The bytes that an Asked stream has passed are
// counted now, also if it has ended: a short one may be over before its flow is certain.
func (a *Arbiter) Reassign(now time.Duration, s *Stream, flow, user string) {
	old, f := s.flow, a.flow(flow, now)
	f.kinds[s.Kind].streamed[direction(s.Write)] += s.unattributed
	s.unattributed, s.Asked = 0, false
	if s.released || f == old && user == s.User {
		return
	}
	if a.modeOf(f) == Off {
		a.ungovern(s, now)
		return
	}
	if s.waiting > 0 { // until now it waited as one of the old flow
		if a.modeOf(old) == Observe {
			old.wouldWait += now - s.waiting
		}
		s.waiting = 0
		old.stalled--
	}
	a.leave(s, now)
	s.User = user
	a.join(s, f, now)
	if f != old {
		f.kinds[s.Kind].opened++
	}
	switch {
	case s.drains():
		a.drainExcess(f, now)
		a.updateReady(s, now)
		a.grantParked(old, now)
		if !s.closed {
			a.grant(s, now)
		}
	case s.closed:
		a.updateReady(s, now)
	case s.Kind == Network:
		a.requestSend(s, now)
	default:
		a.stage(s, now)
	}
	a.release(s, now)
}

// join adds the stream and its backlog to a flow.
func (a *Arbiter) join(s *Stream, f *flow, now time.Duration) {
	s.flow = f
	f.streams++
	a.stagedFor(f, s.ahead)
	a.activate(f, now)
	if !s.drains() {
		return
	}
	if f.writers++; f.writers == 1 {
		a.backlog.writing++
	}
	if !s.closed {
		f.writing++
	}
	f.backlog += s.undrained()
	f.deferred += s.deferredBytes
	if s.kept {
		f.kept++
	}
	switch {
	case s.deferred():
		f.updateDeferred(s)
	case s.unflushed > 0:
		f.tails.set(s)
	}
}

// leave takes the stream and its backlog from its flow.
func (a *Arbiter) leave(s *Stream, now time.Duration) {
	f := s.flow
	a.forced.clearDeadline(s)
	f.ready.leave(s)
	a.announce(f, now)
	f.parked.remove(s)
	a.stagedFor(f, -s.ahead)
	if f.streams--; f.streams == 0 {
		f.idle = now
	}
	if !s.drains() {
		return
	}
	f.unlist(s)
	if f.writers--; f.writers == 0 {
		a.backlog.writing--
	}
	if !s.closed {
		f.writing--
	}
	f.backlog -= s.undrained()
	f.deferred -= s.deferredBytes
	if s.kept {
		f.kept--
	}
}

// owed returns the stream's part of the backlog: bytes written and not drained.
func (s *Stream) undrained() int64 { return s.pos - s.next + s.out }
