// Package control holds processes, containers and connections that have no agent. Only this package and
// those below it change the system: the rest of Penstock only reads the system's state.
//
// Problem: several mechanisms of the kernel can hold I/O, each of them changes something that belongs to
// others, and a daemon can be killed at any moment. Choice: at each change of the policy and once a
// second, Apply compares the state that the policy asks for with the state that is in force. So a process
// that starts later, a cgroup that is removed and made again, and a gate that has died need no special
// treatment. Package core/ladder decides which mechanism holds which I/O. Each change goes through the
// journal, which puts the change back when the daemon stops and, after a crash, when it starts again.
//
// In observe mode Apply changes nothing, and Status reports what would be done.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/core/ladder"
	"penstock/node/control/cgroup"
	"penstock/node/control/freezer"
	"penstock/node/control/gate"
	"penstock/node/control/journal"
	"penstock/node/control/pacing"
	"penstock/node/control/shaper"
)

const (
	retryAfter  = 10 * time.Second // from the end of a gate to its next start
	startWithin = 5 * time.Second
	// holdAtMost is the longest wait of an operation at the gate. It is longer than the longest wait at
	// the arbiter (Config.MaxWait), so it is reached only after an error.
	holdAtMost = 2 * time.Minute
)

// Process describes processes that form one flow.
type Process struct {
	Flow            string
	UID             int // gate.AnyUser: any
	Command, Cgroup string
	Weight          int   // 0: none
	Limit           int64 // bytes per second at one device; 0: none
	Observe         bool  // only report what would be done
}

// Connection is a connection between a DataNode and a container whose sender is to be held.
type Connection struct {
	pacing.Socket        // of the sender
	Flow          string // the application's flow
	Limit         int64  // bytes per second
	// Arbiter is set if a device's arbiter already holds what the socket sends.
	Arbiter bool
}

// Place is a directory on whose file system processes may be held, and its device.
type Place struct {
	Path   string
	Device cgroup.Device
	Name   string // of the device
}

// Options of a Control.
type Options struct {
	Journal    string   // path of the record of changes
	Mechanisms []string // the mechanisms that may be used: gate, cgroup, freezer, pacing, shaper
	// Protected returns the processes that must never be held: agents, and daemons of Hadoop.
	Protected func() []int
	// Gate has the gate's options. Held and Journal are ignored.
	Gate gate.Options
	// Held is called for each operation that the gate holds, with its flow. It must call allow once, at
	// once or later.
	Held func(flow string, r gate.Request, allow func())
	Log  *slog.Logger
}

// Want is what the policy asks for.
type Want struct {
	Enforce     bool // otherwise nothing is changed
	Places      []Place
	Processes   []Process
	Connections []Connection
}

// Hold is a flow on a device, or a connection, that the policy asks to hold, with the decision about it.
type Hold struct {
	Flow   string
	Where  string // the device or the connection
	Steps  []ladder.Step
	Holds  bool   // whether the hold is in force
	Error  string // why the hold is not in force, although a mechanism was chosen
	Weight int
	Limit  int64
}

// Status is a Control's state.
type Status struct {
	Enforce  bool
	Machine  ladder.Machine
	Holds    []Hold
	Changes  int // number of changes to the system that are in force
	Restored int // number of changes that a crashed daemon had left
	Gate     *gate.Stats
	Error    string // the last error that belongs to no Hold
}

// Control holds what the policy asks for. Its methods may be called by several goroutines.
type Control struct {
	options Options
	journal *journal.Journal
	machine ladder.Machine
	cgroups *cgroup.Controller // nil: not available
	pacer   *pacing.Pacer      // nil: not available
	shaper  *shaper.Shaper     // nil: not available

	// published is the status after the last Apply, and live is the running gate. Status reads only these
	// two, so that it never waits for a change.
	published atomic.Pointer[Status]
	live      atomic.Pointer[gate.Gate]

	mu      sync.Mutex
	status  Status
	groups  map[held]cgroup.Group // with limits or weights
	frozen  map[string]*frozen    // by the path of the cgroup
	freezer *freezer.Freezer      // nil until it is needed
	gate    *running
	failed  time.Time // when the gate last ended or could not be started
	closed  bool
}

// held is a cgroup on a device.
type held struct {
	path   string
	device cgroup.Device
}

// running is a gate with its present rules. mu protects flows.
type running struct {
	*gate.Gate
	mu      sync.Mutex
	flows   []string // the flow of class n is flows[n-1]
	rules   []gate.Rule
	pass    []int
	watched []string
	places  []string
}

// Undo has the Undo of each mechanism.
func Undo() map[string]journal.Undo {
	return map[string]journal.Undo{gate.Mechanism: gate.Undo, cgroup.Mechanism: cgroup.Undo, pacing.Mechanism: pacing.Undo, shaper.Mechanism: shaper.Undo, freezer.Mechanism: freezer.Undo}
}

// Restore puts back what a crashed daemon has left in the journal at path. It fails with
// journal.ErrInUse if the daemon is alive.
func Restore(path string) ([]journal.Restored, error) {
	j, err := journal.Open(path, Undo())
	if err != nil {
		return nil, err
	}
	return j.Restored(), j.Close()
}

// Open puts back what a crashed daemon has left, and finds out which mechanisms this node has. It holds
// nothing yet.
func Open(o Options) (*Control, error) {
	j, err := journal.Open(o.Journal, Undo())
	if err != nil {
		return nil, err
	}
	c := &Control{options: o, journal: j, machine: Examine(o.Mechanisms), groups: map[held]cgroup.Group{}, frozen: map[string]*frozen{}}
	for _, r := range j.Restored() {
		if r.Err != nil {
			o.Log.Error("a change to the system that a crashed daemon has left could not be put back", "mechanism", r.Mechanism, "target", r.Target, "error", r.Err)
			continue
		}
		c.status.Restored++
		o.Log.Warn("put back a change to the system that a crashed daemon has left", "mechanism", r.Mechanism, "target", r.Target, "value", r.Before)
	}
	if c.machine[ladder.CgroupV1].OK || c.machine[ladder.CgroupV2].OK {
		if c.cgroups, err = cgroup.Open(o.Protected); err != nil {
			return nil, errors.Join(err, j.Close())
		}
	}
	if c.machine[ladder.Pacing].OK {
		c.pacer = pacing.Open(j)
	}
	if c.machine[ladder.Shaper].OK {
		if c.shaper, err = shaper.Open(j); err != nil {
			return nil, errors.Join(err, j.Close())
		}
	}
	c.publish()
	return c, nil
}

// Examine finds out which mechanisms this node has. Mechanisms that are not among the allowed ones are
// not available. It changes nothing.
func Examine(allowed []string) ladder.Machine {
	m := ladder.Machine{}
	for _, r := range ladder.All() {
		name, _, _ := strings.Cut(string(r), " ") // both versions of cgroups are named cgroup
		if !slices.Contains(allowed, name) {
			m[r] = ladder.Availability{Why: fmt.Sprintf("the settings do not name it; to use it, add %s to control.mechanisms", name)}
			continue
		}
		m[r] = examine(r)
	}
	return m
}

func examine(r ladder.Mechanism) ladder.Availability {
	var err error
	switch r {
	case ladder.Gate:
		var ranged bool
		if ranged, err = gate.Available(); err == nil && !ranged {
			err = errors.New("the kernel does not report pre-content events of fanotify; Linux 6.14 or later is needed")
		}
	case ladder.CgroupV1, ladder.CgroupV2:
		version, why := cgroupVersion()
		if err = why; err == nil && (version == cgroup.V2) != (r == ladder.CgroupV2) {
			err = fmt.Errorf("the machine's block I/O controller belongs to cgroup %v", version)
		}
	case ladder.Pacing:
		err = pacing.Available()
	case ladder.Shaper:
		err = shaper.Available()
	case ladder.Freezer:
		err = freezer.Available()
	}
	if err != nil {
		return ladder.Availability{Why: err.Error()}
	}
	return ladder.Availability{OK: true}
}

func cgroupVersion() (cgroup.Version, error) {
	if err := cgroup.Available(); err != nil {
		return 0, err
	}
	c, err := cgroup.Open(func() []int { return nil })
	if err != nil {
		return 0, err
	}
	return c.Version(), nil
}

// Apply puts in force what the policy asks for. It should be called at each change, and once a second.
func (c *Control) Apply(w Want) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.status.Enforce, c.status.Holds, c.status.Error = w.Enforce, nil, ""
	holds := decide(w, c.machine, c.cgroups, c.options.Gate.Protected, c.options.Protected)
	c.applyGate(w, holds)
	c.applyCgroups(holds)
	c.applyFreezer(holds, time.Now())
	c.applyConnections(w)
	for _, h := range holds {
		c.status.Holds = append(c.status.Holds, h.Hold)
	}
	c.publish()
}

// publish makes the present status visible to Status.
func (c *Control) publish() {
	s := c.status
	s.Machine, s.Holds, s.Changes = maps.Clone(c.machine), slices.Clone(s.Holds), len(c.journal.Changes())
	c.published.Store(&s)
	if c.gate != nil {
		c.live.Store(c.gate.Gate)
	} else {
		c.live.Store(nil)
	}
}

// decision is the Hold of a flow of processes at a place, before it is in force.
type decision struct {
	Hold
	process Process
	place   Place
	taken   ladder.Mechanism // empty: none
}

// Preview returns what Apply would do on this node, and changes nothing. protected has the files that
// the daemon needs (gate.Options).
func Preview(mechanisms, protected []string, w Want) (ladder.Machine, []Hold) {
	m := Examine(mechanisms)
	var cgroups *cgroup.Controller
	if m[ladder.CgroupV1].OK || m[ladder.CgroupV2].OK {
		cgroups, _ = cgroup.Open(func() []int { return nil }) // no error: Examine has found the controller
	}
	var holds []Hold
	for _, d := range decide(w, m, cgroups, protected, func() []int { return nil }) {
		holds = append(holds, d.Hold)
	}
	return m, holds
}

// decide chooses a mechanism for each flow on each device. cgroups may be nil.
func decide(w Want, m ladder.Machine, cgroups *cgroup.Controller, protected []string, pids func() []int) []*decision {
	var all []*decision
	why := map[string]error{}
	for _, place := range w.Places {
		if _, known := why[place.Path]; !known && m[ladder.Gate].OK {
			why[place.Path] = gate.MayHold(place.Path, protected)
		}
		for _, p := range w.Processes {
			h := ladder.Hold{Weight: p.Weight, Limit: p.Limit, Marks: why[place.Path] == nil, Cgroup: p.Cgroup != "" && p.Command == "" && p.UID == gate.AnyUser}
			if e := why[place.Path]; e != nil {
				h.WhyNot = strings.ReplaceAll(e.Error(), "\n", "; ")
			}
			if h.Cgroup && cgroups != nil {
				h.Weights = cgroups.CanWeigh(place.Device) == nil
				if g, err := cgroups.At(p.Cgroup); err == nil {
					h.Writeback = cgroups.HoldsBufferedWrites(g) == nil
				}
			}
			if h.Cgroup && m[ladder.Freezer].OK {
				h.Protected = hasProtected(p.Cgroup, pids())
			}
			d := &decision{Hold: Hold{Flow: p.Flow, Where: place.Name, Weight: p.Weight, Limit: p.Limit, Steps: ladder.Choose(h, m)}, process: p, place: place}
			if taken, ok := ladder.Taken(d.Steps); ok && w.Enforce && !p.Observe {
				d.taken = taken
			}
			all = append(all, d)
		}
	}
	oneMechanism(all)
	return all
}

// oneMechanism removes decisions, so that one mechanism holds a flow on a device, even if the ladder has
// chosen different ones for its directories there, and that only the first entry that names a cgroup holds
// the cgroup. The freezer stops I/O on all devices, so it does not hold a flow that another mechanism holds
// on any device.
func oneMechanism(all []*decision) {
	type use struct {
		flow   string
		device cgroup.Device
	}
	by := map[use]ladder.Mechanism{}
	owner := map[string]string{}   // flow by cgroup
	otherwise := map[string]bool{} // flows that a mechanism other than the freezer holds
	for _, d := range all {
		k := use{d.Flow, d.place.Device}
		if d.taken == ladder.Gate || by[k] == "" {
			by[k] = d.taken
		}
		otherwise[d.Flow] = otherwise[d.Flow] || d.taken != "" && d.taken != ladder.Freezer
		if c := d.process.Cgroup; c != "" && owner[c] == "" {
			owner[c] = d.Flow
		}
	}
	for _, d := range all {
		pass := func(format string, args ...any) {
			d.Steps[len(d.Steps)-1] = ladder.Step{Mechanism: d.taken, Why: fmt.Sprintf(format, args...)}
			d.taken = ""
		}
		switch first := by[use{d.Flow, d.place.Device}]; {
		case d.taken == "":
		case d.taken != first:
			pass("the mechanism %s already holds the flow on this device, because of another directory", first)
		case d.taken == ladder.Freezer && otherwise[d.Flow]:
			pass("another mechanism holds the flow on another device, and the freezer would hold it on all")
		case d.taken != ladder.Gate && owner[d.process.Cgroup] != d.Flow:
			pass("an earlier entry, %s, holds the cgroup", owner[d.process.Cgroup])
		}
	}
}

// applyGate starts, changes or ends the gate, as the policy asks for.
func (c *Control) applyGate(w Want, holds []*decision) {
	var places, flows []string
	for _, h := range holds {
		if h.taken != ladder.Gate {
			continue
		}
		if !slices.Contains(places, h.place.Path) {
			places = append(places, h.place.Path)
		}
		if !slices.Contains(flows, h.Flow) {
			flows = append(flows, h.Flow)
		}
	}
	// A process belongs to the first entry that matches it. If the gate does not hold that entry, the
	// process passes at the gate.
	var rules []gate.Rule
	for _, p := range w.Processes {
		class := uint32(slices.Index(flows, p.Flow) + 1)
		rules = append(rules, gate.Rule{Class: class, UID: p.UID, Comm: p.Command, CgroupPrefix: p.Cgroup})
	}
	var watch []string
	for _, p := range w.Places {
		if w.Enforce && c.machine[ladder.Gate].OK && gate.MayHold(p.Path, c.options.Gate.Protected) == nil {
			watch = append(watch, p.Path)
		}
	}
	err := c.changeGate(watch, places, flows, rules)
	if err != nil {
		c.status.Error = err.Error()
	}
	for _, h := range holds {
		if h.taken == ladder.Gate {
			if h.Holds = err == nil; err != nil {
				h.Error = err.Error()
			}
		}
	}
}

// changeGate makes the gate hold the flows' processes on the file systems of places, and watch the other
// file systems of the policy. A file system is watched early, because the kernel never reports operations
// on a file that was opened before.
func (c *Control) changeGate(watch, places, flows []string, rules []gate.Rule) error {
	if g := c.gate; g != nil {
		select {
		case <-g.Done():
			c.failed = time.Now()
			c.options.Log.Error("the gate has ended; what it held continues", "error", g.Err(), "again_in", retryAfter)
			c.gate = nil
		default:
		}
	}
	if len(watch) == 0 {
		if c.gate == nil {
			return nil
		}
		err := c.gate.Close()
		c.gate = nil
		return err
	}
	if c.gate == nil {
		if wait := retryAfter - time.Since(c.failed); wait > 0 && !c.failed.IsZero() {
			return fmt.Errorf("the gate has ended; the next start is in %v", wait.Round(time.Second))
		}
		if err := c.startGate(); err != nil {
			c.failed = time.Now()
			return err
		}
	}
	g := c.gate
	if pass := c.options.Protected(); !slices.Equal(pass, g.pass) {
		if err := g.Pass(pass); err != nil {
			return err
		}
		g.pass = pass
	}
	if !slices.Equal(rules, g.rules) || !slices.Equal(flows, g.flows) {
		if err := g.Classes(nil); err != nil { // nothing is held while classes change their flows
			return err
		}
		g.setFlows(flows)
		if err := g.Classes(rules); err != nil {
			g.rules = nil
			return err
		}
		g.rules = rules
	}
	for _, p := range watch {
		if !slices.Contains(g.watched, p) {
			if err := g.Watch(p); err != nil {
				return err
			}
			g.watched = append(g.watched, p)
		}
	}
	for _, p := range g.places {
		if !slices.Contains(places, p) {
			if err := g.Unmark(p); err != nil {
				return err
			}
		}
	}
	g.places = slices.DeleteFunc(g.places, func(p string) bool { return !slices.Contains(places, p) })
	for _, p := range places {
		if slices.Contains(g.places, p) {
			continue
		}
		if err := g.Mark(p); err != nil {
			return err
		}
		g.places = append(g.places, p)
	}
	return nil
}

func (c *Control) startGate() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	r := &running{}
	o := c.options.Gate
	o.Journal, o.HoldAtMost = c.journal, holdAtMost
	o.Held = func(request gate.Request) {
		allow := func() { _ = r.Gate.Allow(request.ID) } // after an error the gate has ended, and everything passes
		flow, ok := r.flow(request.Class)
		if !ok {
			allow()
			return
		}
		c.options.Held(flow, request, allow)
	}
	g, err := gate.Start(ctx, o)
	if err != nil {
		return err
	}
	r.Gate = g
	c.gate = r
	if missing := g.Missing(); missing != "" {
		c.options.Log.Warn("the system does not permit all protections of the gate process; the gate works, but a lack of memory or CPU time may end it", "missing", missing)
	}
	return nil
}

func (r *running) setFlows(flows []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flows = flows
}

// flow returns the flow of a class.
func (r *running) flow(class uint32) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if class < 1 || int(class) > len(r.flows) {
		return "", false
	}
	return r.flows[class-1], true
}

// applyCgroups sets the limits and weights of cgroups that the policy asks for, and lifts the others.
func (c *Control) applyCgroups(holds []*decision) {
	if c.cgroups == nil {
		return
	}
	wanted := map[held]bool{}
	for _, d := range holds {
		if d.taken == ladder.CgroupV1 || d.taken == ladder.CgroupV2 {
			wanted[held{d.process.Cgroup, d.place.Device}] = true
		}
	}
	// Lift lifts the limits of a cgroup on all devices. The limits that the policy asks for are set again
	// below.
	var errs []error
	for k, g := range c.groups {
		if !wanted[k] {
			if err := c.cgroups.Lift(c.journal, g); err != nil {
				errs = append(errs, err)
				continue // the next Apply tries again
			}
			delete(c.groups, k)
		}
	}
	for _, d := range holds {
		if d.taken == ladder.CgroupV1 || d.taken == ladder.CgroupV2 {
			if err := c.holdCgroup(d); err != nil {
				d.Error = err.Error()
			} else {
				d.Holds = true
			}
		}
	}
	errs = append(errs, c.cgroups.Sweep(c.journal))
	c.note(errors.Join(errs...))
}

// holdCgroup sets a cgroup's limits and weight on a device. What is in force already is not changed.
func (c *Control) holdCgroup(d *decision) error {
	p, k := d.process, held{d.process.Cgroup, d.place.Device}
	g, err := c.cgroups.At(p.Cgroup)
	if err != nil {
		delete(c.groups, k)
		return err
	}
	c.groups[k] = g
	// The kernel has a limit for reads and one for writes, but none for both together.
	limits := cgroup.Limits{ReadBytes: p.Limit, WriteBytes: p.Limit}
	if err := c.cgroups.Limit(c.journal, g, k.device, limits, "the policy limits "+p.Flow); err != nil {
		return err
	}
	if p.Weight > 0 && c.cgroups.CanWeigh(k.device) == nil {
		return c.cgroups.Weight(c.journal, g, k.device, min(p.Weight, cgroup.WeightMaxBFQ), "the policy weighs "+p.Flow)
	}
	return nil
}

// applyConnections paces or shapes the connections that the policy limits, and lifts the other rates.
func (c *Control) applyConnections(w Want) {
	paced, shaped := map[pacing.Socket]bool{}, map[shaper.Connection]bool{}
	for _, n := range w.Connections {
		h := Hold{Flow: n.Flow, Where: fmt.Sprintf("%v to %v", n.Local, n.Remote), Limit: n.Limit}
		h.Steps = ladder.Choose(ladder.Hold{Connection: true, Limit: n.Limit, Arbiter: n.Arbiter}, c.machine)
		taken, ok := ladder.Taken(h.Steps)
		if ok && w.Enforce {
			why, err := "the policy limits connections of "+n.Flow, error(nil)
			if taken == ladder.Pacing {
				paced[n.Socket] = true
				err = c.pacer.Set(n.Socket, uint64(n.Limit), why)
			} else {
				var at shaper.Connection
				if at, err = c.shaper.Find(n.Local, n.Remote); err == nil {
					shaped[at] = true
					err = c.shaper.Set(at, uint64(n.Limit), why)
				}
			}
			if h.Holds = err == nil; err != nil {
				h.Error = err.Error()
			}
		}
		c.status.Holds = append(c.status.Holds, h)
	}
	var errs []error
	if c.pacer != nil {
		for s := range c.pacer.Rates() {
			if !paced[s] {
				errs = append(errs, c.pacer.Lift(s))
			}
		}
		errs = append(errs, c.pacer.Sweep())
	}
	if c.shaper != nil {
		for at := range c.shaper.Rates() {
			if !shaped[at] {
				errs = append(errs, c.shaper.Lift(at))
			}
		}
	}
	c.note(errors.Join(errs...))
}

func (c *Control) note(err error) {
	if err != nil {
		c.status.Error = err.Error()
		c.options.Log.Error("kernel control", "error", err)
	}
}

// Status returns the state after the last call of Apply. It does not wait.
func (c *Control) Status() Status {
	s := *c.published.Load()
	s.Holds = slices.Clone(s.Holds)
	if g := c.live.Load(); g != nil {
		stats := g.Stats()
		s.Gate = &stats
	}
	return s
}

// Close lets all held operations pass and puts all changes back.
func (c *Control) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var err error
	if c.gate != nil {
		err = c.gate.Close()
	}
	if c.freezer != nil {
		err = errors.Join(err, c.freezer.Close())
	}
	err = errors.Join(err, c.journal.Close())
	if c.shaper != nil {
		c.shaper.Close()
	}
	return err
}
