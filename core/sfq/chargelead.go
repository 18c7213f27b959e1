package sfq

import "math/bits"

// The lead of a member is how far its next start tag is ahead of v. It has to wait for that
// long while others are ready. The lead that a flow's own requests make is never cut. One
// request at a weight of 1 beside one of 1,000 rightly costs a long wait, and a caller that
// has one request at a time cannot make it larger. Charges have no such end: a flow whose
// service beside the queue goes on for ten minutes, as while a node only observes, would be
// locked out for as long once it has to queue, and 32 times as long beside a weight of 32.
//
// So each member keeps the part of its lead that charges made (charged), and that part is
// cut to the virtual time that passes in MaxLead of the device's time when all are ready
// that are ready now: MaxLead / W, W being the sum of their weights and its own. A queue's
// virtual time passes while the queue is served, so its members have the queue's share of
// MaxLead (budget). v catches up with the own part first, so charged is at most the whole
// lead (fade). W grows when others become ready, which Trim takes into account.

// Trim cuts the leads that charges made to what Config.MaxLead allows beside those that are
// ready now. It looks at every flow and queue, so it is for a caller's slow timer.
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

// Void forgets by how much a flow is ahead, and the queues above it. A flow that is behind
// stays so. Errors: ErrUnknownFlow.
func (s *Scheduler) Void(f Flow) error {
	if _, err := s.flow(f); err != nil {
		return err
	}
	for id := f; id != root; {
		m := s.member(id)
		s.resetIfStale(m)
		if v := s.queues[m.parent].v; v.less(m.finish()) {
			// A run begins here: what a request of before turns out to have cost less
			// has been forgiven already, and must not become a credit.
			m.prev, m.floor, m.served, m.charged = v, v, 0, tag{}
			m.hasService, m.runStart = false, s.seq
			s.reorder(id)
		}
		id = ^Flow(m.parent)
	}
	return nil
}

// charge books a charge, and cuts the lead that charges have made.
func (s *Scheduler) chargeMember(id Flow, m *member, cost int64) {
	v := s.queues[m.parent].v
	m.fade(v)
	m.addService(cost)
	m.charged = m.charged.add(perWeight(cost, m.weight))
	m.fade(v)
	s.boundLead(id, m)
}

// fade lowers charged by what v has caught up with. It has to be called before anything but v
// changes the lead.
func (m *member) fade(v tag) {
	if m.charged == (tag{}) {
		return
	}
	lead := m.finish().sub(v)
	if lead.less(m.charged) {
		m.charged = maxTag(lead, tag{})
	}
}

// cut bounds the part of a lead that charges made.
func (s *Scheduler) boundLead(id Flow, m *member) {
	most := divide(s.budget(m.parent), s.readyWeights(id))
	if !most.less(m.charged) {
		return
	}
	over := m.charged.sub(most)
	m.charged = most
	// F before the run goes first, down to the run's floor, so that a later correction of
	// an earlier run cannot lower the start below the floor.
	if above := m.prev.sub(m.floor); !above.less(over) {
		m.prev = m.prev.sub(over)
		return
	} else if m.floor.less(m.prev) {
		m.prev, over = m.floor, over.sub(above)
	}
	m.shiftTags(tag{}.sub(over))
}

// budget returns a queue's part of the device's next MaxLead of service, if those stay ready that
// are ready now.
func (s *Scheduler) budget(q int32) int64 {
	if q == 0 {
		return s.cfg.MaxLead
	}
	at := &s.queues[q]
	hi, lo := bits.Mul64(uint64(s.budget(at.parent)), uint64(at.weight))
	part, _ := bits.Div64(hi, lo, uint64(s.readyWeights(^Flow(q))))
	return int64(part)
}

// rivals returns the sum of the weights of a member and of its ready siblings.
func (s *Scheduler) readyWeights(id Flow) int64 {
	m := s.member(id)
	q := &s.queues[m.parent]
	if q.ready.has(id) {
		return q.weights
	}
	return q.weights + int64(m.weight)
}

// ratio returns a/b, rounded down, a at least 0 and b above 0 and below 2^63.
func divide(a, b int64) tag {
	whole, rest := uint64(a)/uint64(b), uint64(a)%uint64(b)
	frac, _ := bits.Div64(rest>>32, rest<<32, uint64(b))
	return tag{int64(whole >> 32), whole<<32 | frac}
}
