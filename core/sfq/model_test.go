package sfq_test

import (
	"math/big"
	"slices"

	"penstock/core/sfq"
)

// model is an independent implementation of SFQ(D). It uses exact rational numbers and slices, and
// sums up each tag from the beginning of its run. Queues are flows with members. The model follows
// only these rules:
//
//	S = max(v, F of the flow's previous request), F = S + cost/weight
//	the request with the smallest S goes first; among equal S, the flow that became
//	    ready or was served the longest ago
//	v = S of the last dispatched request, and never decreases; at the end of a busy
//	    period, v is the largest F
//	a run begins with a request at an empty queue; a correction within the run changes
//	    the cost in its sum; a correction from an earlier run changes the F from which
//	    the run began
//	a run without service has no effect
//	a charge is service within the run; if the queue is empty, the charge begins a run
//	the requests of a queue's members, at all levels, are the queue's requests, as if it
//	    were a flow; each queue has its own v and busy period for its members
//	the lead of a flow or queue from charges is never above its whole lead; a charge or
//	    a trim lowers all of its tags until this lead, times the weights of its waiting
//	    siblings and its own, is within its queue's share of the largest lead
//	void sets all tags of a flow and its queues that are ahead of v to v
//	if a flow or queue changes its weight or its queue, its distance from v times its
//	    weight stays; its tags are then rounded down to 2^-32
type model struct {
	root    *modelFlow
	flows   map[sfq.Flow]*modelFlow
	depth   int
	out     int
	turn    int // number of dispatches and of times that a flow became ready
	maxLead int64
}

// modelFlow is a flow, or a queue.
type modelFlow struct {
	weight int64
	before *big.Rat // F of all service before the run
	vBegin *big.Rat // v when the run began
	run    int
	turn   int
	served []*modelService
	ahead  *big.Rat // lead from charges
	queue  []*modelRequest
	out    int
	parent *modelFlow // nil for the root

	// Only for queues:
	v       *big.Rat
	members []*modelFlow
	name    string
}

type modelService struct{ cost int64 }

type modelRequest struct {
	flow     sfq.Flow
	cost     int64
	service  *modelService // nil while queued
	accounts []account     // of the flow and of its queues at the dispatch
}

// account names a flow or queue to which a request was charged, and its run at that time.
type account struct {
	of  *modelFlow
	run int
}

func newModel(depth int, maxLead int64) *model {
	return &model{root: newModelFlow(1, nil), flows: map[sfq.Flow]*modelFlow{}, depth: depth, maxLead: maxLead}
}

func newModelFlow(weight int64, parent *modelFlow) *modelFlow {
	f := &modelFlow{weight: weight, before: new(big.Rat), vBegin: new(big.Rat), parent: parent, v: new(big.Rat), ahead: new(big.Rat)}
	if parent != nil {
		f.before.Set(parent.v)
		f.vBegin.Set(parent.v)
		parent.members = append(parent.members, f)
	}
	return f
}

func (m *model) addFlow(f sfq.Flow, weight int64) {
	m.flows[f] = newModelFlow(weight, m.root)
}

func (m *model) removeFlow(f sfq.Flow) {
	m.flows[f].leave()
	delete(m.flows, f)
}

func (m *model) setWeight(f sfq.Flow, weight int64) {
	m.flows[f].reweigh(weight)
	m.root.fade()
}

func (f *modelFlow) reweigh(weight int64) {
	if weight != f.weight {
		f.keep(f.parent.v, f.parent.v, big.NewRat(f.weight, weight))
		f.weight = weight
	}
}

// keep converts a flow's tags from one virtual time to another, and multiplies their distances from
// it by ratio.
func (f *modelFlow) keep(from, to, ratio *big.Rat) {
	for _, tag := range []*big.Rat{f.before, f.vBegin} {
		tag.Sub(tag, from)
		roundDown(tag.Mul(tag, ratio))
		tag.Add(tag, to)
	}
	roundDown(f.ahead.Mul(f.ahead, ratio))
}

// roundDown makes a number a multiple of 2^-32.
func roundDown(x *big.Rat) {
	down := new(big.Int).Mul(x.Num(), big.NewInt(1<<32))
	down.Div(down, x.Denom()) // Div rounds down because the divisor is above 0
	x.SetFrac(down, big.NewInt(1<<32))
}

// setQueue puts a flow into the queue at the end of the path.
func (m *model) setQueue(flow sfq.Flow, path []sfq.Level) {
	f, to := m.flows[flow], m.root
	for _, l := range path {
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
	if began {
		m.turn++
		for q := to; q != m.root && q.waiting() == 0; q = q.parent {
			q.begin(m.turn)
		}
		m.turn++
		f.turn = m.turn
	}
	f.keep(from.v, to.v, big.NewRat(1, 1))
	to.members = append(to.members, f)
	f.leave()
	f.parent = to
	if began {
		from.rest()
	}
	from.forget()
	m.root.fade()
}

// named returns the member of a queue that is a queue with this name, or nil.
func (q *modelFlow) named(name string) *modelFlow {
	for _, m := range q.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// queues returns the number of queues below a queue.
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

// leave takes a flow out of its queue.
func (f *modelFlow) leave() {
	q := f.parent
	q.members = slices.DeleteFunc(q.members, func(m *modelFlow) bool { return m == f })
	q.forget()
}

// forget removes a queue without members and without outstanding requests.
func (q *modelFlow) forget() {
	if q.parent != nil && len(q.members) == 0 && q.out == 0 {
		q.leave()
	}
}

// waiting returns the number of requests queued in a flow or queue.
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

// start returns the start tag of the flow's next request.
func (f *modelFlow) start() *big.Rat {
	sum := new(big.Rat).Set(larger(f.before, f.vBegin))
	for _, s := range f.served {
		sum.Add(sum, big.NewRat(s.cost, f.weight))
	}
	return sum
}

// finish returns the F of all service of the flow.
func (f *modelFlow) finish() *big.Rat {
	if len(f.served) == 0 {
		return f.before
	}
	return f.start()
}

func (f *modelFlow) begin(turn int) {
	f.before = new(big.Rat).Set(f.finish())
	f.vBegin = new(big.Rat).Set(f.parent.v)
	f.served = nil
	f.run++
	f.turn = turn
}

// accounts returns a flow and the queues above it, without the root.
func (f *modelFlow) accounts() []*modelFlow {
	if f.parent == nil {
		return nil
	}
	return append([]*modelFlow{f}, f.parent.accounts()...)
}

// beginAll begins runs of a flow and of the queues above it, as far as they have no requests
// queued.
func (m *model) beginAll(f *modelFlow) {
	m.turn++
	for _, a := range f.accounts() {
		if a.waiting() == 0 {
			a.begin(m.turn)
		}
	}
}

func (m *model) submit(flow sfq.Flow, cost int64) *modelRequest {
	f := m.flows[flow]
	m.beginAll(f)
	r := &modelRequest{flow: flow, cost: cost}
	f.queue = append(f.queue, r)
	m.root.fade()
	return r
}

// waiting returns the number of queued requests.
func (m *model) waiting() int { return m.root.waiting() }

// first returns the request that is due, or nil.
func (m *model) first() *modelRequest { return m.root.due() }

// due returns the request of a flow or queue that goes first, or nil if none is queued.
func (q *modelFlow) due() *modelRequest {
	if len(q.queue) > 0 {
		return q.queue[0]
	}
	var best *modelFlow
	var bestStart *big.Rat
	for _, m := range q.members {
		if m.waiting() == 0 {
			continue
		}
		s := m.start()
		if best == nil || s.Cmp(bestStart) < 0 || s.Cmp(bestStart) == 0 && m.turn < best.turn {
			best, bestStart = m, s
		}
	}
	if best == nil {
		return nil
	}
	return best.due()
}

// late returns the start tag of one flow minus that of another. It compares their ancestors, or the
// flows themselves, that are members of the same queue.
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
	m.root.fade()
	f.queue = f.queue[1:]
	m.turn++
	for _, a := range f.accounts() {
		a.turn = m.turn
		a.served = append(a.served, r.service)
		a.out++
		r.accounts = append(r.accounts, account{a, a.run})
	}
	m.root.out++
	m.out++
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
	m.root.fade()
	// The request was charged to the queue that its flow was in at the dispatch.
	q := m.root
	if len(r.accounts) > 1 {
		q = r.accounts[1].of
	}
	q.rest()
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
	f.parent.rest()
}

func (m *model) charge(flow sfq.Flow, cost int64) {
	f := m.flows[flow]
	m.beginAll(f)
	for _, a := range f.accounts() {
		a.served = append(a.served, &modelService{cost})
		a.ahead.Add(a.ahead, big.NewRat(cost, a.weight))
		a.fade()
		a.cut(m.maxLead)
	}
}

// lead returns the distance by which a flow is ahead of v, at least 0.
func (f *modelFlow) lead() *big.Rat {
	return larger(new(big.Rat).Sub(f.finish(), f.parent.v), new(big.Rat))
}

// fade lowers the lead from charges to the whole lead, for a flow or queue and all members below
// it.
func (f *modelFlow) fade() {
	if f.parent != nil && f.ahead.Sign() > 0 {
		if lead := f.lead(); lead.Cmp(f.ahead) < 0 {
			f.ahead.Set(lead)
		}
	}
	for _, m := range f.members {
		m.fade()
	}
}

// rivals returns the sum of the weights of a flow or queue and of its waiting siblings.
func (f *modelFlow) rivals() int64 {
	weights := f.weight
	for _, m := range f.parent.members {
		if m != f && m.waiting() > 0 {
			weights += m.weight
		}
	}
	return weights
}

// budget returns a queue's share of the largest lead, rounded down at each level.
func (q *modelFlow) budget(maxLead int64) int64 {
	if q.parent == nil {
		return maxLead
	}
	b := big.NewInt(q.parent.budget(maxLead))
	b.Mul(b, big.NewInt(q.weight))
	return b.Div(b, big.NewInt(q.rivals())).Int64()
}

// cut lowers all tags by the amount by which the lead from charges is too large.
func (f *modelFlow) cut(maxLead int64) {
	most := big.NewRat(f.parent.budget(maxLead), f.rivals())
	roundDown(most)
	over := new(big.Rat).Sub(f.ahead, most)
	if over.Sign() <= 0 {
		return
	}
	f.ahead = most
	// F before the run is lowered first, down to v at the run's beginning; then all tags are.
	if above := new(big.Rat).Sub(f.before, f.vBegin); above.Sign() > 0 {
		if above.Cmp(over) > 0 {
			above = over
		}
		f.before = new(big.Rat).Sub(f.before, above)
		over = new(big.Rat).Sub(over, above)
	}
	f.before = new(big.Rat).Sub(f.before, over)
	f.vBegin = new(big.Rat).Sub(f.vBegin, over)
}

// trim cuts all leads.
func (m *model) trim() { m.root.trim(m.maxLead) }

func (f *modelFlow) trim(maxLead int64) {
	if f.parent != nil {
		f.cut(maxLead)
	}
	for _, m := range f.members {
		m.trim(maxLead)
	}
}

func (m *model) void(flow sfq.Flow) {
	for _, a := range m.flows[flow].accounts() {
		if v := a.parent.v; a.finish().Cmp(v) > 0 {
			a.before, a.vBegin, a.served, a.ahead = new(big.Rat).Set(v), new(big.Rat).Set(v), nil, new(big.Rat)
			a.run++
		}
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
		m.ahead = new(big.Rat)
		m.run++
	}
	if q.parent != nil {
		q.parent.rest()
	}
}
