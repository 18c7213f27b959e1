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
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/core/ladder"
	"penstock/node/control/cgroup"
	"penstock/node/control/freezer"
	"penstock/node/control/gate"
	"penstock/node/control/join"
	"penstock/node/control/journal"
	"penstock/node/control/pacing"
	"penstock/node/control/shaper"
	"penstock/node/monitor/connections"
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
	Service         bool  // the flow is that of a named service
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
	Joining     *Joining // nil: no connections are joined
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
	Joined   *join.Status // nil: no connections are joined
	Error    string       // the last error that belongs to no Hold
}

// Control holds what the policy asks for. Its methods may be called by several goroutines.
type Control struct {
	options Options
	journal *journal.Journal
	machine ladder.Machine
	cgroups *cgroup.Controller // nil: not available
	pacer   *pacing.Pacer      // nil: not available
	shaper  *shaper.Shaper     // nil: not available

	// published is the status after the last Apply, live is the running gate, and joined joins connections.
	// Status reads only these, so that it never waits for a change.
	published atomic.Pointer[Status]
	live      atomic.Pointer[gate.Gate]
	joined    atomic.Pointer[join.Join]
	unread    atomic.Bool // a warning that joined bytes are not read was logged

	mu       sync.Mutex
	examiner *examiner
	status   Status
	groups   map[held]cgroup.Group // with limits or weights
	frozen   map[string]*frozen    // by the path of the cgroup
	freezer  *freezer.Freezer      // nil until it is needed
	joining  joining
	gate     *running
	failed   time.Time // when the gate last ended or could not be started
	closed   bool
}

// Undo has the Undo of each mechanism.
func Undo() map[string]journal.Undo {
	return map[string]journal.Undo{gate.Mechanism: gate.Undo, cgroup.Mechanism: cgroup.Undo, pacing.Mechanism: pacing.Undo, shaper.Mechanism: shaper.Undo, freezer.Mechanism: freezer.Undo, join.Mechanism: join.Undo}
}

// Restore puts back the changes that a crashed daemon has left in the journal at path, and returns them. A change whose Err
// is not nil could not be put back, and stays in the journal; an empty journal is removed. Without a journal, Restore
// does nothing. Restore fails with journal.ErrInUse if the daemon is alive.
func Restore(path string) ([]journal.Restored, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	j, err := journal.Open(path, Undo())
	if err != nil {
		return nil, err
	}
	restored := j.Restored()
	err = j.Close() // tries once more what Open could not put back
	left := j.Changes()
	for i, r := range restored {
		if !slices.Contains(left, r.Change) {
			restored[i].Err = nil
		}
	}
	return restored, err
}

// Open puts back what a crashed daemon has left, and finds out which mechanisms this node has. It holds
// nothing yet.
func Open(o Options) (*Control, error) {
	j, err := journal.Open(o.Journal, Undo())
	if err != nil {
		return nil, err
	}
	c := &Control{options: o, journal: j, examiner: newExaminer(o.Gate.Protected), machine: Examine(o.Mechanisms), groups: map[held]cgroup.Group{}, frozen: map[string]*frozen{}}
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

// Apply puts in force what the policy asks for. It should be called at each change, and once a second.
func (c *Control) Apply(w Want) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.status.Enforce, c.status.Holds, c.status.Error = w.Enforce, nil, ""
	why := c.examiner.of(c.machine, w.Places)
	holds := decide(w, c.machine, c.cgroups, why, c.options.Protected)
	c.applyGate(w, holds, why)
	c.applyCgroups(holds)
	c.applyFreezer(holds, time.Now())
	c.applyConnections(w)
	if w.Enforce {
		c.applyJoining(w.Joining)
	} else {
		c.applyJoining(nil)
	}
	for _, h := range holds {
		c.status.Holds = append(c.status.Holds, h.Hold)
	}
	c.publish()
}

// publish makes the present status visible to Status.
func (c *Control) publish() {
	s := c.status
	s.Machine, s.Holds, s.Changes = maps.Clone(c.machine), slices.Clone(s.Holds), c.journal.Len()
	c.published.Store(&s)
	if c.gate != nil {
		c.live.Store(c.gate.Gate)
	} else {
		c.live.Store(nil)
	}
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
	if j := c.joined.Load(); j != nil {
		status := j.Status()
		s.Joined = &status
	}
	return s
}

// Bypass returns the bytes of joined connections, which TCP has not counted, by the sockets' cookies. It is for
// connections.Watch.
func (c *Control) Bypass() map[uint64]connections.Bypass {
	if j := c.joined.Load(); j != nil {
		return j.Bypass()
	}
	return nil
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
	c.closeJoining()
	if c.freezer != nil {
		err = errors.Join(err, c.freezer.Close())
	}
	err = errors.Join(err, c.journal.Close())
	if c.shaper != nil {
		c.shaper.Close()
	}
	return err
}
