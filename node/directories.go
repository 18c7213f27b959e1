package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"penstock/node/blockfile"
)

// A DataNode's data directories are few and exist when it starts: each is opened by its own name.
// Directories of tasks are created while the cluster runs and may not exist yet. So the daemon
// opens a directory above them: the directory that the operator has listed or, without a list, the
// nearest existing directory, which must belong to the peer's user. From there, the daemon opens
// files without following links.

// dataDir opens a DataNode's directory.
func (d *Daemon) dataDir(path string, uid uint32) (dir *blockfile.Dir, within string, err error) {
	if dir, err = blockfile.OpenDir(path, sysfs); err != nil {
		return nil, "", err
	}
	if err = mayRegister(dir, uid, d.settings.DataDirs); err != nil {
		dir.Close()
		return nil, "", err
	}
	return dir, dir.Path, nil
}

// mayRegister checks a directory against the list in the settings or, without a list, against the
// peer's user.
func mayRegister(dir *blockfile.Dir, uid uint32, listed []string) error {
	if len(listed) > 0 {
		for _, l := range listed {
			if dir.Path == clean(l) {
				return nil
			}
		}
		return fmt.Errorf("data directory %s is not in data_dirs of the settings", dir.Path)
	}
	return mustOwn(dir, uid, "data_dirs")
}

func mustOwn(dir *blockfile.Dir, uid uint32, setting string) error {
	owner, err := dir.Owner()
	if err != nil {
		return err
	}
	if owner != uid && uid != 0 {
		return fmt.Errorf("directory %s belongs to user %d, not to %d: list it in %s", dir.Path, owner, uid, setting)
	}
	return nil
}

// localDir opens the directory from which the daemon opens a task's files. The files must lie below
// within.
func (d *Daemon) localDir(path string, uid uint32) (dir *blockfile.Dir, within string, err error) {
	if !filepath.IsAbs(path) {
		return nil, "", fmt.Errorf("local directory %q: give an absolute path", path)
	}
	within = clean(path)
	if listed := d.settings.LocalDirs; len(listed) > 0 {
		dir, err = listedDir(within, listed)
	} else {
		dir, err = ownDir(within, uid)
	}
	return dir, within, err
}

// listedDir opens the listed directory that contains the path or is the path: the nearest, if there
// are several. Agents resolve links in the names of directories, so the path is also compared with
// the directory that a listed link leads to.
func listedDir(path string, listed []string) (*blockfile.Dir, error) {
	best := ""
	for _, l := range listed {
		names := []string{clean(l)}
		if real, err := filepath.EvalSymlinks(l); err == nil {
			names = append(names, real)
		}
		for _, name := range names {
			if (path == name || below(path, name)) && len(name) > len(best) {
				best = name
			}
		}
	}
	if best == "" {
		return nil, fmt.Errorf("directory %s is not below one of local_dirs of the settings", path)
	}
	return blockfile.OpenDir(best, sysfs)
}

// ownDir opens the path, or the nearest existing directory above it, which must belong to the
// user.
func ownDir(path string, uid uint32) (*blockfile.Dir, error) {
	for at := path; at != "/"; at = filepath.Dir(at) {
		dir, err := blockfile.OpenDir(at, sysfs)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := mustOwn(dir, uid, "local_dirs"); err != nil {
			dir.Close()
			return nil, err
		}
		return dir, nil
	}
	return nil, fmt.Errorf("directory %s: no directory above it exists", path)
}

func clean(path string) string { return strings.TrimSuffix(filepath.Clean(path), "/") }
