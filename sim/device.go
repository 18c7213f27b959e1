package sim

import (
	"fmt"
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

// scale is what weights are multiplied by for the scheduler, whose weights are whole.
const scale = 1000

// period is how often sfqd2 moves the depth.
const controlPeriod = time.Second

// device is a disk with the production scheduler before it.
type device struct {
	engine  *Engine
	cfg     DeviceConfig
	sched   sfq.Scheduler
	control *depth.Controller
	disk    *disk.Virtual
	coord   coord.Device
	flows   []*flow // by application, nil where it has none here
	byID    []*flow
	flying  map[uint64]flight
	ref     uint64
	waking  time.Duration // when the disk is looked at next; below 0: not at all
	limited bool          // something waited for the depth in this control period
	stopped bool          // its node is gone
	uses    []coord.Use
	out     []coord.Service // beside uses
	last    time.Duration   // of the report before
}

type flight struct {
	flow   *flow
	handle sfq.Handle
	cost   int64
	bytes  int64
	op     disk.Op
	since  time.Duration
}

// flow is an application's queue at a device.
type flow struct {
	app    *App
	id     sfq.Flow
	weight float64 // in force, on the scale of weights
	offset int64
	op     disk.Op
	ahead  int   // requests kept in the queue while there is work
	work   int64 // bytes left to submit; below 0: without end

	queuedSince time.Duration
	wanted      time.Duration
	served      time.Duration // since the last report
	service     time.Duration // in all
	bytes       int64
}

func newDevice(e *Engine, cfg DeviceConfig, apps int) (*device, error) {
	sched, err := sfq.New(sfq.Config{Algorithm: cfg.Algorithm, Depth: max(1, cfg.Depth), MaxQueued: 64})
	if err != nil {
		return nil, err
	}
	d := &device{engine: e, cfg: cfg, sched: sched, disk: disk.NewVirtual(cfg.Model), flows: make([]*flow, apps),
		flying: map[uint64]flight{}, waking: -1}
	if cfg.Algorithm == "sfqd2" {
		d.control, err = depth.New(depth.Config{Start: float64(max(1, cfg.Depth)), Read: cfg.Read, Write: cfg.Write})
		if err != nil {
			return nil, err
		}
		d.sched.SetDepth(d.control.Depth())
		e.After(controlPeriod, d.move)
	}
	return d, nil
}

// add gives an application a flow, or finds it.
func (d *device) add(a *App) *flow {
	if f := d.flows[a.index]; f != nil {
		return f
	}
	f := &flow{app: a, weight: a.Weight, ahead: 2}
	id, err := d.sched.AddFlow(whole(f.weight))
	if err != nil {
		panic(fmt.Sprintf("sim: %s at a device: %v", a.Name, err)) // the scenario's bounds are below the scheduler's
	}
	f.id = id
	d.flows[a.index] = f
	for int(id) >= len(d.byID) {
		d.byID = append(d.byID, nil)
	}
	d.byID[id] = f
	return f
}

func whole(weight float64) int { return int(min(max(weight*scale, 1), sfq.MaxWeight)) }

// feed keeps the queue filled while there is work.
func (d *device) feed(f *flow) {
	for f.work != 0 && d.sched.Queued(f.id) < f.ahead {
		n := d.cfg.Quantum
		if f.work > 0 {
			n = min(n, f.work)
			f.work -= n
		}
		d.ref++
		cost := d.cost(f.op, n)
		if d.sched.Queued(f.id) == 0 {
			f.queuedSince = d.engine.Now()
		}
		h, err := d.sched.Submit(f.id, cost, d.ref)
		if err != nil {
			panic(fmt.Sprintf("sim: submit: %v", err))
		}
		d.flying[d.ref] = flight{flow: f, handle: h, cost: cost, bytes: n, op: f.op}
	}
	d.kick()
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
		fl := d.flying[r.Ref]
		fl.since = now
		d.flying[r.Ref] = fl
		f := fl.flow
		if d.sched.Queued(f.id) == 0 {
			f.wanted += now - max(f.queuedSince, d.last)
		}
		d.disk.Submit(int64(now), fl.op, f.offset, fl.bytes, r.Ref)
		f.offset += fl.bytes
		d.feedLater(f)
	}
	d.wake()
}

// feedLater refills a queue without dispatching again from within.
func (d *device) feedLater(f *flow) {
	if f.work != 0 && d.sched.Queued(f.id) < f.ahead {
		d.engine.After(0, func() { d.feed(f) })
	}
}

func (d *device) wake() {
	due, any := d.disk.Due()
	if !any || d.waking == time.Duration(due) {
		return
	}
	d.waking = time.Duration(due)
	d.engine.At(d.waking, func() {
		if d.waking != d.engine.Now() {
			return // a request that ended before was seen meanwhile
		}
		d.waking = -1
		d.collect()
	})
}

func (d *device) collect() {
	now := d.engine.Now()
	for {
		ended, any := d.disk.Take(int64(now))
		if !any {
			break
		}
		fl := d.flying[ended.Ref]
		delete(d.flying, ended.Ref)
		if err := d.sched.Complete(fl.handle, fl.cost); err != nil {
			panic(fmt.Sprintf("sim: complete: %v", err))
		}
		f := fl.flow
		f.served += time.Duration(ended.Service)
		f.service += time.Duration(ended.Service)
		f.bytes += fl.bytes
		if d.control != nil {
			d.control.Observe(fl.op == disk.Write, fl.bytes, now-fl.since)
		}
	}
	d.kick()
}

// move ends a control period of sfqd2.
func (d *device) move() {
	if d.limited {
		d.control.Limited()
	}
	d.limited = false
	d.sched.SetDepth(d.control.Update())
	d.kick()
	d.engine.After(controlPeriod, d.move)
}

// report closes a period: what the production code makes of it, by application.
func (d *device) report(sequence uint64) []coord.Use {
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
	d.out = d.coord.Report(sequence, length, d.uses)
	return d.uses
}

// answer puts the parts that totals make into force.
func (d *device) answer(sequence uint64, right func(app int) (coord.Right, bool)) {
	parts, ok := d.coord.Answer(sequence, right)
	if !ok {
		return
	}
	for _, p := range parts {
		d.weigh(d.flows[p.App], p.Weight)
	}
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
