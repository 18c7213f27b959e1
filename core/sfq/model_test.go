package sfq_test

import (
	"math/big"

	"penstock/core/sfq"
)

// model is SFQ(D) once more: exact rational numbers, no data structure but
// slices, every tag summed up from the beginning of its run each time it is
// asked for. It is written from the rules alone:
//
//	S = max(v, F of the flow's previous), F = S + cost/weight
//	smallest S first, between equal ones the one submitted first
//	v = S of the last dispatched, never backwards; at the end of a busy
//	    period the largest F
//	a run begins with a request at an empty queue; a correction within the run
//	    changes the cost that was summed; one from an earlier run changes the F
//	    that the run began from
//	a run without service leaves no trace
//	a charge is service within the run, of a run of its own if the queue is empty
type model struct {
	v     *big.Rat
	flows map[sfq.Flow]*modelFlow
	depth int
	out   int
	seq   int
	turns *turns // deficit round robin instead; nil for SFQ
}

type modelFlow struct {
	weight int64
	before *big.Rat // F of all before the run
	vBegin *big.Rat // v when the run began
	run    int
	served []*modelService
	queue  []*modelRequest
	out    int
}

type modelService struct{ cost, weight int64 }

type modelRequest struct {
	flow    sfq.Flow
	cost    int64
	seq     int
	run     int
	service *modelService // nil while queued
}

func newModel(depth int) *model {
	return &model{v: new(big.Rat), flows: map[sfq.Flow]*modelFlow{}, depth: depth}
}

func (m *model) addFlow(f sfq.Flow, weight int64) {
	m.flows[f] = &modelFlow{weight: weight, before: new(big.Rat), vBegin: new(big.Rat)}
	if m.turns != nil {
		m.turns.deficit[f] = new(big.Int)
	}
}

func (m *model) removeFlow(f sfq.Flow) {
	delete(m.flows, f)
	if m.turns != nil {
		delete(m.turns.deficit, f)
	}
}

func (m *model) setWeight(f sfq.Flow, weight int64) {
	if m.turns != nil {
		m.turns.weighed(f, m.flows[f].weight, weight)
	}
	m.flows[f].weight = weight
}

func larger(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}

// start is the start tag of what the flow would dispatch next.
func (f *modelFlow) start() *big.Rat {
	sum := new(big.Rat).Set(larger(f.before, f.vBegin))
	for _, s := range f.served {
		sum.Add(sum, big.NewRat(s.cost, s.weight))
	}
	return sum
}

// finish is the F of all that the flow was served.
func (f *modelFlow) finish() *big.Rat {
	if len(f.served) == 0 {
		return f.before
	}
	return f.start()
}

func (m *model) begin(f *modelFlow) {
	f.before = new(big.Rat).Set(f.finish())
	f.vBegin = m.v
	f.served = nil
	f.run++
}

func (m *model) submit(flow sfq.Flow, cost int64) *modelRequest {
	f := m.flows[flow]
	if len(f.queue) == 0 {
		m.begin(f)
	}
	r := &modelRequest{flow: flow, cost: cost, seq: m.seq, run: f.run}
	m.seq++
	f.queue = append(f.queue, r)
	if m.turns != nil && len(f.queue) == 1 {
		m.turns.arrived(flow)
	}
	return r
}

// waiting returns how many requests are queued.
func (m *model) waiting() int {
	n := 0
	for _, f := range m.flows {
		n += len(f.queue)
	}
	return n
}

// first returns the request that is due, or nil.
func (m *model) first() *modelRequest {
	if m.turns != nil && m.waiting() > 0 && m.out < m.depth {
		return m.turns.due()
	}
	var best *modelRequest
	var bestStart *big.Rat
	for _, f := range m.flows {
		if len(f.queue) == 0 {
			continue
		}
		r, s := f.queue[0], f.start()
		if best == nil || s.Cmp(bestStart) < 0 || s.Cmp(bestStart) == 0 && r.seq < best.seq {
			best, bestStart = r, s
		}
	}
	return best
}

// dispatch serves a flow's first request.
func (m *model) dispatch(flow sfq.Flow) *modelRequest {
	f := m.flows[flow]
	r := f.queue[0]
	m.v = larger(m.v, f.start())
	f.queue = f.queue[1:]
	r.service = &modelService{r.cost, f.weight}
	f.served = append(f.served, r.service)
	f.out++
	m.out++
	if m.turns != nil {
		m.turns.dispatched(r)
	}
	return r
}

// end completes or, with cost 0, cancels an outstanding request.
func (m *model) end(r *modelRequest, cost int64) {
	f := m.flows[r.flow]
	if r.run == f.run {
		r.service.cost = cost
	} else {
		f.before = new(big.Rat).Add(f.before, big.NewRat(cost-r.cost, r.service.weight))
	}
	f.out--
	m.out--
	if m.turns != nil {
		m.turns.moved(r.flow, cost-r.cost)
	}
	m.rest()
}

// withdraw cancels a queued request.
func (m *model) withdraw(r *modelRequest) {
	f := m.flows[r.flow]
	var rest []*modelRequest
	for _, q := range f.queue {
		if q != r {
			rest = append(rest, q)
		}
	}
	f.queue = rest
	if m.turns != nil {
		m.turns.emptied(r.flow)
	}
	m.rest()
}

func (m *model) charge(flow sfq.Flow, cost int64) {
	f := m.flows[flow]
	if len(f.queue) == 0 {
		m.begin(f)
	}
	f.served = append(f.served, &modelService{cost, f.weight})
	if m.turns != nil {
		m.turns.moved(flow, cost)
	}
}

func (m *model) rest() {
	if m.out > 0 || m.waiting() > 0 {
		return
	}
	for _, f := range m.flows {
		m.v = larger(m.v, f.finish())
	}
	if m.turns != nil {
		m.turns.rested()
	}
}
