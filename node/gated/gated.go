// Package gated schedules the file I/O of processes that have no agent.
//
// Problem: a process beside Hadoop, such as a backup, a short-circuit reader or a Python worker,
// uses as much of a disk as it can. The gate (node/control/gate) holds each of its operations until
// the daemon answers; an operation that may continue is said to pass. This package makes streams of the
// operations, so that the device's arbiter schedules them like streams of agents, with a weight, a limit
// and a share. The arbiter decides, and not this package.
//
// What is hard is that an operation says little. Buffered reads are staged: the daemon brings the
// range into the page cache, and the operation passes when the range is there. Package core/access
// guesses how far to stage. Buffered writes are drained: a write passes while its flow has room for a
// backlog, and the pages are written out later. Operations that bypass the page cache (O_DIRECT) can be
// neither staged nor drained. Each is one device request of its flow: it passes when the arbiter
// starts the request, and the request ends when the thread's system call has returned.
//
// In cases of doubt, operations pass: when the device has no loop, when its loop hangs, when the file
// cannot be opened, and when a bound is reached.
package gated

import (
	"math"
	"os"
	"sync"
	"time"

	"penstock/core/access"
	"penstock/node/blockfile"
	"penstock/node/device"
)

const (
	// reportAfter is the time after which a write that has passed counts as done. It counts as done
	// earlier if the thread's next operation on the file arrives.
	reportAfter = 20 * time.Millisecond
	idleAfter   = 5 * time.Second // a stream without operations is closed after this time
	tickPeriod  = 20 * time.Millisecond
)

// Operation is a process's file operation that the gate holds.
type Operation struct {
	Flow, User     string
	PID, TID       int
	Write          bool
	Direct         bool // bypasses the page cache
	Async          bool // the system call returns before the device has answered
	Device         uint64
	Inode          uint64
	Offset, Length int64

	Open  func() (*os.File, error) // returns a descriptor of the file that the caller owns
	Allow func()                   // lets the operation pass; called once
}

// Options of a Scheduler.
type Options struct {
	// Target returns the loop that governs the file system dev; ok is false if none does.
	Target func(dev uint64) (t Target, ok bool)
	// Expect returns how long a device request takes. It is used for operations whose end cannot
	// be observed.
	Expect func(write bool, bytes int64) time.Duration
	Procfs string // default /proc
}

// Target is a governed file system: the loop of its device, and one of its directories.
type Target struct {
	Loop *device.Loop
	Dir  *blockfile.Dir
}

// Scheduler makes streams of operations. Its methods may be called by several goroutines.
type Scheduler struct {
	options Options

	mu      sync.Mutex
	streams *streams
	threads map[int]*directFile      // the last direct operation of each thread, until it is over
	waiting map[*directFile]struct{} // direct operations that are not over
	stats   Stats

	marks sync.Mutex // protects the fields below; may be taken while mu is held
	parts map[uint32]*part
	last  uint32
}

// Stats are counts since the scheduler was made.
type Stats struct {
	Operations  int64 // number of operations that were announced
	Ungoverned  int64 // number of these that passed because nothing governs the device, or because of an error
	Streams     int   // open now
	StreamsMade int64
}

// New returns a scheduler. The caller must call Run.
func New(o Options) *Scheduler {
	if o.Procfs == "" {
		o.Procfs = "/proc"
	}
	return &Scheduler{options: o, streams: newStreams(), threads: map[int]*directFile{}, waiting: map[*directFile]struct{}{}, parts: map[uint32]*part{}}
}

// Stats returns the counts.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Streams = s.streams.recent.Len()
	return stats
}

// Mark implements device.Marker. All streams of the gate belong to one connection, so that the loop serves
// agents in their turn, however many threads the gate holds.
func (s *Scheduler) Mark(id uint32, position int64) {
	s.marks.Lock()
	p := s.parts[id]
	s.marks.Unlock()
	if p != nil {
		p.moveTo(position)
	}
}

// number gives a part its number for Mark.
func (s *Scheduler) number(p *part) uint32 {
	s.marks.Lock()
	defer s.marks.Unlock()
	for s.last++; s.parts[s.last] != nil; s.last++ {
	}
	p.id = s.last
	s.parts[p.id] = p
	return p.id
}

// forget ends the part's number.
func (p *part) forget() {
	p.scheduler.marks.Lock()
	defer p.scheduler.marks.Unlock()
	if p.scheduler.parts[p.id] == p {
		delete(p.scheduler.parts, p.id)
	}
}

// Reset lets all operations pass and closes all streams. It must be called when the daemon begins to
// enforce: streams that were opened before are not governed.
func (s *Scheduler) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams.recent.Purge()
	for d := range s.waiting {
		d.pass()
	}
}

// Handle schedules an operation. It does not wait for the device.
func (s *Scheduler) Handle(op Operation) {
	target, ok := s.options.Target(op.Device)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Operations++
	ok = ok && target.Loop.Alive() && op.Length > 0 && op.Offset >= 0
	switch {
	case !ok:
	case op.Direct:
		s.direct(target.Loop, op)
		s.stats.StreamsMade++
		return
	case op.Write:
		ok = s.buffered(target, op, (*stream).write)
	default:
		ok = s.buffered(target, op, (*stream).read)
	}
	if !ok {
		s.stats.Ungoverned++
		op.Allow()
	}
}

// buffered gives an operation to its stream.
func (s *Scheduler) buffered(target Target, op Operation, handle func(*stream, Operation) error) bool {
	k := key{file{op.Device, op.Inode, op.PID, op.Write}, op.TID}
	st := s.streams.find(k, op)
	if st != nil && (st.Target != target || st.flow != op.Flow) {
		s.streams.remove(st)
		st = nil
	}
	if st == nil {
		st = &stream{Target: target, key: k, flow: op.Flow, scheduler: s}
		s.streams.add(st)
	}
	made := st.made
	if err := handle(st, op); err != nil {
		s.streams.remove(st)
		return false
	}
	s.stats.StreamsMade += int64(st.made - made)
	return true
}

// Run reports finished writes and closes idle streams until stop is closed. Then it closes all
// streams and lets all operations pass.
func (s *Scheduler) Run(stop <-chan struct{}) {
	ticker := time.NewTicker(tickPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			s.Reset()
			return
		case now := <-ticker.C:
			s.tick(now)
		}
	}
}

func (s *Scheduler) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickDirect(now)
	for _, st := range s.streams.recent.Keys() {
		if !st.tick(now) {
			s.streams.remove(st)
		}
	}
}

// stream is a sequence of buffered operations on a file in one direction. mu protects what the loop's
// goroutine changes; the scheduler's mu protects the rest.
type stream struct {
	Target
	key       key // of the thread that used it last
	flow      string
	scheduler *Scheduler
	reads     access.Reads
	writes    access.Writes
	part      *part // the device's present stream; nil before the first one
	made      int   // number of parts so far
	used      time.Time
	wrote     int64 // end of the last write; 0 before the first
	counted   int64 // end of what was reported of the writes
	// checkAfter is the time without an operation after which the scheduler checks whether more of the last write counts; 0
	// if all of it does. It doubles with each check, because the end may never be reached, for example on a full disk.
	checkAfter time.Duration
}

// part is one stream of the device.
type part struct {
	at        *device.Stream
	scheduler *Scheduler
	id        uint32

	mu    sync.Mutex
	mark  int64
	need  int64
	allow func() // of the operation that waits; nil if none does
}

// moveTo sets the mark.
func (p *part) moveTo(position int64) {
	p.mu.Lock()
	p.mark = position
	allow := p.allow
	if position < p.need {
		allow = nil
	} else {
		p.allow = nil
	}
	p.mu.Unlock()
	if allow != nil {
		allow()
	}
}

// wait calls allow when the mark has reached need. If another operation is waiting, wait lets it pass
// first.
func (p *part) wait(need int64, allow func()) {
	p.mu.Lock()
	earlier := p.allow
	p.allow, p.need = nil, need
	passes := p.mark >= need
	if !passes {
		p.allow = allow
	}
	p.mu.Unlock()
	if earlier != nil {
		earlier()
	}
	if passes {
		allow()
	}
}

func (p *part) staged() int64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mark
}

// continues reports whether an operation continues the stream.
func (st *stream) continues(op Operation) bool {
	if st.part == nil {
		return false
	}
	if op.Write {
		return st.writes.Follows(op.Offset)
	}
	return st.reads.Follows(op.Offset, st.part.staged())
}

// read handles a buffered read.
func (st *stream) read(op Operation) error {
	st.used = time.Now()
	size, err := st.size(op)
	if err != nil {
		return err
	}
	if op.Offset >= size { // reads nothing
		op.Allow()
		return nil
	}
	to, fresh := st.reads.Next(op.Offset, op.Length, st.part.staged(), size)
	if fresh {
		f, err := op.Open()
		if err != nil {
			return err
		}
		file := st.Dir.Wrap(f)
		if err := file.PrepareStaging(); err != nil {
			file.Close()
			return err
		}
		st.open(op, file, op.Offset, to)
	} else {
		st.Loop.Progress(st.part.at, op.Offset)
	}
	st.part.wait(min(op.Offset+op.Length, to), op.Allow)
	return nil
}

// size returns the size of the operation's file.
func (st *stream) size(op Operation) (int64, error) {
	if st.part != nil {
		return st.part.at.Block.Size()
	}
	f, err := op.Open()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return st.Dir.Wrap(f).Size()
}

// write handles a buffered write.
func (st *stream) write(op Operation) error {
	st.used = time.Now()
	st.report()
	fresh := st.writes.Next(op.Offset, op.Length) || st.part == nil
	if !fresh {
		// A write that has failed, for example on a full disk, leaves a gap that never becomes backlog.
		size, err := st.part.at.Block.Size()
		fresh = err != nil || size < op.Offset
	}
	if fresh {
		f, err := op.Open()
		if err != nil {
			return err
		}
		st.open(op, written{st.Dir.Wrap(f)}, op.Offset, 0)
	}
	st.wrote, st.checkAfter = op.Offset+op.Length, reportAfter
	st.part.wait(access.Room(op.Offset, op.Length), op.Allow)
	return nil
}

// written is a file whose writes were observed, so that its size alone shows which positions were written.
// The space that it occupies shows less, because it may have holes.
type written struct{ *blockfile.File }

// Space implements device.File.
func (written) Space() (int64, error) { return math.MaxInt64, nil }

// open replaces the device's stream by a new one.
func (st *stream) open(op Operation, file device.File, from, to int64) {
	st.end()
	st.part, st.wrote, st.counted = &part{scheduler: st.scheduler}, 0, 0
	st.made++
	st.part.at = st.Loop.Open(device.OpenRequest{Marker: st.scheduler, ID: st.scheduler.number(st.part), Flow: op.Flow, User: op.User,
		Kind: device.Persistent, Write: op.Write, Block: file, From: from, To: to})
}

// report reports the last write that has passed. If the write is still running, only the part that the
// file's size shows counts. A write inside of the file counts at once. It reports whether the whole write
// counts now. Less than a page may be missing: the length of some writes is only known in whole pages.
func (st *stream) report() (whole bool) {
	if st.wrote == 0 || st.part == nil || st.part.waits() {
		return true
	}
	written := st.wrote
	if size, err := st.part.at.Block.Size(); err == nil {
		written = min(written, size)
	}
	if written > st.counted {
		st.Loop.Progress(st.part.at, written)
		st.counted = written
	}
	return st.wrote-written < int64(os.Getpagesize())
}

func (p *part) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allow != nil
}

// tick reports whether the stream is still in use.
func (st *stream) tick(now time.Time) bool {
	switch {
	case st.part == nil:
		return now.Sub(st.used) < idleAfter
	case !st.Loop.Alive():
		return false
	case st.part.waits():
		return true
	}
	if st.checkAfter > 0 && now.Sub(st.used) >= st.checkAfter {
		if st.checkAfter *= 2; st.report() {
			st.checkAfter = 0
		}
	}
	return now.Sub(st.used) < idleAfter
}

// end closes the device's stream and lets the operation that waits pass.
func (st *stream) end() {
	if st.part == nil {
		return
	}
	st.part.wait(0, func() {})
	st.Loop.Close(st.part.at, st.last())
	st.part.forget()
	st.part = nil
}

// last returns the last position of the device's stream.
func (st *stream) last() int64 {
	if st.wrote > 0 {
		return st.wrote
	}
	return st.part.at.From
}
