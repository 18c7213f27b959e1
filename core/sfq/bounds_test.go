package sfq_test

import (
	"errors"
	"slices"
	"testing"

	"penstock/core/sfq"
)

func TestConfigIsCheckedAtItsEdges(t *testing.T) {
	for _, test := range []struct {
		cfg sfq.Config
		ok  bool
	}{
		{sfq.Config{}, false},
		{sfq.Config{Algorithm: "cfq"}, false},
		{sfq.Config{Algorithm: "fifo"}, true},
		{sfq.Config{Algorithm: "sfq"}, true},
		{sfq.Config{Algorithm: "sfq", Depth: 1}, true},
		{sfq.Config{Algorithm: "sfq", Depth: 2}, false},
		{sfq.Config{Algorithm: "sfqd", Depth: -1}, false},
		{sfq.Config{Algorithm: "sfqd", Depth: sfq.MaxDepth}, true},
		{sfq.Config{Algorithm: "sfqd", Depth: sfq.MaxDepth + 1}, false},
		{sfq.Config{Algorithm: "sfqd2", Depth: 12}, true},
		{sfq.Config{Algorithm: "sfqd", MaxFlows: -1}, false},
		{sfq.Config{Algorithm: "sfqd", MaxQueued: -1}, false},
		{sfq.Config{Algorithm: "sfqd", MaxFlows: 1 << 20, MaxQueued: 1 << 10}, true},
		{sfq.Config{Algorithm: "sfqd", MaxFlows: 1 << 20, MaxQueued: 1<<10 + 1}, false},
		{sfq.Config{Algorithm: "sfqd", MaxFlows: 1<<20 + 1, MaxQueued: 1}, false},
		{sfq.Config{Algorithm: "sfqd", MaxFlows: 1, MaxQueued: 1<<20 + 1}, false},
	} {
		if _, err := sfq.New(test.cfg); (err == nil) != test.ok {
			t.Errorf("New(%+v): error %v, want success: %v", test.cfg, err, test.ok)
		}
	}
	if got, want := sfq.Algorithms(), []string{"drr", "fifo", "sfq", "sfqd", "sfqd2"}; !slices.Equal(got, want) {
		t.Errorf("Algorithms() = %v, want %v", got, want)
	}
}

// Every algorithm keeps the bounds and refuses what is not there.
func TestBounds(t *testing.T) {
	for _, algorithm := range sfq.Algorithms() {
		t.Run(algorithm, func(t *testing.T) {
			s, err := sfq.New(sfq.Config{Algorithm: algorithm})
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
			for i := range 65_536 {
				if f, err := s.AddFlow(sfq.MaxWeight); err != nil || f != sfq.Flow(i) {
					t.Fatalf("flow %d: got %d, %v", i, f, err)
				}
			}
			_, err = s.AddFlow(1)
			want("flow 65,537", err, sfq.ErrTooManyFlows)
			want("RemoveFlow", s.RemoveFlow(77), nil)
			want("RemoveFlow again", s.RemoveFlow(77), sfq.ErrUnknownFlow)
			want("SetWeight of a removed flow", s.SetWeight(77, 1), sfq.ErrUnknownFlow)
			want("Charge to a removed flow", s.Charge(77, 1), sfq.ErrUnknownFlow)
			if f, err := s.AddFlow(1); f != 77 || err != nil {
				t.Errorf("a removed flow's number: got %d, %v, want 77", f, err)
			}
			for _, f := range []sfq.Flow{-1, 65_536} {
				_, err := s.Submit(f, 1, 0)
				want("Submit to a flow out of range", err, sfq.ErrUnknownFlow)
				if n := s.Queued(f); n != 0 {
					t.Errorf("Queued(%d) = %d, want 0", f, n)
				}
			}
			for _, cost := range []int64{-1, 0, sfq.MaxCost + 1} {
				_, err := s.Submit(0, cost, 0)
				want("Submit", err, sfq.ErrCost)
				want("Charge", s.Charge(0, cost), sfq.ErrCost)
			}
			want("SetWeight", s.SetWeight(0, sfq.MaxWeight+1), sfq.ErrWeight)
			var handles []sfq.Handle
			for range 4096 {
				h, err := s.Submit(0, sfq.MaxCost, 9)
				if err != nil {
					t.Fatal(err)
				}
				handles = append(handles, h)
			}
			_, err = s.Submit(0, 1, 0)
			want("request 4,097", err, sfq.ErrTooManyRequests)
			want("Cancel of handle 0", s.Cancel(0), sfq.ErrUnknownRequest)
			want("Cancel of a handle never given out", s.Cancel(handles[4095]+1), sfq.ErrUnknownRequest)
			r, ok := s.Next()
			if !ok || r.Handle != handles[0] || r.Ref != 9 || r.Cost != sfq.MaxCost {
				t.Fatalf("Next: %+v, %v", r, ok)
			}
			want("Complete", s.Complete(r.Handle, -1), sfq.ErrCost)
			want("Complete", s.Complete(r.Handle, sfq.MaxCost+1), sfq.ErrCost)
			want("Complete at no cost", s.Complete(r.Handle, 0), nil)
			_, err = s.Submit(0, 1, 0)
			want("request in the freed place", err, nil)
			s.SetDepth(1 << 30)
			if d := s.Depth(); d != sfq.MaxDepth && algorithm != "sfq" {
				t.Errorf("depth %d, want %d", d, sfq.MaxDepth)
			}
		})
	}
}

// The tags stay exact where the sum of a run outgrows 64 bits: two flows of
// different weight were given the same service per weight, more than 2^60, and
// one cost unit still decides between them.
func TestTagsBeyond64Bits(t *testing.T) {
	s, err := sfq.New(sfq.Config{Algorithm: "sfqd"})
	if err != nil {
		t.Fatal(err)
	}
	charge := func(f sfq.Flow, cost int64, times int) {
		for range times {
			if err := s.Charge(f, cost); err != nil {
				t.Fatal(err)
			}
		}
	}
	for f, weight := range []int{3, 1} {
		if _, err := s.AddFlow(weight); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.Submit(sfq.Flow(f), 6, uint64(f)); err != nil {
				t.Fatal(err)
			}
		}
		charge(sfq.Flow(f), sfq.MaxCost, weight*(1<<20+2))
	}
	due := func(want uint64) {
		t.Helper()
		r, _ := s.Next()
		if r.Ref != want {
			t.Errorf("dispatched flow %d, due was %d\n%s", r.Ref, want, s)
		}
		if err := s.Complete(r.Handle, 0); err != nil {
			t.Fatal(err)
		}
	}
	charge(0, 1, 1)
	due(1) // 0 against 1/3
	charge(1, 1, 1)
	due(0) // 1 against 1/3
}

// A decision allocates nothing once the slabs have grown to the load.
func TestNoAllocationInSteadyState(t *testing.T) {
	for _, algorithm := range sfq.Algorithms() {
		s, err := sfq.New(sfq.Config{Algorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.AddFlow(1)
		if err != nil {
			t.Fatal(err)
		}
		round := func() {
			for range 3 {
				if _, err := s.Submit(f, 5, 0); err != nil {
					t.Fatal(err)
				}
			}
			for r, ok := s.Next(); ok; r, ok = s.Next() {
				if err := s.Complete(r.Handle, 6); err != nil {
					t.Fatal(err)
				}
			}
			g, err := s.AddFlow(2)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.RemoveFlow(g); err != nil {
				t.Fatal(err)
			}
		}
		round()
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%s: %v allocations a round, want 0", algorithm, n)
		}
	}
}
