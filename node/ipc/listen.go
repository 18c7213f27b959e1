package ipc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"penstock/settings/plain"
)

// An existing socket may belong to a living daemon, and then a second daemon must not start. Or its
// daemon was killed while a disk hung: such a process cannot end before the disk answers, and until
// then the kernel accepts connections for the process.
//
// So a connection proves nothing, but an answer does. A living daemon closes a connection at once
// when the other side ends it, even when its bounds are reached, and its accepting goroutine never
// waits for a disk. If no answer comes in time, the kernel's data decide: which process listens
// (SO_PEERCRED of the connection), and whether that process is ending. A stopped process (SIGSTOP,
// a debugger, a frozen cgroup) is not ending. It would continue with a socket that is no longer its
// own, next to another daemon on the same disks. So its socket is not replaced, and the error names
// the process to continue or to kill. A listener in another pid namespace cannot be examined; its
// socket is replaced if no answer comes within answersAll.
//
// A lock for the life of the daemon would not help: a dying process holds the lock for as long as
// it holds the socket. So the lock is held only while the socket is being replaced. If two daemons
// are started together, one of them then sees the other's socket.
const (
	answerWait = 1500 * time.Millisecond // for one answer
	answersAll = 3 * time.Second         // for all attempts to get an answer from a process that does not seem to be ending
	lockWait   = 20 * time.Second
	askPause   = 50 * time.Millisecond
)

// listener creates sockets; tests have their own /proc.
type listener struct{ proc string }

// Listen creates the socket. It replaces the socket of a dead or dying daemon, but not that of a
// living one.
func Listen(path string, mode os.FileMode, gid int) (*net.UnixListener, error) {
	return listener{"/proc"}.listen(path, mode, gid)
}

func (at listener) listen(path string, mode os.FileMode, gid int) (*net.UnixListener, error) {
	if len(path) > 107 {
		return nil, fmt.Errorf("socket %s: a Unix socket's path has at most 107 bytes", path)
	}
	st, err := os.Lstat(path)
	if err == nil && st.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("socket %s: the path exists and is not a socket", path)
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	unlock, err := lockStart(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, plain.File(err))
	}
	defer unlock()
	if err := at.mayReplace(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// No process may connect between bind and chmod.
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, err
	}
	if gid >= 0 {
		err = os.Chown(path, -1, gid)
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// makeFolder creates the socket's folder if its parent exists: /run/penstock, for example, is
// missing after each boot. All users may enter it, as with systemd's RuntimeDirectory; the socket
// has permissions of its own. If the operator must create a folder, the error names it.
func makeFolder(folder string) error {
	err := os.Mkdir(folder, 0o755)
	switch {
	case err == nil:
		return os.Chmod(folder, 0o755) // whatever the umask is
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s to make %s in: correct the path, or make the folder (mkdir -p)", filepath.Dir(folder), folder)
	}
	if _, missing := os.Stat(folder); missing == nil {
		return nil // it exists, but this process may create nothing in its parent
	}
	return fmt.Errorf("the folder %s is missing and cannot be created: %w", folder, plain.File(err))
}

// lockStart keeps other processes from replacing the socket at the same time. The lock file is
// never removed: otherwise, two processes could hold locks on two files of the same name.
func lockStart(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockWait); ; time.Sleep(askPause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			f.Close()
			return nil, fmt.Errorf("another daemon is being started there (lock %s): %w", path, err)
		}
	}
}

// mayReplace returns an error if the socket belongs to a living daemon.
func (at listener) mayReplace(path string) error {
	var said error
	for deadline := time.Now().Add(answersAll); ; time.Sleep(askPause) {
		answered, pid, err := at.ask(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
			return nil // no process listens
		case errors.Is(err, syscall.EAGAIN):
			// Too many connections wait to be accepted. If the daemon lives, this passes.
			said = errors.New("more connections wait there than are accepted: a daemon is stopped or hangs: continue it or kill it")
		case err != nil:
			return fmt.Errorf("cannot find out whether another daemon is running: %w", err)
		case answered:
			return fmt.Errorf("another daemon answers there (process %d): stop it first", pid)
		default:
			state, ending := at.state(pid)
			if ending {
				return nil
			}
			said = nil
			if pid != 0 {
				said = fmt.Errorf("process %d listens there and does not answer (%s): continue it or kill it", pid, state)
			}
		}
		if time.Now().After(deadline) {
			return said
		}
	}
}

// ask connects and closes its sending side of the connection. A living daemon, of any version, then
// closes the other side. ask does not wait for a process that is ending. pid is the id of the
// listening process; it is 0 if that process is in another pid namespace.
func (at listener) ask(path string) (answered bool, pid int32, err error) {
	d := net.Dialer{Timeout: answerWait}
	conn, err := d.Dial("unix", path)
	if err != nil {
		return false, 0, err
	}
	defer conn.Close()
	c := conn.(*net.UnixConn)
	if cred, err := peer(c); err == nil {
		pid = cred.Pid
	}
	if _, ending := at.state(pid); ending {
		return false, pid, nil
	}
	if err := errors.Join(c.CloseWrite(), c.SetReadDeadline(time.Now().Add(answerWait))); err != nil {
		return true, pid, nil // the daemon has already closed the connection
	}
	_, err = c.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded), pid, nil
}

// exiting is PF_EXITING among the kernel's flags of a process.
const exiting = 0x4

// state returns the kernel's state of a process, and whether the process is ending: it is gone or a
// zombie, it has begun to exit, or it has a SIGKILL that one of its threads has not obeyed yet.
func (at listener) state(pid int32) (state string, ending bool) {
	if pid <= 0 {
		return "unknown", false
	}
	dir := filepath.Join(at.proc, strconv.Itoa(int(pid)))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return "gone", true
	}
	if err != nil {
		return err.Error(), false
	}
	// The process chooses the name in parentheses; the fields follow the last parenthesis.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 7 {
		return "unknown", false
	}
	// The first field here is field 3, the state; the flags are field 9.
	state = fields[0]
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	if state == "Z" || state == "X" || err == nil && flags&exiting != 0 {
		return state, true
	}
	threads, err := filepath.Glob(filepath.Join(dir, "task", "*", "status"))
	if err != nil {
		return state, false
	}
	for _, name := range append(threads, filepath.Join(dir, "status")) {
		if text, err := os.ReadFile(name); err == nil && killed(text) {
			return state, true
		}
	}
	return state, false
}

// killed reports whether /proc/PID/status has SIGKILL among the pending signals.
func killed(status []byte) bool {
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if n := string(name); n != "SigPnd" && n != "ShdPnd" {
			continue
		}
		set, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
		if err == nil && set&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}
