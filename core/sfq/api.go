package sfq

import (
	"errors"
	"fmt"
)

// Limits of weights and costs.
const (
	MaxWeight = 1_000_000 // largest weight of a flow or queue
	MaxCost   = 1 << 40   // largest cost of one request or charge, in cost units
)

// Flow is the number of a flow. Numbers are dense, so that they can index slices, and are reused
// after RemoveFlow.
type Flow int32

// Ticket identifies a dispatched request from Next to Settle, and holds its charge.
type Ticket struct {
	seq   uint64 // Scheduler.seq at the dispatch; 0 in a ticket of MakeTicket
	cost  int64
	flow  Flow
	queue int32 // the flow's queue at the dispatch
}

// Flow returns the flow of the request.
func (t Ticket) Flow() Flow { return t.flow }

// Cost returns the cost that Next charged, in cost units.
func (t Ticket) Cost() int64 { return t.cost }

// MakeTicket returns a ticket for another algorithm that has the methods of a Scheduler. A
// Scheduler does not accept it.
func MakeTicket(f Flow, cost int64) Ticket { return Ticket{flow: f, cost: cost} }

// The errors of a Scheduler. They are returned unwrapped, so an error does not allocate.
var (
	ErrTooManyFlows  = errors.New("sfq: no room for another flow: remove one, use a shared flow, or raise Config.MaxFlows")
	ErrFlowBusy      = errors.New("sfq: the flow is ready or has outstanding requests: make it unready and settle them before removing it")
	ErrUnknownFlow   = errors.New("sfq: no such flow: add it with AddFlow, and do not use it after RemoveFlow")
	ErrTicket        = errors.New("sfq: no request with this ticket is outstanding: settle each ticket once")
	ErrWeight        = fmt.Errorf("sfq: a weight must be 1 to %d: scale all weights alike, only their ratios count", MaxWeight)
	ErrCost          = fmt.Errorf("sfq: a cost must be 1 to %d cost units (0 only if the flow is not ready or the request was not served): split larger requests", int64(MaxCost))
	ErrQueue         = fmt.Errorf("sfq: the path of a flow has at most %d queues, each with a name of 1 to %d bytes: shorten the path", MaxLevels, MaxQueueName)
	ErrTooManyQueues = errors.New("sfq: no room for another queue: put flows into fewer queues, or raise Config.MaxQueues")
)

// DefaultMaxLead is the default of Config.MaxLead: 10 s of device time, for costs in nanoseconds.
const DefaultMaxLead = 10_000_000_000

// Config sets the limits of a Scheduler.
type Config struct {
	// MaxFlows is the largest number of flows, 1 to 2^20; 0 means 65,536. A flow takes about 200
	// bytes. Memory is allocated as flows are added.
	MaxFlows int

	// MaxQueues is the largest number of queues, 1 to 2^16; 0 means 4,096. A queue takes about 250
	// bytes. Memory is allocated as queues are used.
	MaxQueues int

	// MaxLead bounds how long charges can keep a flow from being dispatched. It is the service that
	// the device can give meanwhile, in cost units, 1 to 2^60; 0 means DefaultMaxLead.
	MaxLead int64
}

func (c *Config) validate() error {
	if c.MaxFlows == 0 {
		c.MaxFlows = 65_536
	}
	if c.MaxQueues == 0 {
		c.MaxQueues = 4096
	}
	if c.MaxLead == 0 {
		c.MaxLead = DefaultMaxLead
	}
	switch {
	case c.MaxFlows < 1 || c.MaxFlows > 1<<20:
		return fmt.Errorf("sfq: MaxFlows %d: use 1 to %d", c.MaxFlows, 1<<20)
	case c.MaxQueues < 1 || c.MaxQueues > 1<<16:
		return fmt.Errorf("sfq: MaxQueues %d: use 1 to %d", c.MaxQueues, 1<<16)
	case c.MaxLead < 1 || c.MaxLead > 1<<60:
		return fmt.Errorf("sfq: MaxLead %d: use 1 to 2^60 cost units", c.MaxLead)
	}
	return nil
}

// New returns an empty scheduler. An error names the setting to change.
func New(cfg Config) (*Scheduler, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Scheduler{cfg: cfg}
	s.initTree(cfg.MaxQueues)
	return s, nil
}

// AddFlow adds a flow with a weight of 1 to MaxWeight. The flow starts without debt or credit, even
// if its number was used before. Errors: ErrWeight, ErrTooManyFlows.
func (s *Scheduler) AddFlow(weight int) (Flow, error) {
	if weight < 1 || weight > MaxWeight {
		return 0, ErrWeight
	}
	var f Flow
	if n := len(s.freeFlows); n > 0 {
		f, s.freeFlows = s.freeFlows[n-1], s.freeFlows[:n-1]
	} else if len(s.flows) < s.cfg.MaxFlows {
		f = Flow(len(s.flows))
		s.flows = append(s.flows, flow{})
	} else {
		return 0, ErrTooManyFlows
	}
	s.flows[f] = flow{member: member{weight: int32(weight)}} // busy period 0: the tags are void
	s.positions.admit(f)
	s.queues[0].members++
	return f, nil
}

// RemoveFlow removes a flow. Errors: ErrUnknownFlow, and ErrFlowBusy while the flow is ready or has
// outstanding requests.
func (s *Scheduler) RemoveFlow(f Flow) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if fl.cost > 0 || fl.outstanding > 0 {
		return ErrFlowBusy
	}
	parent := fl.parent
	*fl = flow{}
	s.freeFlows = append(s.freeFlows, f)
	s.leaveQueue(parent)
	return nil
}

// flow returns a flow by its number. The pointer is valid until the next AddFlow.
func (s *Scheduler) flow(f Flow) (*flow, error) {
	if f < 0 || int(f) >= len(s.flows) || s.flows[f].weight == 0 {
		return nil, ErrUnknownFlow
	}
	return &s.flows[f], nil
}

// Waiting returns the number of ready flows.
func (s *Scheduler) Waiting() int { return s.waiting }

// Outstanding returns the number of dispatched requests that are not settled.
func (s *Scheduler) Outstanding() int { return s.queues[0].outstanding }
