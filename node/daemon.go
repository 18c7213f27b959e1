// Package node is the daemon that runs on the machine of a DataNode. It accepts streams from the
// agents (ipc), finds the block device under each data directory (blockfile), and gives each device
// a loop of its own (device). This file connects these packages and keeps the operator's settings
// (config) in force.
//
// The daemon writes nothing to the system except its own socket and an empty lock file next to
// it (and a file with its loopback port, if the settings have one), unless the settings allow kernel control (control). If it stops, is killed or hangs, agents see no heartbeat and hold nothing back.
package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"penstock/core/arbiter"
	"penstock/core/cost"
	"penstock/node/blockfile"
	"penstock/node/config"
	"penstock/node/coordination"
	"penstock/node/device"
	"penstock/node/deviceplugin"
	"penstock/node/identity"
	"penstock/node/ipc"
	"penstock/node/loglimit"
	"penstock/node/monitor"
	"penstock/node/monitor/connections"
	"penstock/node/mounts"
	"penstock/node/orchestrators"
	"penstock/node/peers"
	"penstock/node/profile"
	"penstock/node/status"
	files "penstock/settings"
	"penstock/wire"
)

const (
	maxDevices = 256
	maxOpening = 32 // files being opened at a time in one directory of a server, or for all tasks on one device; each occupies a thread
	// maxPeerOpening is the maximum for a single task, so that a task that keeps opening files
	// leaves most of a device's slots to others.
	maxPeerOpening = 4
	reloadPeriod   = 250 * time.Millisecond
	stopWait       = 5 * time.Second // the longest wait for requests in flight when the daemon stops
	sysfs          = "/sys"
	procfs         = "/proc"
)

// Daemon is one node's daemon.
type Daemon struct {
	Build string // the program's build, as the status shows it; set before Run
	// Peers create the schedulers of algorithms that the daemon is compared with; set before Run.
	Peers map[string]func(maxFlows int) arbiter.Scheduler
	// GateCommand starts this program as the gate's processes, with a last word of package gate; set
	// before Run.
	GateCommand []string

	settings *config.Node
	log      *slog.Logger
	limited  *loglimit.Limiter // for messages that peers can cause
	allowed  map[uint32]bool   // users that may connect in any role
	// taskUsers may connect only as tasks and executors; allTasks: all users may.
	taskUsers map[uint32]bool
	allTasks  bool
	server    *ipc.Server
	loopback  atomic.Pointer[string] // address for agents without Unix sockets; nil: none, or not yet
	// Descriptors used by files and directories of servers and of tasks.
	serverFiles, taskFiles ipc.Quota
	identity               *identity.Checker
	written                writtenBlocks
	users                  *users
	connections            *connectionWatch
	processes              *processWatch
	metrics                *metrics
	orchestrators          *orchestrators.Directory // nil: the settings name none
	devicePlugin           *deviceplugin.Plugin     // nil: this machine's bandwidth is not offered to a kubelet
	holding                *holding                 // nil: nothing but agents is governed; set by Run
	cluster                *coordination.Client     // nil: no brokers
	asking                 *peers.Client            // nil: this daemon asks no other nodes
	remote                 *peers.Client            // the same, or nil if claims are not verified
	answers                *peers.Server            // nil: this daemon answers no other nodes
	calls                  mounts.Calls             // calls on file systems that may hang
	taskCalls              mounts.Calls             // those for directories that tasks name: a link there may lead to a file system that hangs
	storage                *storage                 // nil: tasks take no turns at storage servers
	stride                 uint32
	rights                 [2]sync.Once // log a missing permission once: for servers, for tasks
	sending                uint32       // stride of processes that send
	loaded                 string       // fingerprint of the weights file just before it was last read
	started                time.Time
	machine                status.Machine

	mu      sync.Mutex
	mode    device.Mode
	weights *config.Weights
	killed  bool        // the kill switch is on
	bound   device.Mode // the strongest mode that the cluster's policy allows
	devices map[string]*governed
	// endedTicks are the ticks of loops that have ended.
	endedTicks uint64
	// registrations are those of the connected agents.
	registrations map[*registration]struct{}
	joins         map[string]*governed // by name: devices that have no loop because another device shares their disks
	// localDirs are the directories in the settings and those that NodeManagers have reported;
	// dirsMu protects them.
	dirsMu    sync.Mutex
	localDirs map[string]bool
	run       func(*governed) // starts a device's goroutines; set by Run
	ready     bool
	reloads   int64                         // weights files accepted
	granted   map[string]coordination.Right // grants of the cluster's policy
	queues    map[string]*device.Queue      // each flow's queue according to that policy
	refused   int64                         // weights files refused
	mistake   string                        // error in the weights file, while the last good file is in force
}

// New checks the settings and loads the weights.
func New(settings *config.Node, log *slog.Logger) (*Daemon, error) {
	loaded := files.Fingerprint(settings.Weights)
	weights, err := config.LoadWeights(settings.Weights)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	d := &Daemon{
		settings: settings, log: log, weights: weights, loaded: loaded,
		allowed:   map[uint32]bool{0: true, uint32(os.Geteuid()): true},
		taskUsers: map[uint32]bool{}, devices: map[string]*governed{}, registrations: map[*registration]struct{}{}, joins: map[string]*governed{}, localDirs: map[string]bool{}, started: time.Now(), machine: thisMachine(),
		bound: device.Enforce,
	}
	for _, name := range settings.Users {
		uid, err := config.UserID(name)
		if err != nil {
			return nil, fmt.Errorf("users: %w", err)
		}
		d.allowed[uid] = true
	}
	for _, name := range settings.TaskUsers {
		if name == "*" {
			d.allTasks = true
			continue
		}
		uid, err := config.UserID(name)
		if err != nil {
			return nil, fmt.Errorf("task_users: %w", err)
		}
		d.taskUsers[uid] = true
	}
	common, err := settings.DeviceConfig("", true)
	if err != nil {
		return nil, err
	}
	d.stride = common.Stride()
	for name := range settings.Devices {
		c, err := settings.DeviceConfig(name, true)
		if err != nil {
			return nil, err
		}
		d.stride = min(d.stride, c.Stride())
	}
	network, err := settings.NetworkConfig()
	if err != nil {
		return nil, err
	}
	if d.sending = d.stride; network.Rate > 0 {
		d.sending = min(d.stride, network.Stride())
	}
	d.mode = d.wantedMode()
	d.storage = newStorage(d)
	checks, err := settings.IdentitySettings()
	if err != nil {
		return nil, err
	}
	checks.Log, checks.Calls, checks.ServiceUIDs = log, &d.calls, serviceUIDs(checks.Services, log)
	checks.Rules, checks.Written = weights.IdentityRules(), d.written.verified
	if err := d.newRemote(); err != nil {
		return nil, err
	}
	if d.remote != nil {
		checks.Remote = d.remote
	}
	d.processes = newProcessWatch(settings.Identity.Cgroup)
	if d.orchestrators = d.newOrchestrators(settings.Orchestrators); d.orchestrators != nil {
		checks.Containers = evidence{d.orchestrators}
	}
	d.devicePlugin = d.newDevicePlugin(settings.Orchestrators)
	d.identity = identity.New(checks)
	for _, dir := range settings.LocalDirs {
		d.localDirs[clean(dir)] = true
	}
	d.limited = loglimit.New(log)
	d.server = &ipc.Server{Opener: d, Allow: d.allow, Container: d.identity.Container, Holder: d.identity.Holder, Log: log, Limited: d.limited}
	if err := d.setBounds(); err != nil {
		return nil, err
	}
	d.users = newUsers(log)
	d.users.names = d.orchestrators
	d.processes.nameBy(d.orchestrators)
	d.connections = &connectionWatch{Watch: connections.New()}
	d.connections.CountBypass(d.bypass)
	d.metrics = newMetrics(d)
	d.cluster, err = d.newCoordination(settings.Broker)
	return d, err
}

// setBounds divides the process's file descriptors among connections, servers and tasks. The soft
// limit equals the hard limit: Go's package os has raised the soft limit.
func (d *Daemon) setBounds() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit on open files: %w", err)
	}
	b := ipc.BoundsFor(limit.Cur)
	d.server.Bounds = b
	d.serverFiles.Bound, d.serverFiles.Container = b.ServerFiles, b.ServerFiles
	d.taskFiles.Bound, d.taskFiles.Container = b.TaskFiles, b.TaskFiles/4
	return nil
}

// allow implements ipc.Server's Allow.
func (d *Daemon) allow(uid uint32, role wire.Role) bool {
	return d.allowed[uid] || !ipc.Serves(role) && (d.allTasks || d.taskUsers[uid])
}

// serviceUIDs returns the ids of those service users that exist on this machine. The settings may
// name other users, because tokens are valid in the whole cluster; no process on this machine
// belongs to such a user.
func serviceUIDs(services []string, log *slog.Logger) (uids []uint32) {
	for _, name := range services {
		uid, err := config.UserID(identity.ShortName(name))
		if err != nil {
			log.Warn("this service user is unknown on this machine: its claims are confirmed by tokens only", "identity.services", name, "error", err)
			continue
		}
		uids = append(uids, uid)
	}
	return uids
}

// listenForAgents opens the agents' socket with the permissions of the settings.
func (d *Daemon) listenForAgents() (*net.UnixListener, error) {
	gid := -1
	if d.settings.SocketGroup != "" {
		g, err := user.LookupGroup(d.settings.SocketGroup)
		if err != nil {
			return nil, fmt.Errorf("socket_group: %w", err)
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return nil, err
		}
	}
	mode, err := strconv.ParseUint(d.settings.SocketMode, 8, 32)
	if err != nil {
		return nil, err
	}
	return ipc.Listen(d.settings.Socket, os.FileMode(mode), gid)
}

// wantedMode returns the mode according to the settings, the weights file, the kill switch and the cluster's policy.
func (d *Daemon) wantedMode() device.Mode {
	if d.killed {
		return device.Off
	}
	name := d.settings.Mode
	if d.weights.Mode != "" {
		name = d.weights.Mode
	}
	mode, _ := device.ParseMode(name) // checked on load
	return min(mode, d.bound)
}

func (d *Daemon) currentMode() device.Mode {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode
}

// watch checks the weights file and the kill switch four times a second. It compares results of
// stat: this works on every file system, even if the file has been replaced or is a link.
func (d *Daemon) watch(ctx context.Context) {
	ticker := time.NewTicker(reloadPeriod)
	defer ticker.Stop()
	for turn := 1; ; turn++ {
		d.checkKillSwitch()
		if turn%roomEvery == 0 {
			d.shareRoom()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := files.Fingerprint(d.settings.Weights); now != d.loaded {
			d.loaded = now
			d.reload()
		}
	}
}

func (d *Daemon) reload() {
	weights, err := config.LoadWeights(d.settings.Weights)
	if err != nil {
		d.log.Error("weights file refused; the last good one stays in force", "error", err)
		d.mu.Lock()
		d.refused++
		d.mistake = err.Error()
		d.mu.Unlock()
		return
	}
	logWarnings(d.log, d.settings.Weights, weights)
	d.identity.SetRules(weights.IdentityRules())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.weights = weights
	d.reloads++
	d.mistake = ""
	d.mode = d.wantedMode()
	d.apply()
	d.log.Info("weights reloaded", "rules", len(weights.Rules), "mode", d.mode.String())
}

// logWarnings warns of rules that have no effect.
func logWarnings(log *slog.Logger, file string, weights *config.Weights) {
	const most = 20
	for i, w := range weights.Warnings() {
		if i == most {
			log.Warn("more rules of the weights file have no effect; `penstock node run --check` lists them", "file", file)
			return
		}
		log.Warn("a rule of the weights file has no effect", "file", file, "rule", w)
	}
}

func (d *Daemon) checkKillSwitch() {
	_, err := os.Stat(d.settings.KillSwitch)
	on := err == nil || !errors.Is(err, fs.ErrNotExist)
	d.mu.Lock()
	defer d.mu.Unlock()
	if on == d.killed {
		return
	}
	d.killed = on
	d.mode = d.wantedMode()
	d.apply()
	d.log.Warn("kill switch", "on", on, "file", d.settings.KillSwitch, "mode", d.mode.String())
}

// apply makes every loop use the rules in force, without waiting for a loop. d.mu is held.
func (d *Daemon) apply() {
	if d.holding != nil {
		signal(d.holding.changed)
	}
	for _, g := range d.devices {
		signal(g.rulesChanged)
	}
}

// rules returns the mode and the policy in force.
func (d *Daemon) rules() (device.Mode, device.Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode, d.policy()
}

// deviceNames returns the names of the governed devices.
func (d *Daemon) deviceNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.devices))
}

// device returns the governed block device of a directory. It starts the device's loop if the device has none yet. The
// device has the directory until addDir takes it away; if dir is empty, the device is kept for as long as the daemon runs.
func (d *Daemon) device(dev blockfile.Device, dir string) (*governed, error) {
	return d.govern(dev, dir, countersOf(dev.Name), func() (device.Config, error) { return d.deviceConfig(dev) })
}

// network returns the device for sent data. It starts the device's loop if the device has none yet.
func (d *Daemon) network() (*governed, error) {
	return d.govern(blockfile.Device{Name: device.NetworkName}, "", nil, d.settings.NetworkConfig)
}

func (d *Daemon) deviceConfig(dev blockfile.Device) (device.Config, error) {
	id, err := profile.Identify(sysfs, dev.Name)
	if err != nil { // no block device, as under a memory file system
		id = profile.Device{Name: dev.Name, Rotational: dev.Rotational}
	}
	c, misfit, err := d.settings.ConfigFor(id)
	if d.cluster != nil {
		c.WeightScale = partScale
	}
	if misfit != nil {
		d.log.Error("profile not used; costs come from the reference latencies", "device", dev.Name, "error", misfit)
	}
	return c, err
}

// govern returns the governed device of dev: the one of that name, another one for a device that
// joins it, or a new one, whose loop it starts. dir is a directory on the device; if it is empty, the device is kept
// for as long as the daemon runs.
func (d *Daemon) govern(dev blockfile.Device, dir string, counters func() (device.Counters, bool), config func() (device.Config, error)) (*governed, error) {
	d.mu.Lock()
	d.dropGone()
	g, warn, err := d.governLocked(dev, counters, config)
	switch {
	case err != nil:
	case dir == "":
		g.kept = true
	default:
		g.addDir(dir, 1)
	}
	d.mu.Unlock()
	if warn != "" { // not under the lock, which heartbeats need
		d.limited.Once(slog.LevelWarn, warn, dev.Name, "device", dev.Name, "disks", dev.Disks, "governed as", g.dev.Name, "its disks", g.dev.Disks)
	}
	return g, err
}

// dropGone ends the loop of each device without directories that is gone, or that another disk has replaced: the other
// disk may have other costs. d.mu is held.
func (d *Daemon) dropGone() {
	for name, g := range d.devices {
		if g.kept || g.disk == (profile.Device{}) || len(g.directories()) > 0 {
			continue
		}
		if now, err := profile.Identify(sysfs, name); err == nil && now == g.disk {
			continue
		}
		g.stop()
		delete(d.devices, name)
		d.endedTicks += g.loop.Tick()
		maps.DeleteFunc(d.joins, func(_ string, with *governed) bool { return with == g })
		d.log.Info("the device is gone", "device", name)
	}
}

// Messages about devices that share disks. Two schedulers for one disk would each give all of it
// away.
const (
	joinedDevice = "the device shares disks with another one, whose scheduler and settings govern both; I/O that passes beside the other device's counters is not seen as foreign"
	besideDevice = "a device of several disks is governed on its own, although it has this disk as well: shares hold for each of the two only; register the disk's directories first"
)

func (d *Daemon) governLocked(dev blockfile.Device, counters func() (device.Counters, bool), config func() (device.Config, error)) (g *governed, warn string, err error) {
	if g = d.devices[dev.Name]; g != nil {
		return g, "", nil
	}
	if g = d.joins[dev.Name]; g != nil {
		return g, "", nil
	}
	for _, name := range slices.Sorted(maps.Keys(d.devices)) {
		other := d.devices[name]
		switch {
		case !other.dev.Overlaps(dev):
		case len(dev.Disks) == 1:
			// A single disk has its own settings and counters, whatever was registered before it.
			warn = besideDevice
		default:
			d.joins[dev.Name] = other
			return other, joinedDevice, nil
		}
	}
	g, err = d.startDevice(dev, counters, config)
	if err != nil {
		warn = ""
	}
	return g, warn, err
}

// startDevice starts the loop of a device. The caller holds d.mu.
func (d *Daemon) startDevice(dev blockfile.Device, counters func() (device.Counters, bool), config func() (device.Config, error)) (*governed, error) {
	if d.run == nil || !d.ready {
		return nil, errors.New("the daemon is not running")
	}
	if len(d.devices) >= maxDevices {
		return nil, fmt.Errorf("already %d devices", maxDevices)
	}
	c, err := config()
	if err != nil {
		return nil, err
	}
	l, err := device.New(device.Options{
		Name: dev.Name, Config: c, Mode: d.mode, Policy: d.policy(), Log: d.log, Activity: activityOf(dev.Name),
		Latency: d.metrics.latencyOf(dev.Name), Counters: counters, Scheduler: d.Peers[c.Algorithm],
	})
	if err != nil {
		return nil, err
	}
	g := newGoverned(dev, c, l)
	if id, err := profile.Identify(sysfs, dev.Name); err == nil {
		g.disk = id
	}
	d.devices[dev.Name] = g
	d.run(g)
	d.log.Info("device", "device", dev.Name, "rotational", dev.Rotational, "algorithm", c.Algorithm, "quantum", c.Quantum, "profiled", c.Cost != (cost.Model{}))
	return g, nil
}

func countersOf(name string) func() (device.Counters, bool) {
	return func() (device.Counters, bool) {
		c, err := monitor.Read(sysfs, name)
		return device.Counters{
			Requests: [2]int64{c.Reads, c.Writes}, Bytes: [2]int64{c.ReadBytes, c.WrittenBytes},
		}, err == nil
	}
}

// activityOf returns the function that reads a device's activity.
func activityOf(name string) func() (device.Activity, bool) {
	counters := countersOf(name)
	return func() (a device.Activity, ok bool) {
		var err error
		if a.Reading, a.Writing, err = monitor.InFlight(sysfs, name); err != nil {
			return a, false
		}
		a.Counters, ok = counters()
		return a, ok
	}
}

// Heartbeat implements ipc.Opener.
func (d *Daemon) Heartbeat() (tick uint64, mode device.Mode) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tick = d.endedTicks
	for _, g := range d.devices {
		tick += g.loop.Tick()
	}
	return tick, d.mode
}

// networkAlive returns true if the network's loop runs or does not exist yet.
func (d *Daemon) networkAlive() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.devices[device.NetworkName]
	return g == nil || g.loop.Alive()
}

// Stride implements ipc.Opener.
func (d *Daemon) Stride(role wire.Role) uint32 {
	if role == wire.RoleDataNode || role == wire.RoleTask {
		return d.stride
	}
	return d.sending
}
