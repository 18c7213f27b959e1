package hostile

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/proc"
	"penstock/wire"
)

// memoryMax is the maximum memory of the daemon, in bytes.
const memoryMax = 128 * mib

// gapMax is the maximum time between two heartbeats. They are sent every 250 ms; even a busy
// machine does not delay them this long.
const gapMax = 3 * time.Second

// guard checks the daemon all the time: heartbeats come, and the status page answers. It also
// records the daemon's memory and descriptors.
type guard struct {
	node  *node
	agent *agent
	done  chan struct{}
	group sync.WaitGroup

	mu      sync.Mutex
	slowest time.Duration // answer of the status page
	unwell  []string
	files   int // maximum number of descriptors
	inspect func(descriptors []string)
}

// watch begins at once. It judges at the end of the test, before the daemon ends.
func watch(t *testing.T, n *node) *guard { return watchWith(t, n, nil) }

// watchWith also calls inspect repeatedly, with the names of the daemon's open files.
func watchWith(t *testing.T, n *node, inspect func(descriptors []string)) *guard {
	t.Helper()
	a, err := connect(n.socket, wire.Hello{Role: wire.RoleDataNode, Directories: []string{dataDir(0), dataDir(1)}})
	fixture.Must(t, err)
	g := &guard{node: n, agent: a, done: make(chan struct{}), inspect: inspect}
	begin := time.Now()
	cpu, _ := proc.CPUTime(n.PID()) // 0 if the daemon has ended, here and below
	g.group.Go(func() { g.repeat(250*time.Millisecond, func() { g.ask(t) }) })
	g.group.Go(func() { g.repeat(20*time.Millisecond, func() { g.look(n.PID()) }) })
	t.Cleanup(func() {
		close(g.done)
		g.group.Wait()
		cpuNow, _ := proc.CPUTime(n.PID())
		used := (cpuNow - cpu).Seconds() / time.Since(begin).Seconds()
		now, peak, _ := proc.Memory(n.PID())
		a.mu.Lock()
		gap, dead, beats := max(a.gap, time.Since(a.last)), a.dead, a.beats
		a.mu.Unlock()
		t.Logf("the daemon: %d heartbeats, %v apart at most; %.1f MiB at its peak, %.1f now; %.2f CPUs; %d descriptors; its status took %v at most",
			beats, gap.Round(time.Millisecond), float64(peak)/mib, float64(now)/mib, used, g.files, g.slowest.Round(time.Millisecond))
		if gap > gapMax {
			t.Errorf("%v without a heartbeat", gap)
		}
		for bits, n := range dead {
			// On a busy machine, a loop may be late once.
			if t.Logf("%d heartbeats reported a stalled loop: bits %b", n, bits); n > 2+beats/10 {
				t.Errorf("%d of %d heartbeats reported a stalled loop", n, beats)
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
	if t.Context().Err() != nil {
		return // the test ends; its context does so before done is closed
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

// descriptors returns the names of a process's open files.
func descriptors(pid int) []string {
	names, _ := proc.Descriptors(pid) // none after its end
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
