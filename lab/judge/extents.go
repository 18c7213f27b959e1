package judge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// extent is a part of a file: its bytes are at [from, to) of the device.
type extent struct {
	from, to int64
	path     string
}

// The kernel's FIEMAP interface (Documentation/filesystems/fiemap.rst).
const (
	fiemapIoctl    = 0xc020660b // FS_IOC_FIEMAP
	extentLast     = 0x1        // this is the file's last extent
	extentUnknown  = 0x2        // the extent has no place on the device yet
	extentDelalloc = 0x4
	extentInline   = 0x200 // the data is in the inode
)

type fiemapExtent struct {
	Logical, Physical, Length uint64
	_                         [2]uint64
	Flags                     uint32
	_                         [3]uint32
}

type fiemapRequest struct {
	Start, Length uint64
	Flags         uint32
	Mapped        uint32
	Count         uint32
	_             uint32
	Extents       [extentsPerCall]fiemapExtent
}

const extentsPerCall = 128

// mapFile appends the file's extents on its device. It omits bytes that have no place yet.
func mapFile(into []extent, file *os.File, path string) ([]extent, error) {
	request := fiemapRequest{Count: extentsPerCall}
	for start := uint64(0); ; {
		request.Start, request.Length, request.Mapped = start, ^uint64(0)-start, 0
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), fiemapIoctl, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return into, fmt.Errorf("map the extents of %s: %w", path, errno)
		}
		if request.Mapped == 0 {
			return into, nil
		}
		for _, e := range request.Extents[:request.Mapped] {
			start = e.Logical + e.Length
			if e.Flags&(extentUnknown|extentDelalloc|extentInline) == 0 {
				into = append(into, extent{int64(e.Physical), int64(e.Physical + e.Length), path})
			}
			if e.Flags&extentLast != 0 {
				return into, nil
			}
		}
	}
}

// version identifies the state of a file. If the version is unchanged, so are the file's extents.
type version struct {
	inode, blocks uint64
	size          int64
	modified      syscall.Timespec
}

type mappedFile struct {
	version
	dirty   bool // some bytes had no place, so the file must be mapped again
	extents []extent
}

// scan maps all files and folders below root. For files that have not changed, it reuses the
// entries of known. A folder's own blocks belong to FileSystem.
func scan(root string, known map[string]mappedFile) (map[string]mappedFile, error) {
	now := make(map[string]mappedFile, len(known))
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.Type().IsRegular() || entry.IsDir()) {
			err = scanOne(now, known, path, entry)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted or renamed during the scan
		}
		return err
	})
	return now, err
}

func scanOne(now, known map[string]mappedFile, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s has no inode", path)
	}
	v := version{inode: st.Ino, blocks: uint64(st.Blocks), size: st.Size, modified: st.Mtim}
	if last, ok := known[path]; ok && last.version == v && !last.dirty {
		now[path] = last
		return nil
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOATIME, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	owner := path
	if entry.IsDir() {
		owner = ""
	}
	extents, err := mapFile(nil, file, owner)
	if err != nil {
		return err
	}
	var placed int64
	for _, e := range extents {
		placed += e.to - e.from
	}
	now[path] = mappedFile{version: v, dirty: !entry.IsDir() && placed < v.size, extents: extents}
	return nil
}

// layout contains the extents of all files at one moment, sorted by place.
type layout struct {
	at      int64 // ns, on the request log's clock
	extents []extent
}

func newLayout(at int64, files map[string]mappedFile) layout {
	l := layout{at: at}
	for _, file := range files {
		l.extents = append(l.extents, file.extents...)
	}
	sort.Slice(l.extents, func(i, j int) bool {
		a, b := l.extents[i], l.extents[j]
		return a.from < b.from || a.from == b.from && a.path < b.path // hard links have the same extents
	})
	return l
}

// find returns the file that contains the byte at the offset "from", if any. The answer is valid
// for the bytes before the offset "until", which is at most "to".
func (l *layout) find(from, to int64) (path string, owned bool, until int64) {
	i := sort.Search(len(l.extents), func(i int) bool { return l.extents[i].to > from })
	if i == len(l.extents) {
		return "", false, to
	}
	if e := l.extents[i]; e.from <= from {
		return e.path, true, min(to, e.to)
	}
	return "", false, min(to, l.extents[i].from)
}
