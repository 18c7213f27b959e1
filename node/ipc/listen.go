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

// A socket that is there may belong to a living daemon, which must not get a second one
// beside it, or to one that was killed while a disk hangs: such a process cannot end
// before the disk answers, and until then the kernel still takes connections for it.
//
// So a connection is no evidence; an answer is. A living daemon closes a connection
// whose other side ends at once, also at its bounds, and the accepting goroutine waits for
// no disk. Where no answer comes in time, it is the kernel's word that decides: who listens
// (SO_PEERCRED of the connection), and whether that process is on its way out. A process
// that is stopped (SIGSTOP, a debugger, a frozen cgroup) is not: it would come back to a
// socket that is no longer its own, beside another daemon on the same disks. It is not
// replaced, and the error says who to continue or to kill. A listener in another pid
// namespace cannot be looked at; it is replaced after the whole time without an answer.
//
// Why no lock that is held for life: a dying process holds it as long as its socket, so it
// would tell nothing more. A lock is held while the socket is being replaced only, so that
// of two daemons which are started together one sees the other's.
const (
	answerWait = 1500 * time.Millisecond // for one answer
	answersAll = 3 * time.Second         // for any, of a process that does not seem to end
	lockWait   = 20 * time.Second
	askPause   = 50 * time.Millisecond
)

// listener makes sockets; tests have their own /proc.
type listener struct{ proc string }

// Listen makes the socket. A socket that a dead or dying daemon left is replaced; that of
// a living one is not.
func Listen(path string, mode os.FileMode, gid int) (*net.UnixListener, error) {
	return listener{"/proc"}.listen(path, mode, gid)
}

func (at listener) listen(path string, mode os.FileMode, gid int) (*net.UnixListener, error) {
	if len(path) > 107 {
		return nil, fmt.Errorf("socket %s: a Unix socket's path has at most 107 bytes", path)
	}
	st, err := os.Lstat(path)
	if err == nil && st.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("socket %s: there is something else at that path", path)
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
	// Nobody may connect between bind and chmod.
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

// makeFolder makes the socket's folder if only that is missing, as /run/penstock is after each
// start of a machine. Everybody may enter it, as with systemd's RuntimeDirectory; the socket has
// permissions of its own. Errors name a folder that has to be made by hand.
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
		return nil // it is there, and nothing may be made beside it
	}
	return fmt.Errorf("the folder %s is missing and cannot be made: %w", folder, plain.File(err))
}

// lockStart keeps others from replacing the socket meanwhile. The file stays: without it
// two processes could hold locks on two files of the same name.
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

// mayReplace reports by an error that the socket is a living daemon's.
func (at listener) mayReplace(path string) error {
	var said error
	for deadline := time.Now().Add(answersAll); ; time.Sleep(askPause) {
		answered, pid, err := at.ask(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
			return nil // nobody listens
		case errors.Is(err, syscall.EAGAIN):
			// Too many wait to be accepted: of a living daemon that passes.
			said = errors.New("more connections wait there than are accepted: a daemon is stopped or hangs: continue it or kill it")
		case err != nil:
			return fmt.Errorf("whether another daemon is there cannot be asked: %w", err)
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

// ask connects and ends its own side. A living daemon, of any version, closes the
// connection then; a process on its way out is not waited for. pid is who listens; 0: a
// process in another pid namespace.
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
		return true, pid, nil // it has hung up
	}
	_, err = c.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded), pid, nil
}

// exiting is the kernel's PF_EXITING among a process's flags.
const exiting = 0x4

// state is what the kernel says of a process, and whether it is on its way out: gone, a
// zombie, past the beginning of its exit, or with a SIGKILL that one of its threads has
// not obeyed yet.
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
	// The name in parentheses is the process's choice; the fields follow its last one.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 7 {
		return "unknown", false
	}
	// Here is field 3, the state; the flags are field 9.
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
