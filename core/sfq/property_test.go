package sfq_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/core/sfq"
	"penstock/lab/requests"
)

// walk lets rapid choose operations; the model judges every decision.
func walk(t *rapid.T, exact bool) { walkWith(t, exact, nil) }

// walkWith is walk with further operations.
func walkWith(t *rapid.T, exact bool, more func(*pair) map[string]func(*rapid.T)) {
	lead := rapid.OneOf(rapid.Int64Range(1, 200), rapid.Int64Range(1, 1<<41), rapid.Just(int64(1<<60)))
	cfg := sfq.Config{MaxFlows: 6, MaxQueues: 6, MaxLead: lead.Draw(t, "lead")}
	p := newPair(t, cfg, rapid.IntRange(1, 8).Draw(t, "depth"), exact)
	weight := rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, sfq.MaxWeight))
	cost := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, sfq.MaxCost), rapid.Just(int64(1<<20)))
	actual := rapid.OneOf(rapid.Just(int64(-1)), rapid.Int64Range(0, 40), rapid.Int64Range(0, sfq.MaxCost))
	index := rapid.IntRange(0, 30)
	submit := func(t *rapid.T) { p.submit(index.Draw(t, "flow"), cost.Draw(t, "cost")) }
	next := func(*rapid.T) { p.next() }
	actions := map[string]func(*rapid.T){
		"AddFlow":    func(t *rapid.T) { p.addFlow(weight.Draw(t, "weight")) },
		"RemoveFlow": func(t *rapid.T) { p.removeFlow(index.Draw(t, "flow")) },
		"SetWeight":  func(t *rapid.T) { p.setWeight(index.Draw(t, "flow"), weight.Draw(t, "weight")) },
		"Submit":     submit,
		"Submit too": submit,
		"Submit 3":   submit,
		"Next":       next,
		"Next too":   next,
		"Complete":   func(t *rapid.T) { p.complete(index.Draw(t, "request"), actual.Draw(t, "actual")) },
		"Cancel":     func(t *rapid.T) { p.cancel(index.Draw(t, "request"), rapid.Bool().Draw(t, "outstanding")) },
		"Charge":     func(t *rapid.T) { p.charge(index.Draw(t, "flow"), cost.Draw(t, "cost")) },
		"Void":       func(t *rapid.T) { p.void(index.Draw(t, "flow")) },
		"Trim":       func(*rapid.T) { p.trim() },
		"SetDepth":   func(t *rapid.T) { p.setDepth(rapid.IntRange(0, 8).Draw(t, "depth")) },
		"drain":      func(*rapid.T) { p.drain() },
	}
	if more != nil {
		maps.Copy(actions, more(p))
	}
	for range 3 {
		p.addFlow(weight.Draw(t, "weight"))
	}
	// One Repeat has about 30 operations. These are too few for a queue to fill and age.
	for range rapid.IntRange(1, 8).Draw(t, "length") {
		t.Repeat(actions)
	}
	p.drain()
}

// TestSameDecisionsAsModelExactly uses weights that are powers of two, so there is no rounding.
// Every decision, ties included, must equal the exact model's.
func TestSameDecisionsAsModelExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { walk(t, true) })
}

// TestSameDecisionsAsModelWithinRounding uses any weights. A decision may differ only if the two
// exact start tags are closer than the rounding error of a whole walk.
func TestSameDecisionsAsModelWithinRounding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { walk(t, false) })
}

// newQueues returns a scheduler with queues of requests and a depth.
func newQueues(t fataler, cfg sfq.Config, depth int) *requests.Queues {
	s, err := sfq.New(cfg)
	if err != nil {
		t.Fatalf("New(%+v): %v", cfg, err)
	}
	return requests.New(s, depth)
}

// rivals are two flows that always have requests queued. A third flow comes and goes.
type rivals struct {
	s      *requests.Queues
	flows  [2]sfq.Flow
	weight [2]int64
	cost   [2]int64 // largest cost of a request
	done   [2]int64 // cost of the completed requests
	begun  [2]int64 // cost of the dispatched requests
	out    []requests.Request
}

func newRivals(t *rapid.T, depth int) *rivals {
	r := &rivals{s: newQueues(t, sfq.Config{}, depth)}
	for i := range 2 {
		r.weight[i] = int64(rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, 1000)).Draw(t, "weight"))
		r.cost[i] = rapid.Int64Range(1, 1000).Draw(t, "largest cost")
		var err error
		if r.flows[i], err = r.s.AddFlow(int(r.weight[i])); err != nil {
			t.Fatal(err)
		}
		r.refill(t, i)
	}
	return r
}

func (r *rivals) refill(t *rapid.T, i int) {
	for r.s.Queued(r.flows[i]) < 2 {
		if _, err := r.s.Submit(r.flows[i], rapid.Int64Range(1, r.cost[i]).Draw(t, "cost"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rivals) index(f sfq.Flow) int { return slices.Index(r.flows[:], f) }

// dispatch dispatches requests until the depth is reached.
func (r *rivals) dispatch(t *rapid.T) {
	for {
		q, ok := r.s.Next()
		if !ok {
			return
		}
		r.out = append(r.out, q)
		if i := r.index(q.Flow); i >= 0 {
			r.begun[i] += q.Cost
			r.refill(t, i)
		}
	}
}

// gap returns the difference of the service per weight, times both weights.
func (r *rivals) gap(service [2]int64) int64 {
	return service[0]*r.weight[1] - service[1]*r.weight[0]
}

// allowed is (c_f/w_f + c_g/w_g), times both weights.
func (r *rivals) allowed() int64 { return r.cost[0]*r.weight[1] + r.cost[1]*r.weight[0] }

// TestFairnessBound checks the fairness bounds in every interval. Dispatched requests must keep the
// bound of SFQ. Completed requests must keep the bound of SFQ(D), in whatever order the device
// completes them. A third flow that comes and goes must not matter.
func TestFairnessBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 12).Draw(t, "depth")
		r := newRivals(t, depth)
		guest, err := r.s.AddFlow(rapid.IntRange(1, 100).Draw(t, "guest's weight"))
		if err != nil {
			t.Fatal(err)
		}
		var least, most, leastBegun, mostBegun int64
		for range rapid.IntRange(20, 150).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "guest") == 0 {
				if _, err := r.s.Submit(guest, rapid.Int64Range(1, 2000).Draw(t, "guest's cost"), 0); err != nil {
					t.Fatal(err)
				}
			}
			r.dispatch(t)
			leastBegun, mostBegun = min(leastBegun, r.gap(r.begun)), max(mostBegun, r.gap(r.begun))
			k := rapid.IntRange(0, len(r.out)-1).Draw(t, "completed")
			q := r.out[k]
			r.out = slices.Delete(r.out, k, k+1)
			if err := r.s.Complete(q.Handle, q.Cost); err != nil {
				t.Fatal(err)
			}
			if i := r.index(q.Flow); i >= 0 {
				r.done[i] += q.Cost
			}
			least, most = min(least, r.gap(r.done)), max(most, r.gap(r.done))
		}
		// The 1 is for rounding: the tags are rounded down to 2^-32.
		if got, want := mostBegun-leastBegun, r.allowed(); got > want+1 {
			t.Fatalf("dispatched service per weight drifted by %d, SFQ allows %d", got, want)
		}
		if got, want := most-least, int64(depth+1)*r.allowed(); got > want {
			t.Fatalf("completed service per weight drifted by %d, SFQ(%d) allows %d", got, depth, want)
		}
	})
}

// TestNoDebtAfterCancelAndCorrection checks that cancelled service does not count. Many outstanding
// requests of one flow are cancelled, and submitted costs are wrong. The real service must stay
// within a bound that does not grow.
func TestNoDebtAfterCancelAndCorrection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 6).Draw(t, "depth")
		r := newRivals(t, depth)
		for range rapid.IntRange(50, 200).Draw(t, "steps") {
			r.dispatch(t)
			k := rapid.IntRange(0, len(r.out)-1).Draw(t, "ended")
			q := r.out[k]
			r.out = slices.Delete(r.out, k, k+1)
			i := r.index(q.Flow)
			var err error
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				err = r.s.Cancel(q.Handle)
			case 1:
				actual := rapid.Int64Range(0, r.cost[i]).Draw(t, "actual")
				r.done[i] += actual
				err = r.s.Complete(q.Handle, actual)
			default:
				r.done[i] += q.Cost
				err = r.s.Complete(q.Handle, q.Cost)
			}
			if err != nil {
				t.Fatal(err)
			}
			if gap, want := r.gap(r.done), 2*int64(depth+1)*r.allowed(); gap > want || -gap > want {
				t.Fatalf("service per weight differs by %d, want at most %d", gap, want)
			}
		}
	})
}

// TestCancelOfQueuedLeavesOrder checks that requests that are submitted and cancelled before their
// turn do not change the order of all others.
func TestCancelOfQueuedLeavesOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		with, without := newQueues(t, sfq.Config{}, 1), newQueues(t, sfq.Config{}, 1)
		const flows = 4
		submit := func(f sfq.Flow, cost int64, ref uint64) {
			for _, s := range []*requests.Queues{with, without} {
				if _, err := s.Submit(f, cost, ref); err != nil {
					t.Fatal(err)
				}
			}
		}
		for f := range flows {
			weight := rapid.IntRange(1, 50).Draw(t, "weight")
			for _, s := range []*requests.Queues{with, without} {
				if _, err := s.AddFlow(weight); err != nil {
					t.Fatal(err)
				}
			}
			submit(sfq.Flow(f), 5, uint64(f))
		}
		for step := range rapid.IntRange(10, 60).Draw(t, "steps") {
			var extras []requests.Handle
			for range rapid.IntRange(0, 3).Draw(t, "extras") {
				f := sfq.Flow(rapid.IntRange(0, flows-1).Draw(t, "flow"))
				h, err := with.Submit(f, rapid.Int64Range(1, sfq.MaxCost).Draw(t, "cost"), 1<<40)
				if err != nil {
					t.Fatal(err)
				}
				extras = append(extras, h)
			}
			submit(sfq.Flow(step%flows), rapid.Int64Range(1, 30).Draw(t, "cost"), uint64(flows+step))
			for _, h := range extras {
				if err := with.Cancel(h); err != nil {
					t.Fatal(err)
				}
			}
			a, _ := with.Next()
			b, _ := without.Next()
			if a.Ref != b.Ref {
				t.Fatalf("step %d dispatched r%d, without the cancelled requests r%d\n%s\n%s", step, a.Ref, b.Ref, with, without)
			}
			if err := with.Complete(a.Handle, a.Cost); err != nil {
				t.Fatal(err)
			}
			if err := without.Complete(b.Handle, b.Cost); err != nil {
				t.Fatal(err)
			}
		}
	})
}
