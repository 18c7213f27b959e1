package coord

import (
	"slices"
	"time"

	"penstock/core/policy"
	"penstock/core/reserve"
)

// TotalRate is the state of one application with rates for the whole cluster, at the leading broker: which part of
// them each node has. All rates are updated together: Set, Live, Note and Clear for each application, Place for each node where it
// is at work, then DivideLimit for each application and DivideReserves for all. The work of an update is linear in the number of
// pairs of an application and a node, apart from sorting.
//
// Tasks move between two updates. So a node's next answer (Take) already takes its report into account: a node that needs less than its
// part gives the rest back at once, if others need it, and a node where the application has come gets a part of the guaranteed rate at
// once. The application gets back later what it lacks meanwhile (Arrears).
//
// Two messages to two nodes never arrive together. So a node's part of a limit grows only by what other nodes have
// given back, and the parts that the nodes have add up to at most the limit and makeUpLimit of it. Parts of a guaranteed
// rate add up to at most mostAtOnce times the rate, for as long as the application has not had mostAdvance of the rate in
// advance; and beyond what the last update has divided, a node gets only what no other guaranteed rate needs there.
type TotalRate struct {
	Total   policy.Total
	Since   time.Duration // when the application came
	Verdict reserve.Verdict
	History History

	order int           // the place of the application's rule in the policy
	kept  int64         // of a reserve that has grown, what was admitted before; 0: it has not grown
	used  time.Duration // when the application was last used (Live)
	known bool
	over  bool // the application has ended
	nodes []*RatePart
	index []int // of the nodes, in the last update
	// sent are the sums of the parts that the nodes have. That of the limit is never above the limit and what is made up
	// for, except for one byte per second for each node.
	sent policy.Total
	// openReserve and openLimit are the numbers of nodes that can use more than their part.
	openReserve, openLimit       int
	reserveArrears, limitArrears Arrears
	demands                      []Demand // reused
	divided                      []int64  // reused
}

// mostAtOnce bounds the sum of the parts of a guaranteed rate that nodes have, in relation to the rate.
const mostAtOnce = 1.5

// RatePart is one node's part of a total rate. The zero value is the part of a node that is new.
type RatePart struct {
	divided  policy.Total // by the last division
	due      policy.Total // the same, with what is made up for
	has, had policy.Total // the parts in the last two answers; had was in force in the period of the last report
	last     Service      // what the node has reported
	mean     float64      // of last.Bytes, smoothed
	known    bool
	// more is what the node has of its free room beyond due, until the next division (Take).
	more int64
	// openReserve and openLimit report whether the node can use more than its part.
	openReserve, openLimit bool
}

// Due returns the part by the last division, with what is made up for.
func (p *RatePart) Due() policy.Total { return p.due }

// Sent returns the part that the node has, in bytes per second.
func (p *RatePart) Sent() policy.Total { return p.has }

// Set sets the rates. order is the place of the application's rule in the policy.
func (t *TotalRate) Set(total policy.Total, order int) {
	if t.Total.Reserve > 0 && total.Reserve > t.Total.Reserve && t.kept == 0 { // what is added must not break rates that are kept
		t.kept = t.Total.Reserve
	}
	if total.Reserve <= t.kept {
		t.kept = 0
	}
	t.Total, t.order = total, order
	if t.reserveArrears.Most == 0 {
		t.reserveArrears, t.limitArrears = reserveArrears(), limitArrears()
	}
}

// Note records what the application has moved on all nodes since the last call, in bytes per second. hungry reports whether it could
// have moved more.
func (t *TotalRate) Note(now time.Duration, moved int64, hungry bool) {
	if t.Total.Reserve > 0 {
		t.History.Note(now, t.Total.Reserve, moved, hungry)
		t.reserveArrears.Note(now, int64(t.Verdict.Granted*float64(t.Total.Reserve)), moved, hungry)
	}
	if t.Total.Limit > 0 {
		t.limitArrears.Note(now, t.Total.Limit, moved, hungry)
	}
}

// Clear begins an update: the application is at work nowhere until Place.
func (t *TotalRate) Clear() {
	t.nodes, t.index, t.sent = t.nodes[:0], t.index[:0], policy.Total{}
}

// Place adds a node where the application is at work. index is the node's place in the room of DivideReserves, and last is the
// node's last report. Nodes must come in the same order in each update.
func (t *TotalRate) Place(p *RatePart, index int, last Service) {
	p.last = last
	t.nodes, t.index = append(t.nodes, p), append(t.index, index)
	t.sent.Reserve += p.has.Reserve
	t.sent.Limit += p.has.Limit
}

// DivideLimit divides the limit among the nodes.
func (t *TotalRate) DivideLimit() {
	t.openLimit = 0
	if t.Total.Limit == 0 {
		for _, p := range t.nodes {
			p.due.Limit, p.divided.Limit = 0, 0
		}
		return
	}
	t.demands = t.demands[:0]
	for _, p := range t.nodes {
		d := p.demand(p.divided.Limit, p.had.Limit)
		t.demands = append(t.demands, d)
		if _, p.openLimit = d.need(); p.openLimit {
			t.openLimit++
		}
	}
	t.divided = DivideRate(t.divided, t.Total.Limit, t.demands)
	open, most := int64(0), t.mostLimit()
	for i, p := range t.nodes {
		p.divided.Limit = t.divided[i]
		if p.openLimit {
			open += t.divided[i]
		}
	}
	for _, p := range t.nodes {
		if p.due.Limit = p.divided.Limit; p.openLimit && open > 0 {
			p.due.Limit += int64(float64(most-t.Total.Limit) * float64(p.divided.Limit) / float64(open))
		}
	}
}

// mostLimit returns what the parts of the limit may add up to.
func (t *TotalRate) mostLimit() int64 {
	switch {
	case t.limitArrears.Behind():
		return t.Total.Limit + int64(makeUpLimit*float64(t.Total.Limit))
	case t.limitArrears.Ahead():
		return t.Total.Limit - int64(makeUpLimit*float64(t.Total.Limit))
	}
	return t.Total.Limit
}

// demand returns the application's demand at the node. given is the node's part in the last division, and had is the part
// that was in force in the period of its last report.
func (p *RatePart) demand(given, had int64) Demand {
	if had == 0 {
		had = -1
	}
	return Demand{Rate: rateOf(p.last.Bytes, p.mean, p.last.Hungry > 0), Given: given, Before: had, Hungry: p.last.Hungry > 0}
}

// rateOf returns the rate of a demand, of the rate in the last period and the smoothed one. Where the application could
// have moved more, the larger one counts, since few requests complete in a period on a slow disk. Elsewhere only the last period
// counts, so that the part is free at once when the tasks have gone.
func rateOf(last int64, mean float64, hungry bool) int64 {
	if hungry {
		return max(last, int64(mean))
	}
	return last
}

// DivideReserves decides which applications' total reserves the nodes keep (AdmitRates), and divides them. room is what each
// node can guarantee, in bytes per second. Equal claims are judged in the order of rates, which must be the same in each update.
// The result is what is left of each node's room (for Take).
func DivideReserves(rates []*TotalRate, room []int64) (free []int64) {
	var placed []PlacedRate
	var of []*TotalRate
	for _, t := range rates {
		t.openReserve = 0
		for _, p := range t.nodes {
			p.more = 0 // what is left is computed again
		}
		if t.Total.Reserve == 0 || t.over {
			t.Verdict, t.kept = reserve.Verdict{}, 0
			for _, p := range t.nodes {
				p.due.Reserve, p.divided.Reserve = 0, 0
			}
			continue
		}
		r := PlacedRate{Rate: t.Total.Reserve, Order: t.order, Since: t.Since, State: t.Verdict.State, Kept: t.kept,
			Members: t.index, Demands: make([]Demand, len(t.nodes))}
		if t.reserveArrears.Behind() {
			r.MakeUp = int64(makeUpReserve * float64(t.Total.Reserve))
		}
		for i, p := range t.nodes {
			r.Demands[i] = p.demand(p.divided.Reserve, p.had.Reserve)
			if _, p.openReserve = r.Demands[i].need(); p.openReserve {
				t.openReserve++
			}
		}
		placed, of = append(placed, r), append(of, t)
	}
	free = slices.Clone(room)
	if len(placed) == 0 {
		return free
	}
	for i, v := range AdmitRates(placed, room) {
		t := of[i]
		if t.Verdict = v.Verdict; v.State != reserve.Reduced {
			t.kept = 0
		}
		for k, p := range t.nodes {
			p.divided.Reserve = v.Parts[k]
			if p.due.Reserve = v.Parts[k]; v.MadeUp != nil {
				p.due.Reserve += v.MadeUp[k]
			}
			if m := t.index[k]; room[m] != UnknownRoom {
				free[m] = max(0, free[m]-p.due.Reserve)
			}
		}
	}
	return free
}

// Join gives a part to a node where the application was not at work at the last update: what no other node has of the
// limit. The next update divides the rates. The work does not depend on the number of nodes, because a node can
// report many applications at once.
func (t *TotalRate) Join(p *RatePart) {
	part := policy.Total{Limit: max(0, t.Total.Limit-t.sent.Limit)}
	*p = RatePart{divided: part, due: part}
}

// Take returns the parts of the rates that a node has from its next answer on. last is the report that is answered. free is what is left
// of the node's room (DivideReserves); Take subtracts what it uses, and adds what the answer before has used. The work does not depend on
// the number of nodes.
func (t *TotalRate) Take(p *RatePart, last Service, free *int64) policy.Total {
	if p.last = last; !p.known {
		p.mean, p.known = float64(last.Bytes), true
	}
	p.mean = rateSmoothing*float64(last.Bytes) + (1-rateSmoothing)*p.mean
	part := policy.Total{}
	if t.Total.Reserve > 0 {
		part.Reserve = t.takeReserve(p, free)
	}
	if t.Total.Limit > 0 {
		part.Limit = t.takeLimit(p)
	}
	t.sent.Reserve += part.Reserve - p.has.Reserve
	t.sent.Limit += part.Limit - p.has.Limit
	p.had, p.has = p.has, part
	return part
}

// takeReserve returns the node's next part of the guaranteed rate.
func (t *TotalRate) takeReserve(p *RatePart, free *int64) int64 {
	if *free != UnknownRoom { // between two divisions there may be many answers, and each one replaces the last one
		*free += p.more
	}
	p.more = 0
	need, open := p.demand(p.divided.Reserve, p.has.Reserve).need()
	count(&p.openReserve, &t.openReserve, open)
	others := t.sent.Reserve - p.has.Reserve
	most := max(p.has.Reserve, int64(mostAtOnce*float64(t.Total.Reserve))-others)
	part := min(p.due.Reserve, most)
	switch {
	case !open && t.openReserve > 0:
		return min(part, t.atLeast(t.Total.Reserve, need))
	case open && t.Verdict.State == reserve.Admitted && !t.reserveArrears.Exhausted(t.Total.Reserve):
		// The application has come to this node. Nodes that have lost it will have given back their parts by the next update.
		even := t.Total.Reserve / int64(max(1, t.openReserve))
		more := max(0, min(even-part, most-part, *free))
		if *free != UnknownRoom {
			*free -= more
			p.more = more
		}
		return part + more
	}
	return part
}

// takeLimit returns the node's next part of the limit. It is at least 1, because 0 means no limit.
func (t *TotalRate) takeLimit(p *RatePart) int64 {
	need, open := p.demand(p.divided.Limit, p.has.Limit).need()
	count(&p.openLimit, &t.openLimit, open)
	due := p.due.Limit
	if !open && t.openLimit > 0 {
		due = min(due, t.atLeast(t.Total.Limit, need))
	}
	grow := min(due-p.has.Limit, max(0, t.mostLimit()-t.sent.Limit))
	return max(1, p.has.Limit+grow)
}

// atLeast returns a need, but at least what each node keeps of a rate.
func (t *TotalRate) atLeast(rate int64, need float64) int64 {
	return max(int64(need), int64(leastRatePart*float64(rate)/float64(max(1, len(t.nodes)))))
}

// count keeps the number of nodes that can use more up to date.
func count(was *bool, n *int, is bool) {
	switch {
	case is && !*was:
		*n++
	case !is && *was:
		*n--
	}
	*was = is
}

// RateMeter measures an application's demand for bytes on one device.
type RateMeter struct {
	last   int64   // bytes per second in the last period
	mean   float64 // the same, smoothed
	hungry bool
	known  bool
	idle   bool // the application did not want the device in the last period
}

// rateSmoothing is the weight of the last period in smoothed rates. On a slow disk, a few requests complete in a
// period.
const rateSmoothing = 0.5

// Note records one period, whose length is above 0: the bytes that the device moved for the application, the time in which the
// application was backlogged, and how often it waited for its limit. It could have moved more if it was backlogged for half of the
// period or, in the period in which it came, at all.
func (m *RateMeter) Note(bytes int64, wanted time.Duration, limitWaits int64, length time.Duration) {
	rate := float64(bytes) / length.Seconds()
	m.last = int64(min(rate, MaxBytesRate))
	came := !m.known || m.idle
	if m.known {
		rate = rateSmoothing*rate + (1-rateSmoothing)*m.mean
	}
	m.mean, m.hungry, m.known = rate, 2*wanted >= length || limitWaits > 0 || came && wanted > 0, true
	m.idle = bytes == 0 && wanted == 0
}

// Demand returns the demand for a division in which the device has had the part given.
func (m RateMeter) Demand(given int64) Demand {
	return Demand{Rate: rateOf(m.last, m.mean, m.hungry), Given: given, Hungry: m.hungry}
}

// AddTo adds the demand to a node's report. The broker smooths it itself (RatePart).
func (m RateMeter) AddTo(s *Service) {
	s.Bytes = min(s.Bytes+m.last, MaxBytesRate)
	if m.hungry {
		s.Hungry = 1
	}
}
