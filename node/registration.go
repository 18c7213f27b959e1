package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/ipc"
	"penstock/wire"
)

// Which directories an agent may have governed (directories.go), and how its
// streams' files are opened there.

// maxTaskDirs bounds the directories of a task or an executor, which each hold a
// descriptor: YARN gives one for each local disk.
const maxTaskDirs = 64

// maxPosition bounds where a stream begins, in bytes: positions can be added to it.
const maxPosition = 1 << 50

// Register implements ipc.Opener.
func (d *Daemon) Register(p ipc.Peer) (ipc.Registration, error) {
	role := p.Hello.Role
	own, serves, leave, err := d.introduce(p)
	if err != nil {
		return nil, err
	}
	reg := &registration{daemon: d, role: role, uid: p.UID, own: own, leave: leave}
	dirs := p.Hello.Directories
	reg.numbers = make([]uint8, len(dirs)) // all of no device
	if !ipc.Serves(role) && len(dirs) > maxTaskDirs {
		d.log.Warn("directories not governed: too many", "pid", p.PID, "bound", maxTaskDirs, "of", len(dirs))
		dirs = dirs[:maxTaskDirs]
	}
	for i, path := range dirs {
		// A directory that cannot be had is not governed; the others are.
		g, err := reg.add(p.UID, path)
		if err != nil {
			d.log.Warn("directory not governed", "pid", p.PID, "error", err)
			continue
		}
		reg.numbers[i] = reg.number(g)
	}
	// Who sends needs no directory for it.
	if len(reg.dirs) == 0 && (role == wire.RoleDataNode || role == wire.RoleTask) {
		leave()
		return nil, errors.New("none of the agent's directories may be governed")
	}
	if serves && role == wire.RoleDataNode && reg.ownsAll(p.UID) {
		// Balancers and movers run as the DataNode's user, and in no JVM of ours. Listed
		// directories may be registered by others who may connect, such as the NodeManager's user.
		d.identity.AddServiceUID(p.UID)
	}
	return reg, nil
}

// ownsAll tells whether the directories are the user's, as a DataNode's are.
func (r *registration) ownsAll(uid uint32) bool {
	for _, d := range r.dirs {
		if owner, err := d.Owner(); err != nil || owner != uid {
			return false
		}
	}
	return len(r.dirs) > 0
}

// registration is one agent's directories.
type registration struct {
	daemon *Daemon
	role   wire.Role
	uid    uint32
	own    string // flow of all its streams, if it works for one application
	leave  func()
	dirs   []registered
	// devices are those of the directories; the one at i has the number i+1 for the agent.
	devices []*governed
	numbers []uint8 // by directory of the hello; 0: it is not governed
}

type registered struct {
	*blockfile.Dir
	within  string // the directory that was asked for: Dir's own, or one below it
	device  *governed
	opening chan struct{} // a place for each open under way
}

func (r *registration) add(uid uint32, path string) (*governed, error) {
	find := r.daemon.localDir
	if r.role == wire.RoleDataNode {
		find = r.daemon.dataDir
	}
	dir, within, err := find(path, uid)
	if err != nil {
		return nil, err
	}
	if !ipc.Serves(r.role) && !dir.Device.Local {
		// A server that hangs would stop a loop of its own, and with it every heartbeat.
		dir.Close()
		return nil, fmt.Errorf("directory %s is not on this machine: use local disks for local directories", dir.Path)
	}
	dev, err := r.daemon.device(dir.Device)
	if err != nil {
		dir.Close()
		return nil, err
	}
	opening := dev.opening
	if ipc.Serves(r.role) {
		opening = make(chan struct{}, maxOpening)
	}
	dev.addDir(dir.Path, 1)
	r.dirs = append(r.dirs, registered{dir, within, dev, opening})
	// The longest path first: a directory may lie below another one's.
	slices.SortStableFunc(r.dirs, func(a, b registered) int { return len(b.within) - len(a.within) })
	return dev, nil
}

// number is the device's for the agent. Devices past wire.MaxDevice share the last
// number: the agent takes them for alive while all of them are.
func (r *registration) number(g *governed) uint8 {
	i := slices.Index(r.devices, g)
	if i < 0 {
		i = len(r.devices)
		r.devices = append(r.devices, g)
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

// Open implements ipc.Registration.
func (r *registration) Open(m wire.Open, marker device.Marker) (*device.Loop, *device.Stream, error) {
	flow, user, claim := r.own, "", (*claim)(nil)
	if ipc.Serves(r.role) {
		flow, user, claim = r.daemon.attribute(m)
	}
	loop, stream, err := r.open(flow, user, claim != nil, m, marker)
	if err == nil {
		claim.opened(r.daemon.identity.Mode(), loop, stream)
	}
	return loop, stream, err
}

func (r *registration) open(flow, user string, asked bool, m wire.Open, marker device.Marker) (*device.Loop, *device.Stream, error) {
	req := device.OpenRequest{
		Marker: marker, ID: m.Stream, Flow: flow, Asked: asked, Kind: device.Kind(m.Kind), Write: m.Direction == wire.Write, From: m.From, To: m.To,
		Patience: time.Duration(m.Patience) * time.Millisecond, User: user, Refusable: m.Refusable && r.role == wire.RoleDataNode,
	}
	if m.From < 0 || m.From > maxPosition {
		return nil, nil, fmt.Errorf("stream from byte %d of %s: no file is as long", m.From, m.Path)
	}
	if m.Kind == wire.Network {
		if r.role != wire.RoleNodeManager {
			return nil, nil, errors.New("only a NodeManager sends for applications")
		}
		g, err := r.daemon.network()
		if err != nil {
			return nil, nil, err
		}
		return g.loop, g.loop.Open(req), nil
	}
	for _, d := range r.dirs {
		if !below(m.Path, d.within) {
			continue
		}
		d.opening <- struct{}{}
		defer func() { <-d.opening }()
		if err := r.openFiles(&req, d.Dir, m); err != nil {
			return nil, nil, err
		}
		return d.device.loop, d.device.loop.Open(req), nil
	}
	return nil, nil, &os.PathError{Op: "open", Path: m.Path, Err: blockfile.ErrOutside}
}

func (r *registration) openFiles(req *device.OpenRequest, dir *blockfile.Dir, m wire.Open) error {
	block, err := dir.Open(m.Path)
	if err != nil {
		return err
	}
	if err := r.mayOpen(block); err != nil {
		block.Close()
		return err
	}
	if _, err = block.Query(0, 1); err != nil {
		r.daemon.warnRights(r.role, err)
	} else if !req.Write {
		var size int64
		if size, err = block.Size(); err == nil {
			req.To = min(req.To, size)
			err = block.PrepareStaging()
		}
	}
	if err != nil {
		block.Close()
		return err
	}
	req.Block = block
	if m.Meta == "" || m.Kind != wire.Persistent {
		return nil
	}
	// Without its meta file a block is governed all the same.
	if meta, err := dir.Open(m.Meta); err == nil {
		if err := meta.PrepareStaging(); err == nil {
			req.Meta = meta
		} else {
			meta.Close()
		}
	}
	return nil
}

// mayOpen keeps tasks to files of their own user: below a local directory are also
// those of others, which nobody else may have held open.
func (r *registration) mayOpen(file *blockfile.File) error {
	if ipc.Serves(r.role) || r.uid == 0 {
		return nil
	}
	owner, err := file.Owner()
	if err == nil && owner != r.uid {
		err = fmt.Errorf("%w: a file of user %d, asked for by %d", os.ErrPermission, owner, r.uid)
	}
	return err
}

// warnRights says once, loudly, that nothing can be governed for want of a right.
func (d *Daemon) warnRights(role wire.Role, err error) {
	if !errors.Is(err, os.ErrPermission) {
		return
	}
	if ipc.Serves(role) {
		d.rights[0].Do(func() {
			d.log.Error("the page cache may not be asked about block files: streams go ungoverned; "+
				"run the daemon as the DataNode's user or with CAP_DAC_OVERRIDE", "error", err)
		})
		return
	}
	d.rights[1].Do(func() {
		d.log.Error("the page cache may not be asked about tasks' files: their streams go ungoverned; "+
			"run the daemon as the tasks' user or, where they have several, with CAP_DAC_OVERRIDE", "error", err)
	})
}

// Close implements ipc.Registration.
func (r *registration) Close() {
	r.leave()
	for _, d := range r.dirs {
		d.device.addDir(d.Path, -1)
		d.Dir.Close()
	}
}

// below tells whether a path, once it is clean, lies below a clean directory.
func below(path, dir string) bool {
	return strings.HasPrefix(clean(path), strings.TrimSuffix(dir, "/")+"/")
}
