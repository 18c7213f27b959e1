package arbiter_test

import (
	"testing"
	"time"

	"penstock/core/arbiter"
	"penstock/core/cost"
	"penstock/core/depth"
)

// cold is a file without resident pages.
type cold struct{}

func (cold) Missing(_, length int64) int64 { return length }
func (cold) Saved(_, _ int64) int64        { return 0 }
func (cold) Written() (int64, bool)        { return 0, true }
func (cold) Deleted() bool                 { return false }

// byHand returns the arbiter of a disk that serves one request at a time. Requests end when the test calls Done.
func byHand(t *testing.T, fixed int) *arbiter.Arbiter {
	t.Helper()
	line := cost.Line{Fixed: time.Millisecond, PerMiB: 10 * time.Millisecond}
	a, err := arbiter.New(arbiter.Options{Mode: arbiter.Enforce, Policy: equal, Config: arbiter.Config{
		Algorithm: "sfqd", FixedDepth: fixed, Quantum: mib, Depth: depth.Config{Read: depth.Line(line)}, Seek: time.Millisecond, Staged: 64 * mib}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func equal(string) arbiter.Rule { return arbiter.Rule{Weight: 1, Mode: arbiter.Enforce} }

func started(a *arbiter.Arbiter, now time.Duration) (all []*arbiter.Request) {
	actions, _ := a.Decide(now)
	for _, x := range actions {
		if x.Kind == arbiter.Start {
			all = append(all, x.Request)
		}
	}
	return all
}

func end(a *arbiter.Arbiter, now time.Duration, r *arbiter.Request) {
	a.Done(now, r, arbiter.Result{Moved: r.Length, Latency: 10 * time.Millisecond})
}

// TestDelay checks that a delay holds a flow back for the given service, in addition to the weights
// and within Config.Debt. A delay of an unknown flow is ignored.
func TestDelay(t *testing.T) {
	for _, c := range []struct{ debt, delay, alone time.Duration }{
		{0, 4 * time.Second, 4 * time.Second},
		{2 * time.Second, 4 * time.Second, time.Second}, // two flows are ready, so half of the debt
	} {
		w := diskWorld(t, 1, equal, func(cfg *arbiter.Config) { cfg.Debt = c.debt })
		w.reader("a", endlessFile)
		w.reader("b", endlessFile)
		w.run(20 * time.Second)
		w.a.Delay("nobody", time.Hour)
		w.a.Delay("a", -time.Second)
		w.a.Delay("a", c.delay)
		from := w.now
		w.run(10 * time.Second)
		all := w.between(from, w.now)
		if ahead := all["b"].service - all["a"].service; ahead < c.alone*8/10 || ahead > c.alone*12/10 {
			t.Errorf("debt %v: b is ahead by %v after a delay of %v, want %v", c.debt, ahead, c.delay, c.alone)
		}
	}
}

// TestUse checks that Use returns the same account as Snapshot.
func TestUse(t *testing.T) {
	w := diskWorld(t, 2, equal, nil)
	w.reader("a", endlessFile)
	w.writer("a", endlessFile)
	w.run(5 * time.Second)
	service, wanted := w.a.Use(w.now, "a")
	f := w.a.Snapshot(w.now).Flows[0]
	if service != f.Service || wanted != f.Wanted || service == 0 || wanted == 0 {
		t.Errorf("used %v, wanted %v; the snapshot has %v and %v", service, wanted, f.Service, f.Wanted)
	}
	if service, wanted := w.a.Use(w.now, "nobody"); service != 0 || wanted != 0 {
		t.Errorf("an unknown flow used %v and wanted %v", service, wanted)
	}
}

// TestFlight checks that Flight bounds one reader's requests in flight below the depth.
func TestFlight(t *testing.T) {
	for flight, want := range map[int]int{0: 16, 1: 1, 3: 3, 17: 16} {
		a := byHand(t, 16)
		a.Open(1, arbiter.Opening{Flow: "a", File: cold{}, To: 1 << 40, Flight: flight})
		if got := len(started(a, 1)); got != want {
			t.Errorf("at most %d: %d requests are at the device, want %d", flight, got, want)
		}
	}
}

// TestBlockedPart checks that parts behind a delayed request do not count as ahead of their reader.
// The reader continues to request, up to a quarter of Config.Staged beyond its usual bound.
func TestBlockedPart(t *testing.T) {
	a := byHand(t, 4)
	a.Open(1, arbiter.Opening{Flow: "a", File: cold{}, To: 1 << 40})
	now := time.Duration(1)
	flying := started(a, now)
	first, asked := flying[0], int64(0)
	flying = flying[1:]
	for len(flying) > 0 {
		now += 10 * time.Millisecond
		asked = flying[0].Offset + flying[0].Length
		end(a, now, flying[0])
		flying = append(flying[1:], started(a, now)...)
	}
	if least, most := 16*mib, 16*mib+3*mib; asked < least || asked > most {
		t.Errorf("behind the first part %d bytes were requested, want %d to %d", asked, least, most)
	}
	end(a, now, first)
	if got := len(started(a, now)); got == 0 {
		t.Error("no request starts after the first part has arrived, although the reader can continue")
	}
}

// TestIdle checks that Idle is true only while ticks have nothing to do.
func TestIdle(t *testing.T) {
	w := diskWorld(t, 2, equal, nil)
	if !w.a.Idle() {
		t.Error("a new arbiter is not idle")
	}
	g := w.reader("a", 8*mib)
	if w.a.Idle() {
		t.Error("idle with a reader that has just begun")
	}
	w.run(10 * time.Second)
	if !g.closed || !w.a.Idle() {
		t.Errorf("the reader is done: %v, idle: %v", g.closed, w.a.Idle())
	}
	w.writer("a", mib)
	if w.a.Idle() {
		t.Error("idle with a writer")
	}
	w.run(10 * time.Second)
	if !w.a.Idle() {
		t.Error("not idle some seconds after all bytes are drained")
	}
}

// TestTheWaitForAFlowEnds checks that the device idles for a flow only while another flow is
// backlogged. When the other flow leaves, the idling ends, and no flow is charged for more time.
func TestTheWaitForAFlowEnds(t *testing.T) {
	w := diskWorld(t, 2, enforced(map[string]int{"strong": 100}), func(c *arbiter.Config) { c.Algorithm, c.Quantum = "sfqd2", 2*mib })
	var open *stream
	gone := false
	var next func()
	next = func() {
		if gone {
			return
		}
		open = w.open(&stream{}, arbiter.Opening{Flow: "strong", To: mib})
		w.drive(open, 0, mib).then = func() { w.after(5*time.Millisecond, next) }
	}
	next()
	weak := w.reader("weak", endlessFile)
	w.run(10 * time.Second)
	for range 10_000 {
		if w.a.WaitsFor() != "" {
			break
		}
		w.run(time.Millisecond)
	}
	if w.a.WaitsFor() != "strong" {
		t.Fatalf("the device waits for %q", w.a.WaitsFor())
	}
	gone = true
	weak.closed = true
	w.close(weak.s, weak.pos)
	before := w.decisions
	w.run(200 * time.Millisecond)
	if n := w.decisions - before; n > 50 || w.a.WaitsFor() != "" {
		t.Errorf("%d decisions in 200 ms of an idle device, which waits for %q", n, w.a.WaitsFor())
	}
}
