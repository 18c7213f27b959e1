package arbiter_test

import (
	"fmt"
	"testing"
	"time"

	"penstock/core/arbiter"
	"penstock/core/reserve"
)

// ruled returns a policy of these rules. Other flows have weight 1.
func ruled(rules map[string]arbiter.Rule) arbiter.Policy {
	return func(flow string) arbiter.Rule {
		rule := rules[flow]
		rule.Weight, rule.Mode = max(1, rule.Weight), arbiter.Enforce
		return rule
	}
}

func goalWorld(t *testing.T, depth int, rules map[string]arbiter.Rule) *world {
	return diskWorld(t, depth, ruled(rules), func(c *arbiter.Config) { c.Quantum = 2 * mib })
}

// part returns the part of the device's time that a flow had.
func (w *world) part(flow string, from, to time.Duration) float64 {
	return w.between(from, to)[flow].service.Seconds() / (to - from).Seconds()
}

// A flow of small reads, without a goal, that has not used up the quantum of its last slice.
func TestSmallReadsUseUpAQuantum(t *testing.T) {
	w := goalWorld(t, 2, map[string]arbiter.Rule{"hbase": {Weight: 32, Latency: 100 * time.Millisecond}})
	var took []time.Duration
	w.smallReads("hbase", 200*time.Millisecond, time.Minute, &took)
	w.writer("x", endlessFile)
	w.run(2 * time.Second)
	w.reader("bad", 1*mib)
	for range 16 {
		w.chain("bad", 64*kib, 0, new(int))
	}
	w.run(28 * time.Second)
	if had := w.part("x", 10*time.Second, 30*time.Second); had < 0.45 {
		t.Errorf("x has %.3f of the device beside small reads of equal weight", had)
	}
}

// The slices of a quantum that began as a reserved request are paid by the guaranteed rate too.
func TestAGuaranteedRateBesideAGoal(t *testing.T) {
	w := goalWorld(t, 2, map[string]arbiter.Rule{"hbase": {Weight: 32, Latency: 50 * time.Millisecond}, "vip": {Reserve: reserve.Rate{Part: 0.15}}})
	var took []time.Duration
	w.smallReads("hbase", 200*time.Millisecond, time.Minute, &took)
	w.writer("vip", endlessFile)
	for i := range 16 {
		w.writer(fmt.Sprint("x", i), endlessFile)
	}
	w.run(50 * time.Second)
	if had := w.part("vip", 10*time.Second, 50*time.Second); had < 0.14 || had > 0.2 {
		t.Errorf("the guaranteed rate of 0.15 has %.3f of the device", had)
	}
}

// A flow that is always backlogged does not go before the reads of a stricter goal.
func TestTheEarliestReadGoesFirst(t *testing.T) {
	w := goalWorld(t, 2, map[string]arbiter.Rule{"a": {Weight: 8, Latency: 2 * time.Second}, "b": {Weight: 8, Latency: 60 * time.Millisecond}})
	var took []time.Duration
	w.writer("x", endlessFile)
	for range 8 {
		w.chain("a", 64*kib, 0, new(int))
	}
	w.run(5 * time.Second)
	w.smallReads("b", 300*time.Millisecond, time.Minute, &took)
	w.run(60 * time.Second)
	if worst := p99(took[20:]); worst > 60*time.Millisecond {
		t.Errorf("p99 %v, want at most 60ms", worst)
	}
}

// A small read goes before a large read of its own flow, although that has a run.
func TestASmallReadInterruptsARunOfItsFlow(t *testing.T) {
	w := goalWorld(t, 2, map[string]arbiter.Rule{"hbase": {Weight: 4, Latency: 60 * time.Millisecond}})
	var took []time.Duration
	w.smallReads("hbase", 100*time.Millisecond, time.Minute, &took)
	w.reader("hbase", endlessFile)
	for i := range 4 {
		w.reader(fmt.Sprint("x", i), endlessFile)
	}
	w.run(60 * time.Second)
	if g := w.goalOf("hbase"); g.Attained < 0.9 {
		t.Errorf("%+v", g)
	}
}

// After late reads, a flow that reads less than once a second gets its depth back.
func TestTheFactorRecoversWithFewReads(t *testing.T) {
	w := goalWorld(t, 4, map[string]arbiter.Rule{"hbase": {Weight: 32, Latency: 200 * time.Millisecond}})
	w.writer("x", endlessFile)
	var took []time.Duration
	w.smallReads("hbase", 1100*time.Millisecond, time.Hour, &took)
	w.run(30 * time.Second)
	before := w.goalOf("hbase")
	for range 8 { // the device stops
		w.disk.stopped = true
		w.after(time.Second, w.resume)
		for range 5 {
			w.smallReads("hbase", time.Hour, w.now+1, &took)
		}
		w.run(2 * time.Second)
	}
	w.run(20 * time.Minute)
	if after := w.goalOf("hbase"); after.Depth < before.Depth {
		t.Errorf("depth %d and slice %d, before %d and %d", after.Depth, after.Slice, before.Depth, before.Slice)
	}
}

// Small reads with a goal, of any size, have no more than the flow's share of the device.
func TestPriorityTakesNoMoreThanTheShare(t *testing.T) {
	for _, size := range []int64{16 * kib, 64 * kib, 128 * kib} {
		w := diskWorld(t, 2, ruled(map[string]arbiter.Rule{"a": {Weight: 1, Latency: 100 * time.Millisecond}}), func(c *arbiter.Config) { c.Quantum = 2 * mib })
		n := 0
		w.writer("x", endlessFile)
		for range 8 {
			w.chain("a", size, 0, &n)
		}
		w.run(40 * time.Second)
		if had := w.part("a", 10*time.Second, 40*time.Second); had > 0.53 {
			t.Errorf("reads of %d KiB: a has %.3f of the device, its share is 0.5", size/kib, had)
		}
	}
}

// Priority does not put the others into debt: after the small reads, x has its part of the rest at once.
func TestPriorityAndStrictRates(t *testing.T) {
	w := diskWorld(t, 2, ruled(map[string]arbiter.Rule{
		"a":   {Weight: 32, Latency: 100 * time.Millisecond},
		"vip": {Weight: 1, Reserve: reserve.Rate{Part: 0.6, Strict: true}},
	}), func(c *arbiter.Config) { c.Quantum = 2 * mib })
	n := 0
	w.chain("vip", 1*mib, 3*time.Second, new(int)) // mostly idle, so the rate counts
	w.writer("x", endlessFile)
	for range 8 {
		var loop func()
		loop = func() {
			if w.now < 30*time.Second {
				g := w.drive(w.open(&stream{}, arbiter.Opening{Flow: "a", To: 128 * kib}), 0, 128*kib)
				g.then = func() { n++; w.after(0, loop) }
			}
		}
		loop()
	}
	w.run(60 * time.Second)
	if had := w.part("a", 5*time.Second, 30*time.Second); had > 0.45 {
		t.Errorf("a has %.3f of the device beside a strict rate of 0.6", had)
	}
	if had := w.part("x", 5*time.Second, 30*time.Second); had < 0.005 {
		t.Errorf("x has %.3f of the device while a reads", had)
	}
	if had := w.part("x", 31*time.Second, 41*time.Second); had < 0.3 {
		t.Errorf("x has %.3f of the device after the reads of a, want 0.4", had)
	}
}

// Reads that are late because of the flow's own limit do not shorten the slices of the others.
func TestOwnLimitDoesNotShrinkSlices(t *testing.T) {
	w := diskWorld(t, 4, ruled(map[string]arbiter.Rule{"a": {Weight: 32, Latency: 300 * time.Millisecond, Limit: 64 * kib}}), func(c *arbiter.Config) { c.Quantum = 2 * mib })
	var took []time.Duration
	w.writer("x", endlessFile)
	w.smallReads("a", 500*time.Millisecond, time.Hour, &took)
	w.run(20 * time.Second)
	before := w.goalOf("a")
	w.smallReads("a", 150*time.Millisecond, time.Hour, &took) // more than the limit
	w.run(120 * time.Second)
	after := w.goalOf("a")
	if after.Slice < before.Slice*3/4 || after.Depth < before.Depth {
		t.Errorf("slice %d depth %d, before %d and %d", after.Slice, after.Depth, before.Slice, before.Depth)
	}
}

func TestGivenUpReadsCount(t *testing.T) {
	w := diskWorld(t, 2, ruled(map[string]arbiter.Rule{"hbase": {Weight: 1, Latency: 50 * time.Millisecond, Limit: 64 * kib}}), func(c *arbiter.Config) { c.Quantum = 2 * mib })
	for i := range 400 {
		w.after(time.Duration(i)*50*time.Millisecond, func() {
			s := w.open(&stream{}, arbiter.Opening{Flow: "hbase", To: 16 * kib})
			w.after(500*time.Millisecond, func() { w.close(s, 0) })
		})
	}
	w.run(22 * time.Second)
	if g := w.goalOf("hbase"); g.Reads < 390 {
		t.Errorf("%d of 400 reads count: %+v", g.Reads, g)
	}
}
