package gate

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/lab/asroot"
	"penstock/lab/ledger"
	"penstock/lab/poll"
)

// helperWord makes the test binary a helper process.
const helperWord = "gate-test-helper"

func TestMain(m *testing.M) {
	var err error
	switch last := os.Args[len(os.Args)-1]; {
	case last == RoleSupervisor:
		err = RunSupervisor()
	case last == RoleGate:
		err = RunGate()
	case len(os.Args) > 2 && os.Args[1] == helperWord:
		err = helpers[os.Args[2]](os.Args[3:])
	default:
		asroot.Main(m, "SameID|Parse|Cgroup|Frames|Bound|Forgets|SwapFiles|^Fuzz")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience is the longest time that a test waits for an event.
const patience = 20 * time.Second

// must ends the test if err is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// disk mounts a file system in memory, of the type ext4 or xfs, and returns its folder.
func disk(t testing.TB, kind string) string {
	t.Helper()
	// t.TempDir is not used, because the image must be in memory, and because the ledger must unmount
	// the file system before it removes the folder.
	run, err := os.MkdirTemp("/dev/shm", "penstock-gate-")
	must(t, err)
	must(t, os.Chmod(run, 0o755))
	changes, err := ledger.Open(filepath.Join(run, "run"))
	must(t, err)
	t.Cleanup(func() {
		must(t, changes.Close())
		must(t, os.RemoveAll(run))
	})
	image, mount := filepath.Join(run, "image"), filepath.Join(run, "mount")
	must(t, os.Mkdir(mount, 0o755))
	file, err := os.Create(image)
	must(t, err)
	must(t, file.Truncate(512<<20)) // the smallest that mkfs.xfs accepts is 300 MiB
	must(t, file.Close())
	command(t, "mkfs."+kind, "-q", image)
	_, err = changes.Mount(mount)
	must(t, err)
	command(t, "mount", "-o", "loop", image, mount)
	must(t, os.Chmod(mount, 0o777))
	return mount
}

func command(t testing.TB, words ...string) {
	t.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", words, err, out)
	}
}

// held records the requests that a gate reports.
type held struct {
	requests chan Request
	all      atomic.Int64

	mu   sync.Mutex
	kept []*File
}

// newHeld returns a recorder whose files are closed with the test.
func newHeld(t testing.TB) *held {
	h := &held{requests: make(chan Request, 2*maxHeld)}
	t.Cleanup(h.release)
	return h
}

// release closes the files of the requests.
func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.kept {
		f.Release()
		f.cache.closer.wait(patience) // the disk may be unmounted next
	}
	h.kept = nil
}

func (h *held) take(r Request) {
	h.all.Add(1)
	if r.File != nil {
		h.mu.Lock()
		h.kept = append(h.kept, r.File.Keep())
		h.mu.Unlock()
	}
	h.requests <- r
}

// next waits for a request.
func (h *held) next(t testing.TB) Request {
	t.Helper()
	select {
	case r := <-h.requests:
		return r
	case <-time.After(patience):
		t.Fatal("no operation was held")
		return Request{}
	}
}

// none reports an error if an operation is held.
func (h *held) none(t testing.TB, why string) {
	t.Helper()
	select {
	case r := <-h.requests:
		t.Errorf("%s: held %+v", why, r)
	default:
	}
}

func self(t testing.TB) []string {
	t.Helper()
	executable, err := os.Executable()
	must(t, err)
	return []string{executable}
}

// startGate starts a gate that is ended with the test.
func startGate(t testing.TB, o Options) *Gate {
	t.Helper()
	o.Command = self(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g, err := Start(ctx, o)
	must(t, err)
	t.Cleanup(func() {
		must(t, g.Close())
		noMarks(t, g.targets())
	})
	return g
}

// noMarks reports an error if one of the processes still runs, or has a mark.
func noMarks(t testing.TB, pids map[string]int) {
	t.Helper()
	for what, pid := range pids {
		if n := marks(pid); n > 0 {
			t.Errorf("the %s, process %d, has %d marks", what, pid, n)
		}
		if !gone(pid) {
			t.Errorf("the %s, process %d, is in state %s", what, pid, stateOf(pid))
		}
	}
}

// marks counts the marks of file systems of a process's fanotify groups.
func marks(pid int) (n int) {
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, info := range infos {
		text, _ := os.ReadFile(info)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "fanotify sdev:") {
				n++
			}
		}
	}
	return n
}

// stateOf returns the state of a process, empty if it does not exist.
func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return after[:1]
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := poll.Until(ctx, 2*time.Millisecond, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// helper is a process that does file I/O. It waits for a line on its standard input before each step
// and prints a line after it.
type helper struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	ended sync.Once
}

type how func(*exec.Cmd)

func as(uid uint32) how {
	return func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	}
}

func startHelper(t testing.TB, hows []how, words ...string) *helper {
	t.Helper()
	h := &helper{t: t, lines: make(chan string, 1<<16)}
	// Other users may not enter the folder of the test binary. They can follow this link.
	h.cmd = exec.Command("/proc/self/exe", append([]string{helperWord}, words...)...)
	h.cmd.Stderr = os.Stderr
	for _, how := range hows {
		how(h.cmd)
	}
	var err error
	h.in, err = h.cmd.StdinPipe()
	must(t, err)
	out, err := h.cmd.StdoutPipe()
	must(t, err)
	must(t, h.cmd.Start())
	go func() {
		defer close(h.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			h.lines <- lines.Text()
		}
	}()
	t.Cleanup(h.kill)
	return h
}

func (h *helper) pid() int { return h.cmd.Process.Pid }

func (h *helper) kill() {
	h.ended.Do(func() {
		h.cmd.Process.Kill()
		h.cmd.Wait()
	})
}

// begin lets the helper do its next step.
func (h *helper) begin() {
	h.t.Helper()
	_, err := io.WriteString(h.in, "\n")
	must(h.t, err)
}

// line waits for the end of a step.
func (h *helper) line() string {
	h.t.Helper()
	select {
	case line, ok := <-h.lines:
		if !ok {
			h.t.Fatal("the helper process has ended")
		}
		return line
	case <-time.After(patience):
		h.t.Fatalf("the helper process %d does not continue; state %s", h.pid(), stateOf(h.pid()))
		return ""
	}
}

// waiting reports whether the helper has printed nothing.
func (h *helper) waiting() bool { return len(h.lines) == 0 }

var helpers = map[string]func([]string) error{
	"steps": steps, "writer": writer, "daemon": daemonHelper,
}

func init() { helpers["operate"] = operate }

// input reads the lines of a helper's standard input.
var input = bufio.NewReader(os.Stdin)

func awaitLine() error {
	_, err := input.ReadString('\n')
	return err
}

// steps opens a file and does operations on it, one for each line of input. Words: the file, and
// operations with a length, such as "write:4096".
func steps(words []string) error {
	f, err := os.OpenFile(words[0], os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for _, word := range words[1:] {
		if err := awaitLine(); err != nil {
			return err
		}
		op, length, _ := strings.Cut(word, ":")
		n, err := strconv.Atoi(length)
		if err != nil {
			return err
		}
		switch buf := make([]byte, n); op {
		case "write":
			_, err = f.WriteAt(buf, 0)
		case "read":
			_, err = f.ReadAt(buf, 0)
		case "reopen":
			f.Close()
			f, err = os.OpenFile(words[0], os.O_RDWR|os.O_CREATE, 0o666)
		}
		fmt.Println(op, err)
	}
	return awaitLine()
}

// writer appends chunks to a file and prints a line after each. Words: the file, the chunk's length,
// the number of chunks.
func writer(words []string) error {
	length, _ := strconv.Atoi(words[1])
	count, _ := strconv.Atoi(words[2])
	if err := awaitLine(); err != nil {
		return err
	}
	f, err := os.OpenFile(words[0], os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	buf := make([]byte, length)
	for range count {
		if _, err := f.Write(buf); err != nil {
			return err
		}
		fmt.Println("wrote")
	}
	return awaitLine()
}

// daemonHelper is a daemon that holds the operations of a user for ever. Words: the folder, the user.
func daemonHelper(words []string) error {
	uid, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	g, err := Start(context.Background(), Options{
		Command: []string{executable}, HoldAtMost: time.Hour,
		Held: func(r Request) { fmt.Println("held", r.PID) },
	})
	if err != nil {
		return err
	}
	if err := g.Classes([]Rule{{Class: 1, UID: uid}}); err != nil {
		return err
	}
	if err := g.Mark(words[0]); err != nil {
		return err
	}
	pids := g.targets()
	fmt.Println("pids", pids["supervisor of the gate"], pids["gate process"])
	<-g.Done()
	fmt.Println("ended", g.Err())
	return awaitLine()
}

// freshStats returns statistics that are younger than the call.
func freshStats(t testing.TB, g *Gate) Stats {
	t.Helper()
	pongs := func() int {
		g.statsMu.Lock()
		defer g.statsMu.Unlock()
		return g.pongs
	}
	before := pongs()
	until(t, "new statistics", func() bool { return pongs() >= before+2 })
	return g.Stats()
}
