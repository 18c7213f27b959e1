package broker

import (
	"cmp"
	"slices"
	"time"

	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/wire/cluster"
)

// totalRate is the state of one application with rates for the whole cluster (policy.Total).
type totalRate struct {
	total policy.Total
	nodes []*session // at which the application is at work, by the nodes' names
	// limitSent is the sum of the parts of the limit that the nodes have. It is never above the limit, except for
	// one byte per second for each node.
	limitSent int64
	order     int           // the place of the application's rule in the policy
	since     time.Duration // when the application came
	verdict   reserve.Verdict
	kept      int64 // of a reserve that has grown, what was admitted before; 0: it has not grown
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
			t = &totalRate{since: now}
		}
		if t.total.Reserve > 0 && grants[i].Total.Reserve > t.total.Reserve && t.kept == 0 { // what is added must not break rates that are kept
			t.kept = t.total.Reserve
		}
		if grants[i].Total.Reserve <= t.kept {
			t.kept = 0
		}
		t.total, t.order = grants[i].Total, max(0, grants[i].Rule)
		b.totalRates[name] = t
		b.divideLimit(name, t)
		if t.total.Reserve > 0 {
			reached, _ := b.totals.Of(name)
			t.history.Note(now, t.total.Reserve, reached.Bytes, reached.Hungry > 0)
		}
	}
	b.divideReserves()
	for name, t := range old {
		if b.totalRates[name] == nil {
			for _, s := range t.nodes {
				delete(s.parts, name)
			}
		}
	}
}

// divideLimit divides one application's total limit among its nodes. b.mu is held.
func (b *Broker) divideLimit(name string, t *totalRate) {
	t.nodes = t.nodes[:0]
	for _, s := range b.sessions {
		if _, there := s.apps.byName[name]; there {
			t.nodes = append(t.nodes, s)
		} else {
			delete(s.parts, name)
		}
	}
	slices.SortFunc(t.nodes, func(x, y *session) int { return cmp.Compare(x.node.GetName(), y.node.GetName()) })
	t.limitSent = 0
	for _, s := range t.nodes {
		if s.parts[name] == nil {
			s.parts[name] = &nodePart{}
		}
		t.limitSent += s.parts[name].limitSent
	}
	for i, part := range coord.DivideRate(nil, t.total.Limit, b.demands(name, t, func(p *nodePart) int64 { return p.due.Limit })) {
		t.nodes[i].parts[name].due.Limit = part
	}
}

// demands returns the application's demand at each of its nodes; given is the node's part in the last division.
func (b *Broker) demands(name string, t *totalRate, given func(*nodePart) int64) []coord.Demand {
	all := make([]coord.Demand, len(t.nodes))
	for i, s := range t.nodes {
		last := b.totals.Reported(s.apps.member, s.apps.byName[name])
		all[i] = coord.Demand{Rate: last.Bytes, Given: given(s.parts[name]), Hungry: last.Hungry > 0}
	}
	return all
}

// divideReserves decides which applications' total reserves the nodes keep, and divides them. b.mu is held.
func (b *Broker) divideReserves() {
	var names []string
	for name, t := range b.totalRates {
		if t.total.Reserve > 0 {
			names = append(names, name)
		} else {
			t.verdict = reserve.Verdict{}
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names) // equal claims are in the same order in each division
	index, room := make(map[*session]int, len(b.sessions)), make([]int64, 0, len(b.sessions))
	// Until all nodes have reported, nobody knows what fits, and a rate that the last leader kept must not break.
	settled := b.startup.Complete(time.Since(b.created), 0)
	for _, s := range b.sessions {
		index[s] = len(room)
		if room = append(room, cmp.Or(s.capacity, coord.UnknownRoom)); !settled {
			room[index[s]] = coord.UnknownRoom
		}
	}
	rates := make([]coord.PlacedRate, len(names))
	for i, name := range names {
		t := b.totalRates[name]
		rates[i] = coord.PlacedRate{Rate: t.total.Reserve, Order: t.order, Since: t.since, State: t.verdict.State, Kept: t.kept,
			Demands: b.demands(name, t, func(p *nodePart) int64 { return p.due.Reserve })}
		for _, s := range t.nodes {
			rates[i].Members = append(rates[i].Members, index[s])
		}
	}
	for i, v := range coord.AdmitRates(rates, room) {
		t := b.totalRates[names[i]]
		if t.verdict = v.Verdict; v.State != reserve.Reduced {
			t.kept = 0
		}
		for k, s := range t.nodes {
			s.parts[names[i]].due.Reserve = v.Parts[k]
		}
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
		b.divideLimit(name, t) // the reserve follows with the next computation of rights: here, its cost would be all rates at all nodes for each name
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
	p := &cluster.Promise{WindowS: uint32(coord.HistoryWindow.Seconds()), Kept: uint32(t.history.Kept), Broken: uint32(t.history.Broken),
		State: t.verdict.State.String(), Granted: t.verdict.Granted, Fits: t.verdict.Fits}
	for _, rate := range t.history.Last {
		p.Last = append(p.Last, uint64(rate))
	}
	return p
}
