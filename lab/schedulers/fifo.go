package schedulers

import (
	"penstock/core/arbiter"
	"penstock/core/sfq"
)

var _ arbiter.Scheduler = (*FIFO)(nil)

// FIFO dispatches the flows' next requests in the order in which they were announced, one a
// flow at a time, whatever the weights. The order of arrival of all requests, which is what
// a device has when nobody schedules, is not to be had behind this interface: a caller
// announces no more than the next request of each flow. So two flows that are always ready
// get as many requests each, however many of them one has queued behind that.
type FIFO struct {
	table[struct{}]
}

// NewFIFO returns an empty FIFO for up to so many flows, 1 to 2^20.
func NewFIFO(maxFlows int) (*FIFO, error) {
	t, err := newTable[struct{}](maxFlows)
	if err != nil {
		return nil, err
	}
	return &FIFO{t}, nil
}

// SetWeight checks its arguments, and remembers the weight, which decides nothing.
func (s *FIFO) SetWeight(f sfq.Flow, weight int) error {
	fl, err := s.weighs(f, weight)
	if err != nil {
		return err
	}
	fl.weight = int32(weight)
	return nil
}

// Ready is sfq.Scheduler's.
func (s *FIFO) Ready(f sfq.Flow, cost int64) error {
	fl, err := s.announces(f, cost)
	if err != nil {
		return err
	}
	was := fl.cost
	fl.cost = cost
	if was == 0 && cost > 0 {
		s.list(f)
	} else if was > 0 && cost == 0 {
		s.unlist(f)
	}
	return nil
}

// Next dispatches the request that was announced first. The flow's next one counts as
// announced now.
func (s *FIFO) Next() (sfq.Ticket, bool) {
	if s.waiting == 0 {
		return sfq.Ticket{}, false
	}
	f := s.first
	s.unlist(f)
	s.list(f)
	return s.dispatch(f), true
}

// Force dispatches a request of a flow out of the order; what was announced keeps its place.
func (s *FIFO) Force(f sfq.Flow, cost int64) (sfq.Ticket, error) {
	t, _, err := s.forces(f, cost)
	return t, err
}

// Settle is sfq.Scheduler's; the cost decides nothing.
func (s *FIFO) Settle(t sfq.Ticket, cost int64) error {
	_, err := s.settle(t, cost)
	return err
}

// Charge checks its arguments: an order of arrival knows no debt.
func (s *FIFO) Charge(f sfq.Flow, cost int64) error {
	_, err := s.charges(f, cost)
	return err
}

// Void checks its argument, as no flow has a debt.
func (s *FIFO) Void(f sfq.Flow) error {
	_, err := s.flow(f)
	return err
}

// String prints the whole state.
func (s *FIFO) String() string {
	return s.dump("fifo", func(*flow[struct{}]) string { return "" })
}
