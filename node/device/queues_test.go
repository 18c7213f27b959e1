package device

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/core/depth"
	"penstock/core/sfq"
)

// queueFixture returns a loop whose flows alice and bob are in a queue of weight 3, and carol in
// a queue of weight 1.
func queueFixture(t *testing.T, algorithm string, scale int) *fixture {
	r := newFixture(t, func(c *Config) {
		line := depth.Line{Fixed: 20 * time.Millisecond, PerMiB: 180 * time.Millisecond}
		*c = Config{Algorithm: algorithm, Quantum: shareQuantum, Ahead: 16, WeightScale: scale, FixedDepth: 4,
			Depth: depth.Config{Min: 1, Max: 12, Start: 2, Gain: 0.5, Read: line, Write: line}}
	}, nil)
	r.disk.mu.Lock()
	r.disk.rate, r.disk.seek = shareRate, shareSeek
	r.disk.mu.Unlock()
	etl := []sfq.Level{{Name: "root.etl", Weight: 3}}
	r.policy = map[string]Rule{
		"alice": {Weight: 2, Mode: Enforce, Queue: NewQueue(etl)},
		"bob":   {Weight: 1, Mode: Enforce, Queue: NewQueue(etl)},
		"carol": {Weight: 1, Mode: Enforce, Queue: NewQueue([]sfq.Level{{Name: "root.adhoc", Weight: 1}})},
	}
	r.loop.Apply(Enforce, policyOf(r.policy))
	return r
}

// The unused share of an application goes to its queue: alice and bob share three quarters of the
// disk 2:1; then bob ends, and alice has all three quarters. With only one weight per flow, carol
// would get a part of it.
func TestQueueKeepsWhatItsFlowsLeave(t *testing.T) {
	for _, algorithm := range []string{"sfqd", "sfqd2"} {
		t.Run(algorithm, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := queueFixture(t, algorithm, 1)
				var staying, leaving sync.WaitGroup
				began := time.Now()
				part{flow: "alice", size: 600 * mib}.start(r, &staying)
				part{flow: "carol", size: 600 * mib}.start(r, &staying)
				part{flow: "bob", size: 60 * mib}.start(r, &leaving)
				leaving.Wait()
				left := r.disk.between(began, time.Now())["bob"].last
				time.Sleep(settling + shareWindow + 5*shareSlide)
				hold(t, "with bob", r.disk, began.Add(settling), left.Add(-time.Second), bytesOf, []part{{flow: "alice", weight: 2}, {flow: "bob", weight: 1}, {flow: "carol", weight: 1}})
				hold(t, "without bob", r.disk, left.Add(settling), time.Now(), bytesOf, []part{{flow: "alice", weight: 3}, {flow: "carol", weight: 1}})

				snap, ok := r.loop.Snapshot()
				if !ok {
					t.Fatal("no snapshot")
				}
				sum, due := 0.0, map[string]float64{}
				for _, f := range snap.Flows {
					if f.Queued > 0 {
						sum += f.Entitled
						due[f.Name] = f.Entitled
					}
				}
				if math.Abs(due["alice"]/sum-0.75) > 1e-9 || snap.Flows[0].Queue != "root.etl" || snap.Flows[2].Queue != "root.adhoc" {
					t.Errorf("alice is due %v of %v, in %q; carol is in %q", due["alice"], sum, snap.Flows[0].Queue, snap.Flows[2].Queue)
				}
				r.stop()
				staying.Wait()
			})
		})
	}
}

// Queues and their weights change while all flows are busy, and so do queues and parts without
// queues. No change puts a flow at a disadvantage.
func TestQueuesAndPartsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := queueFixture(t, "sfqd2", 1000)
		var busy sync.WaitGroup
		for _, flow := range []string{"alice", "bob", "carol"} {
			part{flow: flow, size: 1500 * mib}.start(r, &busy)
		}
		phase := func(what string, alice, bob, carol int) {
			t.Helper()
			time.Sleep(settling)
			from := time.Now()
			time.Sleep(shareWindow + 5*shareSlide)
			hold(t, what, r.disk, from, time.Now(), bytesOf, []part{{flow: "alice", weight: alice}, {flow: "bob", weight: bob}, {flow: "carol", weight: carol}})
		}
		phase("in queues", 2, 1, 1)
		r.loop.SetParts(Parts{Flows: map[string]float64{"alice": 0.5, "bob": 1}, Queues: map[string]float64{"/root.etl": 0.75, "/root.adhoc": 0.25}})
		phase("by parts at both levels", 1, 2, 1)
		r.loop.SetParts(Parts{Flows: map[string]float64{"alice": 0.01, "bob": 0.01}, Queues: map[string]float64{"/root.etl": 0.01}})
		time.Sleep(time.Second)
		r.loop.SetParts(Parts{})
		phase("in queues again", 2, 1, 1)
		adhoc := NewQueue([]sfq.Level{{Name: "root.adhoc", Weight: 3}})
		r.policy["carol"] = Rule{Weight: 1, Mode: Enforce, Queue: adhoc}
		r.policy["bob"] = Rule{Weight: 1, Mode: Enforce, Queue: adhoc}
		r.loop.Apply(Enforce, policyOf(r.policy))
		phase("another queue, another weight of it", 2, 1, 1)
		r.loop.Apply(Enforce, policyOf(map[string]Rule{"alice": {Weight: 1, Mode: Enforce}, "bob": {Weight: 1, Mode: Enforce}, "carol": {Weight: 2, Mode: Enforce}}))
		phase("without queues", 1, 1, 2)
		r.stop()
		busy.Wait()
	})
}
