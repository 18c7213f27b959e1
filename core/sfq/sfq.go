package sfq

import "fmt"

// sfqd is SFQ and SFQ(D) (IBIS, section 4). The rules, as they are meant here,
// with what the paper leaves open:
//
//   - A flow's requests are tagged in runs. A run begins when a request arrives
//     at the flow's empty queue: its start tag is max(v, F), v as of that moment
//     and F the finish tag of all that the flow was served before. Each later
//     request of the run starts at the finish tag of the one before it.
//   - Between equal start tags the request that was submitted first wins.
//   - v never runs backwards. A correction can put a flow's next start tag below
//     v: it is then served first, as it is due, but whoever arrives meanwhile
//     must not share in that credit.
//   - Correction at completion: a request that cost d more than submitted moves
//     the flow's later tags by d/weight. If it is of an earlier run it moves the
//     F that the present run began from, so it can lower this run's start to v
//     as of the run's beginning and no further: time in which a flow had
//     nothing queued earns no credit. The F of a flow with an empty queue is
//     moved too, and kept for as long as the flow stays.
//   - Cancel gives back the whole charge. A run of which nothing was dispatched
//     leaves no trace, so the next one again begins from the F before it.
//   - Charge is a request that was served the moment it came: F = max(v, F) +
//     cost/weight where the queue is empty; otherwise all queued tags move.
//   - A busy period ends when nothing is queued or outstanding. v would become
//     the largest F, so every flow's next request would start at v: only
//     differences count, hence v is set to 0 instead and all tags are void.
//     Charges booked between two busy periods count in the second.
//
// Tags are worked out when they are needed and never stored for a request: those
// of a run follow one another without gaps, so the start tag of the flow's first
// queued request is the run's start plus what the run was served. Corrections,
// cancellations in the middle of a queue and changes of weight thus cost one
// addition and one move in the heap, however many requests are queued.
type sfqd struct {
	table[flowTags, requestTags]
	ready  heap
	name   string
	v      tag
	period uint64 // busy period, from 1
	fixed  bool   // SFQ: the depth stays at 1
}

// flowTags is a flow's place in virtual time. The start tag of its next request
// is max(floor, prev) + served/weight.
type flowTags struct {
	prev  tag // F before the run, as corrected
	floor tag // v when the run began
	// served is the cost dispatched and charged in this run at the present
	// weight, less corrections. It is divided as one sum, so that the rounding
	// (below 2^-32) is that of one division however long the run; only a change
	// of weight, and a correction across one or across runs, rounds once more.
	served int64
	period uint64 // the busy period that all this belongs to; void in another
	run    uint64
	ran    bool // something was dispatched or charged in this run
}

// requestTags is what an outstanding request was charged under.
type requestTags struct {
	run    uint64
	weight int32
}

var (
	_ = register("sfq", newSFQ)
	_ = register("sfqd", newSFQD)
	_ = register("sfqd2", newSFQD)
)

func newSFQD(cfg Config) (Scheduler, error) {
	return &sfqd{table: newTable[flowTags, requestTags](cfg), name: cfg.Algorithm, period: 1}, nil
}

func newSFQ(cfg Config) (Scheduler, error) {
	if cfg.Depth != 1 {
		return nil, fmt.Errorf("sfq: depth %d: sfq has one request outstanding, use sfqd for more", cfg.Depth)
	}
	return &sfqd{table: newTable[flowTags, requestTags](cfg), name: cfg.Algorithm, period: 1, fixed: true}, nil
}

func (s *sfqd) AddFlow(weight int) (Flow, error) {
	f, err := s.addFlow(weight)
	if err == nil {
		s.ready.admit(f) // its tags are of period 0, so void
	}
	return f, err
}

// SetWeight closes the account at the old weight. The first queued request's
// start tag stays: it is the finish tag of what the old weight was charged for.
func (s *sfqd) SetWeight(f Flow, weight int) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if weight < 1 || weight > MaxWeight {
		return ErrWeight
	}
	fl.tags.shift(span(fl.tags.served, fl.weight))
	fl.tags.served = 0
	fl.weight = int32(weight)
	return nil
}

func (s *sfqd) Submit(f Flow, cost int64, ref uint64) (Handle, error) {
	fl, err := s.admits(f, cost)
	if err != nil {
		return 0, err
	}
	if fl.queued > 0 {
		return s.enqueue(f, cost, ref), nil
	}
	s.begin(fl)
	h := s.enqueue(f, cost, ref)
	s.place(f)
	return h, nil
}

func (s *sfqd) Next() (Request, bool) {
	if s.outstanding >= s.depth || s.waiting == 0 {
		return Request{}, false
	}
	first := &s.ready.entries[0]
	f := first.flow
	s.v = maxTag(s.v, first.start)
	r, out := s.dispatch(f)
	fl := &s.flows[f]
	r.tags = requestTags{run: fl.tags.run, weight: fl.weight}
	fl.tags.ran = true
	spend(fl, r.cost)
	s.place(f)
	return out, true
}

func (s *sfqd) Complete(h Handle, cost int64) error {
	slot, err := s.lookupOutstanding(h, cost)
	if err != nil {
		return err
	}
	s.settle(slot, cost)
	return nil
}

func (s *sfqd) Cancel(h Handle) error {
	slot, err := s.lookup(h)
	if err != nil {
		return err
	}
	r := &s.requests[slot]
	if r.state == outstanding {
		s.settle(slot, 0)
		return nil
	}
	first := r.prev == none
	s.unlink(slot)
	s.release(slot)
	if first {
		s.place(r.flow) // the next one takes over its start tag
	}
	s.rest()
	return nil
}

func (s *sfqd) Charge(f Flow, cost int64) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if cost < 1 || cost > MaxCost {
		return ErrCost
	}
	if fl.queued == 0 {
		s.begin(fl)
	}
	fl.tags.ran = true
	spend(fl, cost)
	if fl.queued > 0 {
		s.place(f)
	}
	return nil
}

func (s *sfqd) SetDepth(d int) {
	if !s.fixed {
		s.table.SetDepth(d)
	}
}

func (s *sfqd) String() string {
	return s.dump(s.name+": v "+s.v.String(), func(fl *flow[flowTags]) string {
		if fl.tags.period != s.period {
			return ", tags void"
		}
		if fl.queued == 0 {
			return ", F " + finish(fl).String()
		}
		last := start(fl)
		for slot := fl.head; slot != none; slot = s.requests[slot].next {
			last = last.add(span(s.requests[slot].cost, fl.weight))
		}
		return ", S " + start(fl).String() + ", F " + last.String()
	})
}

// begin starts a run of a flow whose queue is empty.
func (s *sfqd) begin(fl *flow[flowTags]) {
	t := &fl.tags
	if t.period != s.period {
		*t = flowTags{prev: s.v, period: s.period, run: t.run}
	} else {
		t.prev = finish(fl)
	}
	t.floor = s.v
	t.served = 0
	t.ran = false
	t.run++
}

// start returns the start tag of a flow's first queued request.
func start(fl *flow[flowTags]) tag {
	return maxTag(fl.tags.floor, fl.tags.prev).add(span(fl.tags.served, fl.weight))
}

// finish returns the F of all that a flow was served.
func finish(fl *flow[flowTags]) tag {
	if !fl.tags.ran {
		return fl.tags.prev
	}
	return start(fl)
}

// shift moves all of a flow's tags.
func (t *flowTags) shift(by tag) {
	t.prev = t.prev.add(by)
	t.floor = t.floor.add(by)
}

// spend books cost, or gives it back where negative, at the present weight.
func spend(fl *flow[flowTags], cost int64) {
	t := &fl.tags
	t.served += cost
	// Well before the sum overflows, the part that the weight divides without
	// remainder is moved into the tags, which rounds nothing.
	if t.served > servedLimit || t.served < -servedLimit {
		rest := t.served % int64(fl.weight)
		t.shift(span(t.served-rest, fl.weight))
		t.served = rest
	}
}

const servedLimit = 1 << 60

// settle ends an outstanding request at its actual cost.
func (s *sfqd) settle(slot int32, cost int64) {
	r := &s.requests[slot]
	fl := &s.flows[r.flow]
	s.release(slot)
	if d := cost - r.cost; d != 0 {
		switch t := &fl.tags; {
		case r.tags.run != t.run:
			t.prev = t.prev.add(span(d, r.tags.weight))
		case r.tags.weight != fl.weight:
			t.shift(span(d, r.tags.weight))
		default:
			spend(fl, d)
		}
		if fl.queued > 0 {
			s.place(r.flow)
		}
	}
	s.rest()
}

// place puts a flow where its first queued request belongs.
func (s *sfqd) place(f Flow) {
	fl := &s.flows[f]
	if fl.head == none {
		s.ready.remove(f)
		return
	}
	s.ready.set(entry{start: start(fl), seq: s.requests[fl.head].seq, flow: f})
}

// rest ends the busy period if nothing is left of it.
func (s *sfqd) rest() {
	if s.outstanding == 0 && s.waiting == 0 {
		s.period++
		s.v = tag{}
	}
}
