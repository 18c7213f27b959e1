package gate

import (
	"errors"
	"fmt"
	"os"
	"time"

	"penstock/node/control/journal"
	"penstock/node/kernel"

	"golang.org/x/sys/unix"
)

// Mechanism is the name of the gate in the journal.
const Mechanism = "gate"

// undoLimit is how long Undo waits for a process that it has ended.
const undoLimit = 2 * time.Second

// process is a process id with the start time of the process, in clock ticks since the boot. The two
// together identify one process, even if the id is used again.
type process struct {
	pid   int
	start uint64
}

func (p process) String() string { return fmt.Sprintf("%d %d", p.pid, p.start) }

func parseProcess(text string) (p process, err error) {
	if _, err := fmt.Sscanf(text, "%d %d", &p.pid, &p.start); err != nil || p.pid <= 0 || p.String() != text {
		return process{}, fmt.Errorf("%q is not a process id and a start time", text)
	}
	return p, nil
}

// Undo ends the process that c has recorded, a supervisor or a gate process, and waits for its end:
// its marks are then gone, and what it held continues. Undo returns nil if the process has ended already.
func Undo(c journal.Change) error {
	p, err := parseProcess(c.After)
	if err != nil {
		return fmt.Errorf("end %s: %w", c.Target, err)
	}
	pidfd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end %s, process %d: %w", c.Target, p.pid, err)
	}
	defer unix.Close(pidfd)
	if start, err := startOf(p.pid); errors.Is(err, os.ErrNotExist) || err == nil && start != p.start {
		return nil // the recorded process has ended, and another one has its id
	} else if err != nil {
		return fmt.Errorf("end %s, process %d: %w", c.Target, p.pid, err)
	}
	if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end %s, process %d: %w", c.Target, p.pid, err)
	}
	if !ended(pidfd, undoLimit) {
		return fmt.Errorf("end %s, process %d: the process has not ended within %v of SIGKILL, perhaps because it waits for a disk; the next start tries again", c.Target, p.pid, undoLimit)
	}
	return nil
}

// ended waits for the end of a process, and reports whether the process has ended in time.
func ended(pidfd int, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; {
		wait := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(max(wait, 0).Milliseconds())+1)
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			return false
		}
	}
}

// Available returns nil if this process can hold operations on this kernel. ranged reports whether the
// kernel reports the range of each operation and can hold writes, which Linux 6.14 and later do. Earlier
// kernels, from Linux 6.0 on, hold reads only. In tests, the environment variable PENSTOCK_GATE_READS_ONLY makes a later kernel look like
// an earlier one.
func Available() (ranged bool, err error) {
	for _, call := range []kernel.Call{kernel.PidfdOpen, kernel.PidfdSendSignal} {
		if err := call.Missing(); err != nil {
			return false, fmt.Errorf("end the processes of the gate after a crash: %w", err)
		}
	}
	ranged = os.Getenv(readsOnlyVariable) == ""
	group, err := newGroup(ranged)
	if err != nil {
		return false, err
	}
	defer unix.Close(group)
	fd, err := unix.MemfdCreate("penstock-gate", unix.MFD_CLOEXEC)
	if err != nil {
		return false, fmt.Errorf("create a file in memory: %w", err)
	}
	defer unix.Close(fd)
	if ranged && knowsPreContent(group, fd) {
		return true, nil
	}
	const ignore = unix.FAN_MARK_ADD | unix.FAN_MARK_IGNORE_SURV | unix.FAN_MARK_EVICTABLE
	if err := unix.FanotifyMark(group, ignore, unix.FAN_ACCESS_PERM, fd, ""); err != nil {
		return false, fmt.Errorf("ignore reads of a file: %w; the gate needs Linux 6.0 or later (FAN_MARK_IGNORE)", err)
	}
	return false, nil
}

// knowsPreContent reports whether the kernel has pre-content events. fd is a file in memory, which does not
// support the event. A kernel that knows the event returns an error that says so, and other kernels return the
// error for an unknown bit.
func knowsPreContent(group, fd int) bool {
	err := unix.FanotifyMark(group, unix.FAN_MARK_ADD, unix.FAN_PRE_ACCESS, fd, "")
	return err == nil || errors.Is(err, unix.EOPNOTSUPP)
}
