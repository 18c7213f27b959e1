package gate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// beatLimit is how late the gate's heartbeat may be.
	beatLimit = 500 * time.Millisecond
	// lateGrace is the longest delay with which the supervisor may wake and still judge the heartbeat. After
	// a longer delay, such as a suspension of the machine, it waits for the next heartbeat.
	lateGrace = 100 * time.Millisecond
	// controlFD is the supervisor's socket to the daemon; its connFD is the gate's.
	controlFD  = 4
	maxCommand = 4 << 10 // bytes
)

// RunSupervisor is the main function of the supervisor. It starts the gate process, and kills that process
// when its heartbeat is late. It returns when the gate process or the daemon has ended.
func RunSupervisor() error {
	// The kernel ends the gate process when the thread that has started it ends.
	runtime.LockOSThread()
	control := os.NewFile(controlFD, "daemon")
	defer control.Close()
	err := supervise(control)
	if err != nil {
		control.Write([]byte(err.Error())[:min(len(err.Error()), maxCommand)])
	}
	return err
}

func supervise(control *os.File) error {
	raise(2) // the gate process reports protections that are not permitted
	buf := make([]byte, maxCommand)
	n, err := unix.Read(controlFD, buf)
	if err != nil || n == 0 {
		return fmt.Errorf("supervisor of the gate: read the command of the gate process: %d bytes read: %w", n, err)
	}
	command := splitCommand(buf[:n])
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("supervisor of the gate: %w", err)
	}
	conn, theirs := os.NewFile(connFD, "daemon's connection to the gate"), os.NewFile(uintptr(pair[1]), "heartbeats")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.ExtraFiles = []*os.File{conn, theirs}
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("supervisor of the gate: start the gate process: %w", err)
	}
	theirs.Close()
	conn.Close() // the daemon must see when the gate ends
	why := watch(pair[0], controlFD)
	// Nobody has waited for the child yet, so no other process can have its id.
	cmd.Process.Kill()
	return errors.Join(why, cmd.Wait())
}

// watch returns when the gate's heartbeat is late, or when the gate or the daemon has ended.
func watch(beats, control int) error {
	var buf [64]byte
	deadline := time.Now().Add(beatLimit)
	fds := []unix.PollFd{{Fd: int32(beats), Events: unix.POLLIN}, {Fd: int32(control), Events: unix.POLLIN}}
	for {
		wait := max(time.Until(deadline), 0)
		_, err := unix.Poll(fds, int(wait.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		now := time.Now()
		switch {
		case fds[1].Revents != 0:
			return errors.New("the daemon has ended")
		case fds[0].Revents != 0:
			n, err := unix.Read(beats, buf[:])
			if n == 0 || err != nil {
				return errors.New("the gate process has ended")
			}
			deadline = now.Add(beatLimit)
		case now.After(deadline.Add(lateGrace)):
			deadline = now.Add(beatLimit)
		case now.After(deadline):
			return fmt.Errorf("the gate's heartbeat was %v late; the supervisor has ended the gate, and everything passes", beatLimit)
		}
	}
}

// raise gives this process a high priority, and protects it from the out-of-memory killer. It returns the
// protections that the system does not permit. A process without the right to a real-time priority gets the
// highest ordinary priority.
func raise(priority uint32) (missing []string) {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		missing = append(missing, "protection from the out-of-memory killer (CAP_SYS_RESOURCE)")
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return append(missing, "a higher priority ("+err.Error()+")")
	}
	// Threads inherit the priority of the thread that starts them.
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: priority}
		if err := unix.SchedSetAttr(tid, &attr, 0); err == nil || errors.Is(err, unix.ESRCH) {
			continue
		}
		attr = unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: -20}
		if err := unix.SchedSetAttr(tid, &attr, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return append(missing, "a higher priority (CAP_SYS_NICE)")
		}
	}
	return missing
}

func joinCommand(command []string) ([]byte, error) {
	var b []byte
	for _, word := range command {
		b = append(append(b, word...), 0)
	}
	if len(command) == 0 || len(b) > maxCommand || bytes.Count(b, []byte{0}) != len(command) {
		return nil, fmt.Errorf("the command of the gate process %q: want 1 word or more, at most %d bytes", command, maxCommand)
	}
	return b, nil
}

func splitCommand(b []byte) (command []string) {
	for word := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		command = append(command, string(word))
	}
	return command
}
