package schedulers_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/core/sfq"
	"penstock/lab/requests"
	"penstock/lab/schedulers"
)

// For two flows that always have requests queued, the dispatched service per weight differs by at
// most one credit and one request of each (Shreedhar and Varghese, section III). The difference of
// the completed service can be greater than that by at most the requests within the depth. The
// credit is at most the largest cost of any flow divided by the least weight.
func TestDRRFairnessBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 12).Draw(t, "depth")
		r := newRivals(t, depth)
		const guestCost = 2000
		guestWeight := rapid.IntRange(1, 100).Draw(t, "guest's weight")
		guest, err := r.s.AddFlow(guestWeight)
		if err != nil {
			t.Fatal(err)
		}
		lightest := min(r.weight[0], r.weight[1], int64(guestWeight))
		credit := (max(r.cost[0], r.cost[1], guestCost) + lightest - 1) / lightest
		var least, most, leastBegun, mostBegun int64
		for range rapid.IntRange(20, 150).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "guest") == 0 {
				if _, err := r.s.Submit(guest, rapid.Int64Range(1, guestCost).Draw(t, "guest's cost"), 0); err != nil {
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
		round := credit * r.weight[0] * r.weight[1]
		if got, want := mostBegun-leastBegun, round+r.allowed(); got > want {
			t.Fatalf("dispatched service per weight drifted by %d, DRR allows %d", got, want)
		}
		if got, want := most-least, round+int64(depth+1)*r.allowed(); got > want {
			t.Fatalf("completed service per weight drifted by %d, DRR at depth %d allows %d", got, depth, want)
		}
	})
}

// A turn nearly always dispatches. The work of Next does not grow with the ratio of the weights,
// and a light flow waits for at most one round. 100 requests of the largest cost for the heaviest
// flow, beside the lightest flow, are served in one turn.
func TestDRRTurnsAreAsShortAsTheLightestAllows(t *testing.T) {
	s := newDRR(t, 1)
	const heavy, light = 32, 1
	for _, weight := range []int{heavy, light} {
		f, err := s.AddFlow(weight)
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			if _, err := s.Submit(f, 380_000_000, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	run, longest := 0, 0
	for range 200 {
		r, ok := s.Next()
		if !ok {
			t.Fatalf("nothing to dispatch\n%s", s)
		}
		if run++; r.Flow == 1 {
			run = 0
		}
		longest = max(longest, run)
		if err := s.Complete(r.Handle, r.Cost); err != nil {
			t.Fatal(err)
		}
	}
	if longest != heavy {
		t.Errorf("the light flow waited for %d requests of the heavy one, want %d", longest, heavy)
	}
}

// However large a debt is, Next finds the flow that is due without going through each round.
// Otherwise this test would not end.
func TestDRRPaysHugeDebtsAtOnce(t *testing.T) {
	s := newDRR(t, 1)
	for i, charges := range []int{1 << 21, 1 << 20} { // the first charges reach the bound on debts
		f, err := s.AddFlow(1)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.Submit(f, 1, uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		for range charges {
			if err := s.Charge(f, sfq.MaxCost); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Charge(0, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{0, 1, 0, 1} {
		// Both debts are at the bound, so the first flow in line is due.
		r, ok := s.Next()
		if !ok || r.Ref != want {
			t.Fatalf("dispatched %d, %v, want flow %d\n%s", r.Ref, ok, want, s)
		}
		if err := s.Complete(r.Handle, 1); err != nil {
			t.Fatal(err)
		}
	}
}

func newDRR(t fataler, depth int) *requests.Queues {
	s, err := schedulers.NewDRR(16)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return requests.New(s, depth)
}

// rivals are two flows that always have requests queued, beside a third flow that comes and goes.
type rivals struct {
	s      *requests.Queues
	flows  [2]sfq.Flow
	weight [2]int64
	cost   [2]int64 // largest cost
	done   [2]int64 // cost of what was completed
	begun  [2]int64 // cost of what was dispatched
	out    []requests.Request
}

func newRivals(t *rapid.T, depth int) *rivals {
	r := &rivals{s: newDRR(t, depth)}
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

// gap returns the difference of the services per weight, multiplied by both weights.
func (r *rivals) gap(service [2]int64) int64 {
	return service[0]*r.weight[1] - service[1]*r.weight[0]
}

// allowed returns (c_f/w_f + c_g/w_g), multiplied by both weights.
func (r *rivals) allowed() int64 { return r.cost[0]*r.weight[1] + r.cost[1]*r.weight[0] }
