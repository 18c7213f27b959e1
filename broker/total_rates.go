package broker

import (
	"cmp"
	"slices"
	"time"

	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// totalRate is the state of one application with rates for the whole cluster (policy.Total).
type totalRate struct {
	total policy.Total
	nodes []*session // at which the application is at work, by the nodes' names
	// limitSent is the sum of the parts of the limit that the nodes have. It is never above the limit, except for
	// one byte per second for each node.
	limitSent int64
	history   coord.History
}

// nodePart is one node's part of a total rate.
type nodePart struct {
	due       policy.Total // by the last division
	limitSent int64        // the part of the limit that the node has
}

// divideTotals divides the total rates of all applications among their nodes. The applications' grants are given.
// b.mu is held. The cost is one look-up for each node and each application with a total rate.
func (b *Broker) divideTotals(names []string, grants []policy.Grant) {
	now := time.Since(b.created)
	old := b.totalRates
	b.totalRates = map[string]*totalRate{}
	for i, name := range names {
		if grants[i].Total == (policy.Total{}) {
			continue
		}
		t := old[name]
		if t == nil {
			t = &totalRate{}
		}
		t.total = grants[i].Total
		b.totalRates[name] = t
		b.divideTotal(name, t)
		if t.total.Reserve > 0 {
			reached, _ := b.totals.Of(name)
			t.history.Note(now, t.total.Reserve, reached.Bytes, reached.Hungry > 0)
		}
	}
	for name, t := range old {
		if b.totalRates[name] == nil {
			for _, s := range t.nodes {
				delete(s.parts, name)
			}
		}
	}
}

// divideTotal divides one application's total rates among its nodes. b.mu is held.
func (b *Broker) divideTotal(name string, t *totalRate) {
	t.nodes = t.nodes[:0]
	for _, s := range b.sessions {
		if _, there := s.apps.byName[name]; there {
			t.nodes = append(t.nodes, s)
		} else {
			delete(s.parts, name)
		}
	}
	slices.SortFunc(t.nodes, func(x, y *session) int { return cmp.Compare(x.node.GetName(), y.node.GetName()) })
	reserve, limit := make([]coord.Demand, len(t.nodes)), make([]coord.Demand, len(t.nodes))
	t.limitSent = 0
	for i, s := range t.nodes {
		p := s.parts[name]
		if p == nil {
			p = &nodePart{}
			s.parts[name] = p
		}
		t.limitSent += p.limitSent
		last := b.totals.Reported(s.apps.member, s.apps.byName[name])
		reserve[i] = coord.Demand{Rate: last.Bytes, Given: p.due.Reserve, Hungry: last.Hungry > 0}
		limit[i] = coord.Demand{Rate: last.Bytes, Given: p.due.Limit, Hungry: last.Hungry > 0}
	}
	reserves, limits := coord.DivideRate(nil, t.total.Reserve, reserve), coord.DivideRate(nil, t.total.Limit, limit)
	for i, s := range t.nodes {
		s.parts[name].due = policy.Total{Reserve: reserves[i], Limit: limits[i]}
	}
}

// takePart returns the parts of an application's total rates that a node has from this answer on. The limit's parts
// grow only by what other nodes have given back, so that their sum stays within the limit while a
// division changes. b.mu is held.
func (b *Broker) takePart(s *session, name string) policy.Total {
	t := b.totalRates[name]
	if t == nil {
		return policy.Total{}
	}
	p := s.parts[name]
	if p == nil { // the application is new at this node
		b.divideTotal(name, t)
		if p = s.parts[name]; p == nil {
			return policy.Total{}
		}
	}
	part := policy.Total{Reserve: p.due.Reserve}
	if t.total.Limit > 0 {
		grow := min(p.due.Limit-p.limitSent, max(0, t.total.Limit-t.limitSent))
		part.Limit = max(1, p.limitSent+grow) // 0 means no limit
		t.limitSent += part.Limit - p.limitSent
		p.limitSent = part.Limit
	}
	return part
}

// promise returns the history of the total reserve, for operators.
func (t *totalRate) promise() *cluster.Promise {
	p := &cluster.Promise{WindowS: uint32(coord.HistoryWindow.Seconds()), Kept: uint32(t.history.Kept), Broken: uint32(t.history.Broken)}
	for _, rate := range t.history.Last {
		p.Last = append(p.Last, uint64(rate))
	}
	return p
}
