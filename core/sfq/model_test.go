package sfq_test

import (
	"math/big"
	"slices"

	"penstock/core/sfq"
)

// model is SFQ(D) once more: exact rational numbers, no data structure but
// slices, every tag summed up from the beginning of its run each time it is
// asked for. Queues are flows that have members. It is written from the rules alone:
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
//	all that is in a queue, and in queues in it, is the queue's as if it were a flow;
//	    each has a v of its own, and a busy period, for its members
//	a flow, or queue, that changes its weight or its queue keeps what it is ahead of v or
//	    behind, times its weight; tags are then rounded down to 2^-32
type model struct {
	root  *modelFlow
	flows map[sfq.Flow]*modelFlow
	depth int
	out   int
	seq   int
	turns *turns // deficit round robin instead; nil for SFQ
}

// modelFlow is a flow, or a queue.
type modelFlow struct {
	weight int64
	before *big.Rat // F of all before the run
	vBegin *big.Rat // v when the run began
	run    int
	served []*modelService
	queue  []*modelRequest
	out    int
	parent *modelFlow // nil: it is the root

	// Of a queue:
	v       *big.Rat
	members []*modelFlow
	name    string
}

type modelService struct{ cost int64 }

type modelRequest struct {
	flow     sfq.Flow
	cost     int64
	seq      int
	service  *modelService // nil while queued
	accounts []account     // of the flow, and of the queues that it was in then
}

// account is where a request was charged: whose it is, and in which run.
type account struct {
	of  *modelFlow
	run int
}

func newModel(depth int) *model {
	return &model{root: newModelFlow(1, nil), flows: map[sfq.Flow]*modelFlow{}, depth: depth}
}

func newModelFlow(weight int64, parent *modelFlow) *modelFlow {
	f := &modelFlow{weight: weight, before: new(big.Rat), vBegin: new(big.Rat), parent: parent, v: new(big.Rat)}
	if parent != nil {
		f.before.Set(parent.v)
		f.vBegin.Set(parent.v)
		parent.members = append(parent.members, f)
	}
	return f
}

func (m *model) addFlow(f sfq.Flow, weight int64) {
	m.flows[f] = newModelFlow(weight, m.root)
	if m.turns != nil {
		m.turns.deficit[f] = new(big.Int)
	}
}

func (m *model) removeFlow(f sfq.Flow) {
	m.flows[f].leave()
	delete(m.flows, f)
	if m.turns != nil {
		delete(m.turns.deficit, f)
	}
}

func (m *model) setWeight(f sfq.Flow, weight int64) {
	if m.turns != nil {
		m.turns.weighed(f, m.flows[f].weight, weight)
	}
	m.flows[f].reweigh(weight)
}

func (f *modelFlow) reweigh(weight int64) {
	if weight != f.weight {
		f.keep(f.parent.v, f.parent.v, big.NewRat(f.weight, weight))
		f.weight = weight
	}
}

// keep takes a flow's tags from one virtual time to another and multiplies what they are
// apart from it.
func (f *modelFlow) keep(from, to, ratio *big.Rat) {
	for _, tag := range []*big.Rat{f.before, f.vBegin} {
		tag.Sub(tag, from)
		tag.Mul(tag, ratio)
		down := new(big.Int).Mul(tag.Num(), big.NewInt(1<<32))
		down.Div(down, tag.Denom()) // towards below, as the divisor is above 0
		tag.SetFrac(down, big.NewInt(1<<32))
		tag.Add(tag, to)
	}
}

// setQueue puts a flow into the queue at the end of the way.
func (m *model) setQueue(flow sfq.Flow, way []sfq.Level) {
	f, to := m.flows[flow], m.root
	for _, l := range way {
		if q := to.named(l.Name); q != nil {
			to = q
			to.reweigh(int64(l.Weight))
		} else {
			to = newModelFlow(int64(l.Weight), to)
			to.name = l.Name
		}
	}
	from := f.parent
	if to == from {
		return
	}
	began := f.waiting() > 0
	for q := to; began && q != m.root && q.waiting() == 0; q = q.parent {
		q.begin()
	}
	f.keep(from.v, to.v, big.NewRat(1, 1))
	to.members = append(to.members, f)
	f.leave()
	f.parent = to
	if began {
		from.rest()
	}
	from.forget()
}

// named returns the queue of that name in a queue, nil if there is none.
func (q *modelFlow) named(name string) *modelFlow {
	for _, m := range q.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// queues counts those below a queue.
func (q *modelFlow) queues() int {
	n := 0
	for _, m := range q.members {
		n += m.queues()
		if m.name != "" {
			n++
		}
	}
	return n
}

// share is what a flow is due, level by level, of those that have something queued.
func (f *modelFlow) share() float64 {
	due := 1.0
	for _, a := range f.accounts() {
		all := a.weight
		for _, m := range a.parent.members {
			if m != a && m.waiting() > 0 {
				all += m.weight
			}
		}
		due *= float64(a.weight) / float64(all)
	}
	return due
}

// leave takes a flow out of its queue.
func (f *modelFlow) leave() {
	q := f.parent
	q.members = slices.DeleteFunc(q.members, func(m *modelFlow) bool { return m == f })
	q.forget()
}

// forget ends a queue without members, unless some of its requests are out.
func (q *modelFlow) forget() {
	if q.parent != nil && len(q.members) == 0 && q.out == 0 {
		q.leave()
	}
}

// waiting returns how many requests are queued in a flow or a queue.
func (q *modelFlow) waiting() int {
	n := len(q.queue)
	for _, m := range q.members {
		n += m.waiting()
	}
	return n
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
		sum.Add(sum, big.NewRat(s.cost, f.weight))
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

func (f *modelFlow) begin() {
	f.before = new(big.Rat).Set(f.finish())
	f.vBegin = new(big.Rat).Set(f.parent.v)
	f.served = nil
	f.run++
}

// accounts are a flow and the queues that it is in, below the root.
func (f *modelFlow) accounts() []*modelFlow {
	if f.parent == nil {
		return nil
	}
	return append([]*modelFlow{f}, f.parent.accounts()...)
}

// beginAll begins runs of all that have nothing queued.
func (f *modelFlow) beginAll() {
	for _, a := range f.accounts() {
		if a.waiting() == 0 {
			a.begin()
		}
	}
}

func (m *model) submit(flow sfq.Flow, cost int64) *modelRequest {
	f := m.flows[flow]
	f.beginAll()
	r := &modelRequest{flow: flow, cost: cost, seq: m.seq}
	m.seq++
	f.queue = append(f.queue, r)
	if m.turns != nil && len(f.queue) == 1 {
		m.turns.arrived(flow)
	}
	return r
}

// waiting returns how many requests are queued.
func (m *model) waiting() int { return m.root.waiting() }

// first returns the request that is due, or nil.
func (m *model) first() *modelRequest {
	if m.turns != nil && m.waiting() > 0 && m.out < m.depth {
		return m.turns.due()
	}
	return m.root.due()
}

// due is what goes first of a flow or queue; nil if it has nothing.
func (q *modelFlow) due() *modelRequest {
	if len(q.queue) > 0 {
		return q.queue[0]
	}
	var best *modelRequest
	var bestStart *big.Rat
	for _, m := range q.members {
		r := m.due()
		if r == nil {
			continue
		}
		s := m.start()
		if best == nil || s.Cmp(bestStart) < 0 || s.Cmp(bestStart) == 0 && r.seq < best.seq {
			best, bestStart = r, s
		}
	}
	return best
}

// late is how much larger the start tag of one flow is than another's: of the two members of
// the same queue that they are in, or are.
func (m *model) late(a, b sfq.Flow) *big.Rat {
	as, bs := m.flows[a].accounts(), m.flows[b].accounts()
	for i, j := len(as)-1, len(bs)-1; ; i, j = i-1, j-1 {
		if as[i] != bs[j] {
			return new(big.Rat).Sub(as[i].start(), bs[j].start())
		}
	}
}

// dispatch serves a flow's first request.
func (m *model) dispatch(flow sfq.Flow) *modelRequest {
	f := m.flows[flow]
	r := f.queue[0]
	r.service = &modelService{r.cost}
	for _, a := range f.accounts() {
		a.parent.v = new(big.Rat).Set(larger(a.parent.v, a.start()))
	}
	f.queue = f.queue[1:]
	for _, a := range f.accounts() {
		a.served = append(a.served, r.service)
		a.out++
		r.accounts = append(r.accounts, account{a, a.run})
	}
	m.root.out++
	m.out++
	if m.turns != nil {
		m.turns.dispatched(r)
	}
	return r
}

// end completes or, with cost 0, cancels an outstanding request.
func (m *model) end(r *modelRequest, cost int64) {
	for _, a := range r.accounts {
		if a.run != a.of.run {
			a.of.before = new(big.Rat).Add(a.of.before, big.NewRat(cost-r.cost, a.of.weight))
		}
		a.of.out--
	}
	r.service.cost = cost
	m.root.out--
	m.out--
	if m.turns != nil {
		m.turns.moved(r.flow, cost-r.cost)
	}
	// Its flow's queue is where it was charged, which the flow may have left since.
	q := m.root
	if len(r.accounts) > 1 {
		q = r.accounts[1].of
	}
	m.rest(q)
	q.forget()
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
	m.rest(f.parent)
}

func (m *model) charge(flow sfq.Flow, cost int64) {
	f := m.flows[flow]
	f.beginAll()
	for _, a := range f.accounts() {
		a.served = append(a.served, &modelService{cost})
	}
	if m.turns != nil {
		m.turns.moved(flow, cost)
	}
}

func (m *model) rest(q *modelFlow) {
	q.rest()
	if m.turns != nil && m.out == 0 && m.waiting() == 0 {
		m.turns.rested()
	}
}

// rest ends the busy periods of a queue and those above it.
func (q *modelFlow) rest() {
	if q.out > 0 || q.waiting() > 0 {
		return
	}
	for _, m := range q.members {
		q.v = new(big.Rat).Set(larger(q.v, m.finish()))
	}
	for _, m := range q.members {
		m.before, m.vBegin, m.served = new(big.Rat).Set(q.v), new(big.Rat).Set(q.v), nil
		m.run++
	}
	if q.parent != nil {
		q.parent.rest()
	}
}
