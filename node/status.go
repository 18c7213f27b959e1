package node

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"penstock/core/cost"
	"penstock/core/reserve"
	"penstock/node/device"
	"penstock/node/identity"
	"penstock/node/monitor"
	"penstock/node/status"
	"penstock/wire"
)

// Bounds on the flows in the status document: of one device, and of all devices together. Each
// device may show an equal part of maxStatusAllFlows, and at least minStatusFlows.
const (
	maxStatusFlows    = 256
	maxStatusAllFlows = 4096
	minStatusFlows    = 16
)

var roles = map[wire.Role]string{
	wire.RoleDataNode: "datanode", wire.RoleTask: "task", wire.RoleNodeManager: "nodemanager", wire.RoleExecutor: "executor",
	wire.RoleWorker: "worker",
}

func (d *Daemon) serveStatus(w http.ResponseWriter, _ *http.Request) {
	doc := d.status()
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetIndent("", " ")
	if err := out.Encode(doc); err != nil {
		d.log.Debug("status not sent", "error", err)
	}
}

// status returns the status document.
func (d *Daemon) status() status.Document {
	readings := d.readAll()
	tick, _ := d.Heartbeat()
	stalled := d.stalled()
	now := time.Now()
	stats := &d.server.Stats
	doc := status.Document{
		Version: status.Version, Build: d.Build, PID: os.Getpid(), Started: d.started, Time: now, MonotonicNS: monotonic(),
		Socket: d.settings.Socket, Users: slices.Sorted(maps.Keys(d.allowed)),
		Heartbeat: status.Heartbeat{Alive: len(stalled) == 0, Tick: tick, Stalled: stalled},
		SocketCounts: status.Socket{
			Refused: stats.Refused.Load(), Hurried: stats.Hurried.Load(), Displaced: stats.Displaced.Load(),
			BadFrames: stats.BadFrames.Load(), OpenErrors: stats.OpenErrors.Load(), OverBound: stats.OverBound.Load(),
			SlowPeers: stats.SlowPeers.Load(), LogSuppressed: d.limited.Suppressed.Load(),
		},
		Agents: []status.Agent{}, Devices: []status.Device{}, Silent: []string{},
	}
	doc.Loopback = d.loopbackStatus()
	d.mu.Lock()
	doc.Mode = d.mode.String()
	doc.KillSwitch = status.Switch{File: d.settings.KillSwitch, On: d.killed}
	doc.Weights = status.Weights{
		File: d.settings.Weights, Rules: len(d.weights.Rules), Default: d.weights.Default, Taken: d.reloads, Refused: d.refused, Error: d.mistake,
	}
	d.mu.Unlock()
	if c := d.settings.Broker; c != nil {
		s := d.cluster.State()
		doc.Cluster = status.Cluster{Node: c.Node, Broker: s.Broker, Answered: s.Answered, InForce: s.InForce, Policy: s.Policy,
			Reported: s.Entries, LeftOut: s.LeftOut, DelayNS: s.Delay.Nanoseconds(), Error: s.Mistake, Epoch: s.Epoch, Refused: s.Refused,
			Canary: s.Canary, ModeBound: s.Bound.String(), LimitsLapsed: s.Lapsed}
	}
	for _, a := range d.server.Agents() {
		doc.Agents = append(doc.Agents, status.Agent{
			PID: a.PID, UID: a.UID, Container: a.Container, Role: roles[a.Role], Flow: a.Flow, Agent: a.Name, Directories: append([]string{}, a.Directories...), Since: a.Since, Loopback: a.Loopback,
			Frames: int(a.Frames), Ungoverned: d.ungoverned(a.PID),
		})
	}
	doc.Identity = status.Identity{Mode: d.identity.Mode().String(), Claims: []status.Claims{}}
	d.identity.Stats.Verdicts(func(state identity.State, evidence identity.Evidence, claims int64) {
		doc.Identity.Claims = append(doc.Identity.Claims, status.Claims{Verdict: state.String(), Evidence: evidence.String(), Count: claims})
	})
	doc.Identity.Remote = d.remoteStatus()
	doc.Identity.Services = serviceStatus(d.identity.Rules())
	doc.ForeignWatch = d.users.status()
	doc.Connections, doc.Processes = d.connections.status(), d.processes.status()
	doc.Applications, doc.Machine = d.processes.applications(), d.machine
	doc.Control = d.controlStatus()
	doc.MissingCalls = status.MissingCalls()
	doc.Orchestrators = d.orchestratorStatus()
	bound := min(maxStatusFlows, max(minStatusFlows, maxStatusAllFlows/max(1, len(readings))))
	for _, r := range readings {
		dev := r.status(bound)
		dev.ForeignUsers, dev.Joined = d.users.of(r.dev.Name), d.joinedTo(r.governed)
		dev.Latencies = d.users.latenciesOf(r.dev.Name)
		doc.Devices = append(doc.Devices, dev)
		if !r.answered {
			doc.Silent = append(doc.Silent, r.dev.Name)
		}
	}
	return doc
}

// joinedTo returns the names of the devices that a device's scheduler governs as well.
func (d *Daemon) joinedTo(g *governed) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := []string{}
	for _, name := range slices.Sorted(maps.Keys(d.joins)) {
		if d.joins[name] == g {
			names = append(names, name)
		}
	}
	return names
}

// stalled returns the names of the devices whose loop does not answer.
func (d *Daemon) stalled() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := []string{}
	for name, g := range d.devices {
		if !g.loop.Alive() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// status returns the device's status, with at most bound flows.
func (r reading) status(bound int) status.Device {
	queue := monitor.ReadQueue(sysfs, r.dev.Name)
	s := status.Device{
		Name: r.dev.Name, Directories: append([]string{}, r.directories()...), Rotational: r.dev.Rotational, Answered: r.answered,
		Kernel: status.Kernel{
			Counted: r.counted, Scheduler: queue.Scheduler, Requests: queue.Requests,
			ReadaheadKB: queue.ReadaheadKB, RequestKB: queue.RequestKB, InFlight: r.counters.InFlight,
		},
		Algorithm: r.config.Algorithm, QuantumBytes: r.config.Quantum,
		BacklogBound: r.config.Backlog, DirtyBound: r.room.Load().dirty, LazyBound: r.room.Load().lazy, StagedBound: cmp.Or(r.staged.Load(), r.config.Staged),
		Profiled: r.config.Cost != (cost.Model{}),
		Flows:    []status.Flow{},
	}
	if !r.answered {
		return s
	}
	snap := r.snap
	s.Depth, s.Outstanding, s.BacklogBytes, s.StagedBytes = snap.Depth, snap.Outstanding, snap.Backlog, snap.Staged
	s.Free, s.PassingReads = snap.Free, snap.Passed
	s.StrictPart, s.StrictIdleNS = snap.StrictPart, int64(snap.StrictIdle)
	s.Stuck, s.Errors, s.SlowFactor = snap.Stuck, snap.Errors, max(1, snap.Slow.Factor)
	s.DepthMin, s.DepthMax = float64(snap.Depth), float64(snap.Depth)
	if c := snap.Control; c != nil {
		s.DepthMin, s.DepthMax = cmp.Or(r.config.Depth.Min, 1), cmp.Or(r.config.Depth.Max, 12) // the defaults of core/depth
		s.LatencyNS, s.ReferenceNS, s.OthersPart = int64(c.Latency), int64(c.Reference), c.Others
		s.Periods = status.Periods{Total: int64(c.Periods), AtMin: int64(c.AtMin), AtMax: int64(c.AtMax)}
	}
	r.mu.Lock()
	var windows []status.FlowWindow
	s.Window, windows = r.history.window(r)
	s.Foreign = status.Pair{Read: r.history.foreignBytes[0], Written: r.history.foreignBytes[1]}
	r.mu.Unlock()
	for i, f := range snap.Flows {
		s.Promised += f.Reserve.Promised
		s.Flows = append(s.Flows, status.Flow{
			Name: f.Name, Weight: f.Weight, Queue: f.Queue, Part: f.Part, Mode: f.Mode.String(), LimitBytes: f.Limit, LimitWaits: f.LimitWaits,
			Reserve: promise(f.Reserve), Latency: latencyGoal(f.Latency),
			Streams: f.Streams, Queued: f.Queued,
			BacklogBytes: f.Backlog, Bytes: status.Pair{Read: f.Bytes[0], Written: f.Bytes[1]},
			ResidentBytes: f.Resident, UnscheduledBytes: f.Behind, ServiceNS: int64(f.Service),
			Requests: f.Requests, Waits: f.Waits, Standing: f.Standing, Forced: f.Forced, ForcedBytes: f.ForcedBytes, Refused: f.Refused, WouldWaitNS: int64(f.WouldWait),
			StreamNS: int64(f.Stalls.Streams), WaitedNS: int64(f.Stalls.Waited), ContendedNS: int64(f.Stalls.Contended),
			Kinds: kinds(f), Lazy: status.Lazy{Files: f.Kept, DroppedFiles: f.Dropped, DroppedBytes: f.DroppedBytes}, Window: windows[i],
		})
	}
	slices.SortStableFunc(s.Flows, func(a, b status.Flow) int {
		return cmp.Or(cmp.Compare(b.Window.Share, a.Window.Share), cmp.Compare(b.ServiceNS, a.ServiceNS), strings.Compare(a.Name, b.Name))
	})
	if left := len(s.Flows) - bound; left > 0 {
		s.FlowsLeftOff, s.Flows = left, s.Flows[:bound]
	}
	return s
}

// kinds returns a flow's accounts.
func kinds(f device.FlowSnapshot) []status.Kind {
	all := make([]status.Kind, 0, len(f.Kinds))
	for _, k := range f.Kinds {
		all = append(all, status.Kind{
			Kind: k.Kind.String(), Streamed: status.Pair{Read: k.Streamed[0], Written: k.Streamed[1]}, RemoteBytes: k.Remote,
			Bytes: status.Pair{Read: k.Bytes[0], Written: k.Bytes[1]}, ServiceNS: int64(k.Service),
		})
	}
	return all
}

// monotonic returns CLOCK_MONOTONIC in nanoseconds, 0 if the kernel has none.
func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}

// promise returns the state of a flow's guaranteed rate.
func promise(r device.ReserveSnapshot) status.Reserve {
	if r.Rate == (reserve.Rate{}) {
		return status.Reserve{}
	}
	return status.Reserve{Rate: r.Rate, Promised: r.Promised, Bytes: r.Moved, State: r.Verdict.State.String(), Granted: r.Verdict.Granted, Fits: r.Verdict.Fits,
		KeptNS: int64(r.Kept), BrokenNS: int64(r.Broken)}
}

// latencyGoal returns the state of a flow's latency goal.
func latencyGoal(l device.LatencySnapshot) status.LatencyGoal {
	return status.LatencyGoal{GoalNS: int64(l.Goal), P99NS: int64(l.P99), Reads: l.Reads, Attained: l.Attained, Active: l.Active, SliceBytes: l.Slice, DepthBound: l.Depth, LeastNS: int64(l.Least)}
}

// serviceStatus returns the rules of named services.
func serviceStatus(rules []identity.Rule) []status.Service {
	all := make([]status.Service, 0, len(rules))
	for _, r := range rules {
		all = append(all, status.Service{Flow: r.Flow(), User: r.User, Program: r.Program, Client: r.Client})
	}
	return all
}
