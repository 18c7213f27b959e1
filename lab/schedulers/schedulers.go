// Package schedulers provides schedulers to compare with start-time fair queueing: deficit round
// robin and FIFO. They have the same methods as core/sfq's Scheduler, and use its flow numbers and
// tickets, so a daemon or a benchmark can run with them. They are not part of the product.
//
// They do not support queues with their own weights (SetQueue returns an error), a bound on a
// flow's debt from charges (Trim does nothing), or waiting for a flow that is not ready (Due always
// returns false).
package schedulers

import (
	"errors"
	"fmt"
	"strings"

	"penstock/core/arbiter"
	"penstock/core/sfq"
)

// ErrNoQueues is the error of SetQueue for a queue other than the root.
var ErrNoQueues = errors.New("schedulers: this algorithm knows no queues: leave every flow in the root, or use sfq")

// table contains what both schedulers need besides their rule: the flows with their bounds, and the
// list of the ready flows. T is the algorithm's own state of a flow.
type table[T any] struct {
	flows       []flow[T]
	free        []sfq.Flow // last in, first out
	max         int
	first, last sfq.Flow // the list of ready flows, in the order of their turns
	waiting     int      // number of ready flows
	outstanding int
}

type flow[T any] struct {
	weight      int32 // 0: the slot is free
	outstanding int32
	cost        int64    // cost of the next request; 0: the flow is not ready
	prev, next  sfq.Flow // neighbours in the list of ready flows
	own         T
}

const noFlow = sfq.Flow(-1)

func newTable[T any](maxFlows int) (table[T], error) {
	if maxFlows < 1 || maxFlows > 1<<20 {
		return table[T]{}, fmt.Errorf("schedulers: MaxFlows %d: use 1 to %d", maxFlows, 1<<20)
	}
	return table[T]{max: maxFlows, first: noFlow, last: noFlow}, nil
}

// AddFlow implements sfq.Scheduler's method.
func (t *table[T]) AddFlow(weight int) (sfq.Flow, error) {
	if weight < 1 || weight > sfq.MaxWeight {
		return 0, sfq.ErrWeight
	}
	var f sfq.Flow
	if n := len(t.free); n > 0 {
		f, t.free = t.free[n-1], t.free[:n-1]
	} else if len(t.flows) < t.max {
		f = sfq.Flow(len(t.flows))
		t.flows = append(t.flows, flow[T]{})
	} else {
		return 0, sfq.ErrTooManyFlows
	}
	t.flows[f] = flow[T]{weight: int32(weight)}
	return f, nil
}

// RemoveFlow implements sfq.Scheduler's method.
func (t *table[T]) RemoveFlow(f sfq.Flow) error {
	fl, err := t.flow(f)
	if err != nil {
		return err
	}
	if fl.cost > 0 || fl.outstanding > 0 {
		return sfq.ErrFlowBusy
	}
	*fl = flow[T]{}
	t.free = append(t.free, f)
	return nil
}

// SetQueue accepts only the root.
func (t *table[T]) SetQueue(f sfq.Flow, way []sfq.Level) error {
	if _, err := t.flow(f); err != nil {
		return err
	}
	if len(way) > 0 {
		return ErrNoQueues
	}
	return nil
}

// Trim does nothing.
func (t *table[T]) Trim() {}

// Due returns false: neither algorithm waits for a flow that is not ready.
func (t *table[T]) Due(sfq.Flow) bool { return false }

// Waiting returns the number of ready flows.
func (t *table[T]) Waiting() int { return t.waiting }

// Outstanding returns the number of requests that are dispatched and not settled.
func (t *table[T]) Outstanding() int { return t.outstanding }

// flow returns a flow by its number. The pointer is valid until the next AddFlow.
func (t *table[T]) flow(f sfq.Flow) (*flow[T], error) {
	if f < 0 || int(f) >= len(t.flows) || t.flows[f].weight == 0 {
		return nil, sfq.ErrUnknownFlow
	}
	return &t.flows[f], nil
}

// announces checks the arguments of Ready and returns the flow.
func (t *table[T]) announces(f sfq.Flow, cost int64) (*flow[T], error) {
	fl, err := t.flow(f)
	if err == nil && (cost < 0 || cost > sfq.MaxCost) {
		err = sfq.ErrCost
	}
	return fl, err
}

// weighs checks the arguments of SetWeight and returns the flow.
func (t *table[T]) weighs(f sfq.Flow, weight int) (*flow[T], error) {
	fl, err := t.flow(f)
	if err == nil && (weight < 1 || weight > sfq.MaxWeight) {
		err = sfq.ErrWeight
	}
	return fl, err
}

// charges checks the arguments of Charge and returns the flow.
func (t *table[T]) charges(f sfq.Flow, cost int64) (*flow[T], error) {
	fl, err := t.flow(f)
	if err == nil && (cost < 1 || cost > sfq.MaxCost) {
		err = sfq.ErrCost
	}
	return fl, err
}

// dispatch makes a ready flow's next request outstanding.
func (t *table[T]) dispatch(f sfq.Flow) sfq.Ticket {
	fl := &t.flows[f]
	fl.outstanding++
	t.outstanding++
	return sfq.MakeTicket(f, fl.cost)
}

// forces makes a request outstanding outside of the flow's turn. The flow need not be ready.
func (t *table[T]) forces(f sfq.Flow, cost int64) (sfq.Ticket, *flow[T], error) {
	fl, err := t.charges(f, cost)
	if err != nil {
		return sfq.Ticket{}, nil, err
	}
	fl.outstanding++
	t.outstanding++
	return sfq.MakeTicket(f, cost), fl, nil
}

// settle ends an outstanding request.
func (t *table[T]) settle(ticket sfq.Ticket, cost int64) (*flow[T], error) {
	fl, err := t.flow(ticket.Flow())
	if err != nil || fl.outstanding == 0 {
		return nil, sfq.ErrTicket
	}
	if cost < 0 || cost > sfq.MaxCost {
		return nil, sfq.ErrCost
	}
	fl.outstanding--
	t.outstanding--
	return fl, nil
}

// list appends a flow to the list of ready flows.
func (t *table[T]) list(f sfq.Flow) {
	fl := &t.flows[f]
	fl.prev, fl.next = t.last, noFlow
	if t.last == noFlow {
		t.first = f
	} else {
		t.flows[t.last].next = f
	}
	t.last = f
	t.waiting++
}

// unlist removes a flow from the list of ready flows, and reports whether it was the first.
func (t *table[T]) unlist(f sfq.Flow) (wasFirst bool) {
	fl := &t.flows[f]
	wasFirst = fl.prev == noFlow
	if wasFirst {
		t.first = fl.next
	} else {
		t.flows[fl.prev].next = fl.next
	}
	if fl.next == noFlow {
		t.last = fl.prev
	} else {
		t.flows[fl.next].prev = fl.prev
	}
	t.waiting--
	return wasFirst
}

// dump returns the state as text, one line per flow. own returns the algorithm's own state of a
// flow as text.
func (t *table[T]) dump(title string, own func(*flow[T]) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, outstanding %d, ready %d\n", title, t.outstanding, t.waiting)
	for f := range t.flows {
		fl := &t.flows[f]
		if fl.weight == 0 {
			continue
		}
		fmt.Fprintf(&b, "flow %d: weight %d%s", f, fl.weight, own(fl))
		if fl.cost > 0 {
			fmt.Fprintf(&b, ", next costs %d", fl.cost)
		}
		fmt.Fprintf(&b, ", outstanding %d\n", fl.outstanding)
	}
	return b.String()
}

// MakeDRR returns a new DRR. It panics if maxFlows is out of range.
func MakeDRR(maxFlows int) arbiter.Scheduler { return must(NewDRR(maxFlows)) }

// MakeFIFO returns a new FIFO. It panics if maxFlows is out of range.
func MakeFIFO(maxFlows int) arbiter.Scheduler { return must(NewFIFO(maxFlows)) }

func must[T any](s T, err error) T {
	if err != nil {
		panic(err)
	}
	return s
}
