package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"penstock/core/coord"
	"penstock/core/depth"
	"penstock/core/sfq"
	"penstock/testbed/disk"
)

// DeviceConfig says what a device is and how it is scheduled.
type DeviceConfig struct {
	Model   disk.Model
	Quantum int64 // bytes
	// Algorithm is one of sfq.Algorithms(). Depth is the fixed one, and where sfqd2 begins.
	Algorithm   string
	Depth       int
	Read, Write depth.Line // reference latencies, which are what requests are charged too
}

const (
	// scale is what weights are multiplied by for the scheduler, whose weights are whole.
	scale = 1000
	// controlPeriod is how often sfqd2 moves the depth.
	controlPeriod = time.Second
	// maxQueued bounds a flow's queue; streams beyond it wait their turn.
	maxQueued = 256
)

// device is a scheduler, the production one, before a disk.
type device struct {
	engine  *Engine
	spindle *spindle
	cfg     DeviceConfig
	sched   sfq.Scheduler
	control *depth.Controller
	coord   coord.Device
	flows   []*flow       // by application, nil where it has none here
	limited bool          // something waited for the depth in this control period
	stopped bool          // its node is gone
	uses    []coord.Use   // of the last report
	last    time.Duration // of the report before
	move    func()
}

// flow is an application's queue at a device.
type flow struct {
	app    *App
	id     sfq.Flow
	weight float64   // in force, on the scale of weights
	held   []*stream // that the queue has no room for

	queuedSince time.Duration
	wanted      time.Duration
	served      time.Duration // since the last report
	service     time.Duration // in all
}

// stream is one file's reading or writing, or the whole of what an application wants at a device.
type stream struct {
	device *device
	flow   *flow
	op     disk.Op
	offset int64
	work   int64 // bytes left to submit; below 0: without end
	open   int   // requests that are submitted and have not ended
	// window is how many may be open; 0: two are kept in the queue, whatever is dispatched.
	window int
	// pace is the least time between two submissions: what the task behind it needs for a
	// quantum. next is when it is ready for another one.
	pace  time.Duration
	next  time.Duration
	timed bool // a turn at next is set
	held  bool
	dead  bool
	again func()
	done  func() // when all work has ended
}

func newDevice(s *spindle, cfg DeviceConfig, apps int) (*device, error) {
	sched, err := sfq.New(sfq.Config{Algorithm: cfg.Algorithm, Depth: max(1, cfg.Depth), MaxQueued: maxQueued})
	if err != nil {
		return nil, err
	}
	d := &device{engine: s.engine, spindle: s, cfg: cfg, sched: sched, flows: make([]*flow, apps)}
	if cfg.Algorithm == "sfqd2" {
		most := 0.0 // the controller's own
		if cfg.Depth > 12 {
			most = float64(cfg.Depth)
		}
		d.control, err = depth.New(depth.Config{Start: float64(max(1, cfg.Depth)), Max: most, Read: cfg.Read, Write: cfg.Write})
		if err != nil {
			return nil, err
		}
		d.sched.SetDepth(d.control.Depth())
		d.move = d.endControl
		d.engine.After(controlPeriod, d.move)
	}
	s.users = append(s.users, d)
	return d, nil
}

// add gives an application a flow, or finds it.
func (d *device) add(a *App) *flow {
	if f := d.flows[a.index]; f != nil {
		return f
	}
	f := &flow{app: a, weight: a.Weight}
	id, err := d.sched.AddFlow(whole(f.weight))
	if err != nil {
		panic(fmt.Sprintf("sim: %s at a device: %v", a.Name, err)) // the scenario's bounds are below the scheduler's
	}
	f.id = id
	d.flows[a.index] = f
	return f
}

// forget takes out the flow of an application that has ended.
func (d *device) forget(app int) {
	f := d.flows[app]
	if f == nil || d.sched.RemoveFlow(f.id) != nil {
		return // a request that was given up is still on the disk; the flow wants nothing more
	}
	d.flows[app] = nil
	d.coord.Drop(app)
}

func whole(weight float64) int { return int(min(max(math.Round(weight*scale), 1), sfq.MaxWeight)) }

// begin starts a stream. done is called when its work has ended, never from within.
func (d *device) begin(a *App, op disk.Op, offset, work int64, window int, pace time.Duration, done func()) *stream {
	s := &stream{device: d, flow: d.add(a), op: op, offset: offset, work: work, window: window, pace: pace, done: done}
	s.again = func() {
		s.timed = false
		s.feed()
	}
	d.engine.After(0, s.again)
	return s
}

// end gives a stream up. What the disk has of it goes on.
func (s *stream) end() {
	if s.dead {
		return
	}
	s.dead, s.work, s.done = true, 0, nil
	d := s.device
	for ref := range d.spindle.flying {
		fl := &d.spindle.flying[ref]
		if fl.stream != s || fl.out {
			continue
		}
		if err := d.sched.Cancel(fl.handle); err != nil {
			panic(fmt.Sprintf("sim: cancel: %v", err))
		}
		d.spindle.drop(uint64(ref))
		if f := s.flow; d.sched.Queued(f.id) == 0 {
			f.wanted += d.engine.Now() - max(f.queuedSince, d.last)
		}
	}
	s.flow.held = slices.DeleteFunc(s.flow.held, func(o *stream) bool { return o == s })
}

// wants tells whether the stream has something to submit now.
func (s *stream) wants() bool {
	switch {
	case s.dead || s.work == 0 || s.held:
		return false
	case s.window == 0:
		return s.device.sched.Queued(s.flow.id) < 2
	}
	return s.open < s.window
}

// feed submits what the stream may.
func (s *stream) feed() {
	d, f := s.device, s.flow
	for s.wants() {
		now := d.engine.Now()
		if s.pace > 0 && now < s.next {
			if !s.timed {
				s.timed = true
				d.engine.At(s.next, s.again)
			}
			return
		}
		queued := d.sched.Queued(f.id)
		if queued >= maxQueued {
			s.held = true
			f.held = append(f.held, s)
			return
		}
		n := d.cfg.Quantum
		if s.work > 0 {
			n = min(n, s.work)
			s.work -= n
		}
		s.next = max(s.next, now) + time.Duration(float64(s.pace)*float64(n)/float64(d.cfg.Quantum))
		if queued == 0 {
			f.queuedSince = now
		}
		fl := flight{device: d, stream: s, cost: d.cost(s.op, n), bytes: n}
		ref := d.spindle.take(fl)
		h, err := d.sched.Submit(f.id, fl.cost, ref)
		if err != nil {
			panic(fmt.Sprintf("sim: submit: %v", err))
		}
		d.spindle.flying[ref].handle = h
		s.open++
	}
	d.kick()
	d.spindle.wake()
}

func (d *device) cost(op disk.Op, n int64) int64 {
	line := d.cfg.Read
	if op == disk.Write && d.cfg.Write != (depth.Line{}) {
		line = d.cfg.Write
	}
	return max(1, int64(line.Fixed)+int64(float64(line.PerMiB)*float64(n)/(1<<20)))
}

// kick dispatches what the depth allows.
func (d *device) kick() {
	now := d.engine.Now()
	for !d.stopped {
		r, ok := d.sched.Next()
		if !ok {
			d.limited = d.limited || d.sched.Waiting() > 0
			break
		}
		fl := &d.spindle.flying[r.Ref]
		fl.since, fl.out = now, true
		s := fl.stream
		f := s.flow
		if d.sched.Queued(f.id) == 0 {
			f.wanted += now - max(f.queuedSince, d.last)
		}
		d.spindle.disk.Submit(int64(now), s.op, s.offset, fl.bytes, r.Ref)
		s.offset += fl.bytes
		if len(f.held) > 0 {
			first := f.held[0]
			f.held = f.held[1:]
			first.held = false
			d.engine.After(0, first.again)
		}
		if !s.timed && s.wants() {
			s.timed = true // not from within
			d.engine.After(0, s.again)
		}
	}
}

// ended books a request.
func (d *device) ended(fl flight, service, now time.Duration) {
	s := fl.stream
	f := s.flow
	f.served += service
	f.service += service
	f.app.service += service
	if s.op == disk.Write {
		f.app.written += fl.bytes
	} else {
		f.app.read += fl.bytes
	}
	if d.control != nil {
		d.control.Observe(s.op == disk.Write, fl.bytes, now-fl.since)
	}
	s.open--
	switch {
	case s.work == 0 && s.open == 0 && s.done != nil:
		done := s.done
		s.done = nil
		d.engine.After(0, done)
	case !s.timed && s.wants():
		s.timed = true
		d.engine.After(0, s.again)
	}
}

// endControl ends a control period of sfqd2.
func (d *device) endControl() {
	if d.limited {
		d.control.Limited()
	}
	d.limited = false
	d.sched.SetDepth(d.control.Update())
	d.kick()
	d.spindle.wake()
	d.engine.After(controlPeriod, d.move)
}

// report closes a period: what the production code makes of it, by application.
func (d *device) report(sequence uint64) ([]coord.Use, []coord.Service) {
	length := d.close()
	return d.uses, d.coord.Report(sequence, length, d.uses)
}

// close ends a period and returns its length.
func (d *device) close() time.Duration {
	now := d.engine.Now()
	d.uses = d.uses[:0]
	for i, f := range d.flows {
		if f == nil {
			continue
		}
		if d.sched.Queued(f.id) > 0 {
			f.wanted += now - max(f.queuedSince, d.last)
		}
		d.uses = append(d.uses, coord.Use{App: i, Served: f.served, Wanted: f.wanted})
		f.served, f.wanted = 0, 0
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
			d.weigh(f, p.Weight)
		}
	}
	return ok
}

// local goes back to the weights as they are.
func (d *device) local() {
	d.coord = coord.Device{}
	for _, f := range d.flows {
		if f != nil {
			d.weigh(f, f.app.Weight)
		}
	}
}

func (d *device) weigh(f *flow, weight float64) {
	f.weight = weight
	if err := d.sched.SetWeight(f.id, whole(weight)); err != nil {
		panic(fmt.Sprintf("sim: weight of %s: %v", f.app.Name, err))
	}
}
