// Package requests keeps queues of requests in front of a scheduler that knows only the cost of a
// flow's next request.
//
// A scheduler of core/sfq learns which flows are ready, names the next flow, and settles costs. Its
// caller keeps the requests and decides how many are outstanding. The daemon's caller handles quanta of
// streams and much else. A test of a scheduler wants the textbook's caller, which is this one: one
// queue per flow, served in order, requests that can be cancelled anywhere, and a depth D. Two
// packages' tests share it, and the commands of their scenario files.
package requests

import (
	"errors"
	"slices"

	"penstock/core/sfq"
)

// Scheduler is what *sfq.Scheduler and its peers have in common.
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

// Handle names one request from Submit to its end. Zero is never a valid handle.
type Handle uint64

// Request is what Next dispatches. Ref is the caller's own.
type Request struct {
	Handle Handle
	Flow   sfq.Flow
	Cost   int64
	Ref    uint64

	ticket sfq.Ticket // once it is dispatched
	out    bool
}

// ErrUnknown is the error of a handle whose request has ended, or never was.
var ErrUnknown = errors.New("requests: no such request: it was completed or cancelled before, or never submitted here")

// Queues is a scheduler with requests.
type Queues struct {
	Scheduler
	queues  map[sfq.Flow][]*Request
	live    map[Handle]*Request
	last    Handle
	depth   int
	waiting int
}

// New returns empty queues in front of a scheduler, with up to depth requests outstanding.
func New(s Scheduler, depth int) *Queues {
	q := &Queues{Scheduler: s, queues: map[sfq.Flow][]*Request{}, live: map[Handle]*Request{}}
	q.SetDepth(depth)
	return q
}

// Submit queues a request of cost 1 to sfq.MaxCost behind the flow's others. Errors are the
// scheduler's.
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

// remove takes a request out of its queue, and announces the one that is now the first.
func (q *Queues) remove(r *Request) {
	queue := q.queues[r.Flow]
	q.queues[r.Flow] = slices.DeleteFunc(queue, func(other *Request) bool { return other == r })
	q.waiting--
	cost := int64(0)
	if rest := q.queues[r.Flow]; len(rest) > 0 {
		cost = rest[0].Cost
	}
	if err := q.Ready(r.Flow, cost); err != nil {
		panic(err) // the flow is there, and the cost was taken before
	}
}

// Complete ends an outstanding request with the cost that it really had.
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

// Cancel ends a request that was not served, queued or outstanding.
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

// SetDepth sets how many requests may be outstanding, at least 1.
func (q *Queues) SetDepth(d int) { q.depth = max(d, 1) }

// Depth returns how many requests may be outstanding.
func (q *Queues) Depth() int { return q.depth }

// Waiting returns how many requests of all flows are queued.
func (q *Queues) Waiting() int { return q.waiting }

// Queued returns how many requests a flow has queued.
func (q *Queues) Queued(f sfq.Flow) int { return len(q.queues[f]) }
