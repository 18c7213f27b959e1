package node

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/core/policy"
	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/monitor"
	"penstock/node/profile"
)

// governed is a device with its loop and the daemon's data about it: the agents that registered it,
// its recent activity, and the foreign I/O on the device.
//
// A loop may stand still. Heartbeats report that, and then an operator looks at the status. So
// nothing that answers an operator, sends a heartbeat or holds the daemon's lock waits for a
// loop: messages to a loop go through a goroutine of the device, and the wait for a snapshot is
// bounded.
type governed struct {
	dev          blockfile.Device
	disk         profile.Device // zero if there is no block device
	config       device.Config
	loop         *device.Loop
	stop         func()        // ends the loop; set by the daemon's run
	kept         bool          // also without directories; protected by Daemon.mu
	rulesChanged chan struct{} // signals new rules for the loop; holds one element
	roomChanged  chan struct{} // the same for new room
	partsChanged chan struct{} // the same for new parts

	room   atomic.Pointer[room]
	staged atomic.Int64 // bytes that may be staged ahead of readers; 0: the device's default
	parts  atomic.Pointer[device.Parts]
	totals atomic.Pointer[map[string]policy.Total] // parts of total rates, by application
	used   atomic.Int64                            // when the device was last in use, Unix nanoseconds

	opening chan struct{} // limits how many files are opened at a time for tasks

	mu      sync.Mutex
	asking  *answer        // a snapshot in progress
	dirs    map[string]int // registered directories, with the number of agents of each
	history history
}

// answer is one requested snapshot; several callers may wait for it.
type answer struct {
	done chan struct{}
	snap device.Snapshot
	ok   bool
}

// snapshotWait is the longest wait for a loop's snapshot. A running loop answers in milliseconds,
// even with thousands of flows.
const snapshotWait = time.Second

func newGoverned(dev blockfile.Device, config device.Config, loop *device.Loop) *governed {
	g := &governed{dev: dev, config: config, loop: loop, rulesChanged: make(chan struct{}, 1), roomChanged: make(chan struct{}, 1), partsChanged: make(chan struct{}, 1),
		opening: make(chan struct{}, maxOpening), dirs: map[string]int{}}
	g.room.Store(&room{dirty: config.Dirty, lazy: config.Lazy})
	return g
}

// snapshot requests a snapshot of the loop. ok is false if the loop has ended or does not answer
// in time. However often snapshot is called while a loop stands still, only one request waits.
func (g *governed) snapshot() (device.Snapshot, bool) {
	g.mu.Lock()
	a := g.asking
	if a == nil {
		a = &answer{done: make(chan struct{})}
		g.asking = a
		go func() {
			a.snap, a.ok = g.loop.Snapshot()
			g.mu.Lock()
			g.asking = nil
			g.mu.Unlock()
			close(a.done)
		}()
	}
	g.mu.Unlock()
	late := time.NewTimer(snapshotWait)
	defer late.Stop()
	select {
	case <-a.done:
		return a.snap, a.ok
	case <-late.C:
		return device.Snapshot{}, false
	}
}

// reading is all data about a device at one moment.
type reading struct {
	*governed
	snap     device.Snapshot
	answered bool
	counters monitor.Counters
	counted  bool // the device has counters
	at       time.Time
}

// read reads the device's counters and then the loop's snapshot, in this order, as monitor.Foreign
// expects.
func (g *governed) read() reading {
	r := reading{governed: g, at: time.Now()}
	var err error
	r.counters, err = monitor.Read(sysfs, g.dev.Name)
	r.counted = err == nil
	r.snap, r.answered = g.snapshot()
	return r
}

// follow samples the device until ctx ends.
func (g *governed) follow(ctx context.Context) {
	ticker := time.NewTicker(samplePeriod)
	defer ticker.Stop()
	for {
		r := g.read()
		if r.answered {
			g.notice(r.snap)
			g.mu.Lock()
			g.history.add(r, g.config.Quantum)
			g.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// applyChanges passes changed rules and changed room to the loop.
func (g *governed) applyChanges(ctx context.Context, rules func() (device.Mode, device.Policy)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.rulesChanged:
			mode, local := rules()
			g.loop.Apply(mode, g.withTotals(local))
		case <-g.roomChanged:
			r := g.room.Load()
			g.loop.SetRoom(r.dirty, r.lazy, g.staged.Load())
		case <-g.partsChanged:
			g.loop.SetParts(*g.parts.Load())
		}
	}
}

// signal wakes applyChanges.
func signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default: // applyChanges is about to wake
	}
}

func (g *governed) directories() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.dirs))
}

func (g *governed) addDir(path string, agents int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dirs[path] += agents; g.dirs[path] <= 0 {
		delete(g.dirs, path)
	}
}

// readAll reads all devices concurrently and returns them sorted by name. It takes at most about
// snapshotWait, however many devices do not answer.
func (d *Daemon) readAll() []reading {
	d.mu.Lock()
	all := slices.SortedFunc(maps.Values(d.devices), func(a, b *governed) int {
		return strings.Compare(a.dev.Name, b.dev.Name)
	})
	d.mu.Unlock()
	readings := make([]reading, len(all))
	var asked sync.WaitGroup
	for i, g := range all {
		asked.Go(func() { readings[i] = g.read() })
	}
	asked.Wait()
	return readings
}
