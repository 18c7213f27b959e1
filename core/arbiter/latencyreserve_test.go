package arbiter_test

import (
	"fmt"
	"testing"
	"time"

	"penstock/core/arbiter"
	"penstock/core/reserve"
)

// Guaranteed rates in bytes are kept beside a latency goal, which cuts their requests into slices. Where the device cannot keep all of
// them, what they lose counts as broken, and the device does not spend its time on seeks.
func TestRatesBesideAGoal(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		seek  time.Duration
		depth int
		goal  time.Duration
		rates []int64 // in bytes, beside one of 0.4 of the device
		least float64 // part of them that is kept
		late  float64 // part of the small reads, at most
	}{
		{150e6, 8 * time.Millisecond, 8, 30 * time.Millisecond, []int64{8 * mib}, 0.97, 0.02},
		{150e6, 8 * time.Millisecond, 1, 50 * time.Millisecond, []int64{8 * mib}, 0.97, 0.02},
		{400e6, 100 * time.Microsecond, 16, 2 * time.Millisecond, []int64{8 * mib, 12 * mib}, 0.97, 0.02},
		{400e6, 100 * time.Microsecond, 16, 20 * time.Millisecond, []int64{8 * mib, 12 * mib}, 0.97, 0.02},
		{150e6, 8 * time.Millisecond, 8, 30 * time.Millisecond, []int64{8 * mib, 12 * mib}, 0.75, 0.2},
		{150e6, 8 * time.Millisecond, 1, 50 * time.Millisecond, []int64{8 * mib, 12 * mib}, 0.75, 0.2},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			cfg := diskConfig(c.rate, c.seek)
			cfg.Algorithm, cfg.FixedDepth, cfg.Quantum = "sfqd", c.depth, 2*mib
			rules := map[string]arbiter.Rule{"hbase": {Weight: 8, Latency: c.goal}, "vip": {Reserve: reserve.Rate{Part: 0.4}}, "big": {Weight: 16}}
			for i, bytes := range c.rates {
				rules[fmt.Sprint("rate", i)] = arbiter.Rule{Reserve: reserve.Rate{Bytes: bytes}}
			}
			w, err := newWorld(arbiter.Options{Config: cfg, Mode: arbiter.Enforce, Policy: ruled(rules)}, c.rate, c.seek)
			if err != nil {
				t.Fatal(err)
			}
			var took []time.Duration
			w.smallReads("hbase", 50*time.Millisecond, time.Minute, &took)
			for range 4 {
				w.reader("vip", endlessFile)
				w.writer("big", endlessFile)
				w.reader("big", endlessFile)
			}
			for i := range c.rates {
				if i%2 == 0 {
					w.writer(fmt.Sprint("rate", i), endlessFile)
				} else {
					w.reader(fmt.Sprint("rate", i), endlessFile)
				}
			}
			for i := range 6 {
				w.writer(fmt.Sprint("x", i), endlessFile)
			}
			w.run(10 * time.Second)
			before := map[string]time.Duration{}
			for i := range c.rates {
				name := fmt.Sprint("rate", i)
				before[name] = w.reserved(name).Broken
			}
			w.run(30 * time.Second)
			got := w.between(10*time.Second, 40*time.Second)
			if part := got["vip"].service.Seconds() / 30; part < 0.39 {
				t.Errorf("a rate of 0.4 had %.3f of the device", part)
			}
			if part := got["big"].service.Seconds() / 30; part < 0.1 {
				t.Errorf("the flows without guaranteed rates had %.3f of the device", part)
			}
			for i, bytes := range c.rates {
				name := fmt.Sprint("rate", i)
				had, broken := float64(got[name].bytes)/30/float64(bytes), w.reserved(name).Broken-before[name]
				if had < c.least {
					t.Errorf("%s had %.2f of its rate", name, had)
				}
				if lost := had < 0.95; lost != (broken > 4*time.Second) {
					t.Errorf("%s had %.2f of its rate, which was broken for %v", name, had, broken)
				}
			}
			late := 0
			for _, d := range took {
				if d > c.goal {
					late++
				}
			}
			if part := float64(late) / float64(len(took)); part > c.late {
				t.Errorf("%.3f of the small reads were late", part)
			}
			if why := w.a.Check(); why != "" {
				t.Error(why)
			}
		})
	}
}
