package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/ipc"
	"penstock/node/monitor/connections"
	"penstock/node/mounts"
	"penstock/node/status"
	"penstock/node/turns"
	"penstock/wire"
)

// This file registers the directories that are governed for an agent (see directories.go), and
// opens the files of its streams there.

// maxTaskDirs is the maximum number of directories of a task or an executor; each directory may need a
// descriptor. YARN has one directory for each local disk.
const maxTaskDirs = 64

// maxPosition is the largest position at which a stream may begin, in bytes. It is so small that
// sums of a position and a length do not overflow.
const maxPosition = 1 << 50

// maxSend is the maximum length of one sent stream, in bytes. The agent states the length, and
// there is no file to check the statement against; without the maximum, a few huge lengths would
// overflow the accounts. Bytes beyond the maximum are neither counted nor held back.
const maxSend = 1 << 40

// Register implements ipc.Opener. It waits for no disk longer than introduction.
func (d *Daemon) Register(p ipc.Peer) (ipc.Registration, error) {
	role := p.Hello.Role
	reg := &registration{
		daemon: d, role: role, uid: p.UID, pid: p.PID, owner: p.Owner, files: &d.taskFiles, disconnect: p.Disconnect,
		threads: int(p.Hello.Threads), connections: d.connections.NewAgent(int(p.PID)), noLongerFree: make(chan struct{}, 1),
		ungoverned: map[string]error{},
	}
	reg.closed, reg.close = context.WithCancel(context.Background())
	user := fmt.Sprintf("user %d", p.UID)
	dirs := p.Hello.Directories
	reg.numbers = make([]uint8, len(dirs)) // so far, no directory has a device
	if ipc.Serves(role) {
		reg.files = &d.serverFiles
	} else {
		reg.opening = make(chan struct{}, maxPeerOpening)
		if len(dirs) > maxTaskDirs {
			d.limited.Once(slog.LevelWarn, "directories not governed: too many", user, "pid", p.PID, "bound", maxTaskDirs, "of", len(dirs))
			dirs = dirs[:maxTaskDirs]
		}
	}
	finding := make(chan []finding, 1)
	go func() { finding <- reg.findAll(directoryOwnerOf(p), dirs) }()
	own, serves, leave, err := d.introduce(p)
	found := <-finding
	if err != nil {
		reg.close()
		return nil, err
	}
	reg.own, reg.leave = own, leave
	hangs := false
	for i, path := range dirs {
		// A directory that cannot be opened is not governed; the others are.
		g, err := reg.add(path, found[i])
		if err != nil {
			hangs = hangs || errors.Is(err, mounts.ErrHangs)
			d.limited.Once(slog.LevelWarn, "directory not governed", user, "pid", p.PID, "error", err)
			continue
		}
		reg.numbers[i] = reg.number(g)
	}
	// An agent that only sends data needs no directory, nor does a task that takes turns: its local
	// directories may be on the parallel file system.
	if len(reg.dirs) == 0 && !hangs && (role == wire.RoleDataNode || role == wire.RoleTask && d.storage == nil) {
		reg.Close()
		return nil, errors.New("none of the agent's directories can be governed")
	}
	d.processes.enter(reg, p)
	d.mu.Lock()
	d.registrations[reg] = struct{}{}
	if d.holding != nil {
		signal(d.holding.changed) // the process has an agent, and must not be held otherwise
	}
	d.mu.Unlock()
	if serves && role == wire.RoleDataNode && reg.ownsAll(p.UID) {
		// Balancers and movers run as the DataNode's user, in JVMs without an agent. The owner of
		// the directories is checked because other users that may connect, such as the
		// NodeManager's, can register directories that the settings list.
		d.identity.AddServiceUID(p.UID)
	}
	return reg, nil
}

// finding is the result of the search for a directory.
type finding struct {
	directory
	err error
}

// findAll searches for directories at the same time, so that a disk that hangs delays no other one.
func (r *registration) findAll(o directoryOwner, paths []string) []finding {
	r.peer = o
	all := make([]finding, len(paths))
	var searches sync.WaitGroup
	for i, path := range paths {
		searches.Go(func() { all[i].directory, all[i].err = r.daemon.findDirectory(o, path, introduction) })
	}
	searches.Wait()
	return all
}

// ownsAll reports whether the directories belong to the user, as those of a DataNode do.
func (r *registration) ownsAll(uid uint32) bool {
	for _, d := range r.dirs {
		if d.Owner() != uid {
			return false
		}
	}
	return len(r.dirs) > 0
}

// registration is one agent's directories.
type registration struct {
	daemon  *Daemon
	role    wire.Role
	uid     uint32
	pid     int32
	peer    directoryOwner
	owner   ipc.Owner
	files   *ipc.Quota // descriptors used by its directories and files
	threads int        // threads that serve its operations; 0: not known
	own     string     // flow of all its streams, if it works for one application
	leave   func()
	dirs    []registered
	// opening limits how many files are opened at a time for a single task, since all tasks share
	// the limit of a device. It is nil for a server, which has a limit of its own in each
	// directory.
	opening chan struct{}
	// devices are the devices of the directories; the agent knows devices[i] by the number i+1.
	devices []*governed
	// noLongerFree is signalled when one of the devices stops being free; unwatch ends that.
	noLongerFree chan struct{}
	unwatch      []func()
	numbers      []uint8 // for each directory of the hello, its device's number; 0: the directory is not governed
	// desk gives turns at storage servers; nil until the first one.
	deskOnce sync.Once
	desk     *turns.Desk
	// connections records the connections that a DataNode's streams serve.
	connections *connections.Agent

	disconnect func()          // ends the connection; the agent connects again
	closed     context.Context // ended by close, which Close calls
	close      context.CancelFunc

	mu         sync.Mutex
	ungoverned map[string]error // directories that are not governed, and why
	again      []string         // those of them that are looked for again; nil: lookForDirectories does not run
}

type registered struct {
	directory
	device  *governed
	opening chan struct{} // limits how many files are opened at a time
}

// add registers a directory that was found.
func (r *registration) add(path string, f finding) (g *governed, err error) {
	if i := slices.IndexFunc(r.dirs, func(d registered) bool { return d.within == clean(path) }); i >= 0 {
		return r.dirs[i].device, nil
	}
	if f.err != nil {
		r.lose(path, f.err)
		return nil, f.err
	}
	defer func() {
		if err != nil {
			r.mu.Lock()
			r.ungoverned[path] = err
			r.mu.Unlock()
		}
	}()
	// Files are opened there through one descriptor at a time.
	if !r.files.Take(r.owner) {
		return nil, fmt.Errorf("directory %s: too many open files and directories: %w", path, ipc.ErrBound)
	}
	dev, err := r.daemon.device(f.Device, f.Path)
	if err != nil {
		r.files.Give(r.owner)
		return nil, err
	}
	opening := dev.opening
	if ipc.Serves(r.role) {
		opening = make(chan struct{}, maxOpening)
	}
	r.dirs = append(r.dirs, registered{f.directory, dev, opening})
	// The longest path first: a directory may be below another one.
	slices.SortStableFunc(r.dirs, func(a, b registered) int { return len(b.within) - len(a.within) })
	return dev, nil
}

// Pauses between searches for a directory that is not governed: the first one, and the longest. Each is twice the one
// before.
const (
	searchFirst = time.Second
	searchMost  = time.Minute
	// searchPatience is shorter than the patience of Register, so that a directory that is found here is found there.
	searchPatience = introduction / 2
)

// lose records that a directory is not governed because it was not found. The search for it goes on.
func (r *registration) lose(path string, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.ungoverned[path]; known && slices.Contains(r.again, path) {
		return
	}
	r.ungoverned[path] = why
	if r.again = append(r.again, path); len(r.again) == 1 {
		go r.lookForDirectories()
	}
}

// lookForDirectories looks again and again for directories that were not found: their disk did not answer, or
// their file system was not mounted. When it finds one, it disconnects the agent, which connects again and registers
// its directories.
func (r *registration) lookForDirectories() {
	for pause := searchFirst; ; pause = min(2*pause, searchMost) {
		select {
		case <-r.closed.Done():
			return
		case <-time.After(pause):
		}
		r.mu.Lock()
		paths := slices.Clone(r.again)
		r.mu.Unlock()
		for _, path := range paths {
			if _, err := r.daemon.findDirectory(r.peer, path, searchPatience); err != nil || r.closed.Err() != nil {
				continue
			}
			r.daemon.limited.Some(manyLines, slog.LevelInfo, "a directory was found that was not governed; disconnecting its agent, which then registers it",
				fmt.Sprintf("user %d", r.uid), "pid", r.pid, "directory", path)
			r.disconnect()
			return
		}
	}
}

// status returns the directories that are not governed.
func (r *registration) status() (all []status.Ungoverned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(r.ungoverned)) {
		u := status.Ungoverned{Directory: path, Cause: status.Other, Reason: r.ungoverned[path].Error()}
		switch err := r.ungoverned[path]; {
		case errors.Is(err, mounts.ErrHangs):
			u.Cause = status.Hangs
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, blockfile.ErrMoved):
			u.Cause = status.Absent
		case errors.Is(err, errNotListed):
			u.Cause = status.NotListed
		}
		all = append(all, u)
	}
	return all
}

// ungoverned returns the directories of the process's agent that are not governed.
func (d *Daemon) ungoverned(pid int32) []status.Ungoverned {
	all := []status.Ungoverned{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := range d.registrations {
		if r.pid == pid {
			all = append(all, r.status()...)
		}
	}
	return all
}

// number returns the device's number for the agent. Devices beyond wire.MaxDevice share the last
// number. The agent sees these devices as alive only while all of them are alive.
func (r *registration) number(g *governed) uint8 {
	i := slices.Index(r.devices, g)
	if i < 0 {
		i = len(r.devices)
		r.devices = append(r.devices, g)
		r.unwatch = append(r.unwatch, g.loop.WatchFree(r.noLongerFree))
	}
	return uint8(min(i+1, wire.MaxDevice))
}

// Devices implements ipc.Registration.
func (r *registration) Devices() []uint8 { return r.numbers }

// Alive implements ipc.Registration.
func (r *registration) Alive() (alive uint64) {
	var stalled uint64
	for i, g := range r.devices {
		bit := uint64(1) << min(i+1, wire.MaxDevice)
		alive |= bit
		if !g.loop.Alive() {
			stalled |= bit
		}
	}
	if r.daemon.networkAlive() {
		alive |= 1 << wire.NetworkDevice
	}
	return alive &^ stalled
}

// Free implements ipc.Registration. Devices that share a number are free if all of them are.
func (r *registration) Free() (free uint64) {
	var used uint64
	for i, g := range r.devices {
		bit := uint64(1) << min(i+1, wire.MaxDevice)
		free |= bit
		if !g.loop.Free() {
			used |= bit
		}
	}
	return free &^ used
}

// NoLongerFree implements ipc.Registration.
func (r *registration) NoLongerFree() <-chan struct{} { return r.noLongerFree }

// Open implements ipc.Registration.
func (r *registration) Open(m wire.Open, marker device.Marker) (ipc.Stream, error) {
	if isTurn(r.role, m) {
		return r.openTurn(m, marker)
	}
	flow, user, claim := r.own, "", (*claim)(nil)
	block := r.blockOf(m)
	written := r.daemon.written.begin(int(r.pid), block)
	if ipc.Serves(r.role) {
		flow, user, claim = r.daemon.attribute(m, block, written)
	}
	use := r.connectionOf(m, flow)
	loop, stream, err := r.open(flow, user, claim != nil, m, marker, func() { use.Close(); written.end() })
	if err != nil {
		use.Close()
		written.end()
		return nil, err
	}
	claim.opened(r.daemon.identity.Mode(), loop, stream, use)
	return stream, nil
}

func (r *registration) open(flow, user string, asked bool, m wire.Open, marker device.Marker, closed func()) (*device.Loop, *device.Stream, error) {
	req := device.OpenRequest{
		Marker: marker, ID: m.Stream, Flow: flow, Asked: asked, Kind: device.Kind(m.Kind), Write: m.Direction == wire.Write, Remote: r.remote(m), From: m.From, To: m.To,
		Patience: r.patience(m), User: turnOf(flow, user), Refusable: m.Refusable && r.role == wire.RoleDataNode, Threads: r.threads, Passing: m.Passing,
	}
	if m.From < 0 || m.From > maxPosition {
		return nil, nil, fmt.Errorf("stream from byte %d of %s: no file is that long", m.From, m.Path)
	}
	if m.Kind == wire.Network {
		if r.role != wire.RoleNodeManager {
			return nil, nil, errors.New("only a NodeManager may send for applications")
		}
		if m.To == 0 || m.To-m.From > maxSend {
			req.To = m.From + maxSend
		}
		g, err := r.daemon.network()
		if err != nil {
			return nil, nil, err
		}
		return g.loop, g.loop.Open(req), nil
	}
	if err := r.mayHaveMeta(m); err != nil {
		return nil, nil, err
	}
	for _, d := range r.dirs {
		if !below(m.Path, d.within) {
			continue
		}
		if r.opening != nil {
			r.opening <- struct{}{}
			defer func() { <-r.opening }()
		}
		d.opening <- struct{}{}
		defer func() { <-d.opening }()
		if err := r.openFiles(&req, d.Dir, m, closed); err != nil {
			if errors.Is(err, blockfile.ErrMoved) {
				r.lose(d.within, err)
			}
			return nil, nil, err
		}
		return d.device.loop, d.device.loop.Open(req), nil
	}
	return nil, nil, &os.PathError{Op: "open", Path: m.Path, Err: blockfile.ErrOutside}
}

// patience returns the longest wait that the stream's client accepts, as the DataNode reports it. 0
// stands for the default. Tasks on local disks have no client that times out, so they have no
// reason to report less than the default.
func (r *registration) patience(m wire.Open) time.Duration {
	if r.role != wire.RoleDataNode {
		return 0
	}
	return time.Duration(m.Patience) * time.Millisecond
}

// mayHaveMeta checks a stream's meta file. Only a DataNode's block may have one: the meta file
// that HDFS keeps next to it.
func (r *registration) mayHaveMeta(m wire.Open) error {
	switch {
	case m.Meta == "":
		return nil
	case r.role != wire.RoleDataNode || m.Kind != wire.Persistent:
		return fmt.Errorf("%w: a meta file, %s: only a DataNode's blocks have one", os.ErrPermission, m.Meta)
	case !blockfile.MetaBeside(m.Path, m.Meta):
		return fmt.Errorf("%w: %s is not the meta file of %s", os.ErrPermission, m.Meta, m.Path)
	}
	return nil
}

// openFile opens a file that the peer has permission to open, and prepares it for staging.
func (r *registration) openFile(dir *blockfile.Dir, path string, staged bool) (file *blockfile.File, err error) {
	if !r.files.Take(r.owner) {
		return nil, fmt.Errorf("%s: too many open files and directories: %w", path, ipc.ErrBound)
	}
	if file, err = dir.Open(path); err != nil {
		r.files.Give(r.owner)
		return nil, err
	}
	file.OnClose(func() { r.files.Give(r.owner) })
	if err = r.mayOpen(file); err == nil {
		if _, err = file.Query(0, 1); err != nil {
			r.daemon.warnRights(r.role, err)
		}
	}
	if err == nil && staged {
		err = file.PrepareStaging()
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func (r *registration) openFiles(req *device.OpenRequest, dir *blockfile.Dir, m wire.Open, closed func()) error {
	block, err := r.openFile(dir, m.Path, !req.Write)
	if err != nil {
		return err
	}
	if !req.Write {
		size, err := block.Size()
		if err != nil {
			block.Close()
			return err
		}
		req.To = min(req.To, size)
	}
	req.Closed = closed
	block.OnClose(closed) // also of a stream that the agent never closes
	if req.Block = block; m.Meta == "" {
		return nil
	}
	// Without its meta file, the block is still governed.
	if meta, err := r.openFile(dir, m.Meta, true); err == nil {
		req.Meta = meta
	} else if !errors.Is(err, fs.ErrNotExist) {
		r.daemon.limited.Once(slog.LevelWarn, "meta file not governed", fmt.Sprintf("user %d", r.uid), "error", err)
	}
	return nil
}

// mayOpen restricts tasks and DataNodes to files of their own user. Other users' files may also lie
// below a local directory. A task must not make the daemon open them and keep them open. A
// NodeManager's files may belong to any user.
func (r *registration) mayOpen(file *blockfile.File) error {
	if r.role == wire.RoleNodeManager || r.uid == 0 {
		return nil
	}
	owner, err := file.Owner()
	if err == nil && owner != r.uid {
		err = fmt.Errorf("%w: %s belongs to user %d; user %d requested it", os.ErrPermission, file.Name(), owner, r.uid)
	}
	return err
}

// warnRights logs once that nothing can be governed because a permission is missing.
func (d *Daemon) warnRights(role wire.Role, err error) {
	if !errors.Is(err, os.ErrPermission) {
		return
	}
	if ipc.Serves(role) {
		d.rights[0].Do(func() {
			d.log.Error("no permission to query the page cache for block files: streams are not governed; "+
				"run the daemon as the DataNode's user or with CAP_DAC_OVERRIDE", "error", err)
		})
		return
	}
	d.rights[1].Do(func() {
		d.log.Error("no permission to query the page cache for tasks' files: their streams are not governed; "+
			"run the daemon as the tasks' user or, if tasks have several users, with CAP_DAC_OVERRIDE", "error", err)
	})
}

// Close implements ipc.Registration.
func (r *registration) Close() {
	r.close()
	r.leave()
	r.daemon.processes.leave(r)
	r.daemon.mu.Lock()
	delete(r.daemon.registrations, r)
	r.daemon.mu.Unlock()
	for _, end := range r.unwatch {
		end()
	}
	for _, d := range r.dirs {
		d.device.addDir(d.Path, -1)
		r.files.Give(r.owner)
	}
}

// below reports whether a path, after Clean, is below a clean directory.
func below(path, dir string) bool {
	return strings.HasPrefix(clean(path), strings.TrimSuffix(dir, "/")+"/")
}
