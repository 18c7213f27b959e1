package arbiter

import "penstock/core/sfq"

// Scheduler orders flows: by start tags (package sfq), or as a peer does that SFQ is compared
// with. The arbiter announces which flows are ready and at what cost, asks for the next one, and
// settles what the device has really spent. The arbiter decides how many requests are at the device.
type Scheduler interface {
	AddFlow(weight int) (sfq.Flow, error)
	RemoveFlow(sfq.Flow) error
	SetWeight(f sfq.Flow, weight int) error
	// SetQueue puts a flow into a queue, by the way from the root.
	SetQueue(f sfq.Flow, way []sfq.Level) error
	// Ready announces the cost of the flow's next request; 0: there is none.
	Ready(f sfq.Flow, cost int64) error
	// Next dispatches a request of the flow whose turn it is.
	Next() (sfq.Ticket, bool)
	// Force dispatches a request of a flow out of its turn.
	Force(f sfq.Flow, cost int64) (sfq.Ticket, error)
	// Settle ends a dispatched request at the cost that it really had; 0: the device did nothing.
	Settle(t sfq.Ticket, cost int64) error
	// Charge books service that the device gave the flow outside of the queue.
	Charge(f sfq.Flow, cost int64) error
	// Due reports whether a flow that is not ready would be the next one if it were.
	Due(f sfq.Flow) bool
	// Void forgets what the flow is ahead by.
	Void(f sfq.Flow) error
	// Trim bounds how far charges put flows ahead, beside the flows that are ready now.
	Trim()
}
