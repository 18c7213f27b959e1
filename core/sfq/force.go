package sfq

// Force dispatches a request of a flow out of turn, at a cost of 1 to MaxCost, without changing v.
// The cost counts as service outside of the scheduler (Charge), so Config.MaxLead bounds the delay
// that it causes. The request is settled like any other. Errors: ErrUnknownFlow, ErrCost.
func (s *Scheduler) Force(f Flow, cost int64) (Ticket, error) {
	fl, err := s.flow(f)
	if err != nil {
		return Ticket{}, err
	}
	if cost < 1 || cost > MaxCost {
		return Ticket{}, ErrCost
	}
	if fl.cost == 0 {
		s.begin(f)
	}
	fl.outstanding++
	s.seq++
	t := Ticket{seq: s.seq, cost: cost, flow: f, queue: fl.parent}
	for id := f; id != root; {
		m := s.member(id)
		s.queues[m.parent].outstanding++
		m.hasService = true
		s.chargeMember(id, m, cost)
		s.reorder(id)
		id = ^Flow(m.parent)
	}
	return t, nil
}

// Due reports whether a flow that is not ready would be dispatched next if it became ready now.
// That is so if its start tag and the start tag of each queue above it would be the smallest in
// their queues. Due returns false for an unknown flow.
func (s *Scheduler) Due(f Flow) bool {
	if _, err := s.flow(f); err != nil {
		return false
	}
	for id := f; id != root; {
		m := s.member(id)
		q := &s.queues[m.parent]
		if len(q.ready.entries) > 0 {
			first := &q.ready.entries[0]
			if q.ready.has(id) {
				if first.member != id {
					return false
				}
			} else {
				start := q.v
				if m.busyPeriod == q.busyPeriod {
					start = maxTag(q.v, m.finish())
				}
				if first.start.less(start) {
					return false
				}
			}
		}
		id = ^Flow(m.parent)
	}
	return true
}
