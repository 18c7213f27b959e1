package device

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"penstock/core/arbiter"
	"penstock/core/foreign"
)

// Counters are the kernel's counters of a device's reads and writes. Activity also has the requests
// that are at the device.
type (
	Counters = foreign.Counters
	Activity = arbiter.Activity
)

// Loop owns one device's arbiter. The fields below the channels belong to the goroutine in Run.
type Loop struct {
	Name string

	mail    mailbox
	calls   chan func()
	results chan result
	tick    atomic.Uint64
	ticked  atomic.Int64 // Unix nanoseconds of the last tick
	ended   chan struct{}

	log       *slog.Logger
	onLatency func(write bool, latency time.Duration)
	counters  func() (Counters, bool)
	activity  func() (Activity, bool)
	epoch     time.Time
	cfg       Config

	arbiter *arbiter.Arbiter
	streams map[*Stream]struct{}
	running int // requests at the device
	alarm   *time.Timer
	alarmAt time.Duration // 0: not set
	looked  time.Duration // when the kernel's counters were last read

	stuck, slow bool // as last logged
	isStuck     atomic.Bool
	free        freeFlag
	lastFault   time.Duration
}

// Options of a new loop.
type Options struct {
	Name    string // of the device
	Config  Config
	Mode    Mode
	Policy  Policy
	Log     *slog.Logger
	Latency func(write bool, latency time.Duration) // called for every device request; may be nil

	// Counters returns the kernel's counters of the device; ok is false while there are none. It
	// is called once a second and must not block. If it is nil, foreign I/O on the device is not
	// known.
	Counters func() (c Counters, ok bool)

	// Activity returns what the kernel counts on the device now; ok is false if that is not known. It
	// must not block. It is called only if Config.Storage is set, up to 500 times a second.
	Activity func() (a Activity, ok bool)

	// Scheduler, if not nil, makes a scheduler that replaces the daemon's own, so that the two can
	// be compared.
	Scheduler func(maxFlows int) arbiter.Scheduler
}

const (
	tickPeriod    = 100 * time.Millisecond
	countersEvery = time.Second
	// Bounds on the reports that the loop processes in one turn, so that requests that end
	// meanwhile are not delayed.
	newsAtOnce = 256
	newsTime   = 2 * time.Millisecond
)

// New makes a device's loop; Run starts it.
func New(o Options) (*Loop, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, fmt.Errorf("device %s: %w", o.Name, err)
	}
	a, err := arbiter.New(arbiter.Options{Config: o.Config, Mode: o.Mode, Policy: o.Policy, Scheduler: o.Scheduler})
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", o.Name, err)
	}
	l := &Loop{
		Name:      o.Name,
		mail:      newMailbox(),
		calls:     make(chan func(), 16),
		results:   make(chan result, 1024),
		ended:     make(chan struct{}),
		log:       o.Log.With("device", o.Name),
		onLatency: o.Latency,
		counters:  o.Counters,
		activity:  o.Activity,
		epoch:     time.Now(),
		cfg:       o.Config,
		arbiter:   a,
		streams:   map[*Stream]struct{}{},
		alarm:     time.NewTimer(time.Hour),
	}
	l.alarm.Stop()
	l.ticked.Store(time.Now().UnixNano())
	return l, nil
}

// clock returns the arbiter's time, above 0.
func (l *Loop) clock(now time.Time) time.Duration { return now.Sub(l.epoch) + 1 }

// Open starts a stream. It queries the page cache for the resident pages and passes the stream to
// the loop. The first mark comes through the stream's Marker.
func (l *Loop) Open(r OpenRequest) *Stream {
	s := &Stream{OpenRequest: r, loop: l}
	if l.cfg.Network != (r.Kind == Network) { // this device does not govern the stream, so the stream must not wait
		r.Marker.Mark(r.ID, Open)
		s.closeFiles()
		return s
	}
	if r.Block != nil && !r.Write {
		s.missing = missingAtOpen(r.Block, r.From, r.To, l.cfg.Quantum)
	}
	if !l.mail.put(s, func(n *news) { n.open = true }) {
		s.closeFiles()
		r.Marker.Mark(r.ID, Open)
	}
	return s
}

// Progress reports the position of the stream's reader or writer. It does not wait.
func (l *Loop) Progress(s *Stream, pos int64) {
	l.mail.put(s, func(n *news) {
		if !n.closed {
			n.moved, n.pos = true, pos
		}
	})
}

// Close ends a stream. pos is its last position. If pos is negative, the agent is gone and only
// the file shows the position. Close does not wait.
func (l *Loop) Close(s *Stream, pos int64) {
	if s.Closed != nil {
		s.Closed()
	}
	l.mail.put(s, func(n *news) {
		if !n.closed {
			n.closed, n.last = true, pos
		}
	})
}

// Reassign sets the final flow of a stream, and its user in that flow. When the stream was opened,
// the flow was only a claim. Reassign does not wait.
func (l *Loop) Reassign(s *Stream, flow, user string) {
	l.mail.put(s, func(n *news) { n.reassign, n.flow, n.user = true, flow, user })
}

// Apply sets the daemon's mode and the operator's policy, also for open streams. It waits while
// the loop is busy.
func (l *Loop) Apply(mode Mode, policy Policy) {
	l.call(func() { l.arbiter.Apply(l.clock(time.Now()), mode, policy) })
}

// SetParts puts parts in force; the zero value puts the rules' weights back in force.
func (l *Loop) SetParts(p Parts) { l.call(func() { l.arbiter.SetParts(p) }) }

// SetRoom changes Config.Dirty, Lazy and Staged; 0 leaves a value unchanged.
func (l *Loop) SetRoom(dirty, lazy, staged int64) {
	l.call(func() { l.arbiter.SetRoom(dirty, lazy, staged) })
}

// Snapshot requests a snapshot from the loop; ok is false if the loop has ended.
func (l *Loop) Snapshot() (snap Snapshot, ok bool) {
	reply := make(chan Snapshot, 1)
	if !l.call(func() { reply <- l.arbiter.Snapshot(l.clock(time.Now())) }) {
		return Snapshot{}, false
	}
	select {
	case snap = <-reply:
		return snap, true
	case <-l.ended:
		return Snapshot{}, false
	}
}

func (l *Loop) call(do func()) bool {
	select {
	case <-l.ended:
		return false
	default:
	}
	select {
	case l.calls <- do:
		return true
	case <-l.ended:
		return false
	}
}

// Stuck reports whether the device has not answered a request in time (Config.Stuck). Its streams are
// let through until it does.
func (l *Loop) Stuck() bool { return l.isStuck.Load() }

// Tick returns the number of the loop's ticks so far, one each 100 ms.
func (l *Loop) Tick() uint64 { return l.tick.Load() }

// Alive reports whether the loop has run in the last half second, and has kept no connection's
// reports waiting for that long. Heartbeats report it to the agents.
func (l *Loop) Alive() bool {
	const late = 5 * tickPeriod
	if time.Since(time.Unix(0, l.ticked.Load())) >= late {
		return false
	}
	since, waits := l.mail.oldest()
	return !waits || time.Since(since) < late
}

// Run serves the device until ctx ends. Then it opens every mark and waits for the
// requests at the device.
func (l *Loop) Run(ctx context.Context) {
	defer close(l.ended)
	ticker := time.NewTicker(tickPeriod)
	defer ticker.Stop()
	defer l.alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			l.shutDown()
			return
		case r := <-l.results:
			l.done(r)
		case do := <-l.calls:
			do()
		case <-l.mail.arrived:
		case <-l.alarm.C:
			l.alarmAt = 0
		case now := <-ticker.C:
			l.watch(now)
			l.tick.Add(1)
			l.ticked.Store(now.UnixNano())
		}
		l.finishAll()
		l.answerCalls()
		l.readNews()
		l.decide()
		if l.mail.more() {
			select {
			case l.mail.arrived <- struct{}{}:
			default:
			}
		}
	}
}

// finishAll passes all finished requests to the arbiter.
func (l *Loop) finishAll() {
	for {
		select {
		case r := <-l.results:
			l.done(r)
		default:
			return
		}
	}
}

// answerCalls runs the calls of the daemon. Run calls it before readNews, so that a new rule
// applies to all streams that are opened after it.
func (l *Loop) answerCalls() {
	for {
		select {
		case do := <-l.calls:
			do()
		default:
			return
		}
	}
}

// readNews passes reports to the arbiter, within the bounds of a turn.
func (l *Loop) readNews() {
	begin := time.Now()
	for n, now := 0, begin; n < newsAtOnce && now.Sub(begin) < newsTime; n, now = n+1, time.Now() {
		s, what := l.mail.take(now)
		if s == nil {
			return
		}
		l.handle(s, what, l.clock(now))
	}
}

func (l *Loop) handle(s *Stream, what news, now time.Duration) {
	if what.open {
		l.streams[s] = struct{}{}
		o := arbiter.Opening{
			Flow: s.Flow, User: s.User, Kind: s.Kind, Write: s.Write, Remote: s.Remote, Asked: s.Asked, From: s.From, To: s.To,
			Missing: s.missing, Patience: s.Patience, Ref: s,
			Refusable: s.Refusable, Threads: s.Threads, Passing: s.Passing, Turn: s.Turn,
		}
		s.missing = nil
		if s.Block != nil {
			o.File = facts{s.Block}
		}
		if s.Meta != nil {
			o.Meta = facts{s.Meta}
		}
		s.at = l.arbiter.Open(now, o)
	}
	if s.at == nil {
		return // not governed
	}
	if what.reassign {
		l.arbiter.Reassign(now, s.at, what.flow, what.user)
	}
	if what.moved {
		l.arbiter.Progress(now, s.at, what.pos)
	}
	if what.closed {
		l.arbiter.Close(now, s.at, what.last)
	}
}

// done passes the end of a request to the arbiter.
func (l *Loop) done(r result) {
	l.running--
	if l.onLatency != nil && r.Latency > 0 && r.Err == nil && !r.request.Stream.Turn {
		l.onLatency(r.request.Write, r.Latency)
	}
	l.arbiter.Done(l.clock(time.Now()), r.request, r.Result)
}

// decide performs the arbiter's next actions.
func (l *Loop) decide() {
	now := l.clock(time.Now())
	if l.activity != nil && l.arbiter.LookDue(now) {
		if a, ok := l.activity(); ok {
			l.arbiter.Look(now, a)
		}
	}
	actions, again := l.arbiter.Decide(now)
	for i := range actions {
		switch x := &actions[i]; x.Kind {
		case arbiter.Start:
			l.running++
			go func(r *arbiter.Request) { l.results <- work(r) }(x.Request)
		case arbiter.Mark:
			s := x.Stream.Ref.(*Stream)
			s.Marker.Mark(s.ID, x.Position)
		case arbiter.Release:
			s := x.Stream.Ref.(*Stream)
			delete(l.streams, s)
			s.closeFiles()
		}
	}
	if again != l.alarmAt {
		l.alarmAt = again
		l.alarm.Reset(again - now)
	}
	l.free.set(l.arbiter.Free())
	l.report(now)
}

// watch passes the kernel's counters to the arbiter, once a second.
func (l *Loop) watch(at time.Time) {
	now := l.clock(at)
	if l.counters != nil && now-l.looked >= countersEvery {
		l.looked = now
		if c, ok := l.counters(); ok {
			l.arbiter.Observe(now, c)
		}
	}
}

// report logs errors, and changes of the device's state.
func (l *Loop) report(now time.Duration) {
	if what, count, err := l.arbiter.Fault(); err != nil && (l.lastFault == 0 || now-l.lastFault > time.Second) {
		l.lastFault = now
		l.log.Warn("device loop: "+what, "error", err, "errors_so_far", count)
	}
	if stuck := l.arbiter.Stuck(); stuck != l.stuck {
		l.isStuck.Store(stuck)
		if l.stuck = stuck; stuck {
			l.log.Error("the device has not answered a request in time: its streams are let through until it does", "bound", l.cfg.Stuck)
		} else {
			l.log.Info("the device answers again")
		}
	}
	if slow := l.arbiter.Slow(); slow.Slow != l.slow {
		if l.slow = slow.Slow; slow.Slow {
			l.log.Warn("the device has become slow: its requests take many times their expected time. Shares still hold, but there is less throughput to share; look at the disk's health (smartctl, kernel log)",
				"times", int(slow.Factor+0.5), "profiled", l.cfg.Profiled())
		} else {
			l.log.Info("the device is as fast as before again")
		}
	}
}

func (l *Loop) shutDown() {
	l.free.set(false)
	for _, s := range l.mail.end() {
		if _, known := l.streams[s]; !known {
			l.streams[s] = struct{}{}
		}
	}
	for s := range l.streams {
		s.Marker.Mark(s.ID, Open)
	}
	for ; l.running > 0; l.running-- {
		<-l.results
	}
	for s := range l.streams {
		s.closeFiles()
	}
}
