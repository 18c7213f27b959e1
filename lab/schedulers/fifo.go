package schedulers

import (
	"penstock/core/arbiter"
	"penstock/core/sfq"
)

var _ arbiter.Scheduler = (*FIFO)(nil)

// FIFO dispatches the flows' next requests in the order in which these requests were announced, one
// request per flow at a time, regardless of weights. A device without a scheduler serves all
// requests in order of arrival. That order is not available through this interface, because a
// caller announces only the next request of each flow. So two flows that are always ready have
// equally many requests dispatched, regardless of how many further requests each has queued.
type FIFO struct {
	table[struct{}]
}

// NewFIFO returns an empty FIFO for up to maxFlows flows, 1 to 2^20.
func NewFIFO(maxFlows int) (*FIFO, error) {
	t, err := newTable[struct{}](maxFlows)
	if err != nil {
		return nil, err
	}
	return &FIFO{t}, nil
}

// SetWeight checks its arguments and stores the weight. The weight has no effect.
func (s *FIFO) SetWeight(f sfq.Flow, weight int) error {
	fl, err := s.weighs(f, weight)
	if err != nil {
		return err
	}
	fl.weight = int32(weight)
	return nil
}

// Ready implements sfq.Scheduler's method.
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

// Next dispatches the request that was announced first. The flow's next request is regarded as
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

// Force dispatches a request of a flow out of order. The order of the announced requests does not
// change.
func (s *FIFO) Force(f sfq.Flow, cost int64) (sfq.Ticket, error) {
	t, _, err := s.forces(f, cost)
	return t, err
}

// Settle implements sfq.Scheduler's method. The cost has no effect.
func (s *FIFO) Settle(t sfq.Ticket, cost int64) error {
	_, err := s.settle(t, cost)
	return err
}

// Charge checks its arguments and has no further effect.
func (s *FIFO) Charge(f sfq.Flow, cost int64) error {
	_, err := s.charges(f, cost)
	return err
}

// Void checks its argument and has no further effect, because no flow has a debt.
func (s *FIFO) Void(f sfq.Flow) error {
	_, err := s.flow(f)
	return err
}

// String returns the whole state as text.
func (s *FIFO) String() string {
	return s.dump("fifo", func(*flow[struct{}]) string { return "" })
}
