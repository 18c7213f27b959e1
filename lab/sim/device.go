package sim

import (
	"fmt"
	"time"

	"penstock/core/arbiter"
	"penstock/core/coord"
	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/policy"
	"penstock/lab/disk"
	"penstock/lab/schedulers"
)

// DeviceConfig describes a device and its scheduler.
type DeviceConfig struct {
	Model   disk.Model
	Quantum int64 // bytes
	// Algorithm is an element of arbiter.Algorithms, or fifo or drr. Depth is the fixed depth, or
	// the initial depth of sfqd2.
	Algorithm   string
	Depth       int
	Read, Write depth.Line    // reference latencies; they are also the requests' costs
	Debt        time.Duration // arbiter.Config.Debt
	Cost        cost.Model    // from a profile; zero: not known
	Seek        time.Duration // arbiter.Config.Seek
}

const (
	// weightScale is the largest factor by which weights are multiplied for the scheduler.
	weightScale = 1000
	// A machine's memory for written and for staged data, in bytes.
	dirtyRoom  = 256 << 20
	stagedRoom = 1 << 30
	// The corresponding bounds without Penstock, where only stream.window delays writers.
	nativeBacklog = 1 << 30
	nativeDirty   = 1 << 40
	// endless is the length of an unbounded stream, in bytes.
	endless = 1 << 60
)

// device is a disk with the production arbiter. It drives the arbiter as package node/device does:
// it opens and closes streams, passes on the reports of the disk and of the tasks, and performs the
// arbiter's actions. The page cache is as large as the arbiter allows, and contains no file at
// first.
type device struct {
	engine  *Engine
	spindle *spindle
	cfg     DeviceConfig
	arbiter *arbiter.Arbiter
	coord   coord.Device
	flows   []*flow            // by application; nil if the application has no flow here
	weights map[string]float64 // the flows' weights in force, by application name; passed to the arbiter as parts
	named   map[string]*App    // applications with guarantees
	totals  []policy.Total     // parts of total rates in force, by application; nil: there are none
	meters  []coord.RateMeter  // of applications with total rates; nil: there are none
	room    int64              // bytes per second that the arbiter guarantees at most, at the last report
	stopped bool               // its node has left
	uses    []coord.Use        // uses in the last report
	waits   []coord.Waits      // in the order of uses
	last    time.Duration      // time of the previous report

	moved  []*stream     // streams with a new mark
	due    bool          // a request of this device has ended
	again  time.Duration // when the arbiter must be called next
	waking time.Duration // time of the scheduled call; below 0: no call is scheduled
	look   func()
}

// flow is an application's queue at a device.
type flow struct {
	app            *App
	open           int           // streams that the arbiter still holds
	served, wanted time.Duration // in total, up to the last report
	bytes          int64         // the same: bytes that the disk has moved
	limitWaits     int64         // the same: waits for the limit
	moved          int64         // bytes that the disk has moved so far
	unseen         int           // reports in a row without use
	waits          arbiter.Waits // in total, up to the last report
}

// stream is the reading or writing of one file, or all the work of an application at a device,
// together with the task that does it. It is an arbiter.File without pages in the page cache.
type stream struct {
	device *device
	flow   *flow
	at     *arbiter.Stream // nil after the arbiter has released the stream
	op     disk.Op
	offset int64 // on the disk
	size   int64
	pos    int64 // position of the task
	mark   int64 // how far the task may go
	had    int64 // bytes that the disk has moved for this stream
	// window bounds the number of the stream's requests in flight on a disk without Penstock, where
	// nothing else bounds it. 0: no bound.
	window int
	// pace is the time that the task needs to process a quantum.
	pace  time.Duration
	to    int64 // position of the task after its current quantum
	timed bool  // the task is processing a quantum
	dead  bool
	again func()
	done  func() // called when all work has ended
}

// Missing returns how many bytes of a range are not in the page cache: all of them.
func (s *stream) Missing(_, length int64) int64 { return length }

// Saved returns how many bytes the kernel has written by itself: none.
func (s *stream) Saved(_, _ int64) int64 { return 0 }

// Written returns how far the file has been written.
func (s *stream) Written() (int64, bool) { return s.pos, true }

// Deleted returns false: files are never deleted.
func (s *stream) Deleted() bool { return false }

// native reports whether requests go to the disk in order of arrival, without Penstock.
func (c *DeviceConfig) native() bool { return c.Algorithm == "fifo" }

// options returns the options of the device's arbiter.
func (c *DeviceConfig) options(apps int) arbiter.Options {
	o := arbiter.Options{
		Mode:   arbiter.Enforce,
		Policy: func(string) arbiter.Rule { return plainRule },
		Config: arbiter.Config{
			Algorithm: c.Algorithm, FixedDepth: max(1, c.Depth), Quantum: c.Quantum,
			Depth: depth.Config{Start: float64(max(1, c.Depth)), Read: c.Read, Write: c.Write},
			Dirty: dirtyRoom, Staged: stagedRoom, Debt: c.Debt, Cost: c.Cost, Seek: c.Seek,
			WeightScale: weightScale, MaxFlows: apps + 2, // one flow is the arbiter's own
		},
	}
	if c.Depth > 12 { // the controller's upper bound
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

func newDevice(s *spindle, cfg DeviceConfig, apps []*App) (*device, error) {
	d := &device{engine: s.engine, spindle: s, cfg: cfg, flows: make([]*flow, len(apps)), weights: map[string]float64{}, waking: -1}
	d.guarantee(apps)
	o := cfg.options(len(apps))
	if d.named != nil {
		o.Policy = d.rule
	}
	a, err := arbiter.New(o)
	if err != nil {
		return nil, err
	}
	d.arbiter = a
	d.look = func() {
		switch now := d.engine.Now(); {
		case d.waking != now: // a later call has replaced this one
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

// clock returns the arbiter's time, which must be above 0.
func (d *device) clock() time.Duration { return d.engine.Now() + 1 }

// add returns the application's flow, and creates it if necessary.
func (d *device) add(a *App) *flow {
	if f := d.flows[a.index]; f != nil {
		return f
	}
	f := &flow{app: a}
	d.weights[a.Name] = a.Weight // the arbiter looks up the weight when the flow's first stream opens
	d.flows[a.index] = f
	return f
}

// forget removes the flow of an application that has ended.
func (d *device) forget(app int) {
	f := d.flows[app]
	if f == nil || f.open > 0 {
		return // requests of a closed stream may still be in flight; the flow makes no new ones
	}
	d.flows[app] = nil
	delete(d.weights, f.app.Name)
	d.coord.Drop(app)
}

// begin starts a stream. work is its length in bytes; if work is below 0, the stream is endless.
// When the work has ended, done is called as a separate event of the engine.
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

// end closes a stream. Its requests in flight continue, and written data is drained.
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

// limit returns how far the task may go. Even below its mark, a reader cannot go beyond the bytes
// that the disk has delivered, and a writer cannot have more unwritten data than the page cache
// holds.
func (s *stream) limit() int64 {
	switch {
	case s.op == disk.Read:
		return min(s.mark, s.had, s.size)
	case s.device.cfg.native() && s.window > 0:
		return min(s.mark, s.had+int64(s.window)*s.device.cfg.Quantum, s.size)
	}
	return min(s.mark, s.had+dirtyRoom, s.size)
}

// advance lets the task go as far as it may, and reports whether the arbiter has received a new
// position.
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

// paced is called when the task has processed its quantum.
func (s *stream) paced() {
	s.timed = false
	if s.dead {
		return
	}
	s.report(s.to)
	s.advance()
	s.device.turn()
}

// report passes the task's position to the arbiter.
func (s *stream) report(pos int64) {
	d := s.device
	if s.pos = pos; pos < s.size {
		d.arbiter.Progress(d.clock(), s.at, pos)
		return
	}
	s.dead = true // the task has ended; its written data remains to be drained
	d.arbiter.Close(d.clock(), s.at, pos)
}

// released ends a stream that the arbiter has released.
func (s *stream) released() {
	s.at = nil
	s.flow.open--
	if s.done != nil {
		done := s.done
		s.done = nil
		s.device.engine.After(0, done)
	}
}

// turn performs the arbiter's actions.
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
		panic(fmt.Sprintf("sim: %s: %v", what, err)) // modelled disks have no faults
	}
	d.spindle.wake()
	if !d.stopped && !d.arbiter.Idle() {
		d.wake(d.again)
	}
}

// wake schedules a call of the arbiter.
func (d *device) wake(at time.Duration) {
	if d.again = min(d.again, at); d.waking < 0 || d.waking > at {
		d.waking = at
		d.engine.At(at, d.look)
	}
}

// ended accounts for a request that has ended.
func (d *device) ended(fl flight, service time.Duration) {
	s, r := fl.stream, fl.request
	s.had += r.Length
	a := s.flow.app
	s.flow.moved += r.Length
	a.service += service
	if r.Write {
		a.written += r.Length
	} else {
		a.read += r.Length
	}
	d.arbiter.Done(d.clock(), r, arbiter.Result{Moved: r.Length, Latency: d.engine.Now() - fl.since})
	s.advance() // the task may have been waiting for the disk, and not for its mark
	d.due = true
}

// report ends a period. It returns the applications' uses in the period, and the report to the
// broker that the production code makes of these uses.
func (d *device) report(sequence uint64) ([]coord.Use, []coord.Service) {
	length := d.close()
	out := d.coord.Report(sequence, length, d.uses)
	for i := range out {
		out[i].AddWaits(d.waits[i], length)
	}
	return d.uses, out
}

// close ends a period and returns its length. The service comes from the arbiter's own accounts, as
// in the daemon.
func (d *device) close() time.Duration {
	now := d.engine.Now()
	d.uses, d.waits = d.uses[:0], d.waits[:0]
	all := time.Duration(0)
	for i, f := range d.flows {
		if f == nil {
			continue
		}
		service, wanted := d.arbiter.Use(d.clock(), f.app.Name)
		d.uses = append(d.uses, coord.Use{App: i, Served: service - f.served, Wanted: wanted - f.wanted})
		if f.unseen++; service > f.served || wanted > f.wanted {
			f.unseen = 0
		}
		w := d.arbiter.Waits(d.clock(), f.app.Name)
		d.waits = append(d.waits, coord.Waits{Streams: w.Streams - f.waits.Streams, Waited: w.Waited - f.waits.Waited, Contended: w.Contended - f.waits.Contended, Served: service - f.served})
		all += service - f.served
		f.served, f.wanted, f.waits = service, wanted, w
	}
	for i := range d.waits {
		d.waits[i].All = all
	}
	length := now - d.last
	d.last = now
	d.measure(length)
	return length
}

// answer computes the parts from the totals in the broker's answer, puts them into force, and
// reports whether the answer was valid.
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

// local puts the original weights into force.
func (d *device) local() {
	d.coord = coord.Device{}
	for _, f := range d.flows {
		if f != nil {
			d.weights[f.app.Name] = f.app.Weight
		}
	}
	d.reweigh()
}

// reweigh puts the weights into force. The arbiter gets them as parts, because its rules have only
// integer weights.
func (d *device) reweigh() { d.arbiter.SetParts(arbiter.Parts{Flows: d.weights}) }

// charge charges an application for service on other nodes, up to DeviceConfig.Debt.
func (d *device) charge(app int, service time.Duration) {
	if f := d.flows[app]; f != nil {
		d.arbiter.Delay(f.app.Name, service)
	}
}
