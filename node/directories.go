package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"penstock/node/blockfile"
	"penstock/node/ipc"
	"penstock/node/mounts"
	"penstock/wire"
)

// A DataNode's data directories are few and exist when it starts: each is opened by its own name.
// Directories of tasks are created while the cluster runs and may not exist yet. So the daemon
// opens a directory above them: the directory that the operator has listed or, without a list, the
// nearest existing directory, which must belong to the peer's user. From there, the daemon opens
// files without following links.
//
// A peer in a container may have other mounts than the daemon. A path of a DataNode is looked up in
// the DataNode's mounts (/proc/PID/root). A path of another peer is looked up in the daemon's mounts
// and, if the daemon has no such directory, in the peer's. The peer's user must own a directory that
// only the peer sees, because in a container any directory can be at any path.

// directoryOwner is the peer for which a directory is looked up.
type directoryOwner struct {
	role wire.Role
	uid  uint32
	pid  int // its process, if it has other mounts than the daemon; else 0
}

// directory is a directory in which files are governed. Its descriptor is closed, so that its file system can be unmounted.
type directory struct {
	*blockfile.Dir
	within string // the requested directory: Dir itself, or a directory below it
}

// directoryOwnerOf returns the owner of a peer's directories.
func directoryOwnerOf(p ipc.Peer) directoryOwner {
	o := directoryOwner{role: p.Hello.Role, uid: p.UID}
	ours, err := os.Readlink(filepath.Join(procfs, "self/ns/mnt"))
	theirs, err2 := os.Readlink(filepath.Join(procfs, strconv.Itoa(int(p.PID)), "ns/mnt"))
	if err == nil && err2 == nil && ours != theirs {
		o.pid = int(p.PID)
	}
	return o
}

// findDirectory finds a directory of a peer. If its disk does not answer within patience, the error is mounts.ErrHangs.
func (d *Daemon) findDirectory(o directoryOwner, path string, patience time.Duration) (directory, error) {
	if o.role == wire.RoleDataNode {
		return d.search(o, path, patience, d.dataDir)
	}
	ours := o
	ours.pid = 0
	dir, err := d.search(ours, path, patience, d.localDir)
	if err != nil && o.pid != 0 && !errors.Is(err, mounts.ErrHangs) {
		if theirs, err := d.search(o, path, patience, ownDir); err == nil {
			return theirs, nil
		}
	}
	return dir, err
}

// search calls find, which opens the directory for a path.
func (d *Daemon) search(o directoryOwner, path string, patience time.Duration, find func(directoryOwner, string) (*blockfile.Dir, string, error)) (directory, error) {
	type found struct {
		directory
		err error
	}
	calls := &d.calls
	if !ipc.Serves(o.role) { // what a task can make hang must not delay the servers on the same disk
		calls = &d.taskCalls
	}
	f, err := mounts.Do(calls, o.pid, path, patience, func() (f found) {
		if f.Dir, f.within, f.err = find(o, path); f.err == nil {
			f.err = f.Close()
		}
		return f
	}, nil)
	if err = errors.Join(err, f.err); err == nil && (!ipc.Serves(o.role) || o.role == wire.RoleWorker) && !f.Device.Local {
		// A file server that hangs would stop the device's loop, and with it every heartbeat.
		err = fmt.Errorf("directory %s is not on this machine: put the local directories on this machine's disks", f.Path)
	}
	return f.directory, err
}

// dataDir opens a DataNode's directory.
func (d *Daemon) dataDir(o directoryOwner, path string) (dir *blockfile.Dir, within string, err error) {
	if dir, err = blockfile.OpenDirOf(o.pid, path, sysfs); err != nil {
		return nil, "", err
	}
	if err = mayRegister(dir, o, d.settings.DataDirs); err != nil {
		dir.Close()
		return nil, "", err
	}
	return dir, dir.Path, nil
}

var errNotListed = errors.New("it is not in the list of the settings")

// mayRegister checks a directory against the list in the settings or, without a list, against the
// peer's user.
func mayRegister(dir *blockfile.Dir, o directoryOwner, listed []string) error {
	if len(listed) == 0 {
		return mustOwn(dir, o, "data_dirs")
	}
	for _, l := range listed {
		if dir.Path == clean(l) {
			if o.pid != 0 {
				return mustOwn(dir, o, "")
			}
			return nil
		}
	}
	return fmt.Errorf("data directory %s: %w: data_dirs", dir.Path, errNotListed)
}

// mustOwn checks that a directory belongs to the peer's user. setting is the list in the settings that would allow
// it otherwise.
func mustOwn(dir *blockfile.Dir, o directoryOwner, setting string) error {
	switch owner := dir.Owner(); {
	case owner == o.uid || o.uid == 0:
		return nil
	case o.pid != 0:
		return fmt.Errorf("directory %s, as process %d in a container sees it, belongs to user %d, not to %d", dir.Path, o.pid, owner, o.uid)
	default:
		return fmt.Errorf("directory %s belongs to user %d, not to %d: list it in %s", dir.Path, owner, o.uid, setting)
	}
}

// localDir opens the directory from which the daemon opens a task's files. The files must lie below
// within.
func (d *Daemon) localDir(o directoryOwner, path string) (dir *blockfile.Dir, within string, err error) {
	if len(d.settings.LocalDirs) == 0 {
		return ownDir(o, path)
	}
	if !filepath.IsAbs(path) {
		return nil, "", errNotAbsolute(path)
	}
	within = clean(path)
	dir, err = d.listedDir(within)
	return dir, within, err
}

func errNotAbsolute(path string) error {
	return fmt.Errorf("local directory %q: give an absolute path", path)
}

// linkPatience is the longest wait for the links in the name of a listed directory.
const linkPatience = 100 * time.Millisecond

// listedDir opens the listed directory that contains the path or is the path: the nearest, if there
// are several. Agents resolve links in the names of directories, so if no name contains the path, it is compared with
// the directories that listed links lead to.
func (d *Daemon) listedDir(path string) (*blockfile.Dir, error) {
	nearest := func(nameOf func(listed string) string) (best string) {
		for _, l := range d.settings.LocalDirs {
			if name := nameOf(l); name != "" && (path == name || below(path, name)) && len(name) > len(best) {
				best = name
			}
		}
		return best
	}
	best := nearest(clean)
	var unresolved error
	if best == "" {
		best = nearest(func(l string) string {
			real, err := mounts.Do(&d.calls, 0, l, linkPatience, func() string {
				real, _ := filepath.EvalSymlinks(l)
				return real
			}, nil)
			if err != nil {
				unresolved = err
			}
			return real
		})
	}
	if best == "" && unresolved != nil {
		return nil, fmt.Errorf("directory %s: cannot resolve the links of a directory in local_dirs: %w; check its disk", path, unresolved)
	}
	if best == "" {
		return nil, fmt.Errorf("directory %s: %w: local_dirs", path, errNotListed)
	}
	return blockfile.OpenDir(best, sysfs)
}

// ownDir opens the path, or the nearest existing directory above it, which must belong to the
// user.
func ownDir(o directoryOwner, path string) (dir *blockfile.Dir, within string, err error) {
	if !filepath.IsAbs(path) {
		return nil, "", errNotAbsolute(path)
	}
	within = clean(path)
	for at := within; at != "/"; at = filepath.Dir(at) {
		dir, err := blockfile.OpenDirOf(o.pid, at, sysfs)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if err := mustOwn(dir, o, "local_dirs"); err != nil {
			dir.Close()
			return nil, "", err
		}
		return dir, within, nil
	}
	return nil, "", fmt.Errorf("directory %s: no directory above it exists", path)
}

func clean(path string) string { return strings.TrimSuffix(filepath.Clean(path), "/") }
