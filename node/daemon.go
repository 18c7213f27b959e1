// Package node is the daemon that runs beside a DataNode: it takes streams from
// the agents (ipc), finds the block device under each data directory
// (blockfile), and gives each device a loop of its own (device). This file
// wires them together and keeps the operator's settings (config) in force.
//
// The daemon writes nothing to the system but its own socket. If it stops, is
// killed or hangs, agents see no heartbeat and let everything through.
package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"penstock/node/blockfile"
	"penstock/node/config"
	"penstock/node/device"
	"penstock/node/ipc"
	"penstock/wire"
)

const (
	maxDevices   = 256
	maxOpening   = 32 // files being opened at a time in one directory; each is a thread
	reloadPeriod = 250 * time.Millisecond
	sysfs        = "/sys"
)

// Daemon is one node's daemon.
type Daemon struct {
	settings *config.Node
	log      *slog.Logger
	allowed  map[uint32]bool
	server   *ipc.Server
	metrics  *metrics
	stride   uint32
	rights   sync.Once
	loaded   string // fingerprint of the weights file before it was last read

	mu      sync.Mutex
	mode    device.Mode
	weights *config.Weights
	killed  bool // the kill switch is on
	loops   map[string]*device.Loop
	run     func(*device.Loop) // starts a loop; set by Run
	ready   bool
	reloads int64 // weights files taken
	refused int64 // and refused
}

// New checks the settings and loads the weights.
func New(settings *config.Node, log *slog.Logger) (*Daemon, error) {
	loaded := fingerprint(settings.Weights)
	weights, err := config.LoadWeights(settings.Weights)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	d := &Daemon{
		settings: settings, log: log, weights: weights, loaded: loaded,
		allowed: map[uint32]bool{0: true, uint32(os.Geteuid()): true},
		loops:   map[string]*device.Loop{},
	}
	for _, name := range settings.Users {
		uid, err := userID(name)
		if err != nil {
			return nil, err
		}
		d.allowed[uid] = true
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
	d.mode = d.wantedMode()
	d.server = &ipc.Server{Opener: d, Allow: func(uid uint32) bool { return d.allowed[uid] }, Log: log}
	d.metrics = newMetrics(d)
	return d, nil
}

func userID(name string) (uint32, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(id), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("users: %w", err)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(id), err
}

// Run serves until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	gid := -1
	if d.settings.SocketGroup != "" {
		g, err := user.LookupGroup(d.settings.SocketGroup)
		if err != nil {
			return fmt.Errorf("socket_group: %w", err)
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return err
		}
	}
	mode, err := strconv.ParseUint(d.settings.SocketMode, 8, 32)
	if err != nil {
		return err
	}
	listener, err := ipc.Listen(d.settings.Socket, os.FileMode(mode), gid)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var web *webServer
	if d.settings.Listen != "off" {
		if web, err = d.serveHTTP(d.settings.Listen); err != nil {
			listener.Close()
			return err
		}
		defer web.close()
	}

	// The loops end after the connections, so that marks sent at the end still
	// find their way.
	loopCtx, stopLoops := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	d.mu.Lock()
	d.run = func(l *device.Loop) {
		loops.Add(1)
		go func() { defer loops.Done(); l.Run(loopCtx) }()
	}
	d.ready = true
	d.mu.Unlock()
	defer loops.Wait()
	defer stopLoops()

	d.checkKillSwitch() // before the first agent comes
	go d.watch(ctx)
	d.log.Info("ready", "socket", d.settings.Socket, "mode", d.currentMode().String(), "listen", web.address())
	err = d.server.Serve(ctx, listener)
	d.mu.Lock()
	d.ready = false
	d.mu.Unlock()
	d.log.Info("stopping: every mark opens")
	return err
}

// wantedMode is what the settings, the weights file and the kill switch say.
func (d *Daemon) wantedMode() device.Mode {
	if d.killed {
		return device.Off
	}
	name := d.settings.Mode
	if d.weights.Mode != "" {
		name = d.weights.Mode
	}
	mode, _ := device.ParseMode(name) // checked on load
	return mode
}

func (d *Daemon) currentMode() device.Mode {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode
}

// watch looks at the weights file and the kill switch four times a second. It
// compares what stat says, which works on every file system and through
// renames and links.
func (d *Daemon) watch(ctx context.Context) {
	ticker := time.NewTicker(reloadPeriod)
	defer ticker.Stop()
	for {
		d.checkKillSwitch()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := fingerprint(d.settings.Weights); now != d.loaded {
			d.loaded = now
			d.reload()
		}
	}
}

func fingerprint(path string) string {
	if path == "" {
		return ""
	}
	st, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(st.ModTime().UnixNano(), st.Size(), inode(st))
}

func (d *Daemon) reload() {
	weights, err := config.LoadWeights(d.settings.Weights)
	if err != nil {
		d.log.Error("weights file refused; the last good one stays in force", "error", err)
		d.mu.Lock()
		d.refused++
		d.mu.Unlock()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.weights = weights
	d.reloads++
	d.mode = d.wantedMode()
	d.apply()
	d.log.Info("weights reloaded", "rules", len(weights.Rules), "mode", d.mode.String())
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

// apply hands mode and policy to all loops; d.mu is held.
func (d *Daemon) apply() {
	for _, l := range d.loops {
		l.Apply(d.mode, d.weights.Policy)
	}
}

// loop finds or starts the device's loop.
func (d *Daemon) loop(dev blockfile.Device) (*device.Loop, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.loops[dev.Name]; l != nil {
		return l, nil
	}
	if d.run == nil || !d.ready {
		return nil, errors.New("the daemon is not running")
	}
	if len(d.loops) >= maxDevices {
		return nil, fmt.Errorf("more than %d devices", maxDevices)
	}
	c, err := d.settings.DeviceConfig(dev.Name, dev.Rotational)
	if err != nil {
		return nil, err
	}
	l, err := device.New(device.Options{
		Name: dev.Name, Config: c, Mode: d.mode, Policy: d.weights.Policy, Log: d.log,
		Latency: d.metrics.latencyOf(dev.Name),
	})
	if err != nil {
		return nil, err
	}
	d.loops[dev.Name] = l
	d.run(l)
	d.log.Info("device", "device", dev.Name, "rotational", dev.Rotational, "algorithm", c.Algorithm, "quantum", c.Quantum)
	return l, nil
}

// Heartbeat implements ipc.Opener.
func (d *Daemon) Heartbeat() (tick uint64, mode device.Mode, alive bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	alive = true
	for _, l := range d.loops {
		tick += l.Tick()
		alive = alive && l.Alive()
	}
	return tick, d.mode, alive
}

// Stride implements ipc.Opener.
func (d *Daemon) Stride() uint32 { return d.stride }

// Register implements ipc.Opener.
func (d *Daemon) Register(uid uint32, dirs []string) (ipc.Registration, error) {
	reg := &registration{daemon: d}
	for _, path := range dirs {
		// A directory that cannot be had is not governed; the others are.
		if err := reg.add(uid, path); err != nil {
			d.log.Warn("data directory not governed", "error", err)
		}
	}
	if len(reg.dirs) == 0 {
		return nil, errors.New("none of the agent's data directories may be governed")
	}
	return reg, nil
}

// registration is one agent's data directories.
type registration struct {
	daemon *Daemon
	dirs   []registered
}

type registered struct {
	*blockfile.Dir
	loop    *device.Loop
	opening chan struct{} // a place for each open under way
}

func (r *registration) add(uid uint32, path string) error {
	listed := r.daemon.settings.DataDirs
	dir, err := blockfile.OpenDir(path, sysfs)
	if err != nil {
		return err
	}
	if err := mayRegister(dir, uid, listed); err != nil {
		dir.Close()
		return err
	}
	loop, err := r.daemon.loop(dir.Device)
	if err != nil {
		dir.Close()
		return err
	}
	r.dirs = append(r.dirs, registered{dir, loop, make(chan struct{}, maxOpening)})
	// The longest path first: a directory may lie below another one's.
	slices.SortFunc(r.dirs, func(a, b registered) int { return len(b.Path) - len(a.Path) })
	return nil
}

// mayRegister holds a directory against the list in the settings or, without
// one, against the peer's own user.
func mayRegister(dir *blockfile.Dir, uid uint32, listed []string) error {
	if len(listed) > 0 {
		for _, l := range listed {
			if dir.Path == filepath.Clean(l) {
				return nil
			}
		}
		return fmt.Errorf("data directory %s is not in data_dirs of the settings", dir.Path)
	}
	owner, err := dir.Owner()
	if err != nil {
		return err
	}
	if owner != uid && uid != 0 {
		return fmt.Errorf("data directory %s belongs to user %d, not to %d: list it in data_dirs", dir.Path, owner, uid)
	}
	return nil
}

// Open implements ipc.Registration.
func (r *registration) Open(m wire.Open, marker device.Marker) (*device.Loop, *device.Stream, error) {
	for _, d := range r.dirs {
		if _, err := d.Rel(m.Block); err != nil {
			continue
		}
		d.opening <- struct{}{}
		defer func() { <-d.opening }()
		req := device.OpenRequest{
			Marker: marker, ID: m.Stream, Flow: m.Flow, Write: m.Direction == wire.Write, From: m.From, To: m.To,
		}
		block, err := d.Open(m.Block)
		if err != nil {
			return nil, nil, err
		}
		req.Block = block
		if _, err := block.Query(0, 1); err != nil {
			block.Close()
			r.daemon.warnRights(err)
			return nil, nil, err
		}
		if !req.Write {
			size, err := block.Size()
			if err == nil {
				err = block.PrepareStaging()
			}
			if err != nil {
				block.Close()
				return nil, nil, err
			}
			req.To = min(req.To, size)
		}
		if m.Meta != "" {
			// Without its meta file a block is governed all the same.
			if meta, err := d.Open(m.Meta); err == nil {
				if err := meta.PrepareStaging(); err == nil {
					req.Meta = meta
				} else {
					meta.Close()
				}
			}
		}
		return d.loop, d.loop.Open(req), nil
	}
	return nil, nil, fmt.Errorf("%s: %w", m.Block, blockfile.ErrOutside)
}

// warnRights says once, loudly, that nothing can be governed for want of a right.
func (d *Daemon) warnRights(err error) {
	if errors.Is(err, os.ErrPermission) {
		d.rights.Do(func() {
			d.log.Error("the page cache may not be asked about block files: streams go ungoverned; "+
				"run the daemon as the DataNode's user or with CAP_DAC_OVERRIDE", "error", err)
		})
	}
}

// Close implements ipc.Registration.
func (r *registration) Close() {
	for _, d := range r.dirs {
		d.Dir.Close()
	}
}

func (w *webServer) address() string {
	if w == nil {
		return "off"
	}
	return w.listener.Addr().(*net.TCPAddr).String()
}
