package arbiter_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/core/arbiter"
)

// smallReads makes a flow read 16 KiB at a random place every interval until the given time, and collects how long
// the reads took.
func (w *world) smallReads(flow string, every, until time.Duration, took *[]time.Duration) {
	if w.now >= until {
		return
	}
	begin := w.now
	g := w.drive(w.open(&stream{}, arbiter.Opening{Flow: flow, To: 16 * kib}), 0, 16*kib)
	g.then = func() { *took = append(*took, w.now-begin) }
	w.after(every, func() { w.smallReads(flow, every, until, took) })
}

func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Clone(all)
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*99/100)]
}

// besideOthers runs small reads beside writers or readers on a disk of 20 MB/s. It returns the p99 of the reads from 2 s
// on, and the bytes that the others moved per second while the reads ran and from 10 s after them.
func besideOthers(t *testing.T, goal time.Duration, writers, readers int) (worst time.Duration, during, after float64, w *world) {
	const rate, seek = 20e6, 8 * time.Millisecond
	cfg := diskConfig(rate, seek)
	cfg.Algorithm, cfg.FixedDepth, cfg.Quantum = "sfqd", 2, 2*mib
	w, err := newWorld(arbiter.Options{Config: cfg, Mode: arbiter.Enforce, Policy: func(flow string) arbiter.Rule {
		if flow == "hbase" {
			return arbiter.Rule{Weight: 32, Mode: arbiter.Enforce, Latency: goal}
		}
		return arbiter.Rule{Weight: 1, Mode: arbiter.Enforce}
	}}, rate, seek)
	if err != nil {
		t.Fatal(err)
	}
	for i := range writers {
		w.writer(fmt.Sprint("w", i), endlessFile)
	}
	for i := range readers {
		w.reader(fmt.Sprint("r", i), endlessFile)
	}
	var took []time.Duration
	w.smallReads("hbase", 100*time.Millisecond, 62*time.Second, &took)
	w.run(90 * time.Second)
	if len(took) < 300 {
		t.Fatalf("only %d small reads have ended", len(took))
	}
	others := func(from, to time.Duration) float64 {
		sum := int64(0)
		for flow, g := range w.between(from, to) {
			if flow != "hbase" {
				sum += g.bytes
			}
		}
		return float64(sum) / (to - from).Seconds()
	}
	if bad := w.a.Check(); bad != "" {
		t.Error(bad)
	}
	return p99(took[20:]), others(2*time.Second, 60*time.Second), others(72*time.Second, 90*time.Second), w
}

func TestALatencyGoal(t *testing.T) {
	for _, c := range []struct{ writers, readers int }{{2, 0}, {0, 16}} {
		without, throughput, idle, _ := besideOthers(t, 0, c.writers, c.readers)
		with, during, after, _ := besideOthers(t, 50*time.Millisecond, c.writers, c.readers)
		t.Logf("%+v: p99 %v without, %v with; the others %.2f of without, and %.2f afterwards", c, without, with, during/throughput, after/idle)
		if with > 50*time.Millisecond {
			t.Errorf("%+v: p99 %v, want at most 50ms", c, with)
		}
		if during < 0.85*throughput || after < 0.97*idle {
			t.Errorf("%+v: the others had %.0f of %.0f bytes a second, and afterwards %.0f of %.0f", c, during, throughput, after, idle)
		}
	}
}

// goalOf returns the state of a flow's goal.
func (w *world) goalOf(flow string) arbiter.LatencySnapshot {
	for _, f := range w.a.Snapshot(w.now).Flows {
		if f.Name == flow {
			return f.Latency
		}
	}
	return arbiter.LatencySnapshot{}
}

// goals returns a policy of latency goals, with the given mode for the flows that have one.
func goals(mode arbiter.Mode, of map[string]time.Duration) arbiter.Policy {
	return func(flow string) arbiter.Rule {
		rule := arbiter.Rule{Weight: 1, Mode: arbiter.Enforce, Latency: of[flow]}
		if rule.Latency > 0 {
			rule.Weight, rule.Mode = 32, mode
		}
		return rule
	}
}

func TestAGoalNeedsSmallReadsInEnforceMode(t *testing.T) {
	goal := map[string]time.Duration{"a": 50 * time.Millisecond}
	for name, c := range map[string]struct {
		mode   arbiter.Mode
		reads  bool
		active bool
	}{
		"reads": {arbiter.Enforce, true, true}, "writes only": {arbiter.Enforce, false, false}, "observe": {arbiter.Observe, true, false},
	} {
		w := diskWorld(t, 4, goals(c.mode, goal), func(cfg *arbiter.Config) { cfg.Quantum = 2 * mib })
		w.writer("x", endlessFile)
		var took []time.Duration
		if c.reads {
			w.smallReads("a", 100*time.Millisecond, time.Minute, &took)
		} else {
			w.writer("a", endlessFile)
		}
		w.run(20 * time.Second)
		g := w.goalOf("a")
		if g.Active != c.active || (g.Slice > 0) != c.active {
			t.Errorf("%s: %+v, want active: %v", name, g, c.active)
		}
		if name == "reads" && g.Reads == 0 {
			t.Errorf("%s: no read was measured", name)
		}
		w.a.Apply(w.now, arbiter.Enforce, goals(c.mode, nil)) // the goal is removed
		w.run(time.Second)
		if g := w.goalOf("a"); g != (arbiter.LatencySnapshot{}) {
			t.Errorf("%s: after the goal was removed: %+v", name, g)
		}
	}
}

func TestTheStrictestGoalCounts(t *testing.T) {
	slice := func(of map[string]time.Duration) int64 {
		w := diskWorld(t, 4, goals(arbiter.Enforce, of), func(cfg *arbiter.Config) { cfg.Quantum = 2 * mib })
		w.writer("x", endlessFile)
		var took []time.Duration
		for _, flow := range []string{"a", "b"} {
			w.smallReads(flow, 200*time.Millisecond, time.Minute, &took)
		}
		w.run(time.Second)
		return max(w.goalOf("a").Slice, w.goalOf("b").Slice)
	}
	loose, strict := 200*time.Millisecond, 60*time.Millisecond
	one, both := slice(map[string]time.Duration{"a": strict}), slice(map[string]time.Duration{"a": strict, "b": loose})
	if other := slice(map[string]time.Duration{"b": loose}); one != both || other <= one {
		t.Errorf("slices: %d for the strict goal, %d for both, %d for the loose one", one, both, other)
	}
}

func TestAGoalThatTheDeviceCannotKeep(t *testing.T) {
	w := diskWorld(t, 4, goals(arbiter.Enforce, map[string]time.Duration{"a": 10 * time.Millisecond}), func(cfg *arbiter.Config) { cfg.Quantum = 2 * mib })
	w.writer("x", endlessFile)
	var took []time.Duration
	w.smallReads("a", 100*time.Millisecond, time.Minute, &took)
	w.run(20 * time.Second)
	if g := w.goalOf("a"); g.Least <= g.Goal || g.Slice != 128*kib || g.Depth != 1 || g.P99 == 0 {
		t.Errorf("%+v", g)
	}
}
