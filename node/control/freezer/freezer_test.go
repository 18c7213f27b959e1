package freezer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/lab/ledger"
	"penstock/node/control/cgroup"
	"penstock/node/control/journal"
)

const (
	// daemonVariable makes this test binary a daemon that holds a cgroup and waits to be killed. Its
	// value is the journal's path and the pid of a process in the cgroup.
	daemonVariable = "PENSTOCK_TEST_FREEZER_DAEMON"
	// counterVariable makes it a process that writes a byte every few milliseconds.
	counterVariable = "PENSTOCK_TEST_FREEZER_COUNTER"
)

func TestMain(m *testing.M) {
	RunIfHelper()
	if order := os.Getenv(daemonVariable); order != "" {
		if err := daemon(order); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(counterVariable) != "" {
		for {
			if _, err := os.Stdout.Write([]byte{'.'}); err != nil {
				os.Exit(0)
			}
			time.Sleep(tick)
		}
	}
	os.Exit(m.Run())
}

const tick = 2 * time.Millisecond

var undo = map[string]journal.Undo{Mechanism: Undo}

func daemon(order string) error {
	var path string
	var pid int
	if _, err := fmt.Sscan(order, &path, &pid); err != nil {
		return err
	}
	j, err := journal.Open(path, undo)
	if err != nil {
		return err
	}
	f, err := Start(func() []int { return nil })
	if err != nil {
		return err
	}
	g, err := OfProcess(pid)
	if err != nil {
		return err
	}
	if err := f.Hold(j, g, 0.2, "a test"); err != nil {
		return err
	}
	fmt.Println(f.helper.child.pid)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return errors.Join(f.Close(), j.Close())
}

// counter is a process that counts, in a freezer's cgroup of its own.
type counter struct {
	*testing.T
	cmd    *exec.Cmd
	count  atomic.Int64
	group  cgroup.Group
	folder string
}

// startCounter returns nil on a machine whose freezer of cgroup v1 cannot be used. It has then checked that
// OfProcess returns an error. The freezer of v2 is tested in a guest: see e2e/guest.
func startCounter(t *testing.T, name string) *counter {
	t.Helper()
	h, err := cgroup.Find(cgroup.V1, controller)
	if err != nil || os.Geteuid() != 0 {
		if _, err := OfProcess(1); err == nil {
			t.Fatal("the first process can be frozen")
		}
		return nil
	}
	if err := Available(); err != nil {
		t.Fatal(err)
	}
	book, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := book.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &counter{T: t, folder: filepath.Join(h.Mount, fmt.Sprintf("penstock-freezer-%d-%s", os.Getpid(), name))}
	if _, err := book.Cgroup(c.folder); err != nil {
		t.Fatal(err)
	}
	c.must(os.Mkdir(c.folder, 0o755))
	c.cmd = exec.Command("/bin/sh", "-c", `echo 0 >"$1/cgroup.procs" && exec "$2"`, "sh", c.folder, os.Args[0])
	c.cmd.Env = append(os.Environ(), counterVariable+"=1")
	out, err := c.cmd.StdoutPipe()
	c.must(err)
	_, err = book.StartProcess(c.cmd)
	c.must(err)
	t.Cleanup(func() {
		// A frozen process cannot end.
		_ = os.WriteFile(filepath.Join(c.folder, fileV1), []byte("THAWED"), 0)
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	first := make(chan struct{})
	go func() {
		block := make([]byte, 4096)
		for {
			n, err := out.Read(block)
			if n > 0 && c.count.Add(int64(n)) == int64(n) {
				close(first)
			}
			if err != nil {
				return
			}
		}
	}()
	select {
	case <-first:
	case <-time.After(time.Minute):
		t.Fatal("the process does not count")
	}
	c.group, err = OfProcess(c.cmd.Process.Pid)
	c.must(err)
	return c
}

func (c *counter) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// counts waits until the process has counted n times more, and returns how long that took.
func (c *counter) counts(n int64) time.Duration {
	c.Helper()
	began, from := time.Now(), c.count.Load()
	for c.count.Load() < from+n {
		if time.Since(began) > time.Minute {
			c.Fatalf("the process has counted %d times in a minute", c.count.Load()-from)
		}
		time.Sleep(tick)
	}
	return time.Since(began)
}

func (c *counter) state() string {
	c.Helper()
	b, err := os.ReadFile(filepath.Join(c.folder, fileV1))
	c.must(err)
	return strings.TrimSpace(string(b))
}

func open(t *testing.T) (*Freezer, *journal.Journal) {
	t.Helper()
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), undo)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Start(func() []int { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), j.Close()); err != nil {
			t.Error(err)
		}
	})
	return f, j
}

// A process in a cgroup counts in proportion to its duty, and freely after the hold was lifted.
func TestRealProcessIsHeldToItsDuty(t *testing.T) {
	c := startCounter(t, "duty")
	if c == nil {
		return
	}
	f, j := open(t)
	const n = 400
	free := c.counts(n)
	c.must(f.Hold(j, c.group, 0.25, "a test"))
	c.counts(1)
	held := c.counts(n)
	state := f.Held()[0]
	c.must(f.Lift(j, c.group))
	if got := c.state(); got != "THAWED" {
		t.Errorf("after Lift: %s", got)
	}
	again := c.counts(n)
	t.Logf("%d counts: %v free, %v at duty 0.25, %v after it; frozen %d times, %v", n, free, held, again, state.Times, state.Frozen)
	if ratio := held.Seconds() / min(free, again).Seconds(); ratio < 2.5 || ratio > 12 {
		t.Errorf("%d counts took %v at duty 0.25 and %v without", n, held, free)
	}
	if state.Times == 0 || state.Frozen/time.Duration(state.Times) > maxFrozen*3/2 || len(f.Held()) != 0 || len(j.Changes()) != 0 {
		t.Errorf("%+v; %v", state, j.Changes())
	}
	// The freezer does not undo the freeze of somebody else.
	c.must(f.Hold(j, c.group, 0.5, "a test"))
	for f.Held()[0].Times == 0 {
		time.Sleep(tick)
	}
	for f.Held()[0].Refused == 0 {
		c.must(os.WriteFile(filepath.Join(c.folder, fileV1), []byte("FROZEN"), 0))
		time.Sleep(tick)
	}
	c.must(f.Lift(j, c.group))
	if got := c.state(); got == "THAWED" {
		t.Error("somebody else's freeze was undone")
	}
	if err := f.Hold(j, c.group, 0.5, "a test"); err == nil || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("a cgroup that is frozen: %v", err)
	}
	c.must(os.WriteFile(filepath.Join(c.folder, fileV1), []byte("THAWED"), 0))
}

func TestProtectedProcessesAreNeverFrozen(t *testing.T) {
	c := startCounter(t, "protected")
	if c == nil {
		return
	}
	f, j := open(t)
	var protected atomic.Int64
	f.protected = func() []int { return []int{int(protected.Load())} }
	c.must(f.Hold(j, c.group, MinDuty, "a test"))
	for f.Held()[0].Times == 0 {
		time.Sleep(tick)
	}
	// The process becomes a protected one while its cgroup is held.
	protected.Store(int64(c.cmd.Process.Pid))
	for f.Held()[0].Refused == 0 {
		time.Sleep(tick)
	}
	before := f.Held()[0]
	for f.Held()[0].Refused < 5 {
		time.Sleep(tick)
	}
	after := f.Held()[0]
	if after.Times != before.Times || !strings.Contains(after.Why.Error(), fmt.Sprint(c.cmd.Process.Pid)) {
		t.Errorf("%+v, %+v", before, after)
	}
	c.must(f.Lift(j, c.group))
	if err := f.Hold(j, c.group, 0.5, "a test"); !errors.Is(err, cgroup.ErrProtected) {
		t.Errorf("a cgroup with a protected process: %v", err)
	}
	if _, err := OfProcess(os.Getpid()); err == nil {
		t.Error("this process, which is in the root, can be frozen")
	}
	if n := len(j.Changes()); n != 0 {
		t.Errorf("%d changes in the journal", n)
	}
}

// startDaemon starts a daemon that holds the counter, and returns it and its helper's pid.
func (c *counter) startDaemon(path string) (*exec.Cmd, int) {
	c.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", daemonVariable, path, c.cmd.Process.Pid))
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	c.must(err)
	out, err := cmd.StdoutPipe()
	c.must(err)
	c.must(cmd.Start())
	c.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		cmd.Process.Kill()
		cmd.Wait()
	})
	var helper int
	if _, err := fmt.Fscan(bufio.NewReader(out), &helper); err != nil {
		c.Fatalf("the daemon has not started: %v", err)
	}
	return cmd, helper
}

// released waits until the process counts, and reports an error if that takes more than a second.
func (c *counter) released(what string) {
	c.Helper()
	if took := c.counts(1); took > time.Second {
		c.Errorf("%s: the process was held for %v", what, took)
	}
}

// ended waits until a process that is not a child of this process has ended.
func (c *counter) ended(pid int) {
	c.Helper()
	for began := time.Now(); syscall.Kill(pid, 0) == nil; time.Sleep(tick) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		if time.Since(began) > 30*time.Second {
			c.Fatalf("process %d does not end", pid)
		}
	}
}

// However the daemon or its helper is killed or stopped, the process is released within a second. The
// next start finds everything thawed.
func TestKillsReleaseTheProcess(t *testing.T) {
	c := startCounter(t, "kill")
	if c == nil {
		return
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "journal")
	pause := func() { time.Sleep(time.Duration(random.Int64N(int64(2 * period)))) }
	for round := range 8 {
		d, helper := c.startDaemon(path)
		switch round % 4 {
		case 0:
			pause()
			c.must(d.Process.Kill())
			c.released("daemon killed")
		case 1:
			pause()
			c.must(syscall.Kill(helper, syscall.SIGKILL))
			c.released("helper killed")
		case 2:
			pause()
			c.must(syscall.Kill(helper, syscall.SIGSTOP))
			c.released("helper stopped")
			c.ended(helper) // the daemon kills it
			c.released("helper was stopped")
		case 3:
			pause()
			c.must(d.Process.Signal(syscall.SIGSTOP))
			c.released("daemon stopped")
			c.counts(100)
		}
		c.must(d.Process.Kill())
		d.Wait()
		c.ended(helper)
		c.released("daemon killed at the end")
		if got := c.state(); round%4 != 1 && round%4 != 2 && got != "THAWED" {
			t.Errorf("round %d: %s after daemon and helper have ended", round, got)
		}
	}
	j, err := journal.Open(path, undo)
	c.must(err)
	if got := c.state(); got != "THAWED" {
		t.Errorf("after the next start: %s", got)
	}
	c.must(j.Close())
}

// If daemon and helper are killed in the same moment, the next start thaws.
func TestNextStartThaws(t *testing.T) {
	c := startCounter(t, "both")
	if c == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "journal")
	left := false
	for began := time.Now(); !left; {
		if time.Since(began) > 2*time.Minute {
			t.Fatal("the cgroup was never frozen when both were killed")
		}
		d, helper := c.startDaemon(path)
		for c.state() == "THAWED" {
			time.Sleep(tick)
		}
		// A stopped daemon cannot replace its helper. The helper's own time is not over yet, mostly.
		c.must(d.Process.Signal(syscall.SIGSTOP))
		c.must(syscall.Kill(helper, syscall.SIGKILL))
		c.must(d.Process.Kill())
		d.Wait()
		c.ended(helper)
		left = c.state() != "THAWED"
		j, err := journal.Open(path, undo)
		c.must(err)
		if left && len(j.Restored()) != 1 {
			t.Errorf("restored: %v", j.Restored())
		}
		c.must(j.Close())
	}
	if got := c.state(); got != "THAWED" {
		t.Errorf("after the next start: %s", got)
	}
	c.released("next start")
	// Another cgroup of the same name is left alone.
	gone := targetOf(c.group)
	gone.id++
	c.must(os.WriteFile(filepath.Join(c.folder, fileV1), []byte("FROZEN"), 0))
	c.must(Undo(journal.Change{Mechanism: Mechanism, Target: gone.String(), Before: thawed, After: "runs"}))
	if got := c.state(); got == "THAWED" {
		t.Error("another cgroup of the name was thawed")
	}
	c.must(os.WriteFile(filepath.Join(c.folder, fileV1), []byte("THAWED"), 0))
}

// Close thaws, and leaves no helper and no record.
func TestCloseThaws(t *testing.T) {
	c := startCounter(t, "close")
	if c == nil {
		return
	}
	path := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(path, undo)
	c.must(err)
	f, err := Start(func() []int { return nil })
	c.must(err)
	helper := f.helper.child.pid
	c.must(f.Hold(j, c.group, MinDuty, "a test"))
	for c.state() == "THAWED" {
		time.Sleep(tick)
	}
	// Undo alone ends the cycle as well.
	c.must(j.PutBack(Mechanism, targetOf(c.group).String()))
	if got := c.state(); got != "THAWED" || len(f.Held()) != 0 {
		t.Errorf("after PutBack: %s, %v", got, f.Held())
	}
	c.must(f.Hold(j, c.group, MinDuty, "a test"))
	for c.state() == "THAWED" {
		time.Sleep(tick)
	}
	c.must(f.Close())
	c.must(f.Close())
	if got := c.state(); got != "THAWED" {
		t.Errorf("after Close: %s", got)
	}
	c.ended(helper)
	c.must(j.Close())
	if err := f.Hold(j, c.group, 0.5, "a test"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
