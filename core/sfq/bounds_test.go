package sfq_test

import (
	"errors"
	"testing"

	"penstock/core/sfq"
)

func TestConfigIsCheckedAtItsEdges(t *testing.T) {
	for _, test := range []struct {
		cfg sfq.Config
		ok  bool
	}{
		{sfq.Config{}, true},
		{sfq.Config{MaxFlows: -1}, false},
		{sfq.Config{MaxFlows: 1 << 20}, true},
		{sfq.Config{MaxFlows: 1<<20 + 1}, false},
		{sfq.Config{MaxQueues: -1}, false},
		{sfq.Config{MaxQueues: 1 << 16}, true},
		{sfq.Config{MaxQueues: 1<<16 + 1}, false},
		{sfq.Config{MaxLead: -1}, false},
		{sfq.Config{MaxLead: 1}, true},
		{sfq.Config{MaxLead: 1 << 60}, true},
		{sfq.Config{MaxLead: 1<<60 + 1}, false},
	} {
		if _, err := sfq.New(test.cfg); (err == nil) != test.ok {
			t.Errorf("New(%+v): error %v, want success: %v", test.cfg, err, test.ok)
		}
	}
}

// TestBounds checks that the scheduler keeps its bounds and returns errors for unknown flows and
// tickets. A call that returns an error must change nothing.
func TestBounds(t *testing.T) {
	s, err := sfq.New(sfq.Config{})
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
	for _, f := range []sfq.Flow{-1, 77, 65_536} {
		want("RemoveFlow of an unknown flow", s.RemoveFlow(f), sfq.ErrUnknownFlow)
		want("SetWeight of an unknown flow", s.SetWeight(f, 1), sfq.ErrUnknownFlow)
		want("SetQueue of an unknown flow", s.SetQueue(f, nil), sfq.ErrUnknownFlow)
		want("Charge to an unknown flow", s.Charge(f, 1), sfq.ErrUnknownFlow)
		want("Void of an unknown flow", s.Void(f), sfq.ErrUnknownFlow)
		want("Ready of an unknown flow", s.Ready(f, 1), sfq.ErrUnknownFlow)
		want("Ready at 0 of an unknown flow", s.Ready(f, 0), sfq.ErrUnknownFlow)
	}
	if f, err := s.AddFlow(1); f != 77 || err != nil {
		t.Errorf("the number of a removed flow: got %d, %v, want 77", f, err)
	}
	for _, cost := range []int64{-1, sfq.MaxCost + 1} {
		want("Ready", s.Ready(0, cost), sfq.ErrCost)
		want("Charge", s.Charge(0, cost), sfq.ErrCost)
	}
	want("Charge of 0", s.Charge(0, 0), sfq.ErrCost)
	want("Charge of MaxCost", s.Charge(0, sfq.MaxCost), nil)
	want("SetWeight", s.SetWeight(0, sfq.MaxWeight+1), sfq.ErrWeight)
	if ticket, ok := s.Next(); ok {
		t.Errorf("Next dispatched %+v although no flow is ready", ticket)
	}
	want("Ready", s.Ready(0, sfq.MaxCost), nil)
	want("RemoveFlow of a ready flow", s.RemoveFlow(0), sfq.ErrFlowBusy)
	ticket, ok := s.Next()
	if !ok || ticket.Flow() != 0 || ticket.Cost() != sfq.MaxCost {
		t.Fatalf("Next: %+v, %v", ticket, ok)
	}
	if s.Outstanding() != 1 || s.Waiting() != 1 {
		t.Errorf("outstanding %d, ready %d, want 1 and 1: the flow stays ready", s.Outstanding(), s.Waiting())
	}
	want("Ready at 0", s.Ready(0, 0), nil)
	want("Ready at 0 again", s.Ready(0, 0), nil)
	if s.Waiting() != 0 {
		t.Errorf("%d flows are ready, want none", s.Waiting())
	}
	want("RemoveFlow of a flow with an outstanding request", s.RemoveFlow(0), sfq.ErrFlowBusy)
	for _, cost := range []int64{-1, sfq.MaxCost + 1} {
		want("Settle", s.Settle(ticket, cost), sfq.ErrCost)
	}
	for _, no := range []sfq.Ticket{{}, sfq.MakeTicket(0, 1), sfq.MakeTicket(-1, 1), sfq.MakeTicket(1<<20, 1)} {
		want("Settle of a ticket that Next did not return", s.Settle(no, 1), sfq.ErrTicket)
	}
	want("Settle at cost 0", s.Settle(ticket, 0), nil)
	want("Settle again", s.Settle(ticket, 0), sfq.ErrTicket)
	want("RemoveFlow", s.RemoveFlow(0), nil)
	want("third Settle", s.Settle(ticket, 0), sfq.ErrTicket)
}

// TestTicketOfAQueueThatIsGone checks that Settle refuses a second use of a ticket after its queue
// was removed, also after another queue got its number.
func TestTicketOfAQueueThatIsGone(t *testing.T) {
	s, err := sfq.New(sfq.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddFlow(1); err != nil {
		t.Fatal(err)
	}
	var ticket [2]sfq.Ticket
	for i, path := range [][]sfq.Level{{{Name: "q", Weight: 1}}, nil} {
		if err := errors.Join(s.SetQueue(0, path), s.Ready(0, 5)); err != nil {
			t.Fatal(err)
		}
		ticket[i], _ = s.Next()
	}
	if err := s.Settle(ticket[0], 5); err != nil {
		t.Fatal(err)
	}
	before := s.String()
	if err := s.Settle(ticket[0], 9); !errors.Is(err, sfq.ErrTicket) || s.String() != before {
		t.Errorf("settled a second time: %v\n%s", err, s)
	}
	if err := s.Settle(ticket[1], 5); err != nil {
		t.Error(err)
	}
}

// TestTagsBeyond64Bits checks that tags stay exact after the sum of a run exceeds 64 bits. Two
// flows of different weight receive the same service per weight, more than 2^60. One cost unit must
// still decide between them.
func TestTagsBeyond64Bits(t *testing.T) {
	s, err := sfq.New(sfq.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ready := func(f sfq.Flow, cost int64) {
		t.Helper()
		if err := s.Ready(f, cost); err != nil {
			t.Fatal(err)
		}
	}
	dispatch := func() sfq.Ticket {
		t.Helper()
		ticket, ok := s.Next()
		if !ok {
			t.Fatal("nothing is ready")
		}
		return ticket
	}
	for f, weight := range []int{3, 1} {
		if _, err := s.AddFlow(weight); err != nil {
			t.Fatal(err)
		}
		ready(sfq.Flow(f), sfq.MaxCost)
	}
	const rounds = 1<<20 + 2
	served := [2]int{}
	for range 4 * rounds {
		served[dispatch().Flow()]++
	}
	if served != [2]int{3 * rounds, rounds} {
		t.Fatalf("served %v requests, want 3 to 1 of %d", served, 4*rounds)
	}
	due := func(want sfq.Flow, cost int64) {
		t.Helper()
		ticket := dispatch()
		if ticket.Flow() != want {
			t.Errorf("dispatched flow %d, want %d\n%s", ticket.Flow(), want, s)
		}
		if err := s.Settle(ticket, cost); err != nil {
			t.Fatal(err)
		}
	}
	// Both start tags are equal here.
	ready(0, 1)
	ready(1, 1)
	due(1-dispatch().Flow(), 1)
	due(0, 1) // 1/3 versus 1
	due(0, 1) // 2/3
	due(1, 1) // 1 versus 1: flow 1 was served longer ago
	due(0, 1) // 1 versus 2
}

// TestNoAllocationInSteadyState checks that a decision does not allocate once the slices have grown
// to the load.
func TestNoAllocationInSteadyState(t *testing.T) {
	s, err := sfq.New(sfq.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.AddFlow(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetQueue(f, []sfq.Level{{Name: "q", Weight: 2}}); err != nil {
		t.Fatal(err)
	}
	round := func() {
		for range 3 {
			if err := s.Ready(f, 5); err != nil {
				t.Fatal(err)
			}
			ticket, _ := s.Next()
			if err := errors.Join(s.Settle(ticket, 6), s.Charge(f, 3), s.Ready(f, 0), s.Void(f)); err != nil {
				t.Fatal(err)
			}
			s.Trim()
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
		t.Errorf("%v allocations a round, want 0", n)
	}
}
