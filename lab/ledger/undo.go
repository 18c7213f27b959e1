package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Time limits for undoing: for processes to end after SIGTERM, for the last users of a mount point
// to leave, and for a control file that may hang.
const (
	graceTime   = 5 * time.Second
	busyTime    = 3 * time.Second
	controlTime = 5 * time.Second
	pollEvery   = 20 * time.Millisecond
)

func (l *Ledger) undoOne(e entry) error {
	if l.boot != bootID() && e.Kind != kindRemove {
		return nil // the machine was restarted: only files survive a restart
	}
	switch e.Kind {
	case kindRemove:
		if err := os.Remove(e.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	case kindMount:
		return unmount(e.Path)
	case kindBind:
		err := unix.Unmount(e.Path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil // not mounted
		}
		return err
	case kindLoop:
		return l.detach(e.Path, e.Value)
	case kindProcess:
		return end(e.PID, e.Started)
	case kindTagged:
		return endTagged(e.Value)
	case kindFile:
		if !l.attached(e.Path) {
			return nil // the device now belongs to another run
		}
		if now, err := readSetting(e.Path); err != nil || now == e.Value {
			return err
		}
		return os.WriteFile(e.Path, []byte(e.Value), 0)
	case kindWrite:
		written := make(chan struct{})
		go func() {
			defer close(written)
			if file, err := os.OpenFile(e.Path, os.O_WRONLY, 0); err == nil {
				file.WriteString(e.Value)
				file.Close()
			}
		}()
		select {
		case <-written:
		case <-time.After(controlTime):
		}
		return nil
	case kindCgroup:
		return removeCgroup(e.Path)
	case kindSysctl:
		return l.restoreSysctl(e.Path)
	}
	return fmt.Errorf("unknown kind of change %q: the ledger is of another version", e.Kind)
}

// unmount unmounts path. If a mount stays busy, unmount detaches it, so at least its path is free,
// and returns an error.
func unmount(path string) error {
	for deadline := time.Now().Add(busyTime); ; time.Sleep(pollEvery) {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
			continue // several mounts may be stacked there
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil // nothing mounted
		case errors.Is(err, unix.EBUSY) && time.Now().Before(deadline):
			continue
		}
		if lazy := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); lazy != nil {
			return errors.Join(err, lazy)
		}
		return fmt.Errorf("%w: it was detached, but processes still use it: end them", err)
	}
}

// removeCgroup moves the cgroup's processes to its parent and removes it. A process that forks
// meanwhile leaves a child behind, so removeCgroup looks several times.
func removeCgroup(path string) error {
	for deadline := time.Now().Add(busyTime); ; time.Sleep(pollEvery) {
		procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		for _, pid := range strings.Fields(string(procs)) {
			// A process that has just ended cannot be moved. It need not be moved, so the error is
			// ignored.
			os.WriteFile(filepath.Join(filepath.Dir(path), "cgroup.procs"), []byte(pid), 0)
		}
		if err = unix.Rmdir(path); err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

// attached reports whether the setting at path, such as DEVICE/queue/..., still belongs to this
// run. It is false only for a loop device that this run has attached and that has since been freed,
// because the device may now belong to another run. The settings of such a device must not be
// changed.
func (l *Ledger) attached(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.Kind != kindLoop || !strings.HasPrefix(path, l.machine.block(e.Path)+"/") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(l.machine.block(e.Path), "loop/backing_file"))
		return err == nil && backedBy(raw, e.Value)
	}
	return true
}

// backedBy reports whether a loop device's backing_file names the file.
func backedBy(raw []byte, backing string) bool {
	// After the end of the file's mount, the kernel knows only the file's own name.
	now := strings.TrimSuffix(strings.TrimSpace(string(raw)), " (deleted)")
	return now == backing || now == "/"+filepath.Base(backing)
}

// block returns a block device's folder in sysfs.
func (m machine) block(device string) string {
	return filepath.Join(m.blocks, filepath.Base(device))
}

// detach frees the loop device if it is still backed by the recorded file.
func (l *Ledger) detach(device, backing string) error {
	sysfs := filepath.Join(l.machine.block(device), "loop/backing_file")
	raw, err := os.ReadFile(sysfs)
	if errors.Is(err, os.ErrNotExist) {
		return nil // not attached
	}
	if err != nil {
		return err
	}
	if !backedBy(raw, backing) {
		return nil // it now belongs to another run
	}
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = unix.IoctlSetInt(int(file.Fd()), unix.LOOP_CLR_FD, 0)
	file.Close() // the last close frees the device
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return err
	}
	for deadline := time.Now().Add(busyTime); ; time.Sleep(pollEvery) {
		if _, err := os.Stat(sysfs); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("still attached: a process has the device open; it is detached when its last user closes it")
		}
	}
}

// end sends a process SIGTERM and, after a grace period, SIGKILL.
func end(pid int, started uint64) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // it has ended
	}
	defer unix.Close(fd)
	// The descriptor refers to the process that has this PID now. If the start time matches after
	// the descriptor was opened, this is the recorded process.
	if now, err := processStarted(pid); err != nil || now != started {
		return nil
	}
	unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
	unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
	if awaitExit(fd, graceTime) {
		return nil
	}
	unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	if awaitExit(fd, graceTime) {
		return nil
	}
	return fmt.Errorf("process %d does not end", pid)
}

func awaitExit(pidfd int, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		left := time.Until(deadline)
		poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(max(left, 0).Milliseconds()))
		if err == nil && n > 0 {
			return true
		}
		if left <= 0 {
			return false
		}
	}
}

// execTime is an upper bound on how long a process has no environment while it executes another
// program.
const execTime = 20 * time.Millisecond

// endTagged ends every process with the run's mark. These processes may start others meanwhile, so
// endTagged searches until it finds none. Then it searches once more, because a process that is
// executing another program has no environment for a moment.
func endTagged(tag string) error {
	mark := []byte(tagVariable + "=" + tag)
	none := false
	for range 12 {
		var found []int
		procs, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return err
		}
		for _, proc := range procs {
			pid, err := strconv.Atoi(filepath.Base(proc))
			if err != nil || pid == os.Getpid() || pid == os.Getppid() {
				continue
			}
			environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
			for _, variable := range bytes.Split(environ, []byte{0}) {
				if bytes.Equal(variable, mark) {
					found = append(found, pid)
					break
				}
			}
		}
		if len(found) == 0 && none {
			return nil
		}
		if none = len(found) == 0; none {
			time.Sleep(execTime)
			continue
		}
		// All get SIGTERM first, so that they end in parallel.
		fds := make([]int, 0, len(found))
		for _, pid := range found {
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
				unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
				fds = append(fds, fd)
			}
		}
		deadline := time.Now().Add(graceTime)
		for _, fd := range fds {
			if !awaitExit(fd, time.Until(deadline)) {
				unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				awaitExit(fd, graceTime)
			}
			unix.Close(fd)
		}
	}
	return errors.New("the run's processes start new ones faster than they can be ended")
}

// processStarted returns the time when the process started, in clock ticks since boot. Together
// with the PID, it identifies a process permanently.
func processStarted(pid int) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name is in parentheses and may contain any characters.
	_, rest, _ := strings.Cut(string(raw[bytes.LastIndexByte(raw, ')')+1:]), " ")
	fields := strings.Fields(rest)
	const startTime = 22 - 3 // the first field here is the third of the line
	if len(fields) <= startTime {
		return 0, fmt.Errorf("cannot read /proc/%d/stat", pid)
	}
	return strconv.ParseUint(fields[startTime], 10, 64)
}
