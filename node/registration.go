package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"penstock/node/blockfile"
	"penstock/node/device"
	"penstock/node/ipc"
	"penstock/wire"
)

// Which directories an agent may have governed, and how its streams' files are
// opened there.

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
	device  *governed
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
	dev, err := r.daemon.device(dir.Device)
	if err != nil {
		dir.Close()
		return err
	}
	dev.addDir(dir.Path, 1)
	r.dirs = append(r.dirs, registered{dir, dev, make(chan struct{}, maxOpening)})
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
		if _, err := d.Rel(m.Path); err != nil {
			continue
		}
		d.opening <- struct{}{}
		defer func() { <-d.opening }()
		req := device.OpenRequest{
			Marker: marker, ID: m.Stream, Flow: m.Flow, Write: m.Direction == wire.Write, From: m.From, To: m.To,
		}
		block, err := d.Open(m.Path)
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
		return d.device.loop, d.device.loop.Open(req), nil
	}
	return nil, nil, fmt.Errorf("%s: %w", m.Path, blockfile.ErrOutside)
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
		d.device.addDir(d.Path, -1)
		d.Dir.Close()
	}
}
