package device

import (
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/core/depth"
	"penstock/core/sfq"
)

// queueRig is a loop whose flows alice and bob are in a queue of weight 3, and carol in one
// of weight 1.
func queueRig(t *testing.T, algorithm string, scale int) *rig {
	r := newRig(t, func(c *Config) {
		line := depth.Line{Fixed: 20 * time.Millisecond, PerMiB: 180 * time.Millisecond}
		*c = Config{Algorithm: algorithm, Quantum: shareQuantum, Ahead: 16, WeightScale: scale, FixedDepth: 4,
			Depth: depth.Config{Min: 1, Max: 12, Start: 2, Gain: 0.5, Read: line, Write: line}}
	}, nil)
	r.disk.mu.Lock()
	r.disk.rate, r.disk.seek = shareRate, shareSeek
	r.disk.mu.Unlock()
	etl := []sfq.Level{{Name: "root.etl", Weight: 3}}
	r.policy = map[string]Rule{
		"alice": {Weight: 2, Mode: Enforce, Queue: NewQueue(etl, 0)},
		"bob":   {Weight: 1, Mode: Enforce, Queue: NewQueue(etl, 0)},
		"carol": {Weight: 1, Mode: Enforce, Queue: NewQueue([]sfq.Level{{Name: "root.adhoc", Weight: 1}}, 0)},
	}
	r.loop.Apply(Enforce, policyOf(r.policy))
	return r
}

// What an application does not use goes to its queue: alice and bob share three quarters of
// the disk 2:1, then bob leaves, and alice has all of them; one weight a flow would give
// carol a part of it.
func TestQueueKeepsWhatItsFlowsLeave(t *testing.T) {
	for _, algorithm := range []string{"sfqd", "sfqd2"} {
		t.Run(algorithm, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := queueRig(t, algorithm, 1)
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
						sum += f.Entitled()
						due[f.Name] = f.Entitled()
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

// Queues and their weights change while all are busy; so do queues and parts, which have no
// queues, and nobody is put back by the change.
func TestQueuesAndPartsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := queueRig(t, "sfqd2", 1000)
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
		r.loop.SetParts(Parts{Flows: map[string]float64{"alice": 0.5, "bob": 1, "carol": 0.5}})
		phase("by parts", 1, 2, 1)
		r.loop.SetParts(Parts{Flows: map[string]float64{"alice": 0.01, "bob": 0.01, "carol": 2}})
		time.Sleep(time.Second)
		r.loop.SetParts(Parts{})
		phase("in queues again", 2, 1, 1)
		adhoc := NewQueue([]sfq.Level{{Name: "root.adhoc", Weight: 3}}, 0)
		r.policy["carol"] = Rule{Weight: 1, Mode: Enforce, Queue: adhoc}
		r.policy["bob"] = Rule{Weight: 1, Mode: Enforce, Queue: adhoc}
		r.loop.Apply(Enforce, policyOf(r.policy))
		phase("another queue, another weight of it", 2, 1, 1)
		r.loop.Apply(Enforce, policyOf(map[string]Rule{"alice": {Weight: 1, Mode: Enforce}, "bob": {Weight: 1, Mode: Enforce}, "carol": {Weight: 2, Mode: Enforce}}))
		phase("without queues", 1, 1, 2)
		r.stop()
		busy.Wait()
		if r.loop.queued != 0 {
			t.Errorf("%d flows are in queues", r.loop.queued)
		}
	})
}

// While parts are in force a flow that has none yet counts as what it is among all, not as
// one of its queue; and where the scheduler knows no queues, too.
func TestFlowsOutsideOfTheirQueue(t *testing.T) {
	for _, algorithm := range []string{"sfqd2", "drr"} {
		synctest.Test(t, func(t *testing.T) {
			r := queueRig(t, algorithm, 1000)
			rule := Rule{Weight: 8, Mode: Enforce, Queue: NewQueue([]sfq.Level{{Name: "q", Weight: 5}}, 0.25)}
			r.loop.Apply(Enforce, func(string) Rule { return rule })
			if algorithm == "sfqd2" {
				r.loop.SetParts(Parts{Flows: map[string]float64{"other": 1}})
			}
			var done sync.WaitGroup
			part{flow: "alice", size: mib}.start(r, &done)
			done.Wait()
			if _, ok := r.loop.Snapshot(); !ok {
				t.Fatal("no snapshot")
			}
			r.stop()
			if f := r.loop.flows["alice"]; f.weight != 250 || f.queue != nil {
				t.Errorf("%s: weight %d in queue %q", algorithm, f.weight, f.queue.Name())
			}
		})
	}
}

// stillLoop is a loop that does not run, on a node with a broker, with a flow for each rule.
func stillLoop(t *testing.T, rules map[string]Rule) *Loop {
	t.Helper()
	line := depth.Line{Fixed: time.Millisecond}
	l, err := New(Options{Name: "sda", Config: Config{Algorithm: "sfqd", WeightScale: 1 << 19, Depth: depth.Config{Read: line, Write: line}}, Mode: Enforce,
		Policy: policyOf(rules), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for name := range rules {
		l.flow(name)
	}
	return l
}

// A product of parts, level by level, among those at work; who is not at work counts as if he
// were. It is what the scheduler gives them.
func TestFlatten(t *testing.T) {
	etl, nightly, adhoc := sfq.Level{Name: "etl", Weight: 3}, sfq.Level{Name: "nightly", Weight: 4}, sfq.Level{Name: "adhoc", Weight: 1}
	in := func(weight int, levels ...sfq.Level) Rule {
		return Rule{Weight: weight, Mode: Enforce, Queue: NewQueue(levels, 0)}
	}
	l := stillLoop(t, map[string]Rule{
		"a": in(1, etl), "b": in(1, etl, nightly), "c": in(3, etl, nightly), "d": in(2, etl, nightly), "e": in(5, adhoc),
		"f": {Weight: 7, Mode: Enforce},
	})
	at := map[string]bool{"a": true, "b": true, "c": true, "f": true}
	for name := range at {
		f := l.flows[name]
		f.backlog = 1
		if _, err := l.sched.Submit(f.id, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	l.flatten(time.Now())
	for name, want := range map[string]float64{
		"a": 3. / 5, "b": 3. * 4 / 5 / 4, "c": 3. * 4 / 5 * 3 / 4, "d": 3. * 4 / 5 * 2 / 6, "e": 1, "f": 7,
	} {
		f := l.flows[name]
		if math.Abs(f.among-want) > 1e-9 {
			t.Errorf("%s weighs %v, want %v", name, f.among, want)
		}
		if share := l.sched.(sfq.Queues).Share(f.id); at[name] && math.Abs(share-want/10) > 1e-9 {
			t.Errorf("%s has a share of %v, want %v", name, share, want/10)
		}
	}
}

// Weights of any size keep their ratios, in queues, beside them and between topmost queues; and
// also when a much larger one comes, or goes.
func TestLargeWeightsKeepTheirRatios(t *testing.T) {
	large, small, inner := sfq.Level{Name: "large", Weight: 999_999}, sfq.Level{Name: "small", Weight: 1500}, sfq.Level{Name: "inner", Weight: 4500}
	rules := map[string]Rule{
		"a": {Weight: 3000, Queue: NewQueue([]sfq.Level{small}, 0)},
		"b": {Weight: 1500, Queue: NewQueue([]sfq.Level{small}, 0)},
		"c": {Weight: 1, Queue: NewQueue([]sfq.Level{small, inner}, 0)},
		"d": {Weight: 4500},
	}
	l := stillLoop(t, rules)
	check := func(when string, want map[string]float64) {
		t.Helper()
		for name := range want {
			if l.sched.Queued(l.flows[name].id) == 0 {
				if _, err := l.sched.Submit(l.flows[name].id, 1, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		for name, want := range want {
			if got := l.sched.(sfq.Queues).Share(l.flows[name].id); math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%s: %s has a share of %v, want %v", when, name, got, want)
			}
		}
	}
	before := map[string]float64{"a": 0.25 * 3 / 9, "b": 0.25 * 1.5 / 9, "c": 0.25 * 4.5 / 9, "d": 0.75}
	check("at first", before)
	scale := l.scale
	rules["e"] = Rule{Weight: 7, Queue: NewQueue([]sfq.Level{large}, 0)}
	e := l.flow("e")
	if e.among != 999_999 {
		t.Errorf("one that has just come weighs %v among all, want its queue's 999,999", e.among)
	}
	all := 999_999. + 1500 + 4500
	check("beside a large one", map[string]float64{"a": 1500 / all * 3 / 9, "b": 1500 / all * 1.5 / 9, "c": 1500 / all / 2, "d": 4500 / all, "e": 999_999 / all})
	if scale <= l.scale {
		t.Errorf("the scale was %d and is %d: it has to make room", scale, l.scale)
	}
	for {
		r, ok := l.sched.Next()
		if !ok {
			break
		}
		if err := l.sched.Complete(r.Handle, r.Cost); err != nil {
			t.Fatal(err)
		}
	}
	if !l.forgetFlow(e) {
		t.Fatal("e is not forgotten")
	}
	l.apply(Enforce, l.policy)
	check("without it", before)
	if l.scale != scale || l.queued != 3 {
		t.Errorf("scale %d, was %d; %d flows in queues", l.scale, scale, l.queued)
	}
}
