package schedulers

import (
	"fmt"
	"math"
	"math/bits"

	"penstock/core/arbiter"
	"penstock/core/sfq"
)

var _ arbiter.Scheduler = (*DRR)(nil)

// DRR is deficit round robin (Shreedhar and Varghese, "Efficient fair queueing
// using deficit round robin", SIGCOMM 1995), the peer that is cheapest a
// decision: no tags and no heap, only a list. It is there to be compared with.
//
// The flows that are ready take turns. A turn adds weight times the round's credit to the
// flow's deficit and dispatches its requests for as long as the announced cost is within
// the deficit; what is left is kept for the next turn.
//
// The credit, in cost units per unit of weight, is the paper's one free choice.
// A decision is O(1) only if a turn nearly always dispatches, so the lightest
// flow's credit has to pay for the largest request; and a heavy flow's turn, for
// which all others wait, is the longer the larger it is. So it is the least that
// does: largest cost / least weight, rounded up. A constant would have to suit
// every device: costs are device time in ns, from some us of a flash page to the
// hundreds of ms of a large quantum on a slow disk, and a constant for the
// largest lets a flow of weight 1,000,000 take days. It is worked out again for each round,
// from the costs that were seen in the round before, and is the same for all flows
// within a round, on which the fairness rests: two flows that are always ready differ in what is dispatched to them, per weight, by at most
// the largest credit + c_f/w_f + c_g/w_g.
//
// What the paper, written for links, does not have:
//
//   - Settle at another cost than was announced, and Charge, move the deficit, so it can
//     sink below 0: a debt, for which the flow misses turns.
//   - A flow that is no longer ready leaves the round and loses its deficit, as in
//     the paper. A debt stays, and is paid off by the credit of the rounds that
//     pass meanwhile, as virtual time passes a tag in SFQ. At the end of a busy
//     period, when nothing is ready or outstanding, debts are void.
//   - Where a whole round dispatched nothing, as all flows are in debt, the
//     rounds up to the first that would are added in one step.
//   - A smaller weight takes back what a turn at the old one gave beyond it.
type DRR struct {
	table[drrFlow]
	turn       bool // the first flow's turn has begun
	round      uint64
	sent       bool   // something was dispatched in this round
	credit     int64  // of this round, cost units per weight
	given      uint64 // sum of the credits of the busy period's rounds
	seenCost   int64  // for the next round: largest cost announced at a turn's begin
	seenWeight int32  // and least weight, since this round began
	period     uint64 // busy period, from 1
}

// drrFlow is a flow's place in the round and what it may still spend.
type drrFlow struct {
	deficit int64
	round   uint64 // of its last turn
	given   uint64 // DRR.given when its debt was last looked at
	period  uint64 // the busy period that all this belongs to; void in another
}

// debtMax bounds a flow's debt, in cost units: 36 years of a device in ns.
const debtMax = 1 << 60

// NewDRR returns an empty DRR for up to so many flows, 1 to 2^20.
func NewDRR(maxFlows int) (*DRR, error) {
	t, err := newTable[drrFlow](maxFlows)
	if err != nil {
		return nil, err
	}
	return &DRR{table: t, period: 1}, nil
}

// SetWeight is sfq.Scheduler's.
func (s *DRR) SetWeight(f sfq.Flow, weight int) error {
	fl, err := s.weighs(f, weight)
	if err != nil {
		return err
	}
	if fl.cost == 0 {
		s.settleDebt(fl) // the rounds so far count at the old weight
	}
	if int32(weight) < fl.weight {
		fl.own.deficit = min(fl.own.deficit, int64(weight)*s.credit)
	}
	fl.weight = int32(weight)
	return nil
}

// Ready is sfq.Scheduler's.
func (s *DRR) Ready(f sfq.Flow, cost int64) error {
	fl, err := s.announces(f, cost)
	if err != nil {
		return err
	}
	was := fl.cost
	if was == 0 && cost > 0 {
		s.settleDebt(fl) // as of a flow that is not ready
	}
	fl.cost = cost
	if was == 0 && cost > 0 {
		s.join(f)
		s.see(fl)
	} else if was > 0 && cost == 0 {
		s.leave(f)
		s.rest()
	}
	return nil
}

// Next dispatches the next request of the flow whose turn it is and whose deficit pays for
// it.
func (s *DRR) Next() (sfq.Ticket, bool) {
	if s.waiting == 0 {
		return sfq.Ticket{}, false
	}
	for {
		f := s.first
		fl := &s.flows[f]
		if !s.turn {
			if fl.own.round == s.round {
				s.beginRound()
			}
			s.turn = true
			fl.own.round = s.round
			fl.own.deficit += int64(fl.weight) * s.credit
			s.see(fl)
		}
		if fl.cost <= fl.own.deficit {
			fl.own.deficit -= fl.cost
			s.sent = true
			return s.dispatch(f), true
		}
		s.unlist(f)
		s.list(f)
		s.turn = false
	}
}

// see notes what the next round's credit has to pay for.
func (s *DRR) see(fl *flow[drrFlow]) {
	s.seenCost = max(s.seenCost, fl.cost)
	if s.seenWeight == 0 || fl.weight < s.seenWeight {
		s.seenWeight = fl.weight
	}
}

// beginRound sets the credit of the round that begins. At least one flow was
// seen in the last one: the first of the list.
func (s *DRR) beginRound() {
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

// skipRounds adds the credit of the rounds that would dispatch nothing, without
// the one that begins.
func (s *DRR) skipRounds() {
	rounds := int64(math.MaxInt64)
	for f := s.first; f != noFlow; f = s.flows[f].next {
		fl := &s.flows[f]
		need := fl.cost - fl.own.deficit
		each := int64(fl.weight) * s.credit
		rounds = min(rounds, (need+each-1)/each)
	}
	if rounds--; rounds <= 0 {
		return
	}
	for f := s.first; f != noFlow; f = s.flows[f].next {
		fl := &s.flows[f]
		fl.own.deficit += rounds * int64(fl.weight) * s.credit
	}
	s.given += uint64(rounds) * uint64(s.credit)
}

// settleDebt brings the deficit of a flow that is not ready up to date:
// none of an earlier busy period, and what the rounds since have paid off.
func (s *DRR) settleDebt(fl *flow[drrFlow]) {
	t := &fl.own
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
func (s *DRR) move(fl *flow[drrFlow], cost int64) {
	if fl.cost == 0 {
		s.settleDebt(fl)
	}
	fl.own.deficit = max(fl.own.deficit-cost, -debtMax)
	if fl.cost == 0 {
		fl.own.deficit = min(fl.own.deficit, 0) // no credit while it is not ready
	}
}

// Settle is sfq.Scheduler's.
func (s *DRR) Settle(t sfq.Ticket, cost int64) error {
	fl, err := s.settle(t, cost)
	if err != nil {
		return err
	}
	s.move(fl, cost-t.Cost())
	s.rest()
	return nil
}

// Charge is sfq.Scheduler's.
func (s *DRR) Charge(f sfq.Flow, cost int64) error {
	fl, err := s.charges(f, cost)
	if err != nil {
		return err
	}
	s.move(fl, cost)
	return nil
}

// Force dispatches a request of a flow out of its turn. The flow's deficit pays for it, and
// may so become a debt; turn and round stay where they are.
func (s *DRR) Force(f sfq.Flow, cost int64) (sfq.Ticket, error) {
	t, fl, err := s.forces(f, cost)
	if err != nil {
		return sfq.Ticket{}, err
	}
	s.move(fl, cost)
	return t, nil
}

// Void forgets a flow's debt.
func (s *DRR) Void(f sfq.Flow) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	fl.own.deficit = max(fl.own.deficit, 0)
	return nil
}

// join puts a flow that has become ready at the end of the round.
func (s *DRR) join(f sfq.Flow) {
	t := &s.flows[f].own
	t.round = 0
	if s.round > 0 {
		t.round = s.round - 1 // its turn is in this round, if the list gets there
	}
	s.list(f)
}

// leave takes a flow that is no longer ready out of the round.
func (s *DRR) leave(f sfq.Flow) {
	if s.unlist(f) {
		s.turn = false
	}
	t := &s.flows[f].own
	t.deficit = min(t.deficit, 0)
	t.given = s.given
}

// rest ends the busy period if nothing is left of it.
func (s *DRR) rest() {
	if s.outstanding == 0 && s.waiting == 0 {
		s.period++
		s.round, s.credit, s.given, s.sent = 0, 0, 0, false
		s.seenCost, s.seenWeight = 0, 0
	}
}

// String prints the whole state.
func (s *DRR) String() string {
	return s.dump(fmt.Sprintf("drr: round %d, credit %d a weight", s.round, s.credit), func(fl *flow[drrFlow]) string {
		if fl.own.period != s.period {
			return ", deficit void"
		}
		return fmt.Sprintf(", deficit %d", fl.own.deficit)
	})
}
