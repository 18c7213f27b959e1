package arbiter_test

import (
	"testing"
	"time"

	"penstock/core/arbiter"
)

// preads is smallReads of a block whose checksums are on the disk, too: each read needs two places of the disk.
func (w *world) preads(flow string, every, until time.Duration, took *[]time.Duration) {
	if w.now >= until {
		return
	}
	begin, off := w.now, 8*mib
	s := w.open(&stream{file: w.newFile(64 * mib), meta: w.newFile(512*kib + 7)}, arbiter.Opening{Flow: flow, From: off, To: off + 16*kib})
	g := w.drive(s, 0, off+16*kib)
	g.pos = off
	g.then = func() { *took = append(*took, w.now-begin) }
	w.after(every, func() { w.preads(flow, every, until, took) })
}

// preadsBeside runs ten reads per second with a goal beside two writers from 20 s to 80 s. The profile says seeks of 9 ms.
// A request's end is noticed after a millisecond.
func preadsBeside(t *testing.T, goal, seek time.Duration, quantum int64, weights map[string]int) (w *world, took []time.Duration) {
	const rate = 20e6
	cfg := diskConfig(rate, 9*time.Millisecond)
	cfg.Depth.Max, cfg.Depth.Gain, cfg.Quantum, cfg.Backlog = 8, 1, quantum, 12*mib
	w, err := newWorld(arbiter.Options{Config: cfg, Mode: arbiter.Enforce, Policy: func(flow string) arbiter.Rule {
		if flow == "hbase" {
			return arbiter.Rule{Weight: 32, Mode: arbiter.Enforce, Latency: goal}
		}
		return arbiter.Rule{Weight: weights[flow], Mode: arbiter.Enforce}
	}}, rate, seek)
	if err != nil {
		t.Fatal(err)
	}
	w.disk.notice = time.Millisecond
	for flow := range weights {
		w.writer(flow, endlessFile)
	}
	w.run(20 * time.Second)
	w.preads("hbase", 103*time.Millisecond, 80*time.Second, &took)
	w.run(60 * time.Second)
	return w, took
}

// A goal costs the others hardly more than the reads themselves take.
func TestWhatAGoalCosts(t *testing.T) {
	for _, c := range []struct {
		goal, seek time.Duration
		quantum    int64
	}{
		{40 * time.Millisecond, 5 * time.Millisecond, mib},
		{50 * time.Millisecond, 5 * time.Millisecond, mib},
		{50 * time.Millisecond, 9 * time.Millisecond, mib},
		{50 * time.Millisecond, 9 * time.Millisecond, 2 * mib},
		{100 * time.Millisecond, 5 * time.Millisecond, mib},
	} {
		w, took := preadsBeside(t, c.goal, c.seek, c.quantum, map[string]int{"x": 1, "y": 1})
		rate := func(from, to time.Duration) float64 {
			got := w.between(from, to)
			return float64(got["x"].bytes+got["y"].bytes) / (to - from).Seconds() / w.disk.rate
		}
		idle, active := rate(10*time.Second, 20*time.Second), rate(22*time.Second, 80*time.Second)
		// A read takes a seek to the checksums, one to the data and one back, and transfers 20 KiB.
		reads := time.Duration(len(took)) * (3*c.seek + time.Duration(float64(20*kib)/w.disk.rate*float64(time.Second)))
		left := 1 - reads.Seconds()/60
		t.Logf("%+v: p99 %v; the writers have %.3f of the rate, %.3f without reads; the reads leave %.3f", c, p99(took[20:]), active, idle, left)
		if worst := p99(took[20:]); worst > c.goal {
			t.Errorf("%+v: p99 %v", c, worst)
		}
		if active < 0.96*left {
			t.Errorf("%+v: the writers have %.3f of the rate, and the reads leave %.3f", c, active, left)
		}
		if bad := w.a.Check(); bad != "" {
			t.Error(bad)
		}
	}
}

// Longer runs change no shares.
func TestSharesBesideAGoal(t *testing.T) {
	w, _ := preadsBeside(t, 50*time.Millisecond, 9*time.Millisecond, mib, map[string]int{"x": 1, "y": 3})
	for from := 25 * time.Second; from < 75*time.Second; from += 5 * time.Second {
		got := w.between(from, from+5*time.Second)
		if part := float64(got["x"].bytes) / float64(got["x"].bytes+got["y"].bytes); part < 0.22 || part > 0.28 {
			t.Errorf("from %v: x has %.3f of what both write, want 0.25", from, part)
		}
	}
}

// Whatever is in flight when a small read comes, seeks included, leaves time for the read itself.
func TestBudgetOfRequestsInFlight(t *testing.T) {
	const goal, seek, rate = 60 * time.Millisecond, 9 * time.Millisecond, 20e6
	own := seek + time.Duration(float64(64*kib)/rate*float64(time.Second))
	for _, depth := range []int{1, 2, 8} {
		cfg := diskConfig(rate, seek)
		cfg.Algorithm, cfg.FixedDepth, cfg.Quantum = "sfqd", depth, 256*kib
		w, err := newWorld(arbiter.Options{Config: cfg, Mode: arbiter.Enforce, Policy: goals(arbiter.Enforce, map[string]time.Duration{"hbase": goal})}, rate, seek)
		if err != nil {
			t.Fatal(err)
		}
		for _, flow := range []string{"u", "v", "w"} {
			w.writer(flow, endlessFile)
			w.reader("r"+flow, endlessFile)
			w.chain("c"+flow, 64*kib, 0, new(int))
		}
		var took []time.Duration
		w.smallReads("hbase", 100*time.Millisecond, time.Minute, &took)
		most, reads := time.Duration(0), 0
		w.began = func(_ *arbiter.Request, flow string) {
			if flow == "hbase" {
				reads++
			}
		}
		w.ended = func(_ *arbiter.Request, flow string, _ time.Duration) {
			if flow == "hbase" {
				reads--
			}
		}
		w.settled = func() {
			if w.now > 2*time.Second && reads == 0 {
				most = max(most, w.disk.free-w.now)
			}
		}
		w.run(30 * time.Second)
		t.Logf("depth %d: %v in flight, p99 %v, %+v", depth, most, p99(took), w.goalOf("hbase"))
		if most > goal-own || most < (goal-own)/4 {
			t.Errorf("depth %d: requests of %v are in flight, want at most %v", depth, most, goal-own)
		}
		if worst := p99(took[20:]); worst > goal {
			t.Errorf("depth %d: p99 %v", depth, worst)
		}
	}
}
