package arbiter

import "penstock/core/sfq"

// Scheduler orders flows by start tags (package sfq), or by another algorithm, for comparisons with
// SFQ. The arbiter announces the backlogged flows and the cost of their next requests, calls Next
// for the next flow, and settles the actual cost. The arbiter decides the depth. Package sfq
// documents the methods in detail.
type Scheduler interface {
	AddFlow(weight int) (sfq.Flow, error)
	RemoveFlow(sfq.Flow) error
	SetWeight(f sfq.Flow, weight int) error
	// SetQueue puts a flow into the queue with the given path from the root.
	SetQueue(f sfq.Flow, path []sfq.Level) error
	// Ready announces the cost of the flow's next request; 0 means that there is none.
	Ready(f sfq.Flow, cost int64) error
	// Next dispatches a request of the flow that goes first.
	Next() (sfq.Ticket, bool)
	// Force dispatches a request of a flow out of turn.
	Force(f sfq.Flow, cost int64) (sfq.Ticket, error)
	// Settle ends a dispatched request at its actual cost; 0 means that the request was not served.
	Settle(t sfq.Ticket, cost int64) error
	// Charge adds service that the flow got without a dispatch by the scheduler.
	Charge(f sfq.Flow, cost int64) error
	// Due reports whether a flow that is not ready would be dispatched next if it were ready.
	Due(f sfq.Flow) bool
	// Void clears the lead of a flow: the service by which it is ahead of the virtual time.
	Void(f sfq.Flow) error
	// Trim bounds the leads that charges have caused, taking into account which flows are ready
	// now.
	Trim()
}
