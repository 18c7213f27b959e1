package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrProtected means that a cgroup is refused because of a process in it.
var ErrProtected = errors.New("the cgroup contains a process that must not be held")

const (
	maxBelow   = 4096     // cgroups below one that is held
	maxMembers = 64 << 20 // bytes of one cgroup.procs
)

// Refuse returns an error if the cgroup must not be held. This is the case if the cgroup is the root of
// its hierarchy, or if the cgroup or one below it contains this process, its parent, the machine's first
// process, or one of the given processes. A process is in a cgroup if one of its threads is. The error
// wraps ErrProtected. If the cgroup cannot be read, Refuse returns another error.
func (f *Folder) Refuse(pids []int) error {
	if f.group.Root() {
		return fmt.Errorf("cgroup %s: %w: this cgroup is the root, which contains all processes", f.group, ErrProtected)
	}
	protected := append([]int{1, os.Getpid(), os.Getppid()}, pids...)
	// A copy, because reading the entries of a folder moves the position in its descriptor.
	top, err := beneath(f.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return f.failed("look into", ".", err)
	}
	seen := 0
	pid, err := f.search(os.NewFile(uintptr(top), f.group.Path), protected, &seen)
	if err != nil {
		return f.failed("find the processes in", "cgroup.procs", err)
	}
	if pid != 0 {
		return fmt.Errorf("cgroup %s: %w: process %d; move that process to a cgroup of its own", f.group, ErrProtected, pid)
	}
	return nil
}

// search returns a protected process in the cgroup dir or below; 0 if there is none. It closes dir.
func (f *Folder) search(dir *os.File, protected []int, seen *int) (pid int, err error) {
	defer dir.Close()
	if *seen++; *seen > maxBelow {
		return 0, fmt.Errorf("there are more than %d cgroups below this one", maxBelow)
	}
	text, err := f.readAt(int(dir.Fd()), "cgroup.procs", maxMembers)
	// The processes of a threaded cgroup are listed only in the cgroup above it, in which the search
	// has found them, unless it began here.
	if errors.Is(err, unix.EOPNOTSUPP) {
		if *seen == 1 {
			return 0, errors.New("the cgroup is a threaded one: hold the cgroup of the whole process instead")
		}
		err = nil
	}
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if pid, err := strconv.Atoi(string(bytes.TrimSuffix(line, []byte("\n")))); err == nil && slices.Contains(protected, pid) {
			return pid, nil
		}
	}
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		child, err := beneath(int(dir.Fd()), e.Name(), unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, unix.ENOENT) {
			continue // the cgroup was removed in the meantime, so it was empty
		}
		if err != nil {
			return 0, err
		}
		pid, err := f.search(os.NewFile(uintptr(child), e.Name()), protected, seen)
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if pid != 0 || err != nil {
			return pid, err
		}
	}
	return 0, nil
}
