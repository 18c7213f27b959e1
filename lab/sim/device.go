package sim

import (
	"fmt"
	"time"

	"penstock/core/arbiter"
	"penstock/core/coord"
	"penstock/core/depth"
	"penstock/lab/disk"
	"penstock/lab/schedulers"
)

// DeviceConfig says what a device is and how it is scheduled.
type DeviceConfig struct {
	Model   disk.Model
	Quantum int64 // bytes
	// Algorithm is one of arbiter.Algorithms, or fifo or drr. Depth is the fixed one, and where
	// sfqd2 begins.
	Algorithm   string
	Depth       int
	Read, Write depth.Line    // reference latencies, which are what requests are charged too
	Debt        time.Duration // arbiter.Config's
}

const (
	// weightScale is the most that weights are multiplied with for the scheduler.
	weightScale = 1000
	// Memory of a machine for what is written and for what is staged, bytes.
	dirtyRoom  = 256 << 20
	stagedRoom = 1 << 30
	// The same where nobody holds writers back: windows do (stream.window).
	nativeBacklog = 1 << 30
	nativeDirty   = 1 << 40
	// endless is the length of what has no end, bytes.
	endless = 1 << 60
)

// device is an arbiter, the production one, before a disk. It is driven as package node/device
// drives it: streams come and go, the disk and the tasks behind the streams report, and what the
// arbiter answers is done. The page cache is as large as the arbiter lets it be, and all files
// are cold.
type device struct {
	engine  *Engine
	spindle *spindle
	cfg     DeviceConfig
	arbiter *arbiter.Arbiter
	coord   coord.Device
	flows   []*flow            // by application, nil where it has none here
	weights map[string]float64 // of those, in force, on the scale of weights; the arbiter's parts
	stopped bool               // its node is gone
	uses    []coord.Use        // of the last report
	last    time.Duration      // of the report before

	moved  []*stream     // that may go on
	due    bool          // a request of it has ended
	again  time.Duration // when the arbiter wants to be asked again
	waking time.Duration // when it is asked next; below 0: not by itself
	look   func()
}

// flow is an application's queue at a device.
type flow struct {
	app            *App
	open           int           // streams that hold something
	served, wanted time.Duration // in all, as of the last report
}

// stream is one file's reading or writing, or the whole of what an application wants at a device:
// the task behind it, and the file. It is an arbiter.File of which nothing is in the page cache.
type stream struct {
	device *device
	flow   *flow
	at     *arbiter.Stream // nil when nothing is held for it any more
	op     disk.Op
	offset int64 // on the disk
	size   int64
	pos    int64 // where its reader or writer is
	mark   int64 // where that may go
	had    int64 // bytes that the disk has moved for it
	// window is how many requests of it are open at a time where nothing else bounds them: on
	// a disk without Penstock. 0: no bound.
	window int
	// pace is the time that the task behind it needs for a quantum.
	pace  time.Duration
	to    int64 // where the task will be when it has done what it does
	timed bool  // it does something
	dead  bool
	again func()
	done  func() // when all work has ended
}

// Missing returns how much of a range is not in the page cache: all of it.
func (s *stream) Missing(_, length int64) int64 { return length }

// Saved returns how much the disk has without having been asked for it: nothing.
func (s *stream) Saved(_, _ int64) int64 { return 0 }

// Written returns how far the file has been written.
func (s *stream) Written() (int64, bool) { return s.pos, true }

// Deleted reports false: files stay.
func (s *stream) Deleted() bool { return false }

// native reports whether requests go to the disk as they come.
func (c *DeviceConfig) native() bool { return c.Algorithm == "fifo" }

// options are those of the device's arbiter.
func (c *DeviceConfig) options(apps int) arbiter.Options {
	o := arbiter.Options{
		Mode:   arbiter.Enforce,
		Policy: func(string) arbiter.Rule { return arbiter.Rule{Weight: 1, Mode: arbiter.Enforce} },
		Config: arbiter.Config{
			Algorithm: c.Algorithm, FixedDepth: max(1, c.Depth), Quantum: c.Quantum,
			Depth: depth.Config{Start: float64(max(1, c.Depth)), Read: c.Read, Write: c.Write},
			Dirty: dirtyRoom, Staged: stagedRoom, Debt: c.Debt,
			WeightScale: weightScale, MaxFlows: apps + 2, // one is the arbiter's own
		},
	}
	if c.Depth > 12 { // the controller's own bound
		o.Config.Depth.Max = float64(c.Depth)
	}
	if c.native() {
		o.Config.Backlog, o.Config.Dirty, o.Config.Stuck = nativeBacklog, nativeDirty, time.Minute
	}
	switch c.Algorithm {
	case "fifo":
		o.Config.Peer = true
		o.Scheduler = peer(schedulers.NewFIFO)
	case "drr":
		o.Config.Peer = true
		o.Scheduler = peer(schedulers.NewDRR)
	}
	return o
}

func peer[S arbiter.Scheduler](begin func(maxFlows int) (S, error)) func(int) arbiter.Scheduler {
	return func(maxFlows int) arbiter.Scheduler {
		s, err := begin(maxFlows)
		if err != nil {
			panic(fmt.Sprintf("sim: %v", err)) // the scenario's bounds are below the scheduler's
		}
		return s
	}
}

func newDevice(s *spindle, cfg DeviceConfig, apps int) (*device, error) {
	a, err := arbiter.New(cfg.options(apps))
	if err != nil {
		return nil, err
	}
	d := &device{engine: s.engine, spindle: s, cfg: cfg, arbiter: a, flows: make([]*flow, apps), weights: map[string]float64{}, waking: -1}
	d.look = func() {
		switch now := d.engine.Now(); {
		case d.waking != now: // another one came before
		case now < d.again:
			d.waking = -1
			d.wake(d.again)
		default:
			d.waking = -1
			d.turn()
		}
	}
	d.reweigh()
	s.users = append(s.users, d)
	return d, nil
}

// clock is the arbiter's time, which is above 0.
func (d *device) clock() time.Duration { return d.engine.Now() + 1 }

// add gives an application a flow, or finds it.
func (d *device) add(a *App) *flow {
	if f := d.flows[a.index]; f != nil {
		return f
	}
	f := &flow{app: a}
	d.weights[a.Name] = a.Weight // the arbiter finds it there when the flow's first stream opens
	d.flows[a.index] = f
	return f
}

// forget takes out the flow of an application that has ended.
func (d *device) forget(app int) {
	f := d.flows[app]
	if f == nil || f.open > 0 {
		return // what was given up may be on its way to the disk yet; the flow wants nothing more
	}
	d.flows[app] = nil
	delete(d.weights, f.app.Name)
	d.coord.Drop(app)
}

// begin starts a stream of so many bytes; below 0: without end. done is called when its work has
// ended, never from within.
func (d *device) begin(a *App, op disk.Op, offset, work int64, window int, pace time.Duration, done func()) *stream {
	s := &stream{device: d, flow: d.add(a), op: op, offset: offset, size: work, window: window, pace: pace, done: done}
	if work < 0 {
		s.size = endless
	}
	if pace > 0 {
		s.again = s.paced
	}
	s.flow.open++
	o := arbiter.Opening{Flow: a.Name, Write: op == disk.Write, File: s, To: s.size, Ref: s}
	if d.cfg.native() {
		o.Flight = window
	}
	s.at = d.arbiter.Open(d.clock(), o)
	d.wake(d.engine.Now())
	return s
}

// end gives a stream up. What the disk has of it goes on, and what was written is drained.
func (s *stream) end() {
	if s.dead {
		return
	}
	s.dead, s.done = true, nil
	if s.at != nil {
		s.device.arbiter.Close(s.device.clock(), s.at, s.pos)
		s.device.wake(s.device.engine.Now())
	}
}

// limit is how far the task may go. Nobody reads what is not there, also where nothing holds
// him back, and nobody fills more of the page cache than there is.
func (s *stream) limit() int64 {
	switch {
	case s.op == disk.Read:
		return min(s.mark, s.had, s.size)
	case s.device.cfg.native() && s.window > 0:
		return min(s.mark, s.had+int64(s.window)*s.device.cfg.Quantum, s.size)
	}
	return min(s.mark, s.had+dirtyRoom, s.size)
}

// advance has the task go on as far as it may, and reports whether the arbiter knows.
func (s *stream) advance() bool {
	to := s.limit()
	if s.dead || s.timed || to <= s.pos {
		return false
	}
	if s.pace == 0 {
		s.report(to)
		return true
	}
	quantum := s.device.cfg.Quantum
	s.to, s.timed = min(to, s.pos+quantum), true
	s.device.engine.After(time.Duration(float64(s.pace)*float64(s.to-s.pos)/float64(quantum)), s.again)
	return false
}

// paced is when the task has done what it does with a quantum.
func (s *stream) paced() {
	s.timed = false
	if s.dead {
		return
	}
	s.report(s.to)
	s.advance()
	s.device.turn()
}

// report tells the arbiter where the task is.
func (s *stream) report(pos int64) {
	d := s.device
	if s.pos = pos; pos < s.size {
		d.arbiter.Progress(d.clock(), s.at, pos)
		return
	}
	s.dead = true // it wants nothing more; what it wrote has to be drained
	d.arbiter.Close(d.clock(), s.at, pos)
}

// released ends a stream for which nothing is held any more.
func (s *stream) released() {
	s.at = nil
	s.flow.open--
	if s.done != nil {
		done := s.done
		s.done = nil
		s.device.engine.After(0, done)
	}
}

// turn does what the arbiter says.
func (d *device) turn() {
	for more := !d.stopped; more; {
		actions, again := d.arbiter.Decide(d.clock())
		d.again = again - 1
		for i := range actions {
			s := actions[i].Stream.Ref.(*stream)
			switch x := &actions[i]; x.Kind {
			case arbiter.Start:
				d.spindle.start(d, s, x.Request)
			case arbiter.Mark:
				s.mark = x.Position
				d.moved = append(d.moved, s)
			case arbiter.Release:
				s.released()
			}
		}
		more = false
		for _, s := range d.moved {
			more = s.advance() || more
		}
		clear(d.moved)
		d.moved = d.moved[:0]
	}
	if what, _, err := d.arbiter.Fault(); err != nil {
		panic(fmt.Sprintf("sim: %s: %v", what, err)) // this disk has no faults
	}
	d.spindle.wake()
	if !d.stopped && !d.arbiter.Idle() {
		d.wake(d.again)
	}
}

// wake has the arbiter asked at a time.
func (d *device) wake(at time.Duration) {
	if d.again = min(d.again, at); d.waking < 0 || d.waking > at {
		d.waking = at
		d.engine.At(at, d.look)
	}
}

// ended books a request.
func (d *device) ended(fl flight, service time.Duration) {
	s, r := fl.stream, fl.request
	s.had += r.Length
	a := s.flow.app
	a.service += service
	if r.Write {
		a.written += r.Length
	} else {
		a.read += r.Length
	}
	d.arbiter.Done(d.clock(), r, arbiter.Result{Moved: r.Length, Latency: d.engine.Now() - fl.since})
	s.advance() // where it is not its mark that holds the task back
	d.due = true
}

// report closes a period: what the production code makes of it, by application.
func (d *device) report(sequence uint64) ([]coord.Use, []coord.Service) {
	length := d.close()
	return d.uses, d.coord.Report(sequence, length, d.uses)
}

// close ends a period and returns its length. What was served follows from the arbiter's own
// account, as in the daemon.
func (d *device) close() time.Duration {
	now := d.engine.Now()
	d.uses = d.uses[:0]
	for i, f := range d.flows {
		if f == nil {
			continue
		}
		service, wanted := d.arbiter.Use(d.clock(), f.app.Name)
		d.uses = append(d.uses, coord.Use{App: i, Served: service - f.served, Wanted: wanted - f.wanted})
		f.served, f.wanted = service, wanted
	}
	length := now - d.last
	d.last = now
	return length
}

// answer puts the parts that totals make into force.
func (d *device) answer(sequence uint64, right func(app int) (coord.Right, bool)) bool {
	parts, ok := d.coord.Answer(sequence, right)
	for _, p := range parts {
		if f := d.flows[p.App]; ok && f != nil {
			d.weights[f.app.Name] = p.Weight
		}
	}
	if ok {
		d.reweigh()
	}
	return ok
}

// local goes back to the weights as they are.
func (d *device) local() {
	d.coord = coord.Device{}
	for _, f := range d.flows {
		if f != nil {
			d.weights[f.app.Name] = f.app.Weight
		}
	}
	d.reweigh()
}

// reweigh puts the weights into force. They are parts for the arbiter, whose rules know whole
// weights only.
func (d *device) reweigh() { d.arbiter.SetParts(arbiter.Parts{Flows: d.weights}) }

// charge books service that an application was given elsewhere, within DeviceConfig.Debt.
func (d *device) charge(app int, service time.Duration) {
	if f := d.flows[app]; f != nil {
		d.arbiter.Delay(f.app.Name, service)
	}
}
