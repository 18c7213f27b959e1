package sfq

import "math/bits"

// The lead of a member is the distance of its next start tag from v. While other members are ready,
// the member waits until v has caught up. A lead that the member's own requests cause is never cut.
// One request at weight 1 beside a flow of weight 1,000 rightly causes a long wait, and a caller
// with one request at a time cannot make the wait longer. Charges have no such bound. For example,
// a node that only observes may charge a flow for ten minutes of service that the flow got outside
// of the scheduler. When the flow has to queue later, it would be locked out for ten minutes, and
// for 32 times as long beside a flow of weight 32.
//
// So the field charged of each member contains the part of its lead that charges have caused. This
// part is cut to MaxLead / W, where W is the sum of the weights of the ready members and of the
// member itself. That is the progress of v in MaxLead of device time if all members that are ready
// now stay ready. The virtual time of a queue progresses while the queue is served, so its members
// use the queue's share of MaxLead (budget). v first catches up with the part of the member's own
// requests, so charged is at most the whole lead (fade). W grows when other members become ready;
// Trim takes that into account.

// Trim cuts the leads that charges have caused to the bound of Config.MaxLead. The bound takes into
// account which members are ready now. Trim visits all flows and queues, so it should be called
// rarely.
func (s *Scheduler) Trim() {
	for f := range s.flows {
		s.trim(Flow(f))
	}
	for q := 1; q < len(s.queues); q++ {
		s.trim(^Flow(q))
	}
}

func (s *Scheduler) trim(id Flow) {
	m := s.member(id)
	if m.weight == 0 || m.charged == (tag{}) {
		return
	}
	if q := &s.queues[m.parent]; m.busyPeriod == q.busyPeriod {
		m.fade(q.v)
		s.boundLead(id, m)
		s.reorder(id)
	}
}

// Void clears the lead of a flow and of the queues above it. A flow that is behind v stays behind.
// Errors: ErrUnknownFlow.
func (s *Scheduler) Void(f Flow) error {
	if _, err := s.flow(f); err != nil {
		return err
	}
	for id := f; id != root; {
		m := s.member(id)
		s.resetIfStale(m)
		if v := s.queues[m.parent].v; v.less(m.finish()) {
			// This begins a run. If an earlier request turns out to have cost less, the difference
			// must not become a credit, because its cost is already cleared.
			m.prev, m.floor, m.served, m.charged = v, v, 0, tag{}
			m.hasService, m.runStart = false, s.seq
			s.reorder(id)
		}
		id = ^Flow(m.parent)
	}
	return nil
}

// chargeMember adds a charge to a member, and cuts the lead that charges have caused.
func (s *Scheduler) chargeMember(id Flow, m *member, cost int64) {
	v := s.queues[m.parent].v
	m.fade(v)
	m.addService(cost)
	m.charged = m.charged.add(perWeight(cost, m.weight))
	m.fade(v)
	s.boundLead(id, m)
}

// fade lowers charged to the present lead. It must be called before the lead changes for another
// reason than the progress of v.
func (m *member) fade(v tag) {
	if m.charged == (tag{}) {
		return
	}
	lead := m.finish().sub(v)
	if lead.less(m.charged) {
		m.charged = maxTag(lead, tag{})
	}
}

// boundLead cuts the part of a lead that charges have caused to its bound.
func (s *Scheduler) boundLead(id Flow, m *member) {
	most := divide(s.budget(m.parent), s.readyWeights(id))
	if !most.less(m.charged) {
		return
	}
	over := m.charged.sub(most)
	m.charged = most
	// The finish tag before the run is lowered first, down to the run's floor. Then a later
	// correction of an earlier run cannot lower the start tag below the floor.
	if above := m.prev.sub(m.floor); !above.less(over) {
		m.prev = m.prev.sub(over)
		return
	} else if m.floor.less(m.prev) {
		m.prev, over = m.floor, over.sub(above)
	}
	m.shiftTags(tag{}.sub(over))
}

// budget returns a queue's share of the next MaxLead of the device's service, if all members that
// are ready now stay ready.
func (s *Scheduler) budget(q int32) int64 {
	if q == 0 {
		return s.cfg.MaxLead
	}
	at := &s.queues[q]
	hi, lo := bits.Mul64(uint64(s.budget(at.parent)), uint64(at.weight))
	part, _ := bits.Div64(hi, lo, uint64(s.readyWeights(^Flow(q))))
	return int64(part)
}

// readyWeights returns the sum of the weights of a member and its ready siblings.
func (s *Scheduler) readyWeights(id Flow) int64 {
	m := s.member(id)
	q := &s.queues[m.parent]
	if q.ready.has(id) {
		return q.weights
	}
	return q.weights + int64(m.weight)
}

// divide returns a/b, rounded down, for a >= 0 and 0 < b < 2^63.
func divide(a, b int64) tag {
	whole, rest := uint64(a)/uint64(b), uint64(a)%uint64(b)
	frac, _ := bits.Div64(rest>>32, rest<<32, uint64(b))
	return tag{int64(whole >> 32), whole<<32 | frac}
}
