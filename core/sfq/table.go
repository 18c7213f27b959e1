package sfq

import (
	"fmt"
	"strings"
)

// table is what all algorithms need besides their rule: flows and requests with
// their bounds, handles that go stale, and each flow's queue. F and R are what
// an algorithm remembers of a flow and of a request.
//
// Both kinds live in slabs with free lists, and the queues are lists linked by
// slab index: nothing is allocated once the slabs have grown to the load, a
// request is cancelled in the middle of its queue in O(1), and there is nothing
// for the garbage collector to follow.
type table[F, R any] struct {
	cfg         Config
	flows       []flow[F]
	freeFlows   []Flow // last in, first out
	requests    []request[R]
	freeRequest int32 // first of the free requests, linked by next, or none
	seq         uint64
	depth       int
	outstanding int
	waiting     int
}

type flow[F any] struct {
	weight      int32 // 0: a free slot
	queued      int32
	outstanding int32
	head, tail  int32 // of the queue, or none
	tags        F
}

type request[R any] struct {
	seq        uint64
	ref        uint64
	cost       int64
	flow       Flow
	uses       uint32 // of this slot; the upper half of the handle
	prev, next int32
	state      state
	tags       R
}

type state uint8

const (
	free state = iota
	queued
	outstanding
)

const none = int32(-1)

func newTable[F, R any](cfg Config) table[F, R] {
	return table[F, R]{cfg: cfg, depth: cfg.Depth, freeRequest: none}
}

func (t *table[F, R]) addFlow(weight int) (Flow, error) {
	if weight < 1 || weight > MaxWeight {
		return 0, ErrWeight
	}
	var f Flow
	if n := len(t.freeFlows); n > 0 {
		f, t.freeFlows = t.freeFlows[n-1], t.freeFlows[:n-1]
	} else if len(t.flows) < t.cfg.MaxFlows {
		f = Flow(len(t.flows))
		t.flows = append(t.flows, flow[F]{})
	} else {
		return 0, ErrTooManyFlows
	}
	t.flows[f] = flow[F]{weight: int32(weight), head: none, tail: none}
	return f, nil
}

// RemoveFlow is Scheduler's. The slot is emptied, so that nothing of the flow is
// found by the next one under its number.
func (t *table[F, R]) RemoveFlow(f Flow) error {
	fl, err := t.flow(f)
	if err != nil {
		return err
	}
	if fl.queued > 0 || fl.outstanding > 0 {
		return ErrFlowBusy
	}
	*fl = flow[F]{}
	t.freeFlows = append(t.freeFlows, f)
	return nil
}

// flow looks a flow up. The pointer holds until the next addFlow.
func (t *table[F, R]) flow(f Flow) (*flow[F], error) {
	if f < 0 || int(f) >= len(t.flows) || t.flows[f].weight == 0 {
		return nil, ErrUnknownFlow
	}
	return &t.flows[f], nil
}

// admits checks whether a flow may submit a request of this cost.
func (t *table[F, R]) admits(f Flow, cost int64) (*flow[F], error) {
	fl, err := t.flow(f)
	if err != nil {
		return nil, err
	}
	if cost < 1 || cost > MaxCost {
		return nil, ErrCost
	}
	if int(fl.queued) >= t.cfg.MaxQueued {
		return nil, ErrTooManyRequests
	}
	return fl, nil
}

// enqueue appends a request that was admitted to its flow's queue.
func (t *table[F, R]) enqueue(f Flow, cost int64, ref uint64) Handle {
	slot := t.freeRequest
	if slot == none {
		slot = int32(len(t.requests))
		t.requests = append(t.requests, request[R]{})
	} else {
		t.freeRequest = t.requests[slot].next
	}
	fl := &t.flows[f]
	r := &t.requests[slot]
	uses := r.uses + 1
	if uses == 0 {
		uses = 1 // a handle is never zero
	}
	*r = request[R]{seq: t.seq, ref: ref, cost: cost, flow: f, uses: uses, prev: fl.tail, next: none, state: queued}
	t.seq++
	if fl.tail == none {
		fl.head = slot
	} else {
		t.requests[fl.tail].next = slot
	}
	fl.tail = slot
	fl.queued++
	t.waiting++
	return handle(uses, slot)
}

func handle(uses uint32, slot int32) Handle { return Handle(uint64(uses)<<32 | uint64(slot)) }

// lookup returns a live request's slot.
func (t *table[F, R]) lookup(h Handle) (int32, error) {
	slot := uint64(h) & (1<<32 - 1)
	if slot >= uint64(len(t.requests)) {
		return none, ErrUnknownRequest
	}
	if r := &t.requests[slot]; r.state == free || r.uses != uint32(h>>32) {
		return none, ErrUnknownRequest
	}
	return int32(slot), nil
}

// lookupOutstanding is lookup for Complete.
func (t *table[F, R]) lookupOutstanding(h Handle, cost int64) (int32, error) {
	slot, err := t.lookup(h)
	if err != nil {
		return none, err
	}
	if t.requests[slot].state != outstanding {
		return none, ErrNotDispatched
	}
	if cost < 0 || cost > MaxCost {
		return none, ErrCost
	}
	return slot, nil
}

// unlink takes a queued request out of its flow's queue.
func (t *table[F, R]) unlink(slot int32) {
	r := &t.requests[slot]
	fl := &t.flows[r.flow]
	if r.prev == none {
		fl.head = r.next
	} else {
		t.requests[r.prev].next = r.next
	}
	if r.next == none {
		fl.tail = r.prev
	} else {
		t.requests[r.next].prev = r.prev
	}
	fl.queued--
	t.waiting--
}

// dispatch makes a flow's first queued request outstanding.
func (t *table[F, R]) dispatch(f Flow) (*request[R], Request) {
	slot := t.flows[f].head
	t.unlink(slot)
	r := &t.requests[slot]
	r.state = outstanding
	t.flows[f].outstanding++
	t.outstanding++
	return r, Request{Handle: handle(r.uses, slot), Flow: f, Cost: r.cost, Ref: r.ref}
}

// release frees a request that is outstanding or was unlinked.
func (t *table[F, R]) release(slot int32) {
	r := &t.requests[slot]
	if r.state == outstanding {
		t.flows[r.flow].outstanding--
		t.outstanding--
	}
	r.state = free
	r.next = t.freeRequest
	t.freeRequest = slot
}

// The methods of Scheduler that no algorithm has reason to change.

func (t *table[F, R]) SetDepth(d int)   { t.depth = min(max(d, 1), MaxDepth) }
func (t *table[F, R]) Depth() int       { return t.depth }
func (t *table[F, R]) Outstanding() int { return t.outstanding }
func (t *table[F, R]) Waiting() int     { return t.waiting }

func (t *table[F, R]) Queued(f Flow) int {
	fl, err := t.flow(f)
	if err != nil {
		return 0
	}
	return int(fl.queued)
}

// dump prints the state, one line a flow; tags prints what the algorithm knows
// of the flow. Requests go by the caller's reference.
func (t *table[F, R]) dump(title string, tags func(*flow[F]) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, outstanding %d of %d, waiting %d\n", title, t.outstanding, t.depth, t.waiting)
	for f := range t.flows {
		fl := &t.flows[f]
		if fl.weight == 0 {
			continue
		}
		fmt.Fprintf(&b, "flow %d: weight %d%s, outstanding %d, queued", f, fl.weight, tags(fl), fl.outstanding)
		if fl.queued == 0 {
			b.WriteString(" none")
		}
		for slot := fl.head; slot != none; slot = t.requests[slot].next {
			fmt.Fprintf(&b, " r%d(%d)", t.requests[slot].ref, t.requests[slot].cost)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
