package device

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"penstock/core/depth"
	"penstock/core/limit"
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

	cfg     Config
	mode    Mode
	policy  Policy
	sched   sfq.Scheduler
	control *depth.Controller // nil but for sfqd2
	costs   costs
	flows   map[string]*flow
	byID    map[sfq.Flow]*flow
	streams map[*Stream]struct{}
	running map[*request]struct{}
	parts   map[string]float64
	scale   int // what weights beside the topmost queues' are multiplied with (reweigh)
	queued  int // flows in queues
	backlog int64
	writing int64 // flows with writers
	kept    int   // closed streams that wait to be deleted or drained
	stock   stock
	expect  expectation

	pace    *limit.Bucket // nil but for a device with a rate
	unheld  *limit.Bucket // how much of it goes to those who do not ask; nil with pace
	paced   time.Time     // when it lets the next request go; zero: nothing waits for it
	held    heldFlows     // flows that wait for their limit
	alarm   *time.Timer   // for both
	alarmAt time.Time     // zero: not set

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

	// Counters reads the kernel's counters of the device; ok is false while it
	// has none. It is called once a second and must not block. May be nil: what
	// others do on the device is then not known.
	Counters func() (c Counters, ok bool)
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
	pace, unheld, err := o.Config.pace()
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
		scale:     o.Config.WeightScale,
		mode:      o.Mode,
		policy:    o.Policy,
		sched:     sched,
		costs:     newCosts(o),
		flows:     map[string]*flow{},
		byID:      map[sfq.Flow]*flow{},
		streams:   map[*Stream]struct{}{},
		running:   map[*request]struct{}{},
		pace:      pace,
		unheld:    unheld,
		alarm:     time.NewTimer(time.Hour),
	}
	l.alarm.Stop()
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
func (c Config) Stride() uint32 { return uint32(min(c.Quantum/4, leaseBytes/2)) }

// Open starts a stream. The call asks the page cache what is resident and then
// hands over to the loop; the first mark comes through the stream's Marker.
func (l *Loop) Open(r OpenRequest) *Stream {
	s := &Stream{OpenRequest: r, pos: r.From, next: r.From, done: r.From, sent: -1}
	if l.cfg.Network != (r.Kind == Network) { // ours to see to; nobody waits for it
		r.Marker.Mark(r.ID, Open)
		s.released = true
		s.closeFiles()
		return s
	}
	switch {
	case l.cfg.Network:
		if r.To == 0 {
			s.To = Open // nobody knows
		}
	case !r.Write:
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
	defer l.alarm.Stop()
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
		case now := <-l.alarm.C:
			l.alarmAt = time.Time{}
			l.offerDue(now)
		case now := <-ticker.C:
			l.age(now)
			l.watch(now)
			l.tick.Add(1)
			l.ticked.Store(now.UnixNano())
		case <-period.C:
			if l.control != nil {
				l.sched.SetDepth(l.control.Update())
			}
		}
		l.dispatch()
		l.setAlarm(time.Now())
	}
}

func (l *Loop) handle(e event) {
	switch e.kind {
	case evOpen:
		l.open(e.stream)
	case evProgress:
		l.progress(e.stream, e.pos)
	case evClose:
		l.close(e.stream, e.pos)
	case evCall:
		e.call()
	}
}

func (l *Loop) progress(s *Stream, pos int64) {
	switch {
	case s.closed || s.released:
	case s.drains():
		l.written(s, pos)
	case s.Kind == Network:
		l.sent(s, pos)
	default:
		l.read(s, pos)
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
	for len(l.running) > 0 && !l.cfg.Network {
		r := <-l.results
		delete(l.running, r.request)
	}
	for s := range l.streams {
		s.closeFiles()
	}
}
