package arbiter

import (
	"time"

	"penstock/core/limit"
	"penstock/core/sfq"
)

// Kind is the kind of a stream's bytes. The values are those of the wire format.
type Kind uint8

// The kinds.
const (
	Persistent   Kind = iota // HDFS data
	Intermediate             // temporary data of tasks on local disks
	Network                  // data sent to another node
	kinds
)

var kindNames = [kinds]string{"persistent", "intermediate", "network"}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return "unknown"
}

// File answers questions about a file that only the kernel can answer. An answer is valid only at
// that moment. No method may wait for the device.
type File interface {
	// Missing returns how many bytes of a range are not in the page cache.
	Missing(off, length int64) int64
	// Saved returns how many of the bytes written to a range are already on the device.
	Saved(off, length int64) int64
	// Written returns an upper bound of the bytes written to the file: the smaller of its size and
	// the space that it occupies. ok is false if neither is known.
	Written() (bytes int64, ok bool)
	// Deleted reports whether the file no longer has a name.
	Deleted() bool
}

// Opening describes a new stream.
type Opening struct {
	Flow     string
	User     string // within the flow, users have equal shares
	Kind     Kind
	Write    bool
	Remote   bool          // the bytes go to another machine or come from one
	File     File          // nil on a network device
	Meta     File          // the checksum file of a block, or nil
	Asked    bool          // the flow is not verified yet; Reassign follows
	From, To int64         // offsets; To is for reads and sends, and 0 if unknown
	Missing  []int64       // read: bytes that were not resident at the open, for each quantum from From on
	Patience time.Duration // how long the stream may wait before its client gives up; 0 if unknown
	Ref      any           // for the caller

	// Flight bounds the reader's requests in flight; if it is 0, only the depth bounds them. It is
	// for comparisons with the kernel, because the kernel's readahead requests few bytes at a time.
	Flight int

	// Passing is set for a small read whose reader does not wait for marks, because the device was free. It gets no
	// marks. It has no effect on other streams.
	Passing bool

	// Turn is set if the process does the I/O of the stream's requests itself, through a server on
	// this machine, and File reports its end. The latency of such a request is not the device's.
	Turn bool

	// Refusable is set if the operation can still be refused (mark Refused). Threads is the number
	// of the server's threads for all operations; 0 if unknown.
	Refusable bool
	Threads   int
}

// Stream is one operation of a process on one file. Positions are offsets in the file, in bytes:
//
//	read:   from <= done <= next <= to; pos is the reader's position
//	write:  from <= done <= next <= pos; pos is the writer's position
//	send:   from <= pos, done <= next <= to; pos is how far the data is sent
//
// The bytes up to done are staged (read) or drained (write), or may be sent (send). The bytes up to
// next are requested.
type Stream struct {
	Opening
	flow     *flow
	pos      int64
	next     int64
	done     int64
	pending  []piece // requested parts beyond done, in order
	first    int64   // number of the first pending part
	inFlight int     // requests in flight
	mark     int64   // how far the stream may go in enforce mode
	sent     int64   // the last mark sent to the agent; -1 if there is none
	closed   bool
	released bool // all resources of the stream are released

	want          int64 // read, send: bytes of the next request; 0 if there is none
	ramp          int64 // read: bound of the next quantum
	meta          span  // part of the checksum file that is not requested yet
	ahead         int64 // read: bytes staged, or being staged, ahead of the reader
	roomIndex     int   // read: index in Arbiter.roomQueue
	roomSeq       int64 // read: key in Arbiter.roomQueue
	probe         int64 // read: if the reader gets here, its forced packet was large enough; 0 if there was no such packet
	cutTo         int64 // end of the last request that was cut (Request.cut); 0 if there was none
	flushTo       int64 // write: bytes up to here are drained although they fill no quantum
	deferredBytes int64 // write: deferred bytes
	unattributed  int64 // bytes that the stream has passed while Asked was set
	claimedIn     int   // number of the tick (free.tick) in which it was opened with Asked set; 0 if it is verified
	sending       []*Request
	queued        queueEntry
	index         int           // index in Arbiter.streams, from 1
	tailIndex     int           // index in flow.tails or flow.deferredQueue
	forcedIndex   int           // index in forced.waiting
	overdueIndex  int           // index in flow.overdue
	parkedIndex   int           // index in writingUser.parked
	parked        time.Duration // when the stream was parked
	writer        *writingUser  // of a stream that is drained
	out           int64         // write: bytes of data in flight

	unflushed   time.Duration // write: when the oldest bytes that are not requested were reported; 0 if there are none
	latest      time.Duration // write: when the newest bytes were reported
	kept        bool          // write: closed and kept for its deferred bytes
	deleted     bool          // write: the file is deleted
	waiting     time.Duration // when the stream reached its mark or, in observe mode, passed it; 0 if it does not wait
	deadline    time.Duration // when the stream gets a forced packet; 0 for never
	reservation int64         // in forced.schedule
	checkAt     time.Duration // key in forced.waiting, at most the time of the stream's next check
	smallSince  time.Duration // read: when the small read began to need the device; 0 if it does not
	smallFirst  bool          // read: it could go first then, so only requests at the device delay it
	moved       time.Duration // read: time of the open, the last progress or the last forced packet
}

// span is a range of a file.
type span struct{ next, end int64 }

// piece is a requested part of a stream. The part is in flight, or it is finished and an earlier
// part is still in flight.
type piece struct {
	end      int64 // value of done once this part and all earlier parts are finished
	finished bool
}

// Request is one device request.
type Request struct {
	Stream         *Stream
	Meta           bool // of the checksum file
	Write          bool
	Offset, Length int64

	flow        *flow // pays for the request
	ticket      sfq.Ticket
	piece       int64 // number of the pending part
	started     time.Duration
	cost        int64 // as charged at the start
	skipLatency bool  // started while slots were reserved, so its latency does not reflect the depth
	settled     bool  // network: the cost is settled
	forced      bool
	reserved    bool // dispatched by the flow's reservation
	cut         bool // a part of a quantum, because of a latency goal or because it is forced
	back        bool // the first such part after a small read with a goal: it pays no seek
	index       int  // index in Arbiter.running, from 1

	number    uint64        // in the order of starts
	overtaken time.Duration // device time of other flows' later requests that have ended before this one
	awaited   bool          // the device has waited for this read

	served       int64         // device time that was expected at the start
	clock        *limit.Bucket // guaranteed rate that pays for the request, or nil
	reservedSize int64         // as charged to clock
	rest         *limit.Bucket // account of strict rates that pays for the request, or nil

	predicted time.Duration // cost by the model
	expected  time.Duration // device time with the seek, if a flow has a latency goal
	part      float64       // part of the device that the request keeps busy while it is alone
}

// File returns the file of the request.
func (r *Request) File() File {
	if r.Meta {
		return r.Stream.Meta
	}
	return r.Stream.Opening.File
}

// Result is the outcome of a request.
type Result struct {
	Moved   int64         // bytes that the device moved
	Earlier int64         // write: bytes that the kernel or a sync wrote earlier
	Latency time.Duration // latency of the I/O; 0 if there was none
	Err     error
}

// drains reports whether the stream's bytes are drained to a device.
func (s *Stream) drains() bool { return s.Write && s.Kind != Network }

// deferred reports whether draining of the stream is deferred.
func (s *Stream) deferred() bool { return s.Write && s.Kind == Intermediate }

// addPending adds a requested part, and returns its number.
func (s *Stream) addPending(end int64, finished bool) int64 {
	s.pending = append(s.pending, piece{end, finished})
	return s.first + int64(len(s.pending)) - 1
}

// advance moves done over the finished parts at the front.
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

// countStreamed counts bytes that the stream has read, written or sent. If the flow is not verified
// yet, they are counted later, in Reassign.
func (s *Stream) countStreamed(bytes int64) {
	if s.Asked {
		s.unattributed += bytes
	} else {
		s.flow.countStreamed(s, bytes)
	}
}

// skipped returns how many bytes of [a, b) were not resident at the open. It assumes that the
// missing bytes of a quantum are evenly spread.
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

// Open begins a stream. The next Decide returns its first mark.
func (a *Arbiter) Open(now time.Duration, o Opening) *Stream {
	s := &Stream{Opening: o, pos: o.From, next: o.From, done: o.From, flushTo: o.From, sent: -1, moved: now}
	s.flow = a.flow(o.Flow, now)
	s.Passing = s.Passing && s.small()
	if a.modeOf(s.flow) == Off {
		s.released, s.closed = true, true
		a.act(Action{Kind: Mark, Stream: s, Position: Open})
		a.act(Action{Kind: Release, Stream: s})
		return s
	}
	a.streams = append(a.streams, s)
	s.index = len(a.streams)
	a.join(s, s.flow, now)
	a.useOf(s, now)
	a.beginClaim(s)
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

// threadsPart bounds the threads of the server that may wait in streams of one flow: a quarter of
// all.
const threadsPart = 4

// crowded reports whether a stream must be refused because too many streams of its flow wait.
// Another waiting stream would take a thread that other flows need.
func (a *Arbiter) crowded(s *Stream) bool {
	return s.Refusable && !s.Write && s.Kind == Persistent && s.Threads > 0 && a.modeOf(s.flow) == Enforce && !a.stuck &&
		s.flow.stalled >= max(1, s.Threads/threadsPart) && s.Opening.File.Missing(s.From, min(leaseFloor, max(1, s.To-s.From))) > 0
}

// refuse refuses the stream's operation, as HDFS does when all threads are busy.
func (a *Arbiter) refuse(s *Stream, now time.Duration) {
	s.flow.refused++
	a.stopReading(s, now)
	s.closed = true
	a.act(Action{Kind: Mark, Stream: s, Position: Refused})
	a.release(s, now)
}

// Progress records the position of the stream's reader or writer.
func (a *Arbiter) Progress(now time.Duration, s *Stream, pos int64) {
	if !s.closed {
		a.useOf(s, now)
	}
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

// Close ends a stream. pos is the stream's last position, or negative if the process is gone. In
// that case, a writer's position is taken from its file.
func (a *Arbiter) Close(now time.Duration, s *Stream, pos int64) {
	if s.closed || s.released {
		return
	}
	switch {
	case s.drains():
		a.closeWrite(s, pos, now)
	case s.Kind == Network:
		a.stopReading(s, now)
		s.closed = true
		a.closeSend(s, pos, now)
	default:
		if pos >= 0 {
			a.readProgress(s, pos, now)
		}
		a.stopReading(s, now)
		s.closed = true
		if s.Passing {
			s.foundResident(s.flow, s.meta.end-s.meta.next)
		}
		a.endSmallRead(s, now)
		a.clearWant(s, now)
	}
	a.forced.clearDeadline(s)
	s.Missing = nil
	if a.modeOf(s.flow) == Enforce { // no process waits until the rest is drained
		a.endWait(s, now)
	}
	a.release(s, now)
}

// Ended reports whether all resources of the stream are released.
func (s *Stream) Ended() bool { return s.released }

// clearWant drops the bytes that a stream wants and has not requested.
func (a *Arbiter) clearWant(s *Stream, now time.Duration) {
	s.want, s.meta = 0, span{}
	a.updateReady(s, now)
}

// release removes a closed stream once none of its bytes are in flight or wait to be drained.
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

// sendMark sends the stream's mark if it differs from the agent's mark.
func (a *Arbiter) sendMark(s *Stream) {
	if s.closed || s.Passing {
		return // closed or ungoverned, or the agent ignores marks
	}
	mark := s.mark
	if a.modeOf(s.flow) != Enforce || a.stuck {
		mark = Open
	} else if mark < 0 && s.sent == Open {
		mark = s.From // the mark was open before: the process may read the checksums, and waits for the data
	}
	if mark >= 0 && mark != s.sent {
		s.sent = mark
		a.act(Action{Kind: Mark, Stream: s, Position: mark})
	}
}

// updateWait records when a stream begins to wait and when it continues. A stream waits at its mark
// or, in observe mode, beyond the mark that enforce mode would set.
func (a *Arbiter) updateWait(s *Stream, now time.Duration) {
	at := s.mark != Open && s.pos >= s.mark
	if !s.Write {
		// The agent checks a reader's mark one packet ahead of its position.
		at = s.mark != Open && s.pos+leaseFloor > s.mark && !s.Passing
	}
	switch {
	case at && s.waiting == 0:
		s.waiting = now
		s.flow.waits++
		a.stall(s, 1, now)
	case !at && s.waiting > 0:
		if a.modeOf(s.flow) == Observe {
			s.flow.wouldWait += now - s.waiting
		}
		s.waiting = 0
		a.stall(s, -1, now)
	}
	a.forced.watch(a, s, now)
}

// stall changes the number of the flow's streams that wait by 1 or -1.
func (a *Arbiter) stall(s *Stream, by int, now time.Duration) {
	a.settleWaits(s.flow, now)
	if s.flow.stalled += by; s.drains() {
		s.flow.stalledWriters += by
	}
}

// stopReading records that an open stream that is not drained leaves its flow, or is about to be closed.
func (a *Arbiter) stopReading(s *Stream, now time.Duration) {
	if !s.closed && !s.drains() {
		a.settleWaits(s.flow, now)
		s.flow.reading--
	}
}

// endWait ends the wait of a closed stream. In observe mode, a fast writer closes long before its
// bytes are drained. In enforce mode, the writer would have waited until now, so its wait counts up
// to now.
func (a *Arbiter) endWait(s *Stream, now time.Duration) {
	if s.waiting > 0 {
		s.mark = Open
		a.updateWait(s, now)
	}
	a.forced.clearDeadline(s)
}

// restartWait restarts a stream's wait, because the reason for the wait has changed.
func (a *Arbiter) restartWait(s *Stream, now time.Duration) {
	if s.moved = now; s.waiting > 0 {
		s.waiting = now
	}
	a.forced.clearDeadline(s)
	a.forced.watch(a, s, now)
}

// ungovern stops governing a stream, which stays open in its process.
func (a *Arbiter) ungovern(s *Stream, now time.Duration) {
	if !s.closed {
		s.sent = Open
		a.act(Action{Kind: Mark, Stream: s, Position: Open})
		if a.stopReading(s, now); s.drains() {
			a.settleWaits(s.flow, now)
			s.flow.writing--
			s.flow.users.unpark(s)
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

// Reassign sets the verified flow of a stream; the flow at the opening was a claim. If the flow
// changes, the I/O of the stream so far stays charged to the old flow, and the stream's backlog
// moves to the new one. A stream does not move if it has ended. A stream that was opened while its
// flow's mode was off stays ungoverned. The bytes that an Asked stream has passed are counted now,
// even if the stream ended before it was verified.
func (a *Arbiter) Reassign(now time.Duration, s *Stream, flow, user string) {
	old, f := s.flow, a.flow(flow, now)
	a.use(f, now)
	a.endClaim(s)
	f.countStreamed(s, s.unattributed)
	s.unattributed, s.Asked = 0, false
	if s.released || f == old && user == s.User {
		return
	}
	if a.modeOf(f) == Off {
		a.ungovern(s, now)
		return
	}
	if s.waiting > 0 { // until now it waited as a stream of the old flow
		if a.modeOf(old) == Observe {
			old.wouldWait += now - s.waiting
		}
		s.waiting = 0
		a.stall(s, -1, now)
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
	a.settleWaits(f, now)
	if !s.drains() {
		if !s.closed {
			f.reading++
		}
		return
	}
	if f.writers++; f.writers == 1 {
		a.backlog.writing++
	}
	if !s.closed {
		f.writing++
	}
	f.users.enter(s)
	s.addUndrained(s.undrained())
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

// leave removes the stream and its backlog from its flow.
func (a *Arbiter) leave(s *Stream, now time.Duration) {
	f := s.flow
	a.forced.clearDeadline(s)
	f.ready.leave(s)
	a.announce(f, now)
	a.stagedFor(f, -s.ahead)
	if f.streams--; f.streams == 0 {
		f.idle = now
	}
	a.settleWaits(f, now)
	if !s.drains() {
		a.stopReading(s, now)
		return
	}
	f.unlist(s)
	if f.writers--; f.writers == 0 {
		a.backlog.writing--
	}
	if !s.closed {
		f.writing--
	}
	s.addUndrained(-s.undrained())
	f.users.unpark(s)
	f.users.leave(s)
	f.deferred -= s.deferredBytes
	if s.kept {
		f.kept--
	}
}

// undrained returns the stream's part of the backlog: bytes written and not drained.
func (s *Stream) undrained() int64 { return s.pos - s.next + s.out }
