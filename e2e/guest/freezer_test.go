package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/lab/guest"
	"penstock/node/control/cgroup"
	"penstock/node/control/freezer"
	"penstock/node/control/journal"
)

const tick = 5 * time.Millisecond

// count writes a byte every few milliseconds.
func count() {
	for {
		if _, err := os.Stdout.Write([]byte{'.'}); err != nil {
			return
		}
		time.Sleep(tick)
	}
}

// freezeAndWait does what a daemon does that holds the cgroup of a process, and waits to be killed.
func freezeAndWait(path, pid string) error {
	var number int
	if _, err := fmt.Sscan(pid, &number); err != nil {
		return err
	}
	j, err := journal.Open(path, undo)
	if err != nil {
		return err
	}
	f, err := freezer.Start(nobody)
	if err != nil {
		return err
	}
	g, err := freezer.OfProcess(number)
	if err != nil {
		return err
	}
	if err := f.Hold(j, g, 0.2, "a test"); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin) // until it is killed
	return err
}

// counter is a process that counts.
type counter struct {
	*machine
	cmd   *exec.Cmd
	count atomic.Int64
}

func startCounter(m *machine, path string) *counter {
	m.Helper()
	c := &counter{machine: m}
	group := m.group(path)
	dir, err := os.Open(guest.Cgroups + group.Path)
	m.must(err)
	defer dir.Close()
	c.cmd = m.work(cgroup.Group{}, "count")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	out, err := c.cmd.StdoutPipe()
	m.must(err)
	m.must(c.cmd.Start())
	m.Cleanup(func() { c.cmd.Process.Kill(); c.cmd.Wait() })
	go func() {
		block := make([]byte, 4096)
		for {
			n, err := out.Read(block)
			c.count.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	c.counts(1)
	return c
}

// counts waits until the process has counted n times more, and returns how long that took.
func (c *counter) counts(n int64) time.Duration {
	c.Helper()
	began, from := time.Now(), c.count.Load()
	for c.count.Load() < from+n {
		if time.Since(began) > 2*time.Minute {
			c.Fatalf("the process has counted %d times in two minutes", c.count.Load()-from)
		}
		time.Sleep(tick)
	}
	return time.Since(began)
}

func freezerHoldsToItsDuty(t *testing.T) {
	m := start(t)
	c := startCounter(m, "/freezer/duty")
	g, err := freezer.OfProcess(c.cmd.Process.Pid)
	m.must(err)
	if g.Hierarchy.Version != cgroup.V2 {
		t.Fatalf("the process is frozen by %s", g)
	}
	f, err := freezer.Start(nobody)
	m.must(err)
	defer func() { m.must(f.Close()) }()
	const n = 200
	free := c.counts(n)
	m.must(f.Hold(m.journal, g, 0.25, "a test"))
	c.counts(1)
	held := c.counts(n)
	state := f.Held()
	m.must(f.Lift(m.journal, g))
	m.expect("/freezer/duty/cgroup.freeze", "0")
	t.Logf("%d counts: %v free, %v at duty 0.25; %+v", n, free, held, state)
	if held < free*3/2 || len(state) != 1 || state[0].Times == 0 {
		t.Errorf("%d counts took %v without a hold, and %v at duty 0.25", n, free, held)
	}
	root, err := freezer.OfProcess(1)
	if err == nil {
		t.Errorf("the root can be frozen: %v", root)
	}
	protected, err := freezer.Start(func() []int { return []int{c.cmd.Process.Pid} })
	m.must(err)
	defer func() { m.must(protected.Close()) }()
	if err := protected.Hold(m.journal, g, 0.5, "a test"); !errors.Is(err, cgroup.ErrProtected) {
		t.Errorf("a cgroup with a protected process: %v", err)
	}
}

func frozenProcessesAreReleased(t *testing.T) {
	m := start(t)
	c := startCounter(m, "/freezer/kill")
	path := filepath.Join(t.TempDir(), "journal")
	for range 4 {
		daemon := m.daemon("freeze", path, fmt.Sprint(c.cmd.Process.Pid))
		for m.value("/freezer/kill/cgroup.freeze") == "0" {
			time.Sleep(tick)
		}
		m.must(daemon.Process.Kill())
		daemon.Wait()
		if took := c.counts(1); took > time.Second {
			t.Errorf("the process was held for %v after the daemon was killed", took)
		}
	}
	j, err := journal.Open(path, undo)
	m.must(err)
	m.expect("/freezer/kill/cgroup.freeze", "0")
	m.must(j.Close())
}
