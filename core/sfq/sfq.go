// Package sfq decides which application's device request is dispatched next: start-time
// fair queueing (SFQ), the family that IBIS builds on (section 4).
//
// A flow is one application at one device. Each of its requests has a start tag S and a
// finish tag F in virtual time v, which is service per weight:
//
//	S = max(v, F of the flow's previous request)    begin and member.start
//	F = S + cost/weight                             Next, which books the cost in spend
//	v = S of the request dispatched last            Next
//
// The request with the smallest S is dispatched first. The paper's queue holds requests.
// This one holds flows by the start tag of their next request (heap), as the later ones
// cannot go before it: the caller keeps the requests and announces the next one's cost
// (Ready). Next dispatches it, and Settle ends it at the cost that it really had. The
// depth is the caller's too: SFQ(D) is a caller that keeps up to D requests outstanding,
// SFQ(D2) one that moves D by latency (package depth). For two flows that are always ready
// the service per weight then differs by no more than (D+1)(c_f/w_f + c_g/w_g), c being a
// flow's largest cost.
//
// What the papers leave open is decided like this:
//
//   - A flow's requests are tagged in runs. A run begins when the flow becomes ready: its
//     start tag is max(v, F), v as of that moment and F the finish tag of all that the flow
//     was served before. Each later request of the run starts at the finish tag of the one
//     before it. A run of which nothing was dispatched leaves no trace.
//   - Between equal start tags the flow goes first that became ready, or was dispatched,
//     longest ago.
//   - v never runs backwards. A correction can put a flow's next start tag below v: the
//     flow is then served first, as is its due, but a flow that becomes ready meanwhile
//     must not share in that credit.
//   - Correction: a request that cost d more than announced moves the flow's later tags by
//     d/weight. If it is of an earlier run it moves the F that the present run began from,
//     so it can lower this run's start to v as of the run's beginning and no further: time
//     in which a flow had nothing to dispatch earns no credit. The F of a flow that is not
//     ready is moved too, and kept for as long as the flow stays.
//   - What a flow is ahead of v, or behind it, is service: (tag - v) times weight. A change
//     of weight keeps that, so tags become v + (tag - v) * old/new, and whatever is
//     corrected later counts at the weight of that moment, as if it had been known before.
//     A request that went at a tiny weight thus delays nobody for longer than that weight
//     held, and a flow that changes its weight often gets what the weights were worth while
//     they held, within one request.
//   - Charge is a request that was served the moment it came: F = max(v, F) + cost/weight.
//     What charges put a flow ahead by is bounded (lead.go).
//   - A busy period ends when nothing is ready or outstanding. v would become the largest F,
//     so every flow's next request would start at v: only differences count, hence v is set
//     to 0 instead and all tags are void. Charges between two busy periods count in the
//     second.
//
// Flows can stand in queues with weights of their own (queue.go). All rules hold at each
// level: a member is a flow, or a queue as its parent sees it.
//
// The package is pure: no clock, goroutine, lock, input or output, and nothing depends on
// the iteration order of a map. The same calls give the same decisions in the daemon, in a
// simulation and in a test. A Scheduler belongs to one caller at a time.
package sfq

// Scheduler orders the requests of many flows before one device. Methods that return an
// error have changed nothing when they do. The zero value is not ready for use: see New.
type Scheduler struct {
	cfg       Config
	flows     []flow
	freeFlows []Flow // last in, first out
	tree
	waiting int    // ready flows
	seq     uint64 // requests dispatched and runs begun so far
}

// flow is a member, and what only flows have.
type flow struct {
	member
	outstanding int32
	cost        int64 // of its next request; 0: it is not ready
}

// member is a flow's or a queue's place in its parent's virtual time. The start tag of its
// next request is max(floor, prev) + served/weight. Tags are worked out when they are
// needed: corrections and changes of weight thus cost a few additions and one move in the
// heap, however many requests they concern.
type member struct {
	weight int32 // 0: a free slot
	parent int32 // the queue of which it is a member
	prev   tag   // F before the run, as corrected
	floor  tag   // v when the run began
	// served is the cost dispatched and charged in this run, less corrections. It is
	// divided as one sum, so that the rounding (below 2^-32) is that of one division
	// however long the run; only a change of weight, a correction across runs, and a cut
	// of the lead round once more.
	served     int64
	charged    tag    // the part of its lead that charges made (lead.go)
	busyPeriod uint64 // the parent's busy period that all this belongs to; void in another
	runStart   uint64 // Scheduler.turns when the run began
	seq        uint64 // Scheduler.turns when it became ready or was last dispatched
	hasService bool   // something was dispatched or charged in this run
}

// Ready announces the cost of a flow's next request, 1 to MaxCost, or with cost 0 that the
// flow has nothing to dispatch. A flow that was not ready begins a run. Between two
// costs above 0 the flow keeps its place, and only what Next will charge changes.
// Errors: ErrUnknownFlow, ErrCost.
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

// Next dispatches the next request of the flow that is due, which has the smallest start
// tag, and charges the announced cost. It reports whether any flow is ready. The flow
// stays ready at the same cost until the caller says otherwise.
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
		m.seq, m.hasService, m.charged = s.seq, true, tag{} // v has reached its start tag: no lead is left
		m.addService(t.cost)
		s.queues[m.parent].ready.set(entry{start: m.start(), seq: m.seq, member: id})
		id = ^Flow(m.parent)
	}
	return t, true
}

// Settle ends an outstanding request at the cost that it really had, 0 (it was not served,
// so the whole charge is given back) to MaxCost. The flow may be in another queue by now:
// then the queue that the request was charged to is corrected. Each ticket is settled once;
// a second time is refused only where nothing else of the flow, or of the queue, is
// outstanding. Errors: ErrTicket, ErrCost.
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

// Charge books service of cost 1 to MaxCost that the device gave the flow outside of the
// queue, such as kernel writeback or readahead: all that the flow will dispatch moves back,
// within Config.MaxLead. Errors: ErrUnknownFlow, ErrCost.
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

// SetWeight changes a flow's weight, 1 to MaxWeight, at once: what it was served stays its
// service, and what it has to wait for that is as if the new weight had held when it was
// dispatched. Errors: ErrUnknownFlow, ErrWeight.
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

// begin starts a run of a flow that is not ready, and of the queues that it is in, as far as
// they are not ready either.
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

// valid resets a member's tags to the beginning of the present busy period, if they are of an
// earlier one and so void.
func (s *Scheduler) resetIfStale(m *member) {
	if period := s.queues[m.parent].busyPeriod; m.busyPeriod != period {
		*m = member{weight: m.weight, parent: m.parent, busyPeriod: period, runStart: s.seq, seq: m.seq}
	}
}

// start returns the start tag S of a member's next request.
func (m *member) start() tag {
	return maxTag(m.floor, m.prev).add(perWeight(m.served, m.weight))
}

// finish returns the finish tag F of all service of a member so far.
func (m *member) finish() tag {
	if !m.hasService {
		return m.prev
	}
	return m.start()
}

// spend books cost, or gives it back where negative, at the present weight.
func (m *member) addService(cost int64) {
	m.served += cost
	// Well before the sum overflows, the part that the weight divides without
	// remainder is moved into the tags, which rounds nothing.
	if m.served > servedLimit || m.served < -servedLimit {
		rest := m.served % int64(m.weight)
		m.shiftTags(perWeight(m.served-rest, m.weight))
		m.served = rest
	}
}

const servedLimit = 1 << 60

// shift moves all of a member's tags.
func (m *member) shiftTags(by tag) {
	m.prev = m.prev.add(by)
	m.floor = m.floor.add(by)
}

// rebase moves all of a member's tags to another weight, and to another virtual time, such that
// the member stays ahead or behind by the same service.
func (m *member) rebase(from, to tag, old, weight int32) {
	m.prev = to.add(m.prev.sub(from).scale(old, weight))
	m.floor = to.add(m.floor.sub(from).scale(old, weight))
}

// reweigh changes the weight of a flow or a queue.
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

// correct moves the tags of a flow or a queue for a request that cost d more than it was charged.
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

// reorder puts a member whose tags have changed where it belongs, if it is ready.
func (s *Scheduler) reorder(id Flow) {
	m := s.member(id)
	if q := &s.queues[m.parent]; q.ready.has(id) {
		q.ready.set(entry{start: m.start(), seq: m.seq, member: id})
	}
}

// place puts a member among the ready members of its queue, or removes it from there. It goes on
// with the queues above until one of them is as ready as before.
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

// rest ends the busy period of a queue in which nothing is ready or outstanding, and goes on with
// the queues above. It forgets queues that are empty.
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
