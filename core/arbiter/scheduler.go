package arbiter

import "penstock/core/sfq"

// Scheduler orders flows: by start tags (package sfq), or by another algorithm that SFQ is compared
// with. The arbiter announces the flows that are backlogged and the cost of their next requests,
// asks for the next flow, and settles the actual cost. The depth is the arbiter's decision. Package
// sfq documents the methods in detail.
type Scheduler interface {
	AddFlow(weight int) (sfq.Flow, error)
	RemoveFlow(sfq.Flow) error
	SetWeight(f sfq.Flow, weight int) error
	// SetQueue puts a flow into a queue, given as the path from the root.
	SetQueue(f sfq.Flow, path []sfq.Level) error
	// Ready announces the cost of the flow's next request; 0: none.
	Ready(f sfq.Flow, cost int64) error
	// Next dispatches a request of the flow that is due.
	Next() (sfq.Ticket, bool)
	// Force dispatches a request of a flow out of turn.
	Force(f sfq.Flow, cost int64) (sfq.Ticket, error)
	// Settle ends a dispatched request at its actual cost; 0: it was not served.
	Settle(t sfq.Ticket, cost int64) error
	// Charge adds service that the flow got outside of the scheduler.
	Charge(f sfq.Flow, cost int64) error
	// Due reports whether a flow that is not ready would be the next one if it were.
	Due(f sfq.Flow) bool
	// Void clears the lead of a flow.
	Void(f sfq.Flow) error
	// Trim bounds the leads that charges have caused, beside the flows that are ready now.
	Trim()
}
