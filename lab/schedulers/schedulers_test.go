package schedulers_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/core/arbiter"
	"penstock/core/sfq"
	"penstock/lab/requests"
	"penstock/lab/schedulers"
)

func begin(algorithm string, maxFlows int) (requests.Scheduler, error) {
	switch algorithm {
	case "drr":
		return schedulers.NewDRR(maxFlows)
	case "fifo":
		return schedulers.NewFIFO(maxFlows)
	}
	return nil, fmt.Errorf("no algorithm %q here", algorithm)
}

// TestScenarios plays testdata/*.txt. After a change of rules, rewrite the files with `go test
// ./lab/schedulers -run TestScenarios -update` and read the difference.
func TestScenarios(t *testing.T) {
	requests.Scenarios(t, func(algorithm string, cfg sfq.Config) (requests.Scheduler, error) {
		return begin(algorithm, max(cfg.MaxFlows, 16))
	})
}

// The schedulers have the same bounds as sfq and return an error for a flow or request that does
// not exist. A decision allocates no memory.
func TestBounds(t *testing.T) {
	for _, algorithm := range []string{"drr", "fifo"} {
		t.Run(algorithm, func(t *testing.T) {
			for _, bad := range []int{-1, 0, 1<<20 + 1} {
				if _, err := begin(algorithm, bad); err == nil {
					t.Errorf("%d flows were taken", bad)
				}
			}
			s, err := begin(algorithm, 2)
			if err != nil {
				t.Fatal(err)
			}
			want := func(what string, got, want error) {
				t.Helper()
				if !errors.Is(got, want) {
					t.Errorf("%s: got %v, want %v", what, got, want)
				}
			}
			for _, weight := range []int{-1, 0, sfq.MaxWeight + 1} {
				_, err := s.AddFlow(weight)
				want("AddFlow", err, sfq.ErrWeight)
			}
			for f := range sfq.Flow(2) {
				if got, err := s.AddFlow(sfq.MaxWeight); got != f || err != nil {
					t.Fatalf("flow %d: got %d, %v", f, got, err)
				}
			}
			_, err = s.AddFlow(1)
			want("a third flow", err, sfq.ErrTooManyFlows)
			want("RemoveFlow", s.RemoveFlow(1), nil)
			for _, f := range []sfq.Flow{-1, 1, 2} {
				want("RemoveFlow of an unknown flow", s.RemoveFlow(f), sfq.ErrUnknownFlow)
				want("SetWeight of an unknown flow", s.SetWeight(f, 1), sfq.ErrUnknownFlow)
				want("SetQueue of an unknown flow", s.SetQueue(f, nil), sfq.ErrUnknownFlow)
				want("Charge to an unknown flow", s.Charge(f, 1), sfq.ErrUnknownFlow)
				want("Void of an unknown flow", s.Void(f), sfq.ErrUnknownFlow)
				want("Ready of an unknown flow", s.Ready(f, 1), sfq.ErrUnknownFlow)
			}
			want("SetWeight", s.SetWeight(0, sfq.MaxWeight+1), sfq.ErrWeight)
			want("SetQueue", s.SetQueue(0, nil), nil)
			want("SetQueue", s.SetQueue(0, []sfq.Level{{Name: "q", Weight: 1}}), schedulers.ErrNoQueues)
			for _, cost := range []int64{-1, sfq.MaxCost + 1} {
				want("Ready", s.Ready(0, cost), sfq.ErrCost)
				want("Charge", s.Charge(0, cost), sfq.ErrCost)
			}
			want("Charge of nothing", s.Charge(0, 0), sfq.ErrCost)
			if _, ok := s.Next(); ok {
				t.Error("dispatched, and nothing is ready")
			}
			want("Ready", s.Ready(0, sfq.MaxCost), nil)
			want("RemoveFlow of a ready flow", s.RemoveFlow(0), sfq.ErrFlowBusy)
			ticket, ok := s.Next()
			if !ok || ticket.Flow() != 0 || ticket.Cost() != sfq.MaxCost || s.Outstanding() != 1 || s.Waiting() != 1 {
				t.Fatalf("Next: %+v, %v\n%s", ticket, ok, s)
			}
			want("Ready at 0", s.Ready(0, 0), nil)
			want("RemoveFlow of a flow with an outstanding request", s.RemoveFlow(0), sfq.ErrFlowBusy)
			want("Settle", s.Settle(ticket, -1), sfq.ErrCost)
			want("Settle", s.Settle(ticket, sfq.MaxCost+1), sfq.ErrCost)
			want("Settle at no cost", s.Settle(ticket, 0), nil)
			want("Settle again", s.Settle(ticket, 0), sfq.ErrTicket)
			want("Settle for nobody", s.Settle(sfq.MakeTicket(5, 1), 0), sfq.ErrTicket)
			s.Trim()
			round := func() {
				if err := s.Ready(0, 5); err != nil {
					t.Fatal(err)
				}
				ticket, _ := s.Next()
				if err := errors.Join(s.Settle(ticket, 6), s.Charge(0, 3), s.Ready(0, 0)); err != nil {
					t.Fatal(err)
				}
			}
			if n := testing.AllocsPerRun(100, round); n != 0 {
				t.Errorf("%v allocations a round, want 0", n)
			}
		})
	}
}

// A forced request is outstanding like any other. Force returns an error where Charge does, and
// does not change the order. A flow that is not ready is never due.
func TestForce(t *testing.T) {
	for _, algorithm := range []string{"drr", "fifo"} {
		t.Run(algorithm, func(t *testing.T) {
			peer, err := begin(algorithm, 2)
			if err != nil {
				t.Fatal(err)
			}
			s := peer.(arbiter.Scheduler)
			want := func(what string, got, want error) {
				t.Helper()
				if !errors.Is(got, want) {
					t.Errorf("%s: got %v, want %v", what, got, want)
				}
			}
			for range 2 {
				if _, err := s.AddFlow(1); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range []sfq.Flow{-1, 2} {
				_, err := s.Force(f, 1)
				want("Force of an unknown flow", err, sfq.ErrUnknownFlow)
			}
			for _, cost := range []int64{-1, 0, sfq.MaxCost + 1} {
				_, err := s.Force(0, cost)
				want("Force at a wrong cost", err, sfq.ErrCost)
			}
			for f := range sfq.Flow(2) {
				if s.Due(f) {
					t.Errorf("flow %d, which is not ready, is due", f)
				}
			}
			forced, err := s.Force(0, sfq.MaxCost) // of a flow that is not ready
			if err != nil || forced.Flow() != 0 || forced.Cost() != sfq.MaxCost || peer.Outstanding() != 1 || peer.Waiting() != 0 {
				t.Fatalf("Force: %+v, %v\n%s", forced, err, peer)
			}
			want("RemoveFlow of a flow with a forced request", s.RemoveFlow(0), sfq.ErrFlowBusy)
			want("Settle at no cost", s.Settle(forced, 0), nil)
			want("Settle again", s.Settle(forced, 0), sfq.ErrTicket)
			for f := range sfq.Flow(2) {
				want("Ready", s.Ready(f, 5), nil)
			}
			if forced, err = s.Force(1, 5); err != nil {
				t.Fatal(err)
			}
			first, _ := s.Next()
			if first.Flow() != 0 {
				t.Errorf("flow %d goes first: a request out of turn has changed the order\n%s", first.Flow(), peer)
			}
			want("Settle", errors.Join(s.Settle(forced, 5), s.Settle(first, 5)), nil)
		})
	}
}

// In DRR a flow pays for its forced requests with turns, so it gets its share in the end.
func TestDRRForceIsCharged(t *testing.T) {
	s, err := schedulers.NewDRR(2)
	if err != nil {
		t.Fatal(err)
	}
	var served [2]int64
	for range 2 {
		if _, err := s.AddFlow(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Ready(0, 10), s.Ready(1, 10)); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if i < 20 { // a sixth of all requests, well below the flow's share of half
			forced, err := s.Force(1, 10)
			if err != nil {
				t.Fatal(err)
			}
			served[1] += 10
			if err := s.Settle(forced, 10); err != nil {
				t.Fatal(err)
			}
		}
		next, ok := s.Next()
		if !ok {
			t.Fatalf("nothing is dispatched\n%s", s)
		}
		served[next.Flow()] += 10
		if err := s.Settle(next, 10); err != nil {
			t.Fatal(err)
		}
	}
	if d := served[0] - served[1]; d < -20 || d > 20 {
		t.Errorf("served %v: they differ by more than a credit and a request\n%s", served, s)
	}
}

// FIFO keeps the order in which requests were announced.
func TestFIFOKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := schedulers.NewFIFO(4)
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if _, err := s.AddFlow(rapid.IntRange(1, 100).Draw(t, "weight")); err != nil {
				t.Fatal(err)
			}
		}
		var order []sfq.Flow
		var out []sfq.Ticket
		flow := rapid.Custom(func(t *rapid.T) sfq.Flow { return sfq.Flow(rapid.IntRange(0, 3).Draw(t, "flow")) })
		t.Repeat(map[string]func(*rapid.T){
			"Ready": func(t *rapid.T) {
				f := flow.Draw(t, "flow")
				if err := s.Ready(f, rapid.Int64Range(1, 9).Draw(t, "cost")); err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(order, f) {
					order = append(order, f)
				}
			},
			"no longer": func(t *rapid.T) {
				f := flow.Draw(t, "flow")
				if err := s.Ready(f, 0); err != nil {
					t.Fatal(err)
				}
				order = slices.DeleteFunc(order, func(g sfq.Flow) bool { return g == f })
			},
			"Next": func(t *rapid.T) {
				ticket, ok := s.Next()
				if ok != (len(order) > 0) {
					t.Fatalf("dispatched: %v, want %v", ok, !ok)
				}
				if ok {
					if ticket.Flow() != order[0] {
						t.Fatalf("dispatched flow %d, want %d", ticket.Flow(), order[0])
					}
					out, order = append(out, ticket), append(order[1:], order[0])
				}
			},
			"Settle": func(t *rapid.T) {
				if len(out) > 0 {
					if err := s.Settle(out[0], 0); err != nil {
						t.Fatal(err)
					}
					out = out[1:]
				}
			},
		})
	})
}
