package arbiter

import "time"

// reservedQueue orders backlogged flows with guaranteed rates. A flow whose next reserved request is not due yet waits in
// pending. Of the others, the flow with the earliest deadline goes first; the deadline is the time by which the rate
// has moved a whole quantum after the reservation tag.
//
// mClock compares the tags of due requests instead. Then a flow can wait for one request of each other flow with a rate, if
// their requests became due a moment before its own. With deadlines, it waits only for the requests at the device
// (worst-case fair queueing, WF2Q: Bennett and Zhang, INFOCOM 1996).
type reservedQueue struct {
	pending   indexedHeap[*flow] // not due yet, by tag
	due       indexedHeap[*flow] // due, by tag
	deadlines indexedHeap[*flow] // due, by deadline
}

func newReservedQueue() reservedQueue {
	byTag := func(f, g *flow) bool {
		return f.reserve.due < g.reserve.due || f.reserve.due == g.reserve.due && f.id < g.id
	}
	return reservedQueue{
		pending: indexedHeap[*flow]{less: byTag, index: func(f *flow) *int { return &f.reserve.pendingIndex }},
		due:     indexedHeap[*flow]{less: byTag, index: func(f *flow) *int { return &f.reserve.dueIndex }},
		deadlines: indexedHeap[*flow]{
			less: func(f, g *flow) bool {
				return f.reserve.deadline < g.reserve.deadline || f.reserve.deadline == g.reserve.deadline && f.id < g.id
			},
			index: func(f *flow) *int { return &f.reserve.deadlineIndex },
		},
	}
}

// set adds a flow, or moves it to its place after its tag or deadline has changed. at is the present reserve time.
func (q *reservedQueue) set(f *flow, at time.Duration) {
	if f.reserve.due > at {
		q.due.remove(f)
		q.deadlines.remove(f)
		q.pending.set(f)
		return
	}
	q.pending.remove(f)
	q.due.set(f)
	q.deadlines.set(f)
}

func (q *reservedQueue) remove(f *flow) {
	q.pending.remove(f)
	q.due.remove(f)
	q.deadlines.remove(f)
}

// earliest returns the earliest tag. ok is false if there is no flow.
func (q *reservedQueue) earliest() (tag time.Duration, ok bool) {
	switch {
	case q.due.len() > 0: // pending tags are later
		return q.due.first().reserve.due, true
	case q.pending.len() > 0:
		return q.pending.first().reserve.due, true
	}
	return 0, false
}

// first returns the flow that is due and has the earliest deadline; nil if none is due. at is the present reserve time.
func (q *reservedQueue) first(at time.Duration) *flow {
	for q.pending.len() > 0 && q.pending.first().reserve.due <= at {
		q.set(q.pending.first(), at)
	}
	if q.deadlines.len() == 0 {
		return nil
	}
	return q.deadlines.first()
}
