// Package sfq implements start-time fair queueing (SFQ) over the flows of one device. It decides
// which flow's request is dispatched next (IBIS, section 4).
//
// A flow is one application at one device. Each request has a start tag S and a finish tag F in
// virtual time v, whose unit is cost per weight. The right column names the code:
//
//	S = max(v, F of the flow's previous request)    begin, member.start
//	F = S + cost/weight                             Next, which adds the cost (addService)
//	v = S of the last dispatched request            Next
//
// The request with the smallest start tag is dispatched first. In the paper, the queue holds
// requests. Here it holds flows, by the start tag of each flow's next request. That is enough,
// because a flow's later requests cannot overtake its next one. The caller keeps the requests and
// announces the cost of the next one (Ready). Next dispatches it, and Settle replaces the announced
// cost with the actual one.
//
// The caller sets the depth D. SFQ(D) has up to D outstanding requests, and SFQ(D2) adjusts D by
// latency (package depth). For two flows f and g that are always backlogged, the service per weight
// differs by at most (D+1)(c_f/w_f + c_g/w_g), where c is a flow's largest cost.
//
// The papers leave some cases open. Here, these rules apply:
//
//   - A flow is tagged in runs. A run begins when the flow becomes backlogged. Its first start tag
//     is max(v, F), with v as of that moment and F the finish tag of all earlier service. Each later
//     request of the run starts at the finish tag of the previous request. A run without dispatched
//     requests has no effect.
//   - Among flows with equal start tags, the flow that became backlogged or was dispatched the
//     longest ago goes first.
//   - v never decreases. A correction can move a flow's next start tag below v. That flow is then
//     served first, but a flow that becomes backlogged at that time starts at v and gains nothing.
//   - If a request costs d more than announced, the flow's later tags move by d/weight. If the
//     request belongs to an earlier run, the F from before the present run moves instead. The first
//     start tag of the present run then falls at most to v as of the run's beginning, so a flow
//     earns no credit for time without backlog. The F of an idle flow is corrected too.
//   - The distance of a tag from v represents service: (tag - v) * weight. A change of weight keeps
//     this service, so tags become v + (tag - v) * old/new. Later corrections use the weight in
//     force at the time of the correction. So a request that was dispatched at a tiny weight delays
//     its flow only while that weight is in force. A flow with frequent changes of weight gets,
//     within one request, the service that each weight was worth while it was in force.
//   - Charge is like a request that is served as soon as it arrives: F = max(v, F) + cost/weight.
//     The lead that charges cause is bounded (chargelead.go).
//   - A busy period ends when no flow is backlogged and no request is outstanding. In the paper, v
//     then becomes the largest F, and every flow's next request starts at v. Only differences
//     matter, so here v is set to 0 and all tags become void. Charges between two busy periods count
//     in the second one.
//
// Flows can be in queues with weights (queue.go). All rules apply at each level. A member is a flow,
// or a queue as its parent sees it. In this package, a member with a request to dispatch is called
// ready; in the literature, it is backlogged.
//
// The package is pure: it has no clock, goroutine, lock or I/O, and does not depend on the iteration
// order of maps. Equal sequences of calls lead to equal decisions in the daemon, the simulator and
// tests. A Scheduler is not safe for concurrent use.
package sfq

// Scheduler orders the requests of the flows of one device. A method that returns an error has
// changed nothing. The zero value is not usable; see New.
type Scheduler struct {
	cfg       Config
	flows     []flow
	freeFlows []Flow // last in, first out
	tree
	waiting int    // ready flows
	seq     uint64 // requests dispatched and runs begun so far
}

// flow is a member with the state that only flows have.
type flow struct {
	member
	outstanding int32
	cost        int64 // of the next request; 0: the flow is not ready
}

// member is the state of a flow or queue in the virtual time of its parent. The start tag of its
// next request is max(floor, prev) + served/weight. Tags are computed when they are needed, so a
// correction or a change of weight costs a few additions and one move in the heap, however many
// requests it concerns.
type member struct {
	weight int32 // 0: the slot is free
	parent int32 // the queue that contains the member
	prev   tag   // finish tag before the run, as corrected
	floor  tag   // v when the run began
	// served is the cost of all dispatches and charges of this run, with corrections. It is divided
	// by the weight as one sum, so the rounding error stays below 2^-32 for a run of any length.
	// Changes of weight, corrections of earlier runs and cuts of the lead round once more.
	served     int64
	charged    tag    // the part of the lead that charges caused (chargelead.go)
	busyPeriod uint64 // the parent's busy period to which the tags belong; in a later one they are void
	runStart   uint64 // Scheduler.seq at the beginning of the run
	seq        uint64 // Scheduler.seq when the member became ready or was last dispatched
	hasService bool   // whether this run has dispatches or charges
}

// Ready announces the cost of a flow's next request, 1 to MaxCost; 0 means that the flow has no
// request. A flow that becomes ready begins a run. If the flow was ready before, only the cost that
// Next will charge changes. Errors: ErrUnknownFlow, ErrCost.
func (s *Scheduler) Ready(f Flow, cost int64) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if cost < 0 || cost > MaxCost {
		return ErrCost
	}
	was := fl.cost
	fl.cost = cost
	switch {
	case was == 0 && cost > 0:
		s.begin(f)
		s.waiting++
		s.updateReady(f)
	case was > 0 && cost == 0:
		s.waiting--
		s.updateReady(f)
		s.endBusyPeriod(fl.parent)
	}
	return nil
}

// Next dispatches a request of the flow with the smallest start tag and charges the announced cost.
// ok is false if no flow is ready. The flow stays ready at the same cost until the next call of
// Ready.
func (s *Scheduler) Next() (Ticket, bool) {
	if s.waiting == 0 {
		return Ticket{}, false
	}
	id := root
	for id < 0 {
		q := &s.queues[^id]
		first := &q.ready.entries[0]
		q.v = maxTag(q.v, first.start)
		q.outstanding++
		id = first.member
	}
	fl := &s.flows[id]
	fl.outstanding++
	s.seq++
	t := Ticket{seq: s.seq, cost: fl.cost, flow: id, queue: fl.parent}
	for id != root {
		m := s.member(id)
		m.seq, m.hasService, m.charged = s.seq, true, tag{} // v has reached the start tag: the lead is 0
		m.addService(t.cost)
		s.queues[m.parent].ready.set(entry{start: m.start(), seq: m.seq, member: id})
		id = ^Flow(m.parent)
	}
	return t, true
}

// Settle ends an outstanding request and corrects its charge to the actual cost, 0 to MaxCost; 0
// means that the request was not served. If the flow has moved to another queue since, the queue
// that the request was charged to is corrected. Each ticket must be settled once. A second call
// with the same ticket is detected only if the flow, or the queue, has no other outstanding
// request. Errors: ErrTicket, ErrCost.
func (s *Scheduler) Settle(t Ticket, cost int64) error {
	fl, err := s.flow(t.flow)
	if err != nil || fl.outstanding == 0 || t.seq == 0 || t.seq > s.seq ||
		int(t.queue) >= len(s.queues) || s.queues[t.queue].outstanding == 0 {
		return ErrTicket
	}
	if cost < 0 || cost > MaxCost {
		return ErrCost
	}
	fl.outstanding--
	for q := t.queue; q != none; q = s.queues[q].parent {
		s.queues[q].outstanding--
	}
	if d := cost - t.cost; d != 0 {
		s.correct(t.flow, t.seq, d)
		for q := t.queue; q > 0; q = s.queues[q].parent {
			s.correct(^Flow(q), t.seq, d)
		}
	}
	s.endBusyPeriod(t.queue)
	return nil
}

// Charge adds service that the device gave to a flow outside of the scheduler, such as kernel
// writeback or readahead, at a cost of 1 to MaxCost. The charge delays the flow's next requests;
// Config.MaxLead bounds this delay. Errors: ErrUnknownFlow, ErrCost.
func (s *Scheduler) Charge(f Flow, cost int64) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if cost < 1 || cost > MaxCost {
		return ErrCost
	}
	if fl.cost == 0 {
		s.begin(f)
	}
	for id := f; id != root; {
		m := s.member(id)
		m.hasService = true
		s.chargeMember(id, m, cost)
		s.reorder(id)
		id = ^Flow(m.parent)
	}
	return nil
}

// SetWeight changes a flow's weight, 1 to MaxWeight, with immediate effect: the service by which the
// flow is ahead or behind is kept, and its tags are scaled to the new weight. Errors: ErrUnknownFlow,
// ErrWeight.
func (s *Scheduler) SetWeight(f Flow, weight int) error {
	if _, err := s.flow(f); err != nil {
		return err
	}
	if weight < 1 || weight > MaxWeight {
		return ErrWeight
	}
	s.reweigh(f, int32(weight))
	return nil
}

// begin begins a run of a flow that is not ready, and of those queues above it that are not ready.
func (s *Scheduler) begin(f Flow) {
	s.seq++
	for id := f; id != root && (id == f || !s.ready(id)); {
		m := s.member(id)
		s.resetIfStale(m)
		m.prev = m.finish()
		m.floor = s.queues[m.parent].v
		m.served = 0
		m.hasService = false
		m.runStart, m.seq = s.seq, s.seq
		id = ^Flow(m.parent)
	}
}

// resetIfStale resets the tags of a member if they belong to an earlier busy period.
func (s *Scheduler) resetIfStale(m *member) {
	if period := s.queues[m.parent].busyPeriod; m.busyPeriod != period {
		*m = member{weight: m.weight, parent: m.parent, busyPeriod: period, runStart: s.seq, seq: m.seq}
	}
}

// start returns the start tag of a member's next request.
func (m *member) start() tag {
	return maxTag(m.floor, m.prev).add(perWeight(m.served, m.weight))
}

// finish returns the finish tag of all service of a member so far.
func (m *member) finish() tag {
	if !m.hasService {
		return m.prev
	}
	return m.start()
}

// addService adds a cost, or a negative correction, at the present weight.
func (m *member) addService(cost int64) {
	m.served += cost
	// Long before the sum can overflow, the part that is divisible by the weight moves into
	// the tags. That part is exact.
	if m.served > servedLimit || m.served < -servedLimit {
		rest := m.served % int64(m.weight)
		m.shiftTags(perWeight(m.served-rest, m.weight))
		m.served = rest
	}
}

const servedLimit = 1 << 60

// shiftTags moves all tags of a member.
func (m *member) shiftTags(by tag) {
	m.prev = m.prev.add(by)
	m.floor = m.floor.add(by)
}

// rebase converts a member's tags to another weight and another virtual time. The service by which
// the member is ahead or behind stays the same.
func (m *member) rebase(from, to tag, old, weight int32) {
	m.prev = to.add(m.prev.sub(from).scale(old, weight))
	m.floor = to.add(m.floor.sub(from).scale(old, weight))
}

// reweigh changes the weight of a flow or queue.
func (s *Scheduler) reweigh(id Flow, weight int32) {
	m := s.member(id)
	if m.weight == weight {
		return
	}
	q := &s.queues[m.parent]
	s.resetIfStale(m)
	m.fade(q.v)
	m.rebase(q.v, q.v, m.weight, weight)
	m.charged = m.charged.scale(m.weight, weight)
	if q.ready.has(id) {
		q.weights += int64(weight - m.weight)
	}
	m.weight = weight
	s.reorder(id)
}

// correct moves the tags of a flow or queue because a request cost d more than it was charged.
func (s *Scheduler) correct(id Flow, turn uint64, d int64) {
	m := s.member(id)
	s.resetIfStale(m)
	m.fade(s.queues[m.parent].v)
	if turn > m.runStart {
		m.addService(d)
	} else {
		m.prev = m.prev.add(perWeight(d, m.weight))
	}
	s.reorder(id)
}

// reorder moves a ready member whose tags have changed to its place in the heap.
func (s *Scheduler) reorder(id Flow) {
	m := s.member(id)
	if q := &s.queues[m.parent]; q.ready.has(id) {
		q.ready.set(entry{start: m.start(), seq: m.seq, member: id})
	}
}

// updateReady adds a member to the ready members of its queue, or removes it, and continues upwards
// as long as this changes whether the queue is ready.
func (s *Scheduler) updateReady(id Flow) {
	for id != root {
		m := s.member(id)
		q := &s.queues[m.parent]
		ready := s.ready(id)
		if ready == q.ready.has(id) {
			return
		}
		if ready {
			q.weights += int64(m.weight)
			q.ready.set(entry{start: m.start(), seq: m.seq, member: id})
		} else {
			q.weights -= int64(m.weight)
			q.ready.remove(id)
		}
		id = ^Flow(m.parent)
	}
}

// endBusyPeriod ends the busy period of a queue in which nothing is ready or outstanding, and
// continues upwards. It removes empty queues.
func (s *Scheduler) endBusyPeriod(q int32) {
	for q != none {
		at := &s.queues[q]
		if at.outstanding > 0 || len(at.ready.entries) > 0 {
			return
		}
		at.busyPeriod++
		at.v = tag{}
		above := at.parent
		s.removeIfEmpty(q)
		q = above
	}
}
