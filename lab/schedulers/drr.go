package schedulers

import (
	"fmt"
	"math"
	"math/bits"

	"penstock/core/arbiter"
	"penstock/core/sfq"
)

var _ arbiter.Scheduler = (*DRR)(nil)

// DRR is deficit round robin (Shreedhar and Varghese, "Efficient fair queueing using deficit round
// robin", SIGCOMM 1995). It is for comparison, as the scheduler with the cheapest decisions: it has
// no tags and no heap, only a list.
//
// The ready flows take turns. A turn adds weight times the round's credit to the flow's deficit.
// Then it dispatches the flow's requests as long as the announced cost is within the deficit. The
// rest of the deficit is kept for the flow's next turn.
//
// The credit, in cost units per unit of weight, is the paper's only free parameter. A decision is
// O(1) only if a turn nearly always dispatches, so the credit of the lightest flow must pay for the
// largest request. A heavy flow's turn, for which all others wait, becomes longer with a larger
// credit. So the credit is the smallest sufficient one: largest cost / least weight, rounded up. A
// constant credit would have to suit every device. Costs are device time in ns: from some us for a
// flash page to hundreds of ms for a large quantum on a slow disk. With a constant credit that pays
// for the largest cost, a turn of a flow of weight 1,000,000 would take days. The credit is
// computed for each round from the costs in the previous round, and is the same for all flows
// within a round. Fairness depends on this: the service per weight of two flows that are always
// ready differs by at most the largest credit + c_f/w_f + c_g/w_g.
//
// The paper is about network links and does not cover the following:
//
//   - Charge, and Settle with a cost other than the announced one, change the deficit. So the
//     deficit can fall below 0. It is then a debt: the flow misses turns until the debt is paid.
//   - A flow that stops being ready leaves the round and loses its deficit, as in the paper. A debt
//     stays. The credits of the rounds that pass meanwhile pay off the debt, just as in SFQ virtual
//     time moves past a flow's tag. At the end of a busy period, when no request is ready or
//     outstanding, debts are void.
//   - If a whole round dispatches nothing because all flows are in debt, the credits of the
//     rounds up to the first round that dispatches are added in one step.
//   - A reduced weight takes back the part of the current turn's credit that exceeds the credit at
//     the new weight.
type DRR struct {
	table[drrFlow]
	turn       bool // the first flow's turn has begun
	round      uint64
	sent       bool   // a request was dispatched in this round
	credit     int64  // credit of this round, cost units per weight
	given      uint64 // sum of the credits of all rounds of the busy period
	seenCost   int64  // for the next round's credit: largest cost announced at the beginning of a turn
	seenWeight int32  // for the next round's credit: least weight since this round began
	period     uint64 // number of the busy period, from 1
}

// drrFlow contains a flow's place in the round and its deficit.
type drrFlow struct {
	deficit int64
	round   uint64 // round of its last turn
	given   uint64 // DRR.given when its debt was last updated
	period  uint64 // busy period that these values belong to; in another period they are void
}

// debtMax bounds a flow's debt, in cost units. If the unit is ns, this is 36 years of device time.
const debtMax = 1 << 60

// NewDRR returns an empty DRR for up to maxFlows flows, 1 to 2^20.
func NewDRR(maxFlows int) (*DRR, error) {
	t, err := newTable[drrFlow](maxFlows)
	if err != nil {
		return nil, err
	}
	return &DRR{table: t, period: 1}, nil
}

// SetWeight implements sfq.Scheduler's method.
func (s *DRR) SetWeight(f sfq.Flow, weight int) error {
	fl, err := s.weighs(f, weight)
	if err != nil {
		return err
	}
	if fl.cost == 0 {
		s.settleDebt(fl) // the previous rounds count with the old weight
	}
	if int32(weight) < fl.weight {
		fl.own.deficit = min(fl.own.deficit, int64(weight)*s.credit)
	}
	fl.weight = int32(weight)
	return nil
}

// Ready implements sfq.Scheduler's method.
func (s *DRR) Ready(f sfq.Flow, cost int64) error {
	fl, err := s.announces(f, cost)
	if err != nil {
		return err
	}
	was := fl.cost
	if was == 0 && cost > 0 {
		s.settleDebt(fl) // for the time in which the flow was not ready
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

// Next dispatches the next request of the flow that has the turn and whose deficit pays for the
// request.
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

// see records what the next round's credit must pay for.
func (s *DRR) see(fl *flow[drrFlow]) {
	s.seenCost = max(s.seenCost, fl.cost)
	if s.seenWeight == 0 || fl.weight < s.seenWeight {
		s.seenWeight = fl.weight
	}
}

// beginRound sets the credit of the round that begins. At least one flow was seen in the previous
// round: the first one of the list.
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

// skipRounds adds the credits of the rounds that would dispatch nothing. The round that begins is
// not included.
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

// settleDebt updates the deficit of a flow that is not ready. A debt of an earlier busy period is
// void, and the rounds since the last update have paid off a part.
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

// move subtracts cost from the flow's deficit. A negative cost increases the deficit.
func (s *DRR) move(fl *flow[drrFlow], cost int64) {
	if fl.cost == 0 {
		s.settleDebt(fl)
	}
	fl.own.deficit = max(fl.own.deficit-cost, -debtMax)
	if fl.cost == 0 {
		fl.own.deficit = min(fl.own.deficit, 0) // a flow that is not ready has no credit
	}
}

// Settle implements sfq.Scheduler's method.
func (s *DRR) Settle(t sfq.Ticket, cost int64) error {
	fl, err := s.settle(t, cost)
	if err != nil {
		return err
	}
	s.move(fl, cost-t.Cost())
	s.rest()
	return nil
}

// Charge implements sfq.Scheduler's method.
func (s *DRR) Charge(f sfq.Flow, cost int64) error {
	fl, err := s.charges(f, cost)
	if err != nil {
		return err
	}
	s.move(fl, cost)
	return nil
}

// Force dispatches a request of a flow outside of its turn. The flow's deficit pays for it and may
// become a debt. The turn and the round do not change.
func (s *DRR) Force(f sfq.Flow, cost int64) (sfq.Ticket, error) {
	t, fl, err := s.forces(f, cost)
	if err != nil {
		return sfq.Ticket{}, err
	}
	s.move(fl, cost)
	return t, nil
}

// Void cancels a flow's debt.
func (s *DRR) Void(f sfq.Flow) error {
	fl, err := s.flow(f)
	if err != nil {
		return err
	}
	fl.own.deficit = max(fl.own.deficit, 0)
	return nil
}

// join appends a flow that has become ready to the round.
func (s *DRR) join(f sfq.Flow) {
	t := &s.flows[f].own
	t.round = 0
	if s.round > 0 {
		t.round = s.round - 1 // its turn is in this round if the list reaches it
	}
	s.list(f)
}

// leave removes a flow that is not ready any more from the round.
func (s *DRR) leave(f sfq.Flow) {
	if s.unlist(f) {
		s.turn = false
	}
	t := &s.flows[f].own
	t.deficit = min(t.deficit, 0)
	t.given = s.given
}

// rest ends the busy period if no request is ready or outstanding.
func (s *DRR) rest() {
	if s.outstanding == 0 && s.waiting == 0 {
		s.period++
		s.round, s.credit, s.given, s.sent = 0, 0, 0, false
		s.seenCost, s.seenWeight = 0, 0
	}
}

// String returns the whole state as text.
func (s *DRR) String() string {
	return s.dump(fmt.Sprintf("drr: round %d, credit %d a weight", s.round, s.credit), func(fl *flow[drrFlow]) string {
		if fl.own.period != s.period {
			return ", deficit void"
		}
		return fmt.Sprintf(", deficit %d", fl.own.deficit)
	})
}
