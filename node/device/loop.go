package device

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"penstock/core/depth"
	"penstock/core/sfq"
)

// Loop owns one device: every field below the channels belongs to the
// goroutine in Run.
type Loop struct {
	Name string

	events  chan event
	results chan result
	tick    atomic.Uint64
	ticked  atomic.Int64 // Unix nanoseconds of the last tick
	ended   chan struct{}

	log       *slog.Logger
	onLatency func(write bool, latency time.Duration)

	cfg       Config
	mode      Mode
	policy    Policy
	sched     sfq.Scheduler
	control   *depth.Controller // nil but for sfqd2
	flows     map[string]*flow
	byID      map[sfq.Flow]*flow
	streams   map[*Stream]struct{}
	running   map[*request]struct{}
	backlog   int64
	stuck     bool
	lastError time.Time
	errors    int64
}

// event is one thing that happens to the loop from outside.
type event struct {
	kind   eventKind
	stream *Stream
	pos    int64
	call   func() // kind evCall
}

type eventKind uint8

const (
	evOpen eventKind = iota
	evProgress
	evClose
	evCall
)

// Options of a new loop.
type Options struct {
	Name    string // of the device
	Config  Config
	Mode    Mode
	Policy  Policy
	Log     *slog.Logger
	Latency func(write bool, latency time.Duration) // called for every device request; may be nil
}

// eventQueue bounds what connections may have sent that the loop has not seen;
// a full queue holds the connection's reader, not the DataNode.
const eventQueue = 4096

// New makes a device's loop; Run starts it.
func New(o Options) (*Loop, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, fmt.Errorf("device %s: %w", o.Name, err)
	}
	sched, err := o.Config.scheduler()
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", o.Name, err)
	}
	l := &Loop{
		Name:      o.Name,
		events:    make(chan event, eventQueue),
		results:   make(chan result, 1024),
		ended:     make(chan struct{}),
		log:       o.Log.With("device", o.Name),
		onLatency: o.Latency,
		cfg:       o.Config,
		mode:      o.Mode,
		policy:    o.Policy,
		sched:     sched,
		flows:     map[string]*flow{},
		byID:      map[sfq.Flow]*flow{},
		streams:   map[*Stream]struct{}{},
		running:   map[*request]struct{}{},
	}
	l.ticked.Store(time.Now().UnixNano())
	if o.Config.Algorithm == "sfqd2" {
		if l.control, err = depth.New(o.Config.Depth); err != nil {
			return nil, fmt.Errorf("device %s: %w", o.Name, err)
		}
		l.sched.SetDepth(l.control.Depth())
	}
	return l, nil
}

// Stride is the bytes between an agent's progress reports: often enough that a
// lease or the staged range never runs out unnoticed.
func (c Config) Stride() uint32 { return uint32(min(c.Quantum/4, leaseBytes/4)) }

// Open starts a stream. The call asks the page cache what is resident and then
// hands over to the loop; the first mark comes through the stream's Marker.
func (l *Loop) Open(r OpenRequest) *Stream {
	s := &Stream{OpenRequest: r, pos: r.From, next: r.From, done: r.From, sent: -1}
	if !r.Write {
		s.missing = missingAtOpen(r.Block, r.From, r.To, l.cfg.Quantum)
	}
	if !l.send(event{kind: evOpen, stream: s}) {
		s.closeFiles()
		r.Marker.Mark(r.ID, Open)
	}
	return s
}

// Progress reports how far the stream's reader or writer is.
func (l *Loop) Progress(s *Stream, pos int64) {
	l.send(event{kind: evProgress, stream: s, pos: pos})
}

// Close ends a stream. pos is its last position, or negative when the agent is
// gone and the file itself has to tell.
func (l *Loop) Close(s *Stream, pos int64) {
	l.send(event{kind: evClose, stream: s, pos: pos})
}

// Apply sets the daemon's mode and the operator's policy, for streams that are
// open as well.
func (l *Loop) Apply(mode Mode, policy Policy) {
	l.send(event{kind: evCall, call: func() { l.apply(mode, policy) }})
}

// Tick counts the loop's turns, one each 100 ms.
func (l *Loop) Tick() uint64 { return l.tick.Load() }

// Alive tells whether the loop has turned in the last half second; heartbeats
// go to agents only while all loops are alive.
func (l *Loop) Alive() bool {
	return time.Since(time.Unix(0, l.ticked.Load())) < 5*tickPeriod
}

func (l *Loop) send(e event) bool {
	select {
	case <-l.ended:
		return false
	default:
	}
	select {
	case l.events <- e:
		return true
	case <-l.ended:
		return false
	}
}

// Run serves the device until ctx ends, then opens every mark and waits for
// what is in flight.
func (l *Loop) Run(ctx context.Context) {
	defer close(l.ended)
	ticker := time.NewTicker(tickPeriod)
	defer ticker.Stop()
	period := time.NewTicker(l.cfg.Period)
	defer period.Stop()
	for {
		select {
		case <-ctx.Done():
			l.shutDown()
			return
		case e := <-l.events:
			l.handle(e)
			for n := len(l.events); n > 0; n-- {
				l.handle(<-l.events)
			}
		case r := <-l.results:
			l.finish(r)
		case now := <-ticker.C:
			l.age(now)
			l.tick.Add(1)
			l.ticked.Store(now.UnixNano())
		case <-period.C:
			if l.control != nil {
				l.sched.SetDepth(l.control.Update())
			}
		}
		l.dispatch()
	}
}

func (l *Loop) handle(e event) {
	switch e.kind {
	case evOpen:
		l.open(e.stream)
	case evProgress:
		if !e.stream.closed && !e.stream.released {
			if e.stream.Write {
				l.written(e.stream, e.pos)
			} else {
				l.read(e.stream, e.pos)
			}
		}
	case evClose:
		l.close(e.stream, e.pos)
	case evCall:
		e.call()
	}
}

func (l *Loop) open(s *Stream) {
	s.flow = l.flow(s.Flow)
	if l.modeOf(s.flow) == Off {
		s.released = true
		s.closeFiles()
		s.Marker.Mark(s.ID, Open)
		return
	}
	l.streams[s] = struct{}{}
	s.flow.streams++
	if s.Write {
		s.flow.writers = append(s.flow.writers, s)
		l.grant(s.flow)
	} else {
		l.openRead(s)
	}
}

func (l *Loop) close(s *Stream, pos int64) {
	if s.closed || s.released {
		return
	}
	s.closed = true
	if s.Write {
		l.closeWrite(s, pos)
	} else {
		if pos >= 0 {
			l.read(s, pos)
		}
		l.cancel(s)
	}
	l.release(s)
}

// cancel takes back what has not been dispatched. It leaves no debt.
func (l *Loop) cancel(s *Stream) {
	f := s.flow
	for range f.drop(s) {
		l.unqueue(f)
	}
	kept := s.pending[:0]
	for _, r := range s.pending {
		if r.finished {
			continue // it stood behind others: nothing more comes of it
		}
		if !r.started.IsZero() {
			kept = append(kept, r)
		} else if s.Write && !r.meta {
			l.drained(s, r.length)
		}
	}
	s.pending = kept
}

// unqueue cancels the flow's newest queued request in the scheduler; which
// quantum a queued request stands for is open until it is dispatched.
func (l *Loop) unqueue(f *flow) {
	last := len(f.handles) - 1
	h := f.handles[last]
	f.handles = f.handles[:last]
	if err := l.sched.Cancel(h); err != nil {
		l.fault("cancel", err)
	}
}

// release lets go of a closed stream once nothing of it is in flight.
func (l *Loop) release(s *Stream) {
	if !s.closed || s.released || len(s.pending) > 0 {
		return
	}
	l.endWait(s, time.Now())
	s.released = true
	s.closeFiles()
	delete(l.streams, s)
	f := s.flow
	if s.Write {
		f.removeWriter(s)
	}
	if f.last == s {
		f.last = nil
	}
	if f.streams--; f.streams == 0 {
		f.idle = time.Now()
	}
}

// closeFiles gives the descriptors back without waiting: the last close of a
// file that HDFS has deleted frees its blocks, which is device I/O, and the loop
// must not stand still for it.
func (s *Stream) closeFiles() {
	go func() {
		s.Block.Close()
		if s.Meta != nil {
			s.Meta.Close()
		}
	}()
}

// submit queues one quantum.
func (l *Loop) submit(r *request, now time.Time) {
	f := r.stream.flow
	r.queued = now
	r.cost = l.cost(r.write, r.length)
	r.stream.pending = append(r.stream.pending, r)
	h, err := l.sched.Submit(f.id, r.cost, 0)
	if err != nil {
		// The flow's queue is full. The quantum is left to the kernel, as it
		// would have been natively, and charged.
		l.fault("submit", err)
		l.charge(f, r.cost)
		f.service += r.cost
		f.behind += r.length
		f.bytes[direction(r.write)] += r.length
		r.started, r.finished = now, true
		if r.write && !r.meta {
			l.drained(r.stream, r.length)
		}
		r.stream.advance()
		return
	}
	f.handles = append(f.handles, h)
	f.ready = append(f.ready, r)
}

// dispatch hands requests to the device as long as the scheduler lets it.
func (l *Loop) dispatch() {
	for {
		d, ok := l.sched.Next()
		if !ok {
			break
		}
		f := l.byID[d.Flow]
		f.handles = f.handles[1:]
		r := f.take(l.cfg.Run)
		r.handle = d.Handle
		l.start(r, time.Now())
		if !r.write && !r.stream.closed {
			l.stage(r.stream) // the next one has to queue before this one ends
		}
	}
	if l.control != nil && l.sched.Waiting() > 0 {
		l.control.Limited()
	}
}

func (l *Loop) start(r *request, now time.Time) {
	r.started = now
	r.stream.inFlight++
	l.running[r] = struct{}{}
	go func() { l.results <- work(r) }()
}

// finish settles a completed request and moves its stream on.
func (l *Loop) finish(r result) {
	req, s := r.request, r.request.stream
	f := s.flow
	delete(l.running, req)
	s.inFlight--
	req.finished = true
	if r.err != nil {
		l.fault("device request", r.err)
	}
	actual := l.cost(req.write, r.bytes)
	if req.handle != 0 {
		var err error
		if r.bytes > 0 {
			err = l.sched.Complete(req.handle, actual)
		} else {
			err = l.sched.Cancel(req.handle) // nothing to do for it: nothing to pay
		}
		if err != nil {
			l.fault("complete", err)
		}
	}
	if r.bytes > 0 {
		f.requests++
		f.service += actual
		f.bytes[direction(req.write)] += r.bytes
	}
	if !req.write {
		f.resident += max(0, req.length-r.bytes)
	} else if !r.io {
		f.behind += r.bytes
	}
	if r.io {
		if l.control != nil {
			l.control.Observe(req.write, r.bytes, r.latency)
		}
		if l.onLatency != nil {
			l.onLatency(req.write, r.latency)
		}
	}
	s.advance()
	if req.write {
		if !req.meta {
			l.drained(s, req.length)
		}
		l.grant(f)
	} else if !s.closed {
		if r.err != nil {
			s.done = s.To // the DataNode will meet the same error by itself
		}
		l.stage(s)
	}
	l.release(s)
}

// cost is device time: linear in the bytes, with the coefficients that the
// reference latency has. Only ratios matter, so the depth at which the
// reference was taken does not.
func (l *Loop) cost(write bool, bytes int64) int64 {
	line := l.cfg.Depth.Read
	if write {
		line = l.cfg.Depth.Write
	}
	return max(1, int64(line.Fixed)+int64(float64(line.PerMiB)*float64(bytes)/(1<<20)))
}

// charge tells the scheduler of service that the device gives a flow outside the
// queue. The flow's account is kept where the bytes are.
func (l *Loop) charge(f *flow, cost int64) {
	if err := l.sched.Charge(f.id, cost); err != nil {
		l.fault("charge", err)
	}
}

func (l *Loop) fault(what string, err error) {
	l.errors++
	if now := time.Now(); now.Sub(l.lastError) > time.Second {
		l.lastError = now
		l.log.Warn("device loop: "+what, "error", err, "errors_so_far", l.errors)
	}
}

func (l *Loop) shutDown() {
	for s := range l.streams {
		s.Marker.Mark(s.ID, Open)
	}
	for len(l.running) > 0 {
		r := <-l.results
		delete(l.running, r.request)
	}
	for s := range l.streams {
		s.closeFiles()
	}
}

func direction(write bool) int {
	if write {
		return 1
	}
	return 0
}
