package arbiter_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"penstock/core/arbiter"
	"penstock/core/slowdown"
)

// TestSlowdownEstimates compares the estimated slowdown of a flow beside two others with the true one: its throughput alone
// divided by its throughput beside them. pace is what each of its streams' processes can take, as a part of the
// disk's rate; 0: any rate.
func TestSlowdownEstimates(t *testing.T) {
	for _, write := range []bool{false, true} {
		for _, streams := range []int{1, 4} {
			for _, pace := range []float64{0, 1.2, 0.5, 0.2, 0.05} {
				for _, depth := range []int{1, 4} {
					t.Run(fmt.Sprintf("write %v, %d streams, pace %v, depth %d", write, streams, pace, depth), func(t *testing.T) {
						const warm, length = 20 * time.Second, 60 * time.Second
						play := func(others int) (moved int64, estimate float64) {
							w := diskWorld(t, depth, enforced(nil), func(c *arbiter.Config) { c.Quantum = mib })
							drive := func(flow string, rate float64) *agent {
								o := arbiter.Opening{Flow: flow, Write: write}
								if !write {
									o.To = endlessFile
								}
								return w.drive(w.open(&stream{}, o), rate, endlessFile)
							}
							var mine []*agent
							for range streams {
								mine = append(mine, drive("mine", pace*testRate))
							}
							for i := range others {
								for range 3 {
									drive(fmt.Sprint("other", i), 0)
								}
							}
							w.run(warm)
							before, from := w.a.Waits(w.now, "mine"), w.now
							for _, g := range mine {
								moved -= g.pos
							}
							w.run(length)
							after := w.a.Waits(w.now, "mine")
							for _, g := range mine {
								moved += g.pos
							}
							open := after.Streams - before.Streams
							if want := length * time.Duration(streams); open != want {
								t.Fatalf("streams were open for %v, want %v", open, want)
							}
							hindered := slowdown.Hindered(open, after.Waited-before.Waited, after.Contended-before.Contended, w.now-from)
							return moved, 1 / (1 - hindered.Seconds()/open.Seconds())
						}
						alone, none := play(0)
						if none > 1.001 {
							t.Errorf("alone: estimate %.3f", none)
						}
						beside, estimate := play(2)
						truth := float64(alone) / float64(beside)
						t.Logf("slowdown %.3f, estimate %.3f", truth, estimate)
						if math.Abs(estimate-truth) > 0.02*truth {
							t.Errorf("slowdown %.3f, estimate %.3f", truth, estimate)
						}
					})
				}
			}
		}
	}
}
