package broker

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// divideTotals divides the total rates of all applications among their nodes. The applications' grants are given.
// b.mu is held. The cost is linear in the pairs of a node and an application with a total rate, and at most one look-up for each
// node and each such application.
func (b *Broker) divideTotals(names []string, grants []policy.Grant) {
	now := time.Since(b.created)
	old := b.totalRates
	b.totalRates = map[string]*coord.TotalRate{}
	var rated []string
	for i, name := range names {
		if grants[i].Total == (policy.Total{}) {
			continue
		}
		t := old[name]
		if t == nil {
			t = &coord.TotalRate{Since: now}
		}
		t.Set(grants[i].Total, max(0, grants[i].Rule))
		t.Clear()
		b.totalRates[name] = t
		rated = append(rated, name)
	}
	if len(rated)+len(old) == 0 {
		return
	}
	slices.Sort(rated) // equal claims are in the same order in each division
	sessions := slices.SortedFunc(maps.Values(b.sessions), func(x, y *session) int { return cmp.Compare(x.node.GetName(), y.node.GetName()) })
	// Until all nodes have reported, nobody knows what fits, and a rate that the last leader kept must not break.
	settled := b.startup.Complete(now, 0)
	room := make([]int64, len(sessions))
	for i, s := range sessions {
		if room[i] = cmp.Or(s.capacity, coord.UnknownRoom); !settled {
			room[i] = coord.UnknownRoom
		}
		b.placeTotals(s, i, rated)
	}
	rates := make([]*coord.TotalRate, len(rated))
	for i, name := range rated {
		t := b.totalRates[name]
		rates[i] = t
		moved, _ := b.totals.Of(name)
		t.Live(now, b.lifeOf(name), moved)
		t.Note(now, moved.Bytes, moved.Hungry > 0)
		t.DivideLimit()
	}
	for i, free := range coord.DivideReserves(rates, room) {
		sessions[i].free = free
	}
}

// lifeOf returns what the cluster managers say about an application.
func (b *Broker) lifeOf(name string) coord.Life {
	switch {
	case b.options.Life(name).Ended:
		return coord.LifeEnded
	case b.options.State(name) != "":
		return coord.LifeRuns
	}
	return coord.LifeUnknown
}

// placeTotals places the applications with total rates, rated, that are at work at a node, and forgets the parts of the
// others. b.mu is held.
func (b *Broker) placeTotals(s *session, index int, rated []string) {
	maps.DeleteFunc(s.parts, func(name string, _ *coord.RatePart) bool {
		_, there := s.apps.byName[name]
		return !there || b.totalRates[name] == nil
	})
	place := func(name string, entry int) {
		p := s.parts[name]
		if p == nil {
			p = &coord.RatePart{}
			s.parts[name] = p
		}
		b.totalRates[name].Place(p, index, b.totals.Reported(s.apps.member, entry))
	}
	if len(rated) <= len(s.apps.byName) {
		for _, name := range rated {
			if entry, there := s.apps.byName[name]; there {
				place(name, entry)
			}
		}
		return
	}
	for name, entry := range s.apps.byName { // a node has each application once, so their order does not count
		if b.totalRates[name] != nil {
			place(name, entry)
		}
	}
}

// takePart returns the parts of an application's total rates that a node has from this answer on. entry is the application's entry at the
// node. Its cost does not depend on the number of nodes. b.mu is held.
func (b *Broker) takePart(s *session, entry int, name string) policy.Total {
	t := b.totalRates[name]
	if t == nil {
		return policy.Total{}
	}
	p := s.parts[name]
	if p == nil { // the application is new at this node; the next computation of rights divides its rates
		p = &coord.RatePart{}
		s.parts[name] = p
		t.Join(p)
	}
	return t.Take(p, b.totals.Reported(s.apps.member, entry), &s.free)
}

// promise returns the history of a total reserve, for operators.
func promise(t *coord.TotalRate) *cluster.Promise {
	p := &cluster.Promise{WindowS: uint32(coord.HistoryWindow.Seconds()), Kept: uint32(t.History.Kept), Broken: uint32(t.History.Broken),
		State: t.Verdict.State.String(), Granted: t.Verdict.Granted, Fits: t.Verdict.Fits}
	for _, rate := range t.History.Last {
		p.Last = append(p.Last, uint64(rate))
	}
	return p
}
