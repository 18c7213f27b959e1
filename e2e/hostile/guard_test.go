package hostile

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/wire"
)

// memoryMax is what the daemon may hold, in bytes.
const memoryMax = 128 * mib

// gapMax is what no busy machine makes of the 250 ms between two heartbeats.
const gapMax = 3 * time.Second

// guard looks at the daemon all the time: that heartbeats come, that its status page
// answers, and what it holds.
type guard struct {
	node  *node
	agent *agent
	done  chan struct{}
	group sync.WaitGroup

	mu      sync.Mutex
	slowest time.Duration // answer of the status page
	unwell  []string
	files   int // the most descriptors
	inspect func(descriptors []string)
}

// watch begins at once, and judges at the end of the test, before the daemon ends.
func watch(t *testing.T, n *node) *guard { return watchWith(t, n, nil) }

// watchWith shows inspect the names of what the daemon has open, over and over.
func watchWith(t *testing.T, n *node, inspect func(descriptors []string)) *guard {
	t.Helper()
	a, err := connect(n.socket, wire.Hello{Role: wire.RoleDataNode, Directories: []string{dataDir(0), dataDir(1)}})
	fixture.Must(t, err)
	g := &guard{node: n, agent: a, done: make(chan struct{}), inspect: inspect}
	cpu, begin := cpuOf(n.PID()), time.Now()
	g.group.Go(func() { g.repeat(250*time.Millisecond, func() { g.ask(t) }) })
	g.group.Go(func() { g.repeat(20*time.Millisecond, func() { g.look(n.PID()) }) })
	t.Cleanup(func() {
		close(g.done)
		g.group.Wait()
		used := (cpuOf(n.PID()) - cpu).Seconds() / time.Since(begin).Seconds()
		peak, now := memoryOf(n.PID())
		a.mu.Lock()
		gap, dead, beats := max(a.gap, time.Since(a.last)), a.dead, a.beats
		a.mu.Unlock()
		t.Logf("the daemon: %d heartbeats, %v apart at most; %.1f MiB at its peak, %.1f now; %.2f CPUs; %d descriptors; its status took %v at most",
			beats, gap.Round(time.Millisecond), float64(peak)/mib, float64(now)/mib, used, g.files, g.slowest.Round(time.Millisecond))
		if gap > gapMax {
			t.Errorf("%v without a heartbeat", gap)
		}
		for bits, n := range dead {
			// On a busy machine a loop may miss its time once.
			if t.Logf("%d heartbeats said that a loop does not turn: bits %b", n, bits); n > 2+beats/10 {
				t.Errorf("%d of %d heartbeats", n, beats)
			}
		}
		if peak > memoryMax {
			t.Errorf("the daemon has held %.1f MiB", float64(peak)/mib)
		}
		for _, what := range g.unwell {
			t.Error(what)
		}
		a.close()
	})
	return g
}

func (g *guard) repeat(every time.Duration, do func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-g.done:
			return
		case <-ticker.C:
		}
	}
}

func (g *guard) ask(t *testing.T) {
	begin := time.Now()
	_, err := g.node.Get(t.Context(), "/status")
	select {
	case <-g.done:
		return // the test's context may have ended
	default:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slowest = max(g.slowest, time.Since(begin))
	if err != nil && len(g.unwell) < 5 {
		g.unwell = append(g.unwell, fmt.Sprint("the status page: ", err))
	}
}

func (g *guard) look(pid int) {
	names := descriptors(pid)
	g.mu.Lock()
	g.files = max(g.files, len(names))
	g.mu.Unlock()
	if g.inspect != nil {
		g.inspect(names)
	}
}

// descriptors are what a process has open.
func descriptors(pid int) (names []string) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if name, err := os.Readlink(dir + "/" + e.Name()); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// memoryOf is what a process holds, and has held at most, in bytes.
func memoryOf(pid int) (peak, now int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "VmHWM":
			peak = kb * kib
		case "VmRSS":
			now = kb * kib
		}
	}
	return peak, now
}

// cpuOf is the CPU time that a process has used.
func cpuOf(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100) // in clock ticks, of which Linux has 100 a second
}
