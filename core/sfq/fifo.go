package sfq

// fifo dispatches in the order of submission, whatever the weights: what a
// device does when nobody schedules. It is the yardstick beside SFQ and shows
// how little an algorithm needs on top of table and heap.
type fifo struct {
	table[struct{}, struct{}]
	ready heap // all tags zero: the order of submission decides
}

var _ = register("fifo", func(cfg Config) (Scheduler, error) {
	return &fifo{table: newTable[struct{}, struct{}](cfg), ready: heap{places: &places{}}}, nil
})

func (s *fifo) AddFlow(weight int) (Flow, error) {
	f, err := s.addFlow(weight)
	if err == nil {
		s.ready.admit(f)
	}
	return f, err
}

// SetWeight remembers the weight, which decides nothing.
func (s *fifo) SetWeight(f Flow, weight int) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if weight < 1 || weight > MaxWeight {
		return ErrWeight
	}
	fl.weight = int32(weight)
	return nil
}

func (s *fifo) Submit(f Flow, cost int64, ref uint64) (Handle, error) {
	if _, err := s.admits(f, cost); err != nil {
		return 0, err
	}
	h := s.enqueue(f, cost, ref)
	if s.flows[f].queued == 1 {
		s.place(f)
	}
	return h, nil
}

// place puts a flow where its first queued request belongs.
func (s *fifo) place(f Flow) {
	if head := s.flows[f].head; head != none {
		s.ready.set(entry{seq: s.requests[head].seq, flow: f})
	} else {
		s.ready.remove(f)
	}
}

func (s *fifo) Next() (Request, bool) {
	if s.outstanding >= s.depth || s.waiting == 0 {
		return Request{}, false
	}
	f := s.ready.entries[0].flow
	_, out := s.dispatch(f)
	s.place(f)
	return out, true
}

func (s *fifo) Complete(h Handle, cost int64) error {
	slot, err := s.lookupOutstanding(h, cost)
	if err != nil {
		return err
	}
	s.release(slot)
	return nil
}

func (s *fifo) Cancel(h Handle) error {
	slot, err := s.lookup(h)
	if err != nil {
		return err
	}
	if r := &s.requests[slot]; r.state == queued {
		first := r.prev == none
		s.unlink(slot)
		if first {
			s.place(r.flow)
		}
	}
	s.release(slot)
	return nil
}

// Charge checks its arguments: an order of arrival knows no debt.
func (s *fifo) Charge(f Flow, cost int64) error {
	if _, err := s.flow(f); err != nil {
		return err
	}
	if cost < 1 || cost > MaxCost {
		return ErrCost
	}
	return nil
}

func (s *fifo) String() string {
	return s.dump("fifo", func(*flow[struct{}]) string { return "" })
}
