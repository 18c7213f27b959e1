package arbiter_test

import (
	"container/heap"
	"sort"
	"time"

	"penstock/core/arbiter"
	"penstock/core/foreign"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30

	packet     = 64 * kib // what an agent's thread passes at a time
	tickPeriod = 100 * time.Millisecond
)

// world is a device in virtual time. It has an arbiter, a disk with one head that serves one
// request after the other, files with a page cache, and agents that follow the wire protocol.
type world struct {
	a      *arbiter.Arbiter
	cfg    arbiter.Config
	now    time.Duration
	tickAt time.Duration // latest time of the arbiter's next call, because of its ticks
	again  time.Duration // time of the arbiter's next call
	events events
	seq    uint64
	woken  []*agent
	disk   disk

	began    func(r *arbiter.Request, flow string) // called when a request was started
	marked   func(s *stream, pos int64)
	freed    func(s *stream)
	activity func() arbiter.Activity // nil: the kernel's counters cannot be read

	settled func() // called when all events of one moment are done
	ended   func(r *arbiter.Request, flow string, took time.Duration)

	decisions   int
	queries     int // questions about files, in total
	mostQueries int // most questions in one event
	flying      int
	longestWait time.Duration
}

// disk is the device.
type disk struct {
	rate    float64 // bytes a second
	seek    time.Duration
	notice  time.Duration // from the end of a request until the arbiter learns of it
	free    time.Duration // time when the head becomes free
	file    *file
	end     int64
	stopped bool
	held    []held // requests that began while it was stopped
	counted foreign.Counters
	log     []served
}

type held struct {
	r      *arbiter.Request
	flow   string
	number int
	at     time.Duration
}

// served is a request as the disk saw it.
type served struct {
	flow  string
	write bool
	bytes int64
	took  time.Duration
	at    time.Duration // when the request ended
}

// stream is an open stream as its agent sees it.
type stream struct {
	name     string
	at       *arbiter.Stream
	flow     string
	file     *file
	meta     *file
	write    bool
	to       int64
	mark     int64 // -1 before the first mark
	patience time.Duration
	released bool
	agent    *agent
}

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func newWorld(o arbiter.Options, rate float64, seek time.Duration) (*world, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	a, err := arbiter.New(o)
	if err != nil {
		return nil, err
	}
	return &world{a: a, cfg: o.Config, now: 1, again: 1, disk: disk{rate: rate, seek: seek}}, nil
}

// after calls a function at a later time.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + d, w.seq, do})
}

// run advances virtual time.
func (w *world) run(d time.Duration) {
	end := w.now + d
	w.decide()
	for {
		next := w.again
		if len(w.events) > 0 {
			next = min(next, w.events[0].at)
		}
		if next > end {
			break
		}
		w.now = max(w.now, next)
		for len(w.events) > 0 && w.events[0].at <= w.now {
			heap.Pop(&w.events).(event).do()
		}
		w.decide()
	}
	w.now = end
}

// decide performs the arbiter's actions and the agents' reactions, until there are no more at this
// time.
func (w *world) decide() {
	for {
		if w.now >= w.tickAt {
			w.tickAt = w.now + tickPeriod
		}
		var actions []arbiter.Action
		w.decisions++
		if w.activity != nil && w.a.LookDue(w.now) {
			w.a.Look(w.now, w.activity())
		}
		w.event(func() {
			some, again := w.a.Decide(w.now)
			actions, w.again = append(actions, some...), again
		})
		for _, x := range actions {
			s := x.Stream.Ref.(*stream)
			switch x.Kind {
			case arbiter.Start:
				w.start(x.Request, s)
			case arbiter.Mark:
				s.mark = x.Position
				if w.marked != nil {
					w.marked(s, x.Position)
				}
				w.wake(s.agent)
			case arbiter.Release:
				s.released = true
				if w.freed != nil {
					w.freed(s)
				}
			}
		}
		if len(w.woken) == 0 {
			break
		}
		for len(w.woken) > 0 {
			g := w.woken[0]
			w.woken = w.woken[1:]
			g.queued = false
			g.step()
		}
	}
	if w.settled != nil {
		w.settled()
	}
}

// event performs one event and records how many questions about files it causes.
func (w *world) event(do func()) {
	before := w.queries
	do()
	w.mostQueries = max(w.mostQueries, w.queries-before)
}

func (w *world) wake(g *agent) {
	if g != nil && !g.queued {
		g.queued = true
		w.woken = append(w.woken, g)
	}
}

func (w *world) start(r *arbiter.Request, s *stream) {
	w.flying++
	if w.began != nil {
		w.began(r, s.flow)
	}
	if w.disk.stopped {
		w.disk.held = append(w.disk.held, held{r, s.flow, 0, w.now})
		return
	}
	w.serve(r, s.flow, w.now)
}

// resume restarts a disk that was stopped.
func (w *world) resume() {
	d := &w.disk
	d.stopped = false
	d.free = max(d.free, w.now)
	for _, h := range d.held {
		w.serve(h.r, h.flow, h.at)
	}
	d.held = nil
}

// serve makes the disk serve a request that was dispatched at the given time.
func (w *world) serve(r *arbiter.Request, flow string, dispatched time.Duration) {
	d, f := &w.disk, r.File().(*file)
	result := f.work(r)
	if result.Moved == 0 { // the disk has no work
		w.after(0, func() { w.finish(r, flow, 0, result) })
		return
	}
	took := time.Duration(float64(result.Moved) / d.rate * float64(time.Second))
	if d.file != f || d.end != r.Offset {
		took += d.seek
	}
	d.file, d.end = f, r.Offset+r.Length
	begin := max(w.now, d.free)
	d.free = begin + took
	result.Latency = d.free - dispatched
	w.after(d.free-w.now, func() { w.logServed(r, flow, took, result) })
}

// logServed records a request that the disk has served. The arbiter learns of it later.
func (w *world) logServed(r *arbiter.Request, flow string, took time.Duration, result arbiter.Result) {
	w.disk.counted.Add(r.Write, result.Moved)
	w.disk.log = append(w.disk.log, served{flow, r.Write, result.Moved, took, w.now})
	if w.disk.notice == 0 {
		w.finish(r, flow, took, result)
		return
	}
	result.Latency += w.disk.notice
	w.after(w.disk.notice, func() { w.finish(r, flow, took, result) })
}

func (w *world) finish(r *arbiter.Request, flow string, took time.Duration, result arbiter.Result) {
	w.flying--
	f := r.File().(*file)
	if r.Write {
		f.saved.add(r.Offset, r.Offset+r.Length)
	} else {
		f.resident.add(r.Offset, r.Offset+r.Length)
	}
	if w.ended != nil {
		w.ended(r, flow, took)
	}
	w.event(func() { w.a.Done(w.now, r, result) })
}

// foreign makes another process read 64 KiB at intervals, sequentially or at random places.
func (w *world) foreign(every time.Duration, seeks bool) {
	d := &w.disk
	d.free = max(d.free, w.now) + time.Duration(float64(packet)/d.rate*float64(time.Second))
	if seeks {
		d.free += d.seek
	}
	d.file = nil // the head is elsewhere
	w.after(d.free-w.now, func() { d.counted.Add(false, packet) })
	w.after(every, func() { w.foreign(every, seeks) })
}

// observe passes the kernel's counters to the arbiter each second.
func (w *world) observe() {
	w.event(func() { w.a.Observe(w.now, w.disk.counted) })
	w.after(time.Second, w.observe)
}

// open opens a stream.
func (w *world) open(s *stream, o arbiter.Opening) *stream {
	s.flow, s.write, s.to, s.mark, s.patience = o.Flow, o.Write, o.To, -1, min(o.Patience, w.cfg.MaxWait)
	if s.file == nil && o.Kind != arbiter.Network {
		s.file = w.newFile(o.To)
	}
	if s.file != nil {
		o.File = s.file
	}
	if s.meta != nil {
		o.Meta = s.meta
	}
	if s.file != nil && !o.Write {
		for at := o.From; at < o.To && len(o.Missing) < 4096; at += w.cfg.Quantum {
			n := min(w.cfg.Quantum, o.To-at)
			o.Missing = append(o.Missing, n-s.file.resident.within(at, at+n))
		}
	}
	o.Ref = s
	w.event(func() { s.at = w.a.Open(w.now, o) })
	return s
}

func (w *world) progress(s *stream, pos int64) {
	w.event(func() { w.a.Progress(w.now, s.at, pos) })
}

func (w *world) close(s *stream, pos int64) {
	w.event(func() { w.a.Close(w.now, s.at, pos) })
}

// reader opens a file of the given size and reads it.
func (w *world) reader(flow string, size int64) *agent {
	s := w.open(&stream{}, arbiter.Opening{Flow: flow, To: size})
	return w.drive(s, 0, size)
}

// writer opens a file and writes the given number of bytes.
func (w *world) writer(flow string, size int64) *agent {
	s := w.open(&stream{}, arbiter.Opening{Flow: flow, Write: true})
	return w.drive(s, 0, size)
}

// chain reads one file after the other, with think time between them.
func (w *world) chain(flow string, size int64, think time.Duration, count *int) {
	s := w.open(&stream{name: flow}, arbiter.Opening{Flow: flow, To: size})
	g := w.drive(s, 0, size)
	g.then = func() {
		*count++
		w.after(think, func() { w.chain(flow, size, think, count) })
	}
}

// agent is the thread of a stream: it waits for marks, reports progress, and closes.
type agent struct {
	w        *world
	s        *stream
	pos, end int64
	rate     float64 // bytes a second that the client takes; 0 means any rate
	think    time.Duration
	every    int64 // bytes between two pauses of length think
	needs    int64 // bytes at a time; 0 means a packet
	reported int64
	queued   bool
	moving   bool // set between two packets
	waits    bool
	since    time.Duration
	longest  time.Duration // longest wait
	closed   bool
	then     func() // called once the stream is closed; may be nil
	patience time.Duration
}

// drive makes a stream's thread run by itself.
func (w *world) drive(s *stream, rate float64, end int64) *agent {
	g := &agent{w: w, s: s, rate: rate, end: end, patience: s.patience}
	s.agent = g
	w.wake(g)
	return g
}

// longestWait returns the longest wait of the thread so far.
func (g *agent) longestWait() time.Duration {
	if g.waits {
		return max(g.longest, g.w.now-g.since)
	}
	return g.longest
}

// report reports the thread's position.
func (g *agent) report() {
	if g.pos > g.reported {
		g.reported = g.pos
		g.w.progress(g.s, g.pos)
	}
}

func (g *agent) step() {
	w, stride := g.w, int64(g.w.cfg.Stride())
	for !g.closed && !g.moving {
		n := min(max(packet, g.needs), g.end-g.pos)
		if n <= 0 {
			g.closed = true
			w.close(g.s, g.pos)
			if g.then != nil {
				g.then()
			}
			return
		}
		need := g.pos + n
		if g.s.write {
			need = g.pos + 1
		}
		if g.s.mark < need {
			if !g.waits {
				g.waits, g.since = true, w.now
				g.report() // an agent reports before it waits
			}
			return
		}
		if g.waits {
			g.waits = false
			g.longest = max(g.longest, w.now-g.since)
			w.longestWait = max(w.longestWait, g.longest)
		}
		rate := g.rate
		if rate == 0 && g.s.mark == arbiter.Open && g.s.file != nil && (g.s.write || g.s.file.resident.within(g.pos, need) < n) {
			rate = w.disk.rate // the mark is open, and only the kernel limits the rate
		}
		pass := func() {
			switch {
			case g.s.file == nil: // a stream that sends
			case g.s.write:
				g.s.file.write(g.pos + n)
			default:
				g.s.file.resident.add(g.pos, g.pos+n)
			}
			g.pos += n
			if g.pos/stride != (g.pos-n)/stride {
				g.report()
			}
		}
		pause := time.Duration(0)
		if rate > 0 {
			pause = time.Duration(float64(n) / rate * float64(time.Second))
		}
		if g.every > 0 && (g.pos+n)%g.every == 0 {
			pause += g.think
		}
		if pause == 0 {
			pass()
			continue
		}
		g.moving = true
		w.after(pause, func() {
			g.moving = false
			pass()
			w.wake(g)
		})
	}
}

// file is a file as the kernel describes it.
type file struct {
	w        *world
	size     int64
	space    int64 // bytes that the file occupies; -1 means its size
	resident ranges
	saved    ranges
	deleted  bool
}

func (w *world) newFile(size int64) *file { return &file{w: w, size: size, space: -1} }

func (f *file) write(to int64) {
	f.resident.add(f.size, to)
	f.size = max(f.size, to)
}

// work returns the device's work for a request.
func (f *file) work(r *arbiter.Request) (result arbiter.Result) {
	if !r.Write {
		result.Moved = r.Length - f.resident.within(r.Offset, r.Offset+r.Length)
		return result
	}
	end := r.Offset + r.Length
	there := max(0, min(end, f.size)-r.Offset)
	result.Earlier = f.saved.within(r.Offset, end)
	if !f.deleted {
		result.Moved = max(0, there-result.Earlier)
	}
	result.Earlier += r.Length - there // these pages are not dirty
	return result
}

// Missing implements arbiter.File.
func (f *file) Missing(off, length int64) int64 {
	f.w.queries++
	return length - f.resident.within(off, off+length)
}

// Saved implements arbiter.File.
func (f *file) Saved(off, length int64) int64 {
	f.w.queries++
	return f.saved.within(off, off+length)
}

// Written implements arbiter.File.
func (f *file) Written() (int64, bool) {
	f.w.queries++
	if f.space >= 0 {
		return min(f.size, f.space), true
	}
	return f.size, true
}

// Deleted implements arbiter.File.
func (f *file) Deleted() bool {
	f.w.queries++
	return f.deleted
}

// ranges are disjoint ranges of a file, in order.
type ranges [][2]int64

func (r *ranges) add(from, to int64) {
	if from >= to {
		return
	}
	all := *r
	i := sort.Search(len(all), func(i int) bool { return all[i][1] >= from })
	j := i
	for j < len(all) && all[j][0] <= to {
		from, to = min(from, all[j][0]), max(to, all[j][1])
		j++
	}
	if i < j {
		all[i] = [2]int64{from, to}
		*r = append(all[:i+1], all[j:]...)
		return
	}
	all = append(all, [2]int64{})
	copy(all[i+1:], all[i:])
	all[i] = [2]int64{from, to}
	*r = all
}

// within returns how many bytes of [from, to) are in the ranges.
func (r ranges) within(from, to int64) (bytes int64) {
	for i := sort.Search(len(r), func(i int) bool { return r[i][1] > from }); i < len(r) && r[i][0] < to; i++ {
		bytes += min(to, r[i][1]) - max(from, r[i][0])
	}
	return bytes
}
