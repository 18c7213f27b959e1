package identity

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/monitor/owner"
)

// Limits of what is read about one process, in bytes. A longer file is read up to the limit and
// reported as too long, so that its end cannot hide anything.
const (
	maxStat    = 4 << 10
	maxStatus  = 1 << 20 // it contains all groups
	maxCgroup  = 64 << 10
	maxEnviron = 1 << 20
	maxCommand = 256 << 10
	maxSockets = 256 << 20 // of /proc/net/tcp: a million connections
)

// Errors of examining a process.
var (
	errGone = errors.New("the process has ended, or its pid now belongs to another process or user")
	errLong = errors.New("longer than the limit")
	errTime = errors.New("it took too long")
)

// proc is the path of the process file system: /proc, except in tests.
type proc string

func (p proc) file(pid int, name string) string {
	return filepath.Join(string(p), strconv.Itoa(pid), name)
}

// read returns a file's text, at most limit bytes.
func (p proc) read(pid int, name string, limit int64) ([]byte, error) {
	f, err := os.Open(p.file(pid, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return b[:limit], errLong
	}
	return b, nil
}

// life holds fields of /proc/PID/stat. They distinguish processes that had the same pid, and name
// the parent and the session.
type life struct {
	pid, parent, session int
	start                uint64 // clock ticks since boot: distinguishes two processes with the same pid
	zombie               bool
}

// parseStat reads /proc/PID/stat. The second field is the command's name in parentheses. The
// process chooses it, and it may contain spaces and parentheses: only the text after the last
// parenthesis is reliable.
func parseStat(text []byte) (life, error) {
	bad := fmt.Errorf("stat: %q", text[:min(len(text), 80)])
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return life{}, bad
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:open])))
	if err != nil || pid <= 0 {
		return life{}, bad
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 20 {
		return life{}, bad
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	start, err3 := strconv.ParseUint(fields[19], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil || parent < 0 || session < 0 {
		return life{}, bad
	}
	return life{pid, parent, session, start, fields[0] == "Z" || fields[0] == "X"}, nil
}

func (p proc) life(pid int) (life, error) {
	text, err := p.read(pid, "stat", maxStat)
	if err != nil {
		return life{}, err
	}
	l, err := parseStat(text)
	if err == nil && l.pid != pid {
		return life{}, errGone
	}
	return l, err
}

// status holds fields of /proc/PID/status: the user, and the numbers of the process and of its
// session in each pid namespace, from the visible one to the process's own.
type status struct {
	uid            uint32 // the real one
	pids, sessions []int
}

func parseStatus(text []byte) (s status, err error) {
	err = errors.New("status: no user id")
	for line := range bytes.Lines(text) {
		key, rest, _ := bytes.Cut(line, []byte{':'})
		switch string(key) {
		case "Uid":
			fields := bytes.Fields(rest)
			if len(fields) != 4 {
				return status{}, err
			}
			var uid uint64
			uid, err = strconv.ParseUint(string(fields[0]), 10, 32)
			s.uid = uint32(uid)
		case "NSpid":
			s.pids = numbers(rest)
		case "NSsid":
			s.sessions = numbers(rest)
		}
	}
	return s, err
}

// numbers reads numbers; nil if a field is not a number.
func numbers(text []byte) (out []int) {
	for field := range bytes.FieldsSeq(text) {
		n, err := strconv.Atoi(string(field))
		if err != nil || n < 0 {
			return nil
		}
		out = append(out, n)
	}
	return out
}

func (p proc) status(pid int) (status, error) {
	text, err := p.read(pid, "status", maxStatus)
	if err != nil {
		return status{}, err
	}
	return parseStatus(text)
}

// space returns the pid namespace of a process. For a process that ends during the call, the kernel's answer is that
// permission is denied; the error of space is then that the process does not exist.
func (p proc) space(pid int) (string, error) {
	space, err := os.Readlink(p.file(pid, "ns/pid"))
	if errors.Is(err, os.ErrPermission) {
		if _, gone := os.Stat(p.file(pid, "stat")); gone != nil {
			err = gone
		}
	}
	return space, err
}

// containerOfEnviron finds CONTAINER_ID in /proc/PID/environ; "" if it is missing or not a
// container's id. The first one counts, as in getenv.
func containerOfEnviron(text []byte) string {
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if v, ok := bytes.CutPrefix(entry, []byte("CONTAINER_ID=")); ok {
			if id := string(v); owner.ApplicationOf(id) != "" {
				return id
			}
			return ""
		}
	}
	return ""
}

// eachArgument calls f for the arguments of /proc/PID/cmdline until it returns false.
func eachArgument(text []byte, f func(arg string) bool) {
	for arg := range bytes.SplitSeq(text, []byte{0}) {
		if !f(string(arg)) {
			return
		}
	}
}

// uptime returns the time since the machine was booted, including suspended time. Tests replace
// it.
var uptime = func() (time.Duration, error) {
	var up unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)
	return time.Duration(up.Nano()), err
}

// booted returns the time of the machine's boot, by its present clock. It tries again if the thread
// was delayed between the readings of the two clocks.
func booted() (boot time.Time, err error) {
	for range 5 {
		before := time.Now()
		up, err := uptime()
		if err != nil {
			return time.Time{}, err
		}
		boot = time.Now().Add(-up)
		if time.Since(before) < 10*time.Millisecond {
			break
		}
	}
	return boot, nil
}

// ticks is the unit of start times: the kernel's USER_HZ, 100 per second on all architectures
// that Hadoop runs on.
const ticks = time.Second / 100

func (l life) began(booted time.Time) time.Time {
	return booted.Add(time.Duration(min(l.start, 1<<40)) * ticks)
}

// socketOf looks up the connection's end at local in the kernel's tables. found is false if there
// is no such socket in this network namespace; other is then the end at remote, if that end is on
// this machine.
func (p proc) socketOf(ctx context.Context, local, remote netip.AddrPort) (s, other socket, found bool, err error) {
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		s, found, err = socketIn(ctx, filepath.Join(string(p), table), local, remote, &other)
		if found || err != nil {
			return s, other, found, err
		}
	}
	return socket{}, other, false, nil
}

func socketIn(ctx context.Context, path string, local, remote netip.AddrPort, other *socket) (socket, bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return socket{}, false, nil // no IPv6 here
	}
	if err != nil {
		return socket{}, false, err
	}
	defer f.Close()
	rows := bufio.NewScanner(io.LimitReader(f, maxSockets))
	rows.Buffer(make([]byte, 64<<10), 64<<10)
	for n := 0; rows.Scan(); n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return socket{}, false, errTime
		}
		s, ok := parseSocket(rows.Bytes())
		switch {
		case !ok:
		case s.local == local && s.remote == remote:
			return s, true, nil
		case s.local == remote && s.remote == local:
			*other = s
		}
	}
	return socket{}, false, rows.Err()
}

// pids returns all processes, the highest numbers first: these are mostly the youngest processes,
// and most connections belong to young processes.
func (p proc) pids() ([]int, error) {
	dir, err := os.Open(string(p))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 && owner.Digits(name, 1, 10) {
			pids = append(pids, pid)
		}
	}
	slices.SortFunc(pids, func(a, b int) int { return b - a })
	return pids, nil
}

// holds looks for a socket among the last n of a process's descriptors, or all if n is 0. It
// returns the descriptor's number, or -1 if there is none.
func (p proc) holds(ctx context.Context, pid int, inode uint64, n int) (int, error) {
	return p.holdsAmong(ctx, pid, inode, -1, n)
}

// holdsAmong looks among the first `first` descriptors only; all if first is negative.
func (p proc) holdsAmong(ctx context.Context, pid int, inode uint64, first, n int) (int, error) {
	dir, err := os.Open(p.file(pid, "fd"))
	if err != nil {
		return -1, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(first)
	if err != nil && err != io.EOF {
		return -1, err
	}
	if n > 0 && len(names) > n {
		names = names[len(names)-n:]
	}
	var link [64]byte
	// The newest descriptor is examined first.
	for i, name := range slices.Backward(names) {
		if i%256 == 0 && ctx.Err() != nil {
			return -1, errTime
		}
		n, err := unix.Readlinkat(int(dir.Fd()), name, link[:])
		if err == nil && socketInode(link[:n]) == inode {
			return strconv.Atoi(name)
		}
		if errors.Is(err, os.ErrPermission) {
			return -1, err // reading the other links would fail as well
		}
	}
	return -1, nil
}

// holdsStill reports whether a descriptor is still the same socket. A socket's inode number is
// not reused while the socket exists.
func (p proc) holdsStill(pid, fd int, inode uint64) bool {
	var link [64]byte
	n, err := unix.Readlink(p.file(pid, "fd/"+strconv.Itoa(fd)), link[:])
	return err == nil && socketInode(link[:n]) == inode
}
