package gate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/lab/ledger"
)

// Each kind of rule selects its process, and nothing else on the same file system.
func TestRulesSelectProcesses(t *testing.T) {
	dir := disk(t, "ext4")
	h := newHeld(t)
	g := startGate(t, Options{Held: h.take})
	must(t, g.Mark(dir))
	n := 0
	process := func(hows ...how) *helper {
		n++
		p := startHelper(t, hows, "steps", filepath.Join(dir, fmt.Sprint("file", n)), "write:1", "write:2", "write:3", "write:4")
		p.line()
		return p
	}
	group := cgroup(t)
	selected, other := process(as(foreignUser)), process(as(foreignUser+1))
	must(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, selected.pid()), 0))
	name := "/" + filepath.Base(group)
	for _, test := range []struct {
		what  string
		rules []Rule
		class uint32 // 0: passes
	}{
		{"a user", []Rule{{Class: 1, UID: foreignUser}}, 1},
		{"a control group", []Rule{{Class: 2, UID: AnyUser, CgroupPrefix: name}}, 2},
		{"a process", []Rule{{Class: 3, UID: AnyUser, PID: selected.pid()}}, 3},
		{"the first rule decides", []Rule{{Class: 0, UID: foreignUser}, {Class: 4, UID: AnyUser, Comm: "exe"}}, 0},
	} {
		must(t, g.Classes(test.rules))
		// The kernel may ignore the file for the rest of the tick. The rule applies from the next tick on.
		freshStats(t, g)
		selected.begin()
		if test.class > 0 {
			r := h.next(t)
			if r.Class != test.class || r.PID != selected.pid() {
				t.Errorf("%s: held %+v, want class %d of process %d", test.what, r, test.class, selected.pid())
			}
			must(t, g.Allow(r.ID))
		}
		selected.line()
		if test.what != "the first rule decides" {
			other.begin()
			other.line()
		}
		h.none(t, test.what)
	}

	p := process(as(foreignUser + 2))
	must(t, g.Classes([]Rule{{Class: 5, UID: foreignUser + 2, Comm: "exe"}}))
	p.begin()
	r := h.next(t)
	must(t, g.Allow(r.ID))
	p.line()
	must(t, g.Pass([]int{p.pid()}))
	p.begin()
	p.line()
	h.none(t, "a process in the pass list")
}

// cgroup makes a control group that is removed with the test.
func cgroup(t *testing.T) string {
	t.Helper()
	for _, hierarchy := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(hierarchy, "cgroup.procs")); err != nil {
			continue
		}
		changes, err := ledger.Open(t.TempDir())
		must(t, err)
		t.Cleanup(func() { must(t, changes.Close()) })
		group := filepath.Join(hierarchy, fmt.Sprintf("penstock-gate-%d", os.Getpid()))
		_, err = changes.Cgroup(group)
		must(t, err)
		must(t, os.Mkdir(group, 0o755))
		return group
	}
	t.Fatal("no hierarchy of control groups is mounted")
	return ""
}

// A buffered writer, which a control group of version 1 does not hold, gets the rate that the daemon
// gives; a process of another user on the same file system is not slowed.
func TestABufferedWriterGetsARate(t *testing.T) {
	const (
		rate  = 8 << 20 // bytes per second
		chunk = 64 << 10
		count = 128
		ideal = time.Second * chunk * count / rate
	)
	dir := disk(t, "ext4")
	h := newHeld(t)
	g := startGate(t, Options{Held: h.take})
	must(t, g.Classes([]Rule{{Class: 1, UID: foreignUser}}))
	must(t, g.Mark(dir))
	held := startHelper(t, []how{as(foreignUser)}, "writer", filepath.Join(dir, "held"), fmt.Sprint(chunk), fmt.Sprint(count))
	free := startHelper(t, []how{as(foreignUser + 1)}, "writer", filepath.Join(dir, "free"), fmt.Sprint(chunk), fmt.Sprint(count))
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	var bytes atomic.Int64
	go func() {
		next := time.Now()
		for {
			select {
			case r := <-h.requests:
				if r.PID != held.pid() {
					t.Errorf("held %+v", r)
				}
				bytes.Add(r.Length)
				next = next.Add(time.Duration(r.Length) * time.Second / rate)
				time.Sleep(time.Until(next))
				if err := g.Allow(r.ID); err != nil {
					t.Error(err)
				}
			case <-done:
				return
			}
		}
	}()
	begin := time.Now()
	held.begin()
	free.begin()
	for range count {
		free.line()
	}
	other := time.Since(begin)
	for range count {
		held.line()
	}
	took := time.Since(begin)
	t.Logf("%.2f MB/s, wanted %.2f; the other writer needed %v", float64(chunk*count)/1e6/took.Seconds(), float64(rate)/1e6, other.Round(time.Millisecond))
	if took < ideal*9/10 || took > 4*ideal {
		t.Errorf("the writer needed %v, want about %v", took, ideal)
	}
	if other > took*3/4 {
		t.Errorf("the writer that passes needed %v, and the held one %v", other, took)
	}
	if n := bytes.Load(); n != chunk*count {
		t.Errorf("%d bytes were reported, want %d", n, chunk*count)
	}
}

// A file system that Penstock or the system needs is refused, and leaves no mark.
func TestMarksThatAreRefused(t *testing.T) {
	dir := disk(t, "ext4")
	g := startGate(t, Options{Held: newHeld(t).take, Protected: []string{filepath.Join(dir, "log", "not-yet-there")}})
	for where, dir := range map[string]string{
		"the root file system":           "/",
		"the binary's file system":       filepath.Dir(self(t)[0]),
		"a file system in memory":        "/dev/shm",
		"procfs":                         "/proc",
		"the file system of a protected": dir,
	} {
		for name, set := range map[string]func(string) error{"Mark": g.Mark, "Watch": g.Watch} {
			if err := set(dir); !errors.Is(err, ErrRefused) {
				t.Errorf("%s of %s: error %v, want ErrRefused", name, where, err)
			}
		}
	}
	if err := g.Mark(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Mark of a missing folder: %v", err)
	}
	if n := marks(g.process); n != 0 {
		t.Errorf("%d marks", n)
	}
}

// An operation that the daemon does not answer passes after HoldAtMost.
func TestAForgottenOperationContinues(t *testing.T) {
	dir := disk(t, "ext4")
	h := newHeld(t)
	g := startGate(t, Options{Held: h.take, HoldAtMost: time.Second})
	must(t, g.Mark(dir))
	p := startHelper(t, nil, "steps", filepath.Join(dir, "file"), "write:1")
	p.line()
	must(t, g.Classes([]Rule{{Class: 1, UID: AnyUser, PID: p.pid()}}))
	begin := time.Now()
	p.begin()
	h.next(t)
	p.line()
	if took := time.Since(begin); took < time.Second*9/10 {
		t.Errorf("it waited for %v, want 1 s", took)
	}
	if s := freshStats(t, g); s.LetGoOld != 1 || s.Holding != 0 {
		t.Errorf("statistics %+v", s)
	}
}

// Kernels before 6.14 hold reads only and report no range. The gate finds the range of a pread(2).
func TestReadsOnly(t *testing.T) {
	dir := disk(t, "ext4")
	h := newHeld(t)
	g := startGate(t, Options{Held: h.take, ReadsOnly: true})
	if g.Ranged() {
		t.Error("the gate reports ranges")
	}
	must(t, g.Mark(dir))
	p := startHelper(t, nil, "steps", filepath.Join(dir, "file"), "write:10", "read:10", "read:10")
	p.line()
	must(t, g.Classes([]Rule{{Class: 1, UID: AnyUser, PID: p.pid()}}))
	p.begin()
	p.line()
	h.none(t, "a write")
	p.begin()
	p.line()
	h.none(t, "a read of resident bytes")
	f, err := os.Open(filepath.Join(dir, "file"))
	must(t, err)
	must(t, f.Sync())
	must(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	must(t, f.Close())
	p.begin()
	r := h.next(t)
	if r.Op != Read || r.Offset != 0 || r.Length != 10 || r.Direct {
		t.Errorf("the request is %+v", r)
	}
	must(t, g.Allow(r.ID))
	p.line()
}

func TestLimitsOfRulesAndPasses(t *testing.T) {
	g := startGate(t, Options{Held: newHeld(t).take})
	long := Rule{Class: 1, UID: 1, CgroupPrefix: "/" + strings.Repeat("a", maxText-1), Comm: strings.Repeat("b", 15)}
	rules := make([]Rule, MaxRules)
	for i := range rules {
		rules[i] = long
	}
	must(t, g.Classes(rules))
	if err := g.Classes(append(rules, long)); err == nil {
		t.Errorf("%d rules were accepted", MaxRules+1)
	}
	pids := make([]int, MaxPasses-1)
	for i := range pids {
		pids[i] = 1_000_000 + i
	}
	must(t, g.Pass(pids))
	if err := g.Pass(append(pids, 1)); err == nil {
		t.Errorf("%d passes were accepted", MaxPasses+1)
	}
	for _, bad := range []Rule{
		{Class: 1, UID: AnyUser}, {Class: 1, UID: -2}, {Class: 1, PID: -1},
		{Class: 1, UID: 0, Comm: strings.Repeat("b", 16)}, {Class: 1, UID: 0, CgroupPrefix: "docker"},
		{Class: 1, UID: 0, CgroupPrefix: long.CgroupPrefix + "a"},
	} {
		if err := g.Classes([]Rule{bad}); err == nil {
			t.Errorf("the rule %+v was accepted", bad)
		}
	}
}

// A file system that was unmounted is released without an error.
func TestUnmarkAfterUnmounting(t *testing.T) {
	dir := disk(t, "ext4")
	g := startGate(t, Options{Held: newHeld(t).take})
	must(t, g.Mark(dir))
	must(t, g.Unmark(dir))
	must(t, g.Unmark(dir)) // a second call does nothing
	must(t, g.Watch(dir))
	must(t, g.Mark(dir))
	if n := marks(g.process); n != 1 {
		t.Errorf("%d marks, want 1", n)
	}
	command(t, "umount", dir)
	until(t, "the mark is gone", func() bool { return marks(g.process) == 0 })
	must(t, g.Unmark(dir))
	must(t, g.Unwatch(dir))
	if len(g.places) != 0 {
		t.Errorf("%d file systems are still known", len(g.places))
	}
}
