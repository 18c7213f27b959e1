package device

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/core/depth"
)

// Parts stand in for weights as soon as they are set, and give way to them; nobody is put
// back by what he was charged under others.
func TestPartsStandInForWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) {
			line := depth.Line{Fixed: 20 * time.Millisecond, PerMiB: 180 * time.Millisecond}
			*c = Config{Algorithm: "sfqd2", Quantum: shareQuantum, Ahead: 16, WeightScale: 1000,
				Depth: depth.Config{Min: 1, Max: 12, Start: 2, Gain: 0.5, Read: line, Write: line}}
		}, map[string]int{"a": 1, "b": 1})
		r.disk.mu.Lock()
		r.disk.rate, r.disk.seek = shareRate, shareSeek
		r.disk.mu.Unlock()
		var busy sync.WaitGroup
		for _, flow := range []string{"a", "b"} {
			part{flow: flow, weight: 1, size: 1200 * mib}.start(r, &busy)
		}
		phase := func(what string, a, b int) {
			t.Helper()
			time.Sleep(settling)
			from := time.Now()
			time.Sleep(shareWindow + 5*shareSlide)
			hold(t, what, r.disk, from, time.Now(), bytesOf, []part{{flow: "a", weight: a}, {flow: "b", weight: b}})
		}
		phase("by weights", 1, 1)
		r.loop.SetParts(Parts{Flows: map[string]float64{"a": 1.5, "b": 0.5}})
		phase("by parts", 3, 1)
		r.loop.SetParts(Parts{Flows: map[string]float64{"a": 0.06, "b": 1.94}})
		time.Sleep(time.Second)
		r.loop.SetParts(Parts{Flows: map[string]float64{"a": 1, "b": 1}})
		phase("after a second with next to nothing", 1, 1)
		r.loop.SetParts(Parts{Flows: map[string]float64{"a": 3}})
		phase("one of them only", 3, 1)
		r.loop.SetParts(Parts{})
		phase("by weights again", 1, 1)

		before, _ := r.loop.Snapshot()
		time.Sleep(10 * time.Second)
		after, ok := r.loop.Snapshot()
		if !ok {
			t.Fatal("no snapshot")
		}
		for i, f := range after.Flows {
			if wanted := f.Wanted - before.Flows[i].Wanted; wanted < 9*time.Second || wanted > 10*time.Second {
				t.Errorf("%s wanted the device for %v of 10 s", f.Name, wanted)
			}
			if f.Part != 0 || f.Entitled() != 1 {
				t.Errorf("%s: part %v, entitled to %v", f.Name, f.Part, f.Entitled())
			}
		}
		r.stop()
		busy.Wait()
	})
}

// Parts are as small as many applications in one queue make them: among 2,000 of 0.0005 beside
// one of 9, and 200 of 0.00599 beside one that has a weight and no part, each is right within
// a percent, and within a millionth of the largest.
func TestSmallPartsAreKept(t *testing.T) {
	for _, c := range []struct {
		n            int
		small, large float64
		weight       int // of a flow without a part
	}{
		{n: 2000, small: 0.0005, large: 9, weight: 1},
		{n: 200, small: 0.00599, large: 1, weight: 1},
		{n: 200, small: 0.00599, large: 1, weight: 100},
		{n: 1, small: 3.0017, large: 2.5, weight: 300_000},
		{n: 3, small: 2e-6, large: 1e-3, weight: 1},
	} {
		rules, parts := map[string]Rule{"own": {Weight: c.weight, Mode: Enforce}, "large": {Weight: 1}}, map[string]float64{"large": c.large}
		for i := range c.n {
			name := fmt.Sprint("small", i)
			rules[name], parts[name] = Rule{Weight: 1}, c.small
		}
		l := stillLoop(t, rules)
		l.setParts(parts)
		own := l.flows["own"].weight
		unit := float64(own) / float64(c.weight) // the scheduler's weight for a weight of 1
		for name, want := range parts {
			got, off := float64(l.flows[name].weight)/unit, 1e-6*max(1, c.large, float64(c.weight))
			if math.Abs(got-want) > off {
				t.Errorf("%+v: %s weighs %v, want %v, off by %v at most", c, name, got, want, off)
			}
			if want > 100*off && math.Abs(got/want-1) > 0.01 {
				t.Errorf("%+v: %s weighs %v, want %v within a percent", c, name, got, want)
			}
		}
		l.setParts(nil)
		for name, f := range l.flows {
			if f.weight*rules["own"].Weight != l.flows["own"].weight*rules[name].Weight || f.among != float64(rules[name].Weight) {
				t.Fatalf("%+v: %s weighs %d, and %v among all, after the parts", c, name, f.weight, f.among)
			}
		}
	}
}
