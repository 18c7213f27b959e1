package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"penstock/core/ladder"
	"penstock/core/policy"
	"penstock/node/blockfile"
	"penstock/node/config"
	"penstock/node/control"
	"penstock/node/control/cgroup"
	"penstock/node/control/gate"
	"penstock/node/control/pacing"
	"penstock/node/device"
	"penstock/node/gated"
	"penstock/node/monitor/connections"
	"penstock/node/monitor/processes"
	"penstock/node/mounts"
	"penstock/node/status"
)

// This file connects kernel control (package control) with the daemon. The daemon gives control what the
// weights file asks for, and gives the operations that the gate holds to the device loops (package gated).

const holdingPeriod = time.Second

// holding has what the daemon knows about the processes and connections that it holds.
type holding struct {
	daemon    *Daemon
	scheduler *gated.Scheduler
	changed   chan struct{} // the rules or the mode have changed; holds one element

	mu      sync.Mutex
	control *control.Control  // nil: kernel control could not be opened
	tried   time.Time         // when opening was last tried
	mistake string            // why kernel control could not be opened
	places  map[string]*place // by the path in the settings
	targets map[uint64]gated.Target

	// Used by follow only: the connections of containers when they were last listed.
	sent   []control.Connection
	looked time.Time
}

// place is a directory of the settings, on whose file system processes may be held.
type place struct {
	dev    uint64 // of its file system
	device *governed
	number cgroup.Device
}

// newHolding prepares kernel control. If the settings do not ask for it, newHolding puts back the changes
// that an earlier daemon has left, and returns nil.
func (d *Daemon) newHolding() *holding {
	c := d.settings.Control
	if c == nil || c.Mode == "off" {
		d.restoreControl()
		return nil
	}
	h := &holding{daemon: d, changed: make(chan struct{}, 1), places: map[string]*place{}, targets: map[uint64]gated.Target{}}
	h.scheduler = gated.New(gated.Options{Target: h.target, Expect: expect})
	h.open()
	return h
}

// restoreControl puts back the changes of an earlier daemon that had kernel control.
func (d *Daemon) restoreControl() {
	file := config.ControlJournal(d.settings)
	restored, err := control.Restore(file)
	for _, r := range restored {
		if r.Err == nil {
			d.log.Warn("put back a change to the system that an earlier daemon has left", "mechanism", r.Mechanism, "target", r.Target, "value", r.Before)
		}
	}
	if err != nil {
		d.log.Error("changes to the system that an earlier daemon has left could not be put back", "journal", file, "error", err)
	}
}

// open opens kernel control. If that fails, follow tries again.
func (h *holding) open() {
	d, c := h.daemon, h.daemon.settings.Control
	opened, err := control.Open(control.Options{
		Journal: c.Journal, Mechanisms: c.Mechanisms, Protected: h.protected, Log: d.log, Held: h.held,
		Gate: gate.Options{Command: d.GateCommand, Protected: needed(d.settings), Alive: h.alive},
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.control, h.tried, h.mistake = opened, time.Now(), ""
	if err != nil {
		h.control, h.mistake = nil, err.Error()
		d.limited.Once(slog.LevelError, "kernel control is not available: processes and connections without an agent are not held", c.Journal, "error", err, "again_in", openAgainAfter)
	}
}

// openAgainAfter is the time after which opening kernel control is tried again.
const openAgainAfter = 10 * time.Second

// expect returns an assumed duration of a device request whose end cannot be observed. The value is
// between those of SSDs and hard disks. It need not be exact, because only the accounts of asynchronous
// direct I/O depend on it.
func expect(_ bool, bytes int64) time.Duration {
	return 5*time.Millisecond + time.Duration(bytes)*10*time.Millisecond/(1<<20)
}

// protected returns the processes that have agents: Hadoop's daemons, tasks and executors. What they
// read and write is governed by their agents.
func (h *holding) protected() []int {
	var pids []int
	for _, a := range h.daemon.server.Agents() {
		pids = append(pids, int(a.PID))
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// needed returns the files without which the daemon cannot make progress. A file system that contains one
// of them cannot be held.
func needed(s *config.Node) []string {
	files := []string{s.Socket, s.KillSwitch, s.Control.Journal, s.Weights, s.File()}
	if log, err := os.Readlink("/proc/self/fd/2"); err == nil && filepath.IsAbs(log) {
		files = append(files, log)
	}
	return slices.DeleteFunc(files, func(f string) bool { return f == "" })
}

// alive reports whether the device loops make progress. While they do not, the gate is open.
func (h *holding) alive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.places {
		if !p.device.loop.Alive() {
			return false
		}
	}
	return true
}

// follow keeps what the weights file asks for in force until ctx ends. Then it lets all operations pass and
// puts all changes back.
func (h *holding) follow(ctx context.Context) {
	stop := make(chan struct{})
	var scheduled sync.WaitGroup
	scheduled.Go(func() { h.scheduler.Run(stop) })
	ticker := time.NewTicker(holdingPeriod)
	defer ticker.Stop()
	enforced := false
	for ctx.Err() == nil {
		w := h.want()
		if w.Enforce != enforced {
			enforced = w.Enforce
			h.scheduler.Reset() // streams that were opened before are not governed
		}
		if c := h.controller(); c != nil {
			c.Apply(w)
		} else if h.retry() {
			h.open()
			continue
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-h.changed:
		}
	}
	close(stop)
	scheduled.Wait()
	c := h.controller()
	if c == nil {
		return
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			h.daemon.log.Error("a change to the system could not be put back; the next start tries again", "error", err)
		}
	case <-time.After(stopWait):
		// A process of the gate waits for a disk. The kernel ends it with the daemon.
		h.daemon.log.Error("kernel control has not ended in time; the next start puts back what is left", "waited", stopWait)
	}
}

func (h *holding) controller() *control.Control {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.control
}

// retry reports whether it is time to try again to open kernel control.
func (h *holding) retry() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.tried) >= openAgainAfter
}

// want returns what the weights file asks for.
func (h *holding) want() control.Want {
	d := h.daemon
	d.mu.Lock()
	weights, mode := d.weights, d.mode
	d.mu.Unlock()
	w := control.Want{Enforce: mode == device.Enforce && d.settings.Control.Mode == "enforce", Processes: d.heldProcesses(weights)}
	// Operations on files that were opened before their file system was watched can never be held. So the
	// file systems are watched before an entry needs it.
	if w.Enforce || len(w.Processes) > 0 {
		w.Places = h.findPlaces()
	}
	if len(weights.Connections) > 0 {
		w.Connections = h.connections(weights)
	}
	if j := d.settings.Control.Joining; j != nil {
		w.Joining = &control.Joining{Dir: config.JoinedFolder(d.settings.Control.Journal), Cgroup: j.Cgroup, Ports: j.Ports}
	}
	return w
}

// bypass returns the bytes of joined connections, by the sockets' cookies.
func (d *Daemon) bypass() map[uint64]connections.Bypass {
	d.mu.Lock()
	h := d.holding
	d.mu.Unlock()
	if h == nil {
		return nil
	}
	if c := h.controller(); c != nil {
		return c.Bypass()
	}
	return nil
}

// heldProcesses returns the processes that a weights file names.
func (d *Daemon) heldProcesses(weights *config.Weights) (all []control.Process) {
	containers := 0
	for _, p := range weights.Processes {
		uid := gate.AnyUser
		if p.User != "" {
			id, err := config.UserID(p.User)
			if err != nil {
				d.limited.Once(slog.LevelWarn, "an entry of processes is ignored", p.Name, "error", err)
				continue
			}
			uid = int(id)
		}
		rule := weights.Policy(p.Flow())
		cgroups := []string{p.Cgroup}
		if p.Application != "" {
			cgroups = d.containersOf(p.Application, maxHeldContainers-containers)
			containers += len(cgroups)
		}
		for _, cgroup := range cgroups {
			all = append(all, control.Process{Flow: p.Flow(), UID: uid, Command: p.Command, Cgroup: cgroup,
				Service: p.Service != "", Weight: rule.Weight, Limit: rule.Limit, Observe: rule.Mode != device.Enforce})
		}
	}
	return all
}

// containersOf returns the cgroups of the containers on this machine whose application matches a pattern, at most as many as
// given.
func (d *Daemon) containersOf(pattern string, most int) (cgroups []string) {
	if d.orchestrators == nil || d.processes.Watch == nil {
		return nil
	}
	all := d.processes.Containers()
	for _, cgroup := range slices.Sorted(maps.Keys(all)) {
		application := d.orchestrators.Application(all[cgroup])
		if application == "" || !policy.Match(pattern, application) {
			continue
		}
		if len(cgroups) >= most {
			d.limited.Once(slog.LevelWarn, "an entry of processes does not hold all containers of its application: too many", pattern, "bound", maxHeldContainers)
			break
		}
		cgroups = append(cgroups, cgroup)
	}
	return cgroups
}

// PreviewControl returns what kernel control would do with the present settings and weights. It does not
// change the system.
func (d *Daemon) PreviewControl() status.Control {
	c := d.settings.Control
	if c == nil || c.Mode == "off" {
		return d.controlStatus()
	}
	w := control.Want{Processes: d.heldProcesses(d.weights)}
	for _, name := range c.Directories {
		dir, err := blockfile.OpenDir(name, sysfs)
		if err != nil {
			d.limited.Once(slog.LevelWarn, "no process is held on this directory", name, "error", err)
			continue
		}
		w.Places = append(w.Places, control.Place{Path: name, Device: numberOf(dir.Device.Name), Name: dir.Device.Name})
		dir.Close()
	}
	s := control.Status{}
	s.Machine, s.Holds = control.Preview(c.Mechanisms, needed(d.settings), w)
	return controlDocument(c.Mode, s)
}

// findPlaces returns the directories of the settings with their devices. It is called again and again,
// because a file system may be mounted at a directory later.
func (h *holding) findPlaces() []control.Place {
	var all []control.Place
	for _, name := range h.daemon.settings.Control.Directories {
		h.mu.Lock()
		p := h.places[name]
		h.mu.Unlock()
		type found struct {
			dev uint64
			err error
		}
		now, err := mounts.Do(&h.daemon.calls, 0, name, placePatience, func() found {
			var st unix.Stat_t
			err := unix.Stat(name, &st)
			return found{st.Dev, err}
		}, nil)
		switch {
		case err != nil && p == nil:
			h.daemon.limited.Once(slog.LevelWarn, "no process is held on this directory", name, "error", err)
			continue
		case err != nil: // nothing changes there while its disk hangs
		case p == nil || now.err != nil || p.dev != now.dev:
			if p, err = h.findPlace(name); err != nil {
				h.forgetPlace(name)
				h.daemon.limited.Once(slog.LevelWarn, "no process is held on this directory", name, "error", err)
				continue
			}
		}
		all = append(all, control.Place{Path: name, Device: p.number, Name: p.device.dev.Name})
	}
	return all
}

// placePatience is the longest wait for the disk of a directory.
const placePatience = 250 * time.Millisecond

func (h *holding) findPlace(name string) (*place, error) {
	type found struct {
		dir *blockfile.Dir
		dev uint64
		err error
	}
	f, err := mounts.Do(&h.daemon.calls, 0, name, placePatience, func() (f found) {
		if f.dir, f.err = blockfile.OpenDir(name, sysfs); f.err != nil {
			return f
		}
		f.dir.Close() // an open directory would prevent the unmounting of its file system
		var st unix.Stat_t
		if f.err = unix.Stat(name, &st); f.err != nil {
			f.err = &os.PathError{Op: "stat", Path: name, Err: f.err}
		}
		f.dev = st.Dev
		return f
	}, nil)
	if err = errors.Join(err, f.err); err != nil {
		return nil, err
	}
	dir := f.dir
	g, err := h.daemon.device(dir.Device, "")
	if err != nil {
		return nil, err
	}
	p := &place{dev: f.dev, device: g, number: numberOf(g.dev.Name)}
	h.forgetPlace(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places[name], h.targets[f.dev] = p, gated.Target{Loop: g.loop, Dir: dir}
	return p, nil
}

// forgetPlace drops what is known about a directory.
func (h *holding) forgetPlace(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.places[name]
	if p == nil {
		return
	}
	delete(h.places, name)
	for _, other := range h.places {
		if other.dev == p.dev {
			return
		}
	}
	delete(h.targets, p.dev)
}

// numberOf returns the numbers of a block device; 0:0 if it has none.
func numberOf(name string) (d cgroup.Device) {
	text, err := os.ReadFile(filepath.Join(sysfs, "block", name, "dev"))
	if err != nil {
		return d
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
	a, err := strconv.ParseUint(major, 10, 32)
	b, err2 := strconv.ParseUint(minor, 10, 32)
	if errors.Join(err, err2) != nil {
		return d
	}
	return cgroup.Device{Major: uint32(a), Minor: uint32(b)}
}

func (h *holding) target(dev uint64) (gated.Target, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.targets[dev]
	return t, ok
}

// held gives an operation that the gate holds to the scheduler of the operation's device.
func (h *holding) held(flow string, r gate.Request, allow func()) {
	if r.File == nil {
		allow()
		return
	}
	// An operation of unknown direction (io_uring) counts as a write, unless it is direct. If the operation
	// was a read, its bytes are charged, but its pages are clean, so that nothing is written.
	write := r.Op == gate.Write || r.Op == gate.Unknown && !r.Direct
	file := r.File.Keep()
	h.scheduler.Handle(gated.Operation{
		Flow: flow, PID: r.PID, TID: r.TID, Write: write, Direct: r.Direct, Async: r.Async,
		Device: r.Dev, Inode: r.Inode, Offset: r.Offset, Length: r.Length, Allow: allow,
		Open: func() (*os.File, error) {
			fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return nil, os.NewSyscallError("dup", err)
			}
			return os.NewFile(uintptr(fd), file.Name()), nil
		},
	})
	file.Release()
}

// connections returns the connections that the rules limit and whose sender is on this machine. A sender
// is held on its own machine, which is that of the DataNode for reads and that of the container for
// writes. So both machines need the rule.
func (h *holding) connections(weights *config.Weights) []control.Connection {
	all := h.served(weights)
	if now := time.Now(); now.Sub(h.looked) >= connectionsPeriod {
		h.looked = now
		h.sent = h.sending(weights)
	}
	all = append(all, h.sent...)
	return all[:min(len(all), maxHeldConnections)]
}

// ruleOf returns the limit of the first rule for one direction of an application's connections; ok is
// false if there is none. arbiter reports whether the application's limit on the disks holds the bytes
// already.
func ruleOf(weights *config.Weights, flow string, write bool) (limit int64, arbiter, ok bool) {
	for _, r := range weights.Connections {
		if policy.Match(r.Application, flow) && (r.Direction == "both" || write == (r.Direction == "write")) {
			// A limit on the disks that is not higher holds the application's bytes already.
			disk := weights.Policy(flow).Limit
			return int64(r.Limit), disk > 0 && disk <= int64(r.Limit), true
		}
	}
	return 0, false, false
}

// served returns the connections by which this machine's DataNodes send blocks.
func (h *holding) served(weights *config.Weights) (all []control.Connection) {
	for _, c := range h.daemon.connections.Snapshot(maxHeldConnections).Top {
		if c.Flow == "" || c.Write || c.PID == 0 || c.Inode == 0 {
			continue
		}
		limit, arbiter, ok := ruleOf(weights, c.Flow, false)
		if !ok {
			continue
		}
		start, err := processes.StartOf(c.PID)
		if err != nil {
			continue // the DataNode has ended
		}
		local, remote := pacing.Sender(connections.Ends{Server: c.Server, Client: c.Client}, false)
		s := pacing.Socket{PID: c.PID, Start: start, Inode: c.Inode, Local: local, Remote: remote}
		all = append(all, control.Connection{Socket: s, Flow: c.Flow, Limit: limit, Arbiter: arbiter})
	}
	return all
}

// sending returns the connections of this machine's containers to DataNodes of any machine. What a
// container sends on them is almost only the blocks that it writes.
func (h *holding) sending(weights *config.Weights) (all []control.Connection) {
	flows := map[uint64]string{} // by the socket's inode
	pids := map[uint64]int{}
	for pid, flow := range h.daemon.processes.flows() {
		if _, _, ok := ruleOf(weights, flow, true); !ok {
			continue
		}
		for _, inode := range socketsOf(pid) {
			flows[inode], pids[inode] = flow, pid
		}
	}
	if len(flows) == 0 {
		return nil
	}
	ports := h.daemon.connections.Snapshot(0).Ports
	if !slices.Contains(ports, dataNodePort) {
		ports = append(ports, dataNodePort)
	}
	for _, port := range ports {
		err := connections.Clients(port, func(s connections.Socket) bool {
			flow := flows[s.Inode]
			if flow == "" {
				return true
			}
			pid := pids[s.Inode]
			start, err := processes.StartOf(pid)
			if err != nil {
				return true
			}
			limit, arbiter, _ := ruleOf(weights, flow, true)
			local, remote := pacing.Sender(connections.Ends{Server: s.Server, Client: s.Client}, true)
			socket := pacing.Socket{PID: pid, Start: start, Inode: s.Inode, Local: local, Remote: remote}
			all = append(all, control.Connection{Socket: socket, Flow: flow, Limit: limit, Arbiter: arbiter})
			return len(all) < maxHeldConnections
		})
		if err != nil {
			h.daemon.limited.Once(slog.LevelWarn, "connections of containers are not held", "inet_diag", "error", err)
		}
	}
	return all
}

const (
	// maxHeldContainers is the maximum number of containers of applications that are held. The gate has room for two rules
	// for each of them, besides those of all other entries.
	maxHeldContainers = 128
	// maxHeldConnections is the maximum number of connections that are held.
	maxHeldConnections = 2000
	// dataNodePort is the usual port of DataNodes for blocks (dfs.datanode.address). A machine without a
	// DataNode does not know the configured port.
	dataNodePort = 9866
	// maxDescriptors is the maximum number of open files of a process that are examined.
	maxDescriptors = 16384
)

// socketsOf returns the inodes of a process's sockets.
func socketsOf(pid int) (inodes []uint64) {
	dir, err := os.Open(filepath.Join(procfs, strconv.Itoa(pid), "fd"))
	if err != nil {
		return nil // the process has ended, or this user may not list its files
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxDescriptors)
	for _, name := range names {
		target, err := os.Readlink(filepath.Join(dir.Name(), name))
		if err != nil {
			continue
		}
		text, ok := strings.CutPrefix(target, "socket:[")
		if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); ok && err == nil {
			inodes = append(inodes, inode)
		}
	}
	return inodes
}

// maxStatusHolds is the maximum number of holds in the status document.
const maxStatusHolds = 256

// controlStatus returns the state of kernel control.
func (d *Daemon) controlStatus() status.Control {
	d.mu.Lock()
	h := d.holding
	d.mu.Unlock()
	if h == nil {
		return status.Control{Mode: "off", Mechanisms: []status.Mechanism{}, Holds: []status.Hold{}}
	}
	return h.status()
}

func (h *holding) status() status.Control {
	c := h.controller()
	if c == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		return controlDocument(h.daemon.settings.Control.Mode, control.Status{Error: h.mistake})
	}
	s := c.Status()
	out := controlDocument(h.daemon.settings.Control.Mode, s)
	if g := s.Gate; g != nil {
		scheduled := h.scheduler.Stats()
		out.Gate = &status.Gate{Held: g.Held, Holding: g.Holding, Resident: g.Resident, Passed: g.Passed,
			Escaped: g.Mapped + g.Resized + g.Unidentified + g.UnknownOp, LetGo: g.LetGoFull + g.LetGoOpen + g.LetGoOld + g.Overflows, Opened: g.Openings,
			Ungoverned: scheduled.Ungoverned, Streams: scheduled.Streams}
	}
	return out
}

// controlDocument returns the state of kernel control in the form of the status document.
func controlDocument(mode string, s control.Status) status.Control {
	out := status.Control{Mode: mode, Enforced: s.Enforce, Changes: s.Changes, Restored: s.Restored, Error: s.Error,
		Mechanisms: []status.Mechanism{}, Holds: []status.Hold{}, LeftOff: max(0, len(s.Holds)-maxStatusHolds)}
	for _, m := range ladder.All() {
		out.Mechanisms = append(out.Mechanisms, status.Mechanism{Name: string(m), Available: s.Machine[m].OK, Why: s.Machine[m].Why})
	}
	if j := s.Joined; j != nil {
		joining := j.Document()
		out.Joining = &joining
	}
	for _, held := range s.Holds[:len(s.Holds)-out.LeftOff] {
		o := status.Hold{Flow: held.Flow, Where: held.Where, Held: held.Holds, Weight: held.Weight, Limit: held.Limit, Error: held.Error, Passed: []status.Rung{}}
		for _, step := range held.Steps {
			if step.Taken {
				o.Mechanism, o.Gap = string(step.Mechanism), step.Why
				continue
			}
			o.Passed = append(o.Passed, status.Rung{Mechanism: string(step.Mechanism), Why: step.Why})
		}
		out.Holds = append(out.Holds, o)
	}
	return out
}
