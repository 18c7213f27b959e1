package sfq

import "fmt"

// sfqd is SFQ and SFQ(D) (IBIS, section 4), over flows and over queues of them (queue.go).
// The rules, as they are meant here, with what the paper leaves open:
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
//   - What a flow is ahead of v, or behind it, is service: (tag - v) times weight. A
//     change of weight keeps that, so tags become v + (tag - v) * old/new, and
//     whatever is corrected later counts at the weight of that moment, as if it had
//     been known before. A request that went at a tiny weight thus holds nobody up
//     for longer than that weight held, and who changes weight often gets what
//     the weights were worth while they held, but for one request.
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
// cancellations in the middle of a queue and changes of weight thus cost a few
// additions and one move in the heap, however many requests are queued.
type sfqd struct {
	table[flowTags, requestTags]
	tree
	name  string
	turns uint64 // requests dispatched so far
	fixed bool   // SFQ: the depth stays at 1
}

// flowTags is a flow's or a queue's place in its parent's virtual time. The start tag of
// its next request is max(floor, prev) + served/weight.
type flowTags struct {
	prev  tag // F before the run, as corrected
	floor tag // v when the run began
	// served is the cost dispatched and charged in this run, less corrections. It is
	// divided as one sum, so that the rounding (below 2^-32) is that of one division
	// however long the run; only a change of weight, and a correction across runs,
	// rounds once more.
	served int64
	period uint64 // the parent's busy period that all this belongs to; void in another
	began  uint64 // sfqd.turns when the run began
	parent int32  // the queue that it is in
	ran    bool   // something was dispatched or charged in this run
}

// requestTags is what an outstanding request was charged under.
type requestTags struct {
	turn   uint64 // sfqd.turns: it is of a run that began before
	parent int32  // the flow's queue then
}

var (
	_ = register("sfq", newSFQ)
	_ = register("sfqd", newSFQD)
	_ = register("sfqd2", newSFQD)
)

func newSFQD(cfg Config) (Scheduler, error) {
	s := &sfqd{table: newTable[flowTags, requestTags](cfg), name: cfg.Algorithm}
	s.plant(cfg.MaxQueues)
	return s, nil
}

func newSFQ(cfg Config) (Scheduler, error) {
	if cfg.Depth != 1 {
		return nil, fmt.Errorf("sfq: depth %d: sfq has one request outstanding, use sfqd for more", cfg.Depth)
	}
	s := &sfqd{table: newTable[flowTags, requestTags](cfg), name: cfg.Algorithm, fixed: true}
	s.plant(cfg.MaxQueues)
	return s, nil
}

func (s *sfqd) AddFlow(weight int) (Flow, error) {
	f, err := s.addFlow(weight)
	if err == nil {
		s.at.admit(f) // its tags are of the root's period 0, so void
		s.queues[0].members++
	}
	return f, err
}

func (s *sfqd) RemoveFlow(f Flow) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	parent := fl.tags.parent
	if err := s.table.RemoveFlow(f); err != nil {
		return err
	}
	s.part(parent)
	return nil
}

func (s *sfqd) SetWeight(f Flow, weight int) error {
	if _, err := s.flow(f); err != nil {
		return err
	}
	if weight < 1 || weight > MaxWeight {
		return ErrWeight
	}
	s.reweigh(f, int32(weight))
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
	s.begin(f)
	h := s.enqueue(f, cost, ref)
	s.place(f)
	return h, nil
}

func (s *sfqd) Next() (Request, bool) {
	if s.outstanding >= s.depth || s.waiting == 0 {
		return Request{}, false
	}
	f := root
	for f < 0 {
		q := &s.queues[^f]
		first := &q.ready.entries[0]
		q.v = maxTag(q.v, first.start)
		q.outstanding++
		f = first.flow
	}
	r, out := s.dispatch(f)
	s.turns++
	r.tags = requestTags{turn: s.turns, parent: s.flows[f].tags.parent}
	for id := f; id != root; {
		m := s.member(id)
		m.tags.ran = true
		spend(m, out.Cost)
		id = ^Flow(m.tags.parent)
	}
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
	s.rest(s.flows[r.flow].tags.parent)
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
		s.begin(f)
	}
	for id := f; id != root; {
		m := s.member(id)
		m.tags.ran = true
		spend(m, cost)
		id = ^Flow(m.tags.parent)
	}
	s.place(f)
	return nil
}

func (s *sfqd) SetDepth(d int) {
	if !s.fixed {
		s.table.SetDepth(d)
	}
}

func (s *sfqd) String() string {
	flows := s.dump(s.name+": v "+s.queues[0].v.String(), func(fl *flow[flowTags]) string {
		at := ""
		if fl.tags.parent > 0 {
			at = ", in " + s.path(fl.tags.parent)
		}
		if fl.tags.period != s.queues[fl.tags.parent].period {
			return at + ", tags void"
		}
		if fl.queued == 0 {
			return at + ", F " + finish(fl).String()
		}
		last := start(fl)
		for slot := fl.head; slot != none; slot = s.requests[slot].next {
			last = last.add(span(s.requests[slot].cost, fl.weight))
		}
		return at + ", S " + start(fl).String() + ", F " + last.String()
	})
	return flows + s.dumpQueues()
}

// begin starts a run of a flow whose queue is empty, and of the queues that it is in, as
// far as they have nothing queued either.
func (s *sfqd) begin(f Flow) {
	for id := f; id != root && (id == f || len(s.queues[^id].ready.entries) == 0); {
		m := s.member(id)
		t := s.valid(m)
		t.prev = finish(m)
		t.floor = s.queues[t.parent].v
		t.served = 0
		t.ran = false
		t.began = s.turns
		id = ^Flow(t.parent)
	}
}

// valid returns a member's tags. Those of an earlier busy period are void: they become the
// beginning of this one.
func (s *sfqd) valid(m *flow[flowTags]) *flowTags {
	t := &m.tags
	if period := s.queues[t.parent].period; t.period != period {
		*t = flowTags{period: period, began: s.turns, parent: t.parent}
	}
	return t
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

// rebase takes all of a flow's tags to another weight, and to another virtual time, such that
// what it is ahead or behind is the same service.
func (t *flowTags) rebase(from, to tag, old, weight int32) {
	t.prev = to.add(t.prev.sub(from).scale(old, weight))
	t.floor = to.add(t.floor.sub(from).scale(old, weight))
}

// reweigh changes the weight of a flow or a queue.
func (s *sfqd) reweigh(id Flow, weight int32) {
	m := s.member(id)
	if m.weight == weight {
		return
	}
	q := &s.queues[m.tags.parent]
	s.valid(m).rebase(q.v, q.v, m.weight, weight)
	if q.ready.has(id) {
		q.weights += int64(weight - m.weight)
	}
	m.weight = weight
	s.place(id)
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

// settle ends an outstanding request at its actual cost. Its flow may be in another queue
// by now: then the queue that it was charged to is corrected.
func (s *sfqd) settle(slot int32, cost int64) {
	r := &s.requests[slot]
	s.release(slot)
	for q := r.tags.parent; q != none; q = s.queues[q].tags.parent {
		s.queues[q].outstanding--
	}
	if d := cost - r.cost; d != 0 {
		s.correct(r.flow, r.tags.turn, d)
		for q := r.tags.parent; q > 0; q = s.queues[q].tags.parent {
			s.correct(^Flow(q), r.tags.turn, d)
		}
		s.place(r.flow)
		if r.tags.parent != s.flows[r.flow].tags.parent {
			s.place(^Flow(r.tags.parent))
		}
	}
	s.rest(r.tags.parent)
}

// correct moves the tags of a flow or a queue by what a request has cost more.
func (s *sfqd) correct(id Flow, turn uint64, d int64) {
	m := s.member(id)
	if t := s.valid(m); turn > t.began {
		spend(m, d)
	} else {
		t.prev = t.prev.add(span(d, m.weight))
	}
}

// place puts a flow, and the queues that it is in, where their first requests belong.
func (s *sfqd) place(id Flow) {
	if id >= 0 {
		fl := &s.flows[id]
		if parent := &s.queues[fl.tags.parent]; fl.head == none {
			parent.unready(id, fl.weight)
		} else {
			parent.set(entry{start: start(fl), seq: s.requests[fl.head].seq, flow: id}, fl.weight)
		}
		id = ^Flow(fl.tags.parent)
	}
	for id != root {
		q := &s.queues[^id]
		if parent := &s.queues[q.tags.parent]; len(q.ready.entries) == 0 {
			parent.unready(id, q.weight)
		} else { // between equal tags counts who would be dispatched
			parent.set(entry{start: start(&q.flow), seq: q.ready.entries[0].seq, flow: id}, q.weight)
		}
		id = ^Flow(q.tags.parent)
	}
}

// rest ends the busy periods of a queue and of those above it of which nothing is left, and
// forgets queues that nobody is in any more.
func (s *sfqd) rest(q int32) {
	for q != none {
		at := &s.queues[q]
		if at.outstanding > 0 || len(at.ready.entries) > 0 {
			return
		}
		at.period++
		at.v = tag{}
		above := at.tags.parent
		s.vanish(q)
		q = above
	}
}
