// Package requests keeps queues of requests for a scheduler that knows only the cost of a flow's
// next request.
//
// A scheduler of core/sfq learns which flows are ready, names the next flow, and settles costs. Its
// caller keeps the requests and decides how many may be outstanding. In the daemon the caller
// handles quanta of streams and much else. Tests of a scheduler need only the caller that textbooks
// assume, and this package is such a caller. It has one queue per flow, which is served in order,
// requests that can be cancelled anywhere in a queue, and a depth D. The tests of two packages
// share it, together with the commands of their scenario files.
package requests

import (
	"errors"
	"slices"

	"penstock/core/sfq"
)

// Scheduler has the methods that *sfq.Scheduler and its peers have in common.
type Scheduler interface {
	AddFlow(weight int) (sfq.Flow, error)
	RemoveFlow(f sfq.Flow) error
	SetWeight(f sfq.Flow, weight int) error
	SetQueue(f sfq.Flow, way []sfq.Level) error
	Ready(f sfq.Flow, cost int64) error
	Next() (sfq.Ticket, bool)
	Settle(t sfq.Ticket, cost int64) error
	Charge(f sfq.Flow, cost int64) error
	Void(f sfq.Flow) error
	Trim()
	Waiting() int
	Outstanding() int
	String() string
}

// Handle identifies a request from Submit to its end. Zero is never a valid handle.
type Handle uint64

// Request is a request that Next dispatches. Ref belongs to the caller.
type Request struct {
	Handle Handle
	Flow   sfq.Flow
	Cost   int64
	Ref    uint64

	ticket sfq.Ticket // valid after the dispatch
	out    bool
}

// ErrUnknown means that a handle's request has ended, or that the handle was never valid.
var ErrUnknown = errors.New("requests: no such request: it has been completed or cancelled, or was never submitted here")

// Queues is a scheduler with queues of requests.
type Queues struct {
	Scheduler
	queues  map[sfq.Flow][]*Request
	live    map[Handle]*Request
	last    Handle
	depth   int
	waiting int
}

// New returns empty queues for a scheduler, with up to depth requests outstanding.
func New(s Scheduler, depth int) *Queues {
	q := &Queues{Scheduler: s, queues: map[sfq.Flow][]*Request{}, live: map[Handle]*Request{}}
	q.SetDepth(depth)
	return q
}

// Submit queues a request behind the flow's other requests. cost must be between 1 and sfq.MaxCost.
// Other errors come from the scheduler.
func (q *Queues) Submit(f sfq.Flow, cost int64, ref uint64) (Handle, error) {
	if cost < 1 || cost > sfq.MaxCost {
		return 0, sfq.ErrCost
	}
	if len(q.queues[f]) == 0 {
		if err := q.Ready(f, cost); err != nil {
			return 0, err
		}
	}
	q.last++
	r := &Request{Handle: q.last, Flow: f, Cost: cost, Ref: ref}
	q.live[r.Handle] = r
	q.queues[f] = append(q.queues[f], r)
	q.waiting++
	return r.Handle, nil
}

// Next dispatches a request if one is queued and fewer than Depth are outstanding.
func (q *Queues) Next() (Request, bool) {
	if q.Outstanding() >= q.depth {
		return Request{}, false
	}
	t, ok := q.Scheduler.Next()
	if !ok {
		return Request{}, false
	}
	r := q.queues[t.Flow()][0]
	r.ticket, r.out = t, true
	q.remove(r)
	return *r, true
}

// remove removes a request from its queue, and announces the queue's new first request to the
// scheduler.
func (q *Queues) remove(r *Request) {
	queue := q.queues[r.Flow]
	q.queues[r.Flow] = slices.DeleteFunc(queue, func(other *Request) bool { return other == r })
	q.waiting--
	cost := int64(0)
	if rest := q.queues[r.Flow]; len(rest) > 0 {
		cost = rest[0].Cost
	}
	if err := q.Ready(r.Flow, cost); err != nil {
		panic(err) // the flow exists, and its cost was accepted before
	}
}

// Complete ends an outstanding request, with its real cost.
func (q *Queues) Complete(h Handle, cost int64) error {
	r := q.live[h]
	if r == nil || !r.out {
		return ErrUnknown
	}
	if err := q.Settle(r.ticket, cost); err != nil {
		return err
	}
	delete(q.live, h)
	return nil
}

// Cancel ends a queued or outstanding request that was not served.
func (q *Queues) Cancel(h Handle) error {
	r := q.live[h]
	switch {
	case r == nil:
		return ErrUnknown
	case r.out:
		return q.Complete(h, 0)
	}
	delete(q.live, h)
	q.remove(r)
	return nil
}

// SetDepth sets the number of requests that may be outstanding, at least 1.
func (q *Queues) SetDepth(d int) { q.depth = max(d, 1) }

// Depth returns the number of requests that may be outstanding.
func (q *Queues) Depth() int { return q.depth }

// Waiting returns the number of queued requests of all flows.
func (q *Queues) Waiting() int { return q.waiting }

// Queued returns the number of a flow's queued requests.
func (q *Queues) Queued(f sfq.Flow) int { return len(q.queues[f]) }
