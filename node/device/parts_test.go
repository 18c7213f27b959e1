package device

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/core/depth"
)

// Parts replace weights as soon as they are set, until they are removed. Service that was charged
// under the previous weights puts no flow at a disadvantage.
func TestPartsStandInForWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) {
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
			if f.Part != 0 || f.Entitled != 1 {
				t.Errorf("%s: part %v, entitled to %v", f.Name, f.Part, f.Entitled)
			}
		}
		r.stop()
		busy.Wait()
	})
}
