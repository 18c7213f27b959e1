package kernel

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mounts says whether a path may lead into another mount.
type Mounts int

// The values of Mounts.
const (
	OneMount Mounts = iota // a path into another mount is an error, unix.EXDEV
	AnyMount               // mounts may be crossed
)

// OpenBeneath opens path below the directory dir with the given flags and O_CLOEXEC. It follows no symbolic link
// (unix.ELOOP) and does not leave the directory: an absolute path, and ".." that leads out, are unix.EXDEV.
// Other errors are those of open(2).
//
// It uses openat2(2), or without openat2 a walk that opens each component of the path. The walk has the same
// guarantees and errors, with two differences: it refuses every "..", also one that stays below
// the directory, and it opens the last component before it finds that this is in another mount.
func OpenBeneath(dir int, path string, flags int, mounts Mounts) (int, error) {
	if Openat2.Missing() != nil {
		return walk(dir, path, flags, mounts)
	}
	resolve := uint64(unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS)
	if mounts == OneMount {
		resolve |= unix.RESOLVE_NO_XDEV
	}
	return unix.Openat2(dir, path, &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: resolve})
}

// OpenOf opens an absolute path as a process sees it: in its mount namespace and below its root. Links lead to where they
// lead for that process. Without openat2(2) a path with a link is an error, unix.ELOOP.
func OpenOf(pid int, path string, flags int) (*os.File, error) {
	fail := func(err error) (*os.File, error) { return nil, &os.PathError{Op: "open", Path: path, Err: err} }
	root, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(fmt.Errorf("the root of process %d: %w", pid, err))
	}
	defer unix.Close(root)
	var fd int
	if Openat2.Missing() == nil {
		fd, err = unix.Openat2(root, path, &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	} else {
		fd, err = walk(root, strings.TrimLeft(path, "/"), flags, AnyMount)
	}
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// walk opens path component by component. It opens each component relative to the descriptor of the one
// before, without following a link, and examines the descriptor and not the name. So a component that is
// swapped meanwhile is either the old directory or the new one, and a link in its place is refused. A directory
// that leaves dir after it was opened was below dir at that time; openat2 gives no stronger guarantee. A path
// has fewer than 2,049 components, each with three calls.
func walk(dir int, path string, flags int, mounts Mounts) (int, error) {
	switch {
	case strings.ContainsRune(path, 0):
		return -1, unix.EINVAL
	case path == "":
		return -1, unix.ENOENT
	case len(path) >= unix.PathMax:
		return -1, unix.ENAMETOOLONG
	case path[0] == '/':
		return -1, unix.EXDEV
	}
	var mount int
	if mounts == OneMount {
		var err error
		if mount, err = mountOf(dir); err != nil {
			return -1, err
		}
	}
	at := dir
	defer func() {
		if at != dir {
			unix.Close(at)
		}
	}()
	for {
		name, rest, slash := strings.Cut(path, "/")
		path = strings.TrimLeft(rest, "/")
		if name == ".." {
			return -1, unix.EXDEV
		}
		if path == "" {
			if slash || name == "." {
				flags |= unix.O_DIRECTORY
			}
			return openLast(at, name, flags, mounts, mount)
		}
		if name == "." {
			continue
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, orLink(err, at, "")
		}
		if at != dir {
			unix.Close(at)
		}
		at = next
		if err := examine(at, mounts, mount); err != nil {
			return -1, err
		}
	}
}

// openLast opens the last component of a path.
func openLast(at int, name string, flags int, mounts Mounts, mount int) (int, error) {
	fd, err := unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, orLink(orLink(err, at, ""), at, name)
	}
	err = examine(fd, mounts, mount)
	if err == nil && flags&unix.O_PATH != 0 && isLink(fd, "") { // O_PATH opens a link instead of refusing it
		err = unix.ELOOP
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// orLink returns err, or unix.ELOOP if err is unix.ENOTDIR because of a link. A walk opens a link like any other
// file, and nothing can be opened below it.
func orLink(err error, dir int, name string) error {
	if err == unix.ENOTDIR && isLink(dir, name) {
		return unix.ELOOP
	}
	return err
}

// isLink reports whether name in dir, or dir itself if name is empty, is a symbolic link.
func isLink(dir int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_EMPTY_PATH)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// examine returns an error if fd is in another mount and must not be.
func examine(fd int, mounts Mounts, mount int) error {
	if mounts == AnyMount {
		return nil
	}
	switch now, err := mountOf(fd); {
	case err != nil:
		return err
	case now != mount:
		return unix.EXDEV
	}
	return nil
}

// mountOf returns the id of the mount that a descriptor is in. The device number would not do: a bind mount
// has that of its source.
func mountOf(fd int) (int, error) {
	// Without room for the handle, name_to_handle_at(2) still returns the mount.
	var handle struct {
		bytes uint32
		kind  int32
	}
	var mount int32
	var empty [1]byte
	_, _, errno := unix.Syscall6(unix.SYS_NAME_TO_HANDLE_AT, uintptr(fd), uintptr(unsafe.Pointer(&empty)),
		uintptr(unsafe.Pointer(&handle)), uintptr(unsafe.Pointer(&mount)), unix.AT_EMPTY_PATH, 0)
	if errno == 0 || errno == unix.EOVERFLOW {
		return int(mount), nil
	}
	// Some file systems have no handles, and a filter may refuse the call.
	return mountInProc(fd)
}

// mountInProc returns the id of a descriptor's mount from procfs, which has it since Linux 3.15.
func mountInProc(fd int) (int, error) {
	name := "/proc/self/fdinfo/" + strconv.Itoa(fd)
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("find the mount of an open file: %w; the daemon needs /proc on a kernel without openat2", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "mnt_id:"); is {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("find the mount of an open file: %s has no mnt_id", name)
}
