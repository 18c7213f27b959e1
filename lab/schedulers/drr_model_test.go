package schedulers_test

import (
	"math/big"
	"slices"

	"penstock/core/sfq"
)

// model is a second implementation of deficit round robin, with queues of requests. It computes at
// once what the scheduler postpones, and uses maps and slices. It follows the paper and the
// differences that drr.go lists:
//
//	flows with a queue stand in line; a turn adds weight*credit to the deficit
//	    and goes on while it covers the first request's cost, then to the end
//	a round ends before a flow's second turn in it; the next one's credit is
//	    the largest cost at the head of a queue / the least weight, rounded up,
//	    of the turns and arrivals of the round before
//	an empty queue leaves the line and loses its deficit; a debt stays, and each
//	    round pays weight*credit of it; the end of a busy period pays all
type model struct {
	flows map[sfq.Flow]*modelFlow
	depth int
	out   int
	turns *turns
}

type modelFlow struct {
	weight int64
	queue  []*modelRequest
	out    int
}

type modelRequest struct {
	flow       sfq.Flow
	cost       int64
	dispatched bool
}

// turns are the flows in line, with their deficits.
type turns struct {
	m       *model
	line    []sfq.Flow
	deficit map[sfq.Flow]*big.Int
	begun   bool // the turn of the first flow has begun
	had     map[sfq.Flow]bool
	credit  int64
	sent    bool
	seen    []modelSight
	rounds  int
}

type modelSight struct{ cost, weight int64 }

func newModel(depth int) *model {
	m := &model{flows: map[sfq.Flow]*modelFlow{}, depth: depth}
	m.turns = &turns{m: m, deficit: map[sfq.Flow]*big.Int{}, had: map[sfq.Flow]bool{}}
	return m
}

func (m *model) addFlow(f sfq.Flow, weight int64) {
	m.flows[f] = &modelFlow{weight: weight}
	m.turns.deficit[f] = new(big.Int)
}

func (m *model) removeFlow(f sfq.Flow) {
	delete(m.flows, f)
	delete(m.turns.deficit, f)
}

func (m *model) setWeight(f sfq.Flow, weight int64) {
	m.turns.weighed(f, m.flows[f].weight, weight)
	m.flows[f].weight = weight
}

func (m *model) submit(f sfq.Flow, cost int64) *modelRequest {
	r := &modelRequest{flow: f, cost: cost}
	mf := m.flows[f]
	mf.queue = append(mf.queue, r)
	if len(mf.queue) == 1 {
		m.turns.arrived(f)
	}
	return r
}

func (m *model) waiting() int {
	n := 0
	for _, f := range m.flows {
		n += len(f.queue)
	}
	return n
}

// next dispatches the request that is due; nil if none is due.
func (m *model) next() *modelRequest {
	if m.waiting() == 0 || m.out >= m.depth {
		return nil
	}
	r := m.turns.due()
	f := m.flows[r.flow]
	f.queue = f.queue[1:]
	f.out++
	m.out++
	r.dispatched = true
	m.turns.dispatched(r)
	return r
}

// end completes or, with cost 0, cancels an outstanding request.
func (m *model) end(r *modelRequest, cost int64) {
	m.flows[r.flow].out--
	m.out--
	m.turns.moved(r.flow, cost-r.cost)
	m.rest()
}

// withdraw cancels a queued request.
func (m *model) withdraw(r *modelRequest) {
	f := m.flows[r.flow]
	f.queue = slices.DeleteFunc(f.queue, func(q *modelRequest) bool { return q == r })
	m.turns.emptied(r.flow)
	m.rest()
}

func (m *model) void(f sfq.Flow) {
	if d := m.turns.deficit[f]; d.Sign() < 0 {
		d.SetInt64(0)
	}
}

func (m *model) rest() {
	if m.out == 0 && m.waiting() == 0 {
		m.turns.rested()
	}
}

func (t *turns) see(f sfq.Flow) {
	mf := t.m.flows[f]
	t.seen = append(t.seen, modelSight{mf.queue[0].cost, mf.weight})
}

func (t *turns) arrived(f sfq.Flow) {
	t.line = append(t.line, f)
	t.had[f] = false
	t.see(f)
}

// gave adds the credit of n rounds to a flow's deficit.
func (t *turns) gave(f sfq.Flow, n int64) {
	sum := big.NewInt(t.m.flows[f].weight)
	sum.Mul(sum, big.NewInt(t.credit)).Mul(sum, big.NewInt(n))
	t.deficit[f].Add(t.deficit[f], sum)
}

func (t *turns) newRound() {
	var cost, weight int64
	for _, s := range t.seen {
		cost = max(cost, s.cost)
		if weight == 0 || s.weight < weight {
			weight = s.weight
		}
	}
	t.credit = (cost + weight - 1) / weight
	n := int64(1)
	if t.rounds > 0 && !t.sent {
		// No flow could pay in the round that ends. Count the further rounds like it.
		var least *big.Int
		for _, f := range t.line {
			need := big.NewInt(t.m.flows[f].queue[0].cost)
			need.Sub(need, t.deficit[f])
			each := new(big.Int).Mul(big.NewInt(t.m.flows[f].weight), big.NewInt(t.credit))
			turns, rest := new(big.Int).QuoRem(need, each, new(big.Int))
			if rest.Sign() > 0 {
				turns.Add(turns, big.NewInt(1))
			}
			if least == nil || turns.Cmp(least) < 0 {
				least = turns
			}
		}
		if n = least.Int64(); n > 1 {
			for _, f := range t.line {
				t.gave(f, n-1)
			}
		}
		n = max(n, 1)
	}
	for f, d := range t.deficit {
		if d.Sign() < 0 && len(t.m.flows[f].queue) == 0 {
			t.gave(f, n)
			if d.Sign() > 0 {
				d.SetInt64(0)
			}
		}
	}
	t.rounds++
	t.sent, t.seen, t.had = false, nil, map[sfq.Flow]bool{}
}

// due moves on to the first flow whose deficit pays for its first request.
func (t *turns) due() *modelRequest {
	for {
		f := t.line[0]
		if !t.begun {
			if t.had[f] || t.rounds == 0 {
				t.newRound()
			}
			t.begun = true
			t.had[f] = true
			t.gave(f, 1)
			t.see(f)
		}
		r := t.m.flows[f].queue[0]
		if big.NewInt(r.cost).Cmp(t.deficit[f]) <= 0 {
			return r
		}
		t.begun = false
		t.line = append(t.line[1:], f)
	}
}

func (t *turns) dispatched(r *modelRequest) {
	t.deficit[r.flow].Sub(t.deficit[r.flow], big.NewInt(r.cost))
	t.sent = true
	t.emptied(r.flow)
}

func (t *turns) emptied(f sfq.Flow) {
	if len(t.m.flows[f].queue) > 0 {
		return
	}
	i := slices.Index(t.line, f)
	t.line = slices.Delete(t.line, i, i+1)
	if i == 0 {
		t.begun = false
	}
	t.owesAtMost(f)
}

// owesAtMost removes the credit of a flow without a queue.
func (t *turns) owesAtMost(f sfq.Flow) {
	if t.deficit[f].Sign() > 0 {
		t.deficit[f].SetInt64(0)
	}
}

func (t *turns) moved(f sfq.Flow, cost int64) {
	t.deficit[f].Sub(t.deficit[f], big.NewInt(cost))
	if len(t.m.flows[f].queue) == 0 {
		t.owesAtMost(f)
	}
}

func (t *turns) weighed(f sfq.Flow, was, is int64) {
	if most := new(big.Int).Mul(big.NewInt(is), big.NewInt(t.credit)); is < was && t.deficit[f].Cmp(most) > 0 {
		t.deficit[f].Set(most)
	}
}

func (t *turns) rested() {
	for _, d := range t.deficit {
		d.SetInt64(0)
	}
	t.rounds, t.credit, t.sent, t.seen = 0, 0, false, nil
}
