// Package blockfile opens block and meta files below registered data directories, reports which
// of their pages are resident, stages ranges into the page cache and drains written ranges.
//
// Problem: device I/O is what causes contention on a shared disk, yet the DataNode's threads only
// do page-cache I/O. The device I/O happens inside the kernel and is not attributed to them.
// Choice: a second process does the device I/O for the DataNode, through descriptors of its own.
// This rests on two mechanisms. For reads, readahead(2) on a descriptor advised
// POSIX_FADV_RANDOM, or a page fault that fetches a large folio, brings in a range such that the
// DataNode's own sequential read of it causes no further device I/O. For writes,
// sync_file_range(2) writes a range out at the device's pace, data only, without a barrier. Both
// work on read-only descriptors, and neither can change a byte of a file.
//
// A block file is renamed when it is finalised. An open descriptor stays valid. If Open is called
// after the rename, it finds the file at its new place.
package blockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"penstock/node/kernel"
	"penstock/settings/plain"
)

// ErrOutside is the error for a path that is not below a registered data directory.
var ErrOutside = errors.New("path is not below a registered data directory")

// ErrMoved is the error for a directory that is no longer at its path: its file system was unmounted, or another one
// was mounted there.
var ErrMoved = errors.New("the directory is no longer at its path")

// Dir is one registered data directory and its block device.
type Dir struct {
	Path   string // clean absolute path, as named by the DataNode
	Device Device
	pid    int // the process in whose mount namespace the path is; 0: this one
	owner  uint32
	dev    uint64 // with ino: which directory this is
	ino    uint64
	folios folios

	mu     sync.Mutex
	root   *os.File // files are resolved below it; nil: it must be opened first
	users  int      // calls that use root
	closed bool
}

// OpenDir registers a data directory. sysfs is the root of sysfs: "/sys", except in tests.
func OpenDir(path, sysfs string) (*Dir, error) { return OpenDirOf(0, path, sysfs) }

// OpenDirOf registers a directory whose path is valid in the mount namespace and below the root of a process, such as
// a DataNode in a container. If pid is 0, the path is one of this process.
func OpenDirOf(pid int, path, sysfs string) (*Dir, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("data directory %q: give an absolute path", path)
	}
	d := &Dir{Path: filepath.Clean(path), pid: pid}
	root, st, err := d.openRoot()
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", plain.File(err))
	}
	if d.Device, err = deviceOf(root, sysfs); err != nil {
		root.Close()
		return nil, err
	}
	d.root, d.owner, d.dev, d.ino = root, st.Uid, st.Dev, st.Ino
	return d, nil
}

// openRoot opens the directory that is now at the path.
func (d *Dir) openRoot() (*os.File, unix.Stat_t, error) {
	root, err := d.openPath()
	if err != nil {
		return nil, unix.Stat_t{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		root.Close()
		return nil, st, &os.PathError{Op: "stat", Path: d.Path, Err: err}
	}
	return root, st, nil
}

func (d *Dir) openPath() (*os.File, error) {
	if d.pid == 0 {
		return os.OpenFile(d.Path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	return kernel.OpenOf(d.pid, d.Path, unix.O_RDONLY|unix.O_DIRECTORY)
}

// Close closes the directory's descriptor, so that it does not prevent the unmounting of its file system. After that,
// Open opens the directory by its path while it opens a file. Open fails with ErrMoved if another directory is at the
// path, or if the directory's owner has changed. So a Dir never has more than one descriptor.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return d.closeRoot()
}

// closeRoot closes the root unless it is in use or must stay open. d.mu is held.
func (d *Dir) closeRoot() error {
	if d.root == nil || d.users > 0 || !d.closed {
		return nil
	}
	err := d.root.Close()
	d.root = nil
	return err
}

// Owner returns the user id that owned the directory when it was opened.
func (d *Dir) Owner() uint32 { return d.owner }

// use returns the directory's open file. done must be called afterwards.
func (d *Dir) use() (root *os.File, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.root == nil {
		root, st, err := d.openRoot()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMoved, plain.File(err))
		}
		if st.Dev != d.dev || st.Ino != d.ino || st.Uid != d.owner {
			root.Close()
			return nil, fmt.Errorf("%s: %w", d.Path, ErrMoved)
		}
		d.root = root
	}
	d.users++
	return d.root, nil
}

func (d *Dir) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users--
	_ = d.closeRoot()
}

func ownerOf(f *os.File) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return st.Uid, nil
}

// Rel returns path relative to the directory, or ErrOutside.
func (d *Dir) Rel(path string) (string, error) {
	rel, ok := strings.CutPrefix(filepath.Clean(path), d.Path+"/")
	if !ok {
		return "", fmt.Errorf("%s: %w", path, ErrOutside)
	}
	return rel, nil
}

// Open opens a regular file below the directory without following links. If a block has been
// finalised in the meantime, Open finds it at its final place.
func (d *Dir) Open(path string) (*File, error) {
	rel, err := d.Rel(path)
	if err != nil {
		return nil, err
	}
	root, err := d.use()
	if err != nil {
		return nil, err
	}
	defer d.done()
	f, err := d.openBeneath(root, rel)
	if errors.Is(err, os.ErrNotExist) {
		if final, ok := finalPath(rel); ok {
			f, err = d.openBeneath(root, final)
		}
	}
	if err != nil {
		return nil, err
	}
	return &File{f: f, dir: d}, nil
}

// MetaBeside reports whether meta is named as HDFS names the meta file of block:
// blk_N_GENSTAMP.meta in the same directory as blk_N.
func MetaBeside(block, meta string) bool {
	blockDir, name := filepath.Split(filepath.Clean(block))
	metaDir, metaName := filepath.Split(filepath.Clean(meta))
	id, isBlock := strings.CutPrefix(name, "blk_")
	stamp, isMeta := strings.CutPrefix(metaName, name+"_")
	stamp, hasSuffix := strings.CutSuffix(stamp, ".meta")
	if _, err := strconv.ParseInt(id, 10, 64); err != nil {
		return false
	}
	if _, err := strconv.ParseUint(stamp, 10, 63); err != nil {
		return false
	}
	return isBlock && isMeta && hasSuffix && blockDir == metaDir
}

func (d *Dir) openBeneath(root *os.File, rel string) (*os.File, error) {
	name := filepath.Join(d.Path, rel)
	fd, err := kernel.OpenBeneath(int(root.Fd()), rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, kernel.OneMount)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: not a regular file", name)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// finalPath maps current/BP/current/rbw/blk_N (or BP/tmp/blk_N) to the place
// that HDFS moves the file to when the block is finalised: two levels of
// subdirectories taken from bits 16-20 and 8-12 of the block id.
func finalPath(rel string) (string, bool) {
	dir, base := filepath.Split(rel)
	dir = strings.TrimSuffix(dir, "/")
	var pool string
	switch {
	case strings.HasSuffix(dir, "/current/rbw"):
		pool = strings.TrimSuffix(dir, "/current/rbw")
	case strings.HasSuffix(dir, "/tmp"):
		pool = strings.TrimSuffix(dir, "/tmp")
	default:
		return "", false
	}
	digits, ok := strings.CutPrefix(base, "blk_")
	if !ok {
		return "", false
	}
	digits, _, _ = strings.Cut(digits, "_") // a meta file's name also has its generation stamp
	id, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return "", false
	}
	return fmt.Sprintf("%s/current/finalized/subdir%d/subdir%d/%s", pool, (id>>16)&0x1f, (id>>8)&0x1f, base), true
}
