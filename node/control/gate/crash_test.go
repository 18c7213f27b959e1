package gate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"penstock/node/control/journal"
)

const foreignUser = 54321

// A held process continues soon when a process of the gate is killed or stopped, and no mark is left.
func TestAHeldProcessContinues(t *testing.T) {
	dir := disk(t, "ext4")
	tests := []struct {
		what   string
		signal syscall.Signal
		victim func(daemon, supervisor, gate int) int
		stays  bool // the gate process opens the gate and continues to run
	}{
		{"the gate process is killed", syscall.SIGKILL, func(_, _, gate int) int { return gate }, false},
		{"the gate process is stopped", syscall.SIGSTOP, func(_, _, gate int) int { return gate }, false},
		{"the supervisor is killed", syscall.SIGKILL, func(_, supervisor, _ int) int { return supervisor }, false},
		{"the daemon is killed", syscall.SIGKILL, func(daemon, _, _ int) int { return daemon }, false},
		{"the daemon is stopped", syscall.SIGSTOP, func(daemon, _, _ int) int { return daemon }, true},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			r := beginRound(t, dir)
			if n := marks(r.gate); n != 1 {
				t.Errorf("the gate process has %d marks, want 1", n)
			}
			took := r.signal(t, test.victim(r.daemon.pid(), r.supervisor, r.gate), test.signal)
			t.Logf("the process continued after %v", took.Round(time.Millisecond))
			if test.stays {
				until(t, "the marks are gone", func() bool { return marks(r.gate) == 0 })
				r.p.begin()
				if got := r.p.line(); got != "write <nil>" {
					t.Errorf("the write returned %q", got)
				}
				must(t, syscall.Kill(r.daemon.pid(), syscall.SIGCONT))
				until(t, "the mark is back", func() bool { return marks(r.gate) == 1 })
			}
			r.end(t)
		})
	}
}

// TestKillsAndStops does the same at random moments, to one or two processes. It prints its seed.
func TestKillsAndStops(t *testing.T) {
	const most = time.Second
	dir := disk(t, "ext4")
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("PENSTOCK_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	rounds := 10
	if text := os.Getenv("PENSTOCK_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		must(t, err)
	}
	t.Logf("PENSTOCK_SEED=%d PENSTOCK_ROUNDS=%d", seed, rounds)
	random := rand.New(rand.NewPCG(seed, 0))
	var longest time.Duration
	for n := range rounds {
		r := beginRound(t, dir)
		victims := []int{r.daemon.pid(), r.supervisor, r.gate}
		signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP}
		// A pause, so that the moment between two heartbeats varies.
		time.Sleep(time.Duration(random.Int64N(int64(2 * tick))))
		first := random.IntN(len(victims))
		what := fmt.Sprintf("round %d: signal %v to process %d of daemon, supervisor, gate", n, signals[n%2], first+1)
		if first == 1 && n%2 == 1 { // a stopped supervisor delays nobody, unless another process is stopped, too
			must(t, syscall.Kill(victims[first], syscall.SIGSTOP))
			first = []int{0, 2}[random.IntN(2)]
			what += fmt.Sprintf(", then to process %d", first+1)
		}
		took := r.signal(t, victims[first], signals[n%2])
		longest = max(longest, took)
		if took > most {
			t.Logf("%s: the process continued after %v", what, took)
		}
		r.end(t)
		if t.Failed() {
			t.Fatal(what)
		}
	}
	t.Logf("the longest wait was %v", longest.Round(time.Millisecond))
}

// round is a process that is held by a daemon of its own.
type round struct {
	daemon, p        *helper
	supervisor, gate int
	name             string
}

func beginRound(t *testing.T, dir string) *round {
	t.Helper()
	r := &round{daemon: startHelper(t, nil, "daemon", dir, fmt.Sprint(foreignUser)), name: filepath.Join(dir, "file")}
	if _, err := fmt.Sscanf(r.daemon.line(), "pids %d %d", &r.supervisor, &r.gate); err != nil {
		t.Fatal(err)
	}
	r.p = startHelper(t, []how{as(foreignUser)}, "steps", r.name, "write:4096", "write:4096")
	r.p.line()
	r.p.begin()
	if want := fmt.Sprintf("held %d", r.p.pid()); r.daemon.line() != want {
		t.Errorf("the daemon did not report %q", want)
	}
	if !r.p.waiting() {
		t.Error("the process did not wait")
	}
	return r
}

// signal sends a signal and returns how long the held process waited after it.
func (r *round) signal(t *testing.T, victim int, signal syscall.Signal) time.Duration {
	t.Helper()
	begin := time.Now()
	must(t, syscall.Kill(victim, signal))
	if got := r.p.line(); got != "write <nil>" {
		t.Errorf("the write returned %q", got)
	}
	took := time.Since(begin)
	if took > 2*time.Second {
		t.Errorf("the process waited for %v", took)
	}
	return took
}

// end ends the daemon. The other two processes must then end, whatever their state.
func (r *round) end(t *testing.T) {
	t.Helper()
	r.daemon.kill()
	r.p.kill()
	until(t, "both processes have ended", func() bool { return gone(r.gate) && gone(r.supervisor) })
	must(t, os.Remove(r.name))
}

// gone reports whether a process has ended. A zombie counts as ended.
func gone(pid int) bool {
	state := stateOf(pid)
	return state == "" || state == "Z"
}

// The journal of the next daemon ends the processes that a killed daemon has left. A stopped supervisor and
// a stopped gate process cannot end by themselves.
func TestTheJournalEndsWhatIsLeft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "journal", "changes")
	must(t, os.Mkdir(filepath.Dir(file), 0o755))
	undo := map[string]journal.Undo{Mechanism: Undo}
	j, err := journal.Open(file, undo)
	must(t, err)
	g := startGate(t, Options{Held: newHeld(t).take, Journal: j})
	if n := len(j.Changes()); n != 2 {
		t.Fatalf("the journal has %d changes, want 2: %v", n, j.Changes())
	}
	for _, c := range j.Changes() {
		must(t, Undo(c))
		must(t, Undo(c)) // a second call does nothing
	}
	<-g.Done()
	noMarks(t, g.targets())
	must(t, g.Close())
	if n := len(j.Changes()); n != 0 {
		t.Errorf("the journal has %d changes after Close", n)
	}
	must(t, j.Close())
}

func TestUndoLeavesAnotherProcessWithTheSameID(t *testing.T) {
	p := startHelper(t, nil, "writer", "unused", "1", "0")
	start, err := startOf(p.pid())
	must(t, err)
	must(t, Undo(journal.Change{Mechanism: Mechanism, Target: "gate process", After: process{p.pid(), start + 1}.String()}))
	if gone(p.pid()) {
		t.Error("a process with another start time was ended")
	}
	must(t, Undo(journal.Change{Mechanism: Mechanism, Target: "gate process", After: process{p.pid(), start}.String()}))
	if !gone(p.pid()) {
		t.Error("the recorded process was not ended")
	}
	for _, bad := range []string{"", "1", "0 1", "-3 1", "1 2 3", "01 2"} {
		if err := Undo(journal.Change{Target: "gate process", After: bad}); err == nil {
			t.Errorf("Undo accepted %q", bad)
		}
	}
}

// The gate also opens if the daemon hangs and only its goroutine for heartbeats still runs.
func TestAHangingDaemonOpensTheGate(t *testing.T) {
	dir := disk(t, "ext4")
	h := newHeld(t)
	alive := make(chan bool, 1)
	alive <- true
	g := startGate(t, Options{Held: h.take, Alive: func() bool {
		a := <-alive
		alive <- a
		return a
	}})
	set := func(a bool) { <-alive; alive <- a }
	must(t, g.Mark(dir))
	p := startHelper(t, nil, "steps", filepath.Join(dir, "file"), "write:1", "write:2", "write:3")
	p.line()
	must(t, g.Classes([]Rule{{Class: 1, PID: p.pid(), UID: AnyUser}}))
	p.begin()
	first := h.next(t)
	set(false)
	p.line()
	p.begin()
	p.line()
	h.none(t, "while the gate is open")
	set(true)
	until(t, "the gate has closed", func() bool { s := g.Stats(); return !s.Open && s.Openings == 1 && marks(g.process) == 1 })
	p.begin()
	r := h.next(t)
	if r.ID == first.ID || r.Length != 3 {
		t.Errorf("after the opening: %+v", r)
	}
	must(t, g.Allow(first.ID)) // this operation has passed long ago
	if !p.waiting() {
		t.Error("a late answer to another request let the process go")
	}
	must(t, g.Allow(r.ID))
	p.line()
}
