package sfq

import (
	"fmt"
	"math"
	"math/bits"
)

// drr is deficit round robin (Shreedhar and Varghese, "Efficient fair queueing
// using deficit round robin", SIGCOMM 1995), the peer that is cheapest a
// decision: no tags and no heap, only a list. It is there to be compared with.
//
// The flows that have something queued take turns. A turn adds weight times the
// round's credit to the flow's deficit and dispatches its requests for as long
// as the first one's cost is within the deficit; what is left is kept for the
// next turn. Depth bounds the outstanding requests as SFQ(D)'s does.
//
// The credit, in cost units per unit of weight, is the paper's one free choice.
// A decision is O(1) only if a turn nearly always dispatches, so the lightest
// flow's credit has to pay for the largest request; and a heavy flow's turn, for
// which all others wait, is the longer the larger it is. So it is the least that
// does: largest cost / least weight, rounded up. A constant would have to suit
// every device: costs are device time in ns, from some us of a flash page to the
// hundreds of ms of a large quantum on a slow disk, and a constant for the
// largest lets a flow of weight 1,000,000 take days. It is worked out anew for each round,
// from what was seen at the head of the queues in the round before, and is the
// same for all flows within a round, on which the fairness rests: two flows
// always backlogged differ in what is dispatched to them, per weight, by at most
// the largest credit + c_f/w_f + c_g/w_g.
//
// What the paper, written for links, does not have:
//
//   - A completion that cost more or less than submitted, a cancelled
//     outstanding request and Charge move the deficit, so it can sink below 0: a
//     debt, for which the flow misses turns.
//   - A flow whose queue empties leaves the round and loses its deficit, as in
//     the paper. A debt stays, and is paid off by the credit of the rounds that
//     pass meanwhile, as virtual time passes a tag in SFQ. At the end of a busy
//     period, when nothing is queued or outstanding, debts are void.
//   - Where a whole round dispatched nothing, as all flows are in debt, the
//     rounds up to the first that would are added in one step.
//   - A smaller weight takes back what a turn at the old one gave beyond it.
type drr struct {
	table[drrFlow, struct{}]
	first, last Flow // of the flows with queued requests, in the order of turns
	turn        bool // the first flow's turn has begun
	round       uint64
	sent        bool   // something was dispatched in this round
	credit      int64  // of this round, cost units per weight
	given       uint64 // sum of the credits of the busy period's rounds
	seenCost    int64  // for the next round: largest cost at the head of a queue
	seenWeight  int32  // and least weight, since this round began
	period      uint64 // busy period, from 1
}

// drrFlow is a flow's place in the round and what it may still spend.
type drrFlow struct {
	deficit    int64
	round      uint64 // of its last turn
	given      uint64 // drr.given when its debt was last looked at
	period     uint64 // the busy period that all this belongs to; void in another
	prev, next Flow
}

const noFlow = Flow(-1)

// debtMax bounds a flow's debt, in cost units: 36 years of a device in ns.
const debtMax = 1 << 60

var _ = register("drr", func(cfg Config) (Scheduler, error) {
	return &drr{table: newTable[drrFlow, struct{}](cfg), first: noFlow, last: noFlow, period: 1}, nil
})

func (s *drr) AddFlow(weight int) (Flow, error) { return s.addFlow(weight) }

func (s *drr) SetWeight(f Flow, weight int) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if weight < 1 || weight > MaxWeight {
		return ErrWeight
	}
	if fl.queued == 0 {
		s.settleDebt(fl) // the rounds so far count at the old weight
	}
	if int32(weight) < fl.weight {
		fl.tags.deficit = min(fl.tags.deficit, int64(weight)*s.credit)
	}
	fl.weight = int32(weight)
	return nil
}

func (s *drr) Submit(f Flow, cost int64, ref uint64) (Handle, error) {
	fl, err := s.admits(f, cost)
	if err != nil {
		return 0, err
	}
	h := s.enqueue(f, cost, ref)
	if fl.queued == 1 {
		s.settleDebt(fl)
		s.join(f)
		s.see(fl)
	}
	return h, nil
}

func (s *drr) Next() (Request, bool) {
	if s.outstanding >= s.depth || s.waiting == 0 {
		return Request{}, false
	}
	for {
		f := s.first
		fl := &s.flows[f]
		if !s.turn {
			if fl.tags.round == s.round {
				s.beginRound()
			}
			s.turn = true
			fl.tags.round = s.round
			fl.tags.deficit += int64(fl.weight) * s.credit
			s.see(fl)
		}
		if cost := s.requests[fl.head].cost; cost <= fl.tags.deficit {
			fl.tags.deficit -= cost
			s.sent = true
			_, out := s.dispatch(f)
			if fl.queued == 0 {
				s.leave(f)
			}
			return out, true
		}
		s.unlist(f)
		s.list(f)
	}
}

// see notes what the next round's credit has to pay for.
func (s *drr) see(fl *flow[drrFlow]) {
	s.seenCost = max(s.seenCost, s.requests[fl.head].cost)
	if s.seenWeight == 0 || fl.weight < s.seenWeight {
		s.seenWeight = fl.weight
	}
}

// beginRound sets the credit of the round that begins. At least one flow was
// seen in the last one: the first of the list.
func (s *drr) beginRound() {
	idle := s.round > 0 && !s.sent
	s.round++
	s.sent = false
	s.credit = (s.seenCost + int64(s.seenWeight) - 1) / int64(s.seenWeight)
	s.seenCost, s.seenWeight = 0, 0
	if idle {
		s.skipRounds()
	}
	s.given += uint64(s.credit)
}

// skipRounds adds the credit of the rounds that would dispatch nothing, but for
// the one that begins.
func (s *drr) skipRounds() {
	rounds := int64(math.MaxInt64)
	for f := s.first; f != noFlow; f = s.flows[f].tags.next {
		fl := &s.flows[f]
		need := s.requests[fl.head].cost - fl.tags.deficit
		each := int64(fl.weight) * s.credit
		rounds = min(rounds, (need+each-1)/each)
	}
	if rounds--; rounds <= 0 {
		return
	}
	for f := s.first; f != noFlow; f = s.flows[f].tags.next {
		fl := &s.flows[f]
		fl.tags.deficit += rounds * int64(fl.weight) * s.credit
	}
	s.given += uint64(rounds) * uint64(s.credit)
}

// settleDebt brings the deficit of a flow that has nothing queued up to date:
// none of an earlier busy period, and what the rounds since have paid off.
func (s *drr) settleDebt(fl *flow[drrFlow]) {
	t := &fl.tags
	if t.period != s.period {
		*t = drrFlow{period: s.period}
	}
	if t.deficit < 0 {
		over, paid := bits.Mul64(s.given-t.given, uint64(fl.weight))
		if over > 0 || paid >= uint64(-t.deficit) {
			t.deficit = 0
		} else {
			t.deficit += int64(paid)
		}
	}
	t.given = s.given
}

// move books cost against the flow's deficit, or gives it back where negative.
func (s *drr) move(fl *flow[drrFlow], cost int64) {
	if fl.queued == 0 {
		s.settleDebt(fl)
	}
	fl.tags.deficit = max(fl.tags.deficit-cost, -debtMax)
	if fl.queued == 0 {
		fl.tags.deficit = min(fl.tags.deficit, 0) // no credit while nothing is queued
	}
}

func (s *drr) Complete(h Handle, cost int64) error {
	slot, err := s.lookupOutstanding(h, cost)
	if err != nil {
		return err
	}
	s.end(slot, cost)
	return nil
}

func (s *drr) Cancel(h Handle) error {
	slot, err := s.lookup(h)
	if err != nil {
		return err
	}
	r := &s.requests[slot]
	if r.state == outstanding {
		s.end(slot, 0)
		return nil
	}
	f := r.flow
	s.unlink(slot)
	s.release(slot)
	if s.flows[f].queued == 0 {
		s.leave(f)
	}
	s.rest()
	return nil
}

// end ends an outstanding request at its actual cost.
func (s *drr) end(slot int32, cost int64) {
	r := &s.requests[slot]
	s.release(slot)
	s.move(&s.flows[r.flow], cost-r.cost)
	s.rest()
}

func (s *drr) Charge(f Flow, cost int64) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	if cost < 1 || cost > MaxCost {
		return ErrCost
	}
	s.move(fl, cost)
	return nil
}

// join puts a flow whose queue was empty at the end of the round.
func (s *drr) join(f Flow) {
	t := &s.flows[f].tags
	t.round = 0
	if s.round > 0 {
		t.round = s.round - 1 // its turn is in this round, if the list gets there
	}
	s.list(f)
}

// leave takes a flow whose queue has emptied out of the round.
func (s *drr) leave(f Flow) {
	s.unlist(f)
	t := &s.flows[f].tags
	t.deficit = min(t.deficit, 0)
	t.given = s.given
}

// list appends a flow to the order of turns.
func (s *drr) list(f Flow) {
	t := &s.flows[f].tags
	t.prev, t.next = s.last, noFlow
	if s.last == noFlow {
		s.first = f
	} else {
		s.flows[s.last].tags.next = f
	}
	s.last = f
}

// unlist takes a flow out of the order of turns, and ends its turn.
func (s *drr) unlist(f Flow) {
	t := &s.flows[f].tags
	if t.prev == noFlow {
		s.first, s.turn = t.next, false
	} else {
		s.flows[t.prev].tags.next = t.next
	}
	if t.next == noFlow {
		s.last = t.prev
	} else {
		s.flows[t.next].tags.prev = t.prev
	}
}

// rest ends the busy period if nothing is left of it.
func (s *drr) rest() {
	if s.outstanding == 0 && s.waiting == 0 {
		s.period++
		s.round, s.credit, s.given, s.sent = 0, 0, 0, false
		s.seenCost, s.seenWeight = 0, 0
	}
}

func (s *drr) String() string {
	return s.dump(fmt.Sprintf("drr: round %d, credit %d a weight", s.round, s.credit), func(fl *flow[drrFlow]) string {
		if fl.tags.period != s.period {
			return ", deficit void"
		}
		return fmt.Sprintf(", deficit %d", fl.tags.deficit)
	})
}
