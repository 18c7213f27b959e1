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
