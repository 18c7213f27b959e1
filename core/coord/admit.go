package coord

import (
	"cmp"
	"math"
	"slices"
	"time"

	"penstock/core/reserve"
)

// PlacedRate is the guaranteed rate of a whole application, and the nodes where it is at work.
type PlacedRate struct {
	Rate  int64         // bytes per second
	Order int           // the place of its rule in the policy; smaller is earlier
	Since time.Duration // when the application came
	State reserve.State // of the last verdict; Unused for a new application
	// Kept is the part of Rate that is admitted already, in bytes per second, if the rate has grown since; the rest is new. 0: the rate
	// has not grown.
	Kept    int64
	Members []int    // indexes of the nodes
	Demands []Demand // at these nodes, in the same order
	// MakeUp is what the application gets beyond Rate, in bytes per second, because it has had less before (Arrears). It gets
	// this only where it can use more and no other rate needs the room.
	MakeUp int64
}

// PlacedVerdict is what is kept of a PlacedRate.
type PlacedVerdict struct {
	reserve.Verdict
	Parts []int64 // of the nodes in PlacedRate.Members, in bytes per second
	// MadeUp are the nodes' parts of PlacedRate.MakeUp; nil: none.
	MadeUp []int64
}

// UnknownRoom is the room of a node that does not report what it can guarantee.
const UnknownRoom = math.MaxInt64

// keepRoom is the room for rates that are admitted, in relation to that for new ones (as in package reserve).
const keepRoom = 0.95 / reserve.AdmitMost

// AdmitRates decides which guaranteed rates of whole applications the nodes keep (IBIS, section 9), and divides them among
// the nodes. room is what each node can guarantee, in bytes per second. The order is that of reserve.Admit: rates that are
// admitted come first, so that no newcomer breaks a rate that is kept; then the order of the policy's rules counts, then that
// of arrival. A new rate is queued unless all of it fits on its nodes; an admitted one is reduced to what fits. A reduced rate
// needs room for 5 % more than itself, so that it does not come and go. If an admitted rate grows, what is added is new.
func AdmitRates(rates []PlacedRate, room []int64) []PlacedVerdict {
	order, verdicts := make([]int, len(rates)), make([]PlacedVerdict, len(rates))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &rates[i], &rates[j]
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Order, b.Order), cmp.Compare(a.Since, b.Since), cmp.Compare(i, j))
	})
	taken := make([]int64, len(room))
	for _, i := range order {
		verdicts[i] = rates[i].admit(room, taken)
	}
	for _, i := range order {
		rates[i].grow(room, taken, &verdicts[i])
	}
	for _, i := range order { // after all rates, so that none of them has less
		rates[i].makeUp(room, taken, &verdicts[i])
	}
	return verdicts
}

// rank is 0 for a rate that is admitted, otherwise 1.
func (r *PlacedRate) rank() int {
	if r.State == reserve.Admitted || r.State == reserve.Reduced {
		return 0
	}
	return 1
}

// admit decides about one rate, and adds what it takes of each node to taken.
func (r *PlacedRate) admit(room, taken []int64) (v PlacedVerdict) {
	most, fits := make([]int64, len(r.Members)), 0.0
	for k, m := range r.Members {
		most[k] = UnknownRoom
		if room[m] != UnknownRoom {
			free := float64(room[m])
			if r.rank() == 0 {
				free *= keepRoom
			}
			most[k] = max(0, int64(free)-taken[m])
		}
		fits += float64(most[k])
	}
	rate := r.judged()
	needed := float64(rate)
	if r.State == reserve.Reduced {
		needed *= readmitMargin
	}
	granted := rate
	switch {
	case len(r.Members) == 0:
		return v
	case needed <= fits:
		v.Verdict = reserve.Verdict{State: reserve.Admitted, Granted: 1, Fits: 1}
	case r.rank() == 0:
		part := min(1, fits/float64(rate))
		granted = int64(part * float64(rate))
		v.Verdict = reserve.Verdict{State: reserve.Reduced, Granted: part, Fits: part}
	default:
		granted = 0
		v.Verdict = reserve.Verdict{State: reserve.Queued, Fits: min(1, fits/float64(rate))}
	}
	v.Parts = DivideRateWithin(nil, granted, r.Demands, most)
	for k, m := range r.Members {
		taken[m] += v.Parts[k]
	}
	return v
}

// judged returns the rate that is judged first: without what has been added to an admitted one.
func (r *PlacedRate) judged() int64 {
	if r.rank() == 0 && r.Kept > 0 {
		return min(r.Kept, r.Rate)
	}
	return r.Rate
}

// grow admits what has been added to an admitted rate, if it fits beside all other rates.
func (r *PlacedRate) grow(room, taken []int64, v *PlacedVerdict) {
	kept := r.judged()
	if kept == r.Rate || len(v.Parts) == 0 {
		return
	}
	most, fits := make([]int64, len(r.Members)), 0.0
	for k, m := range r.Members {
		most[k] = UnknownRoom
		if room[m] != UnknownRoom {
			most[k] = max(room[m]-taken[m]+v.Parts[k], 0)
		}
		fits += float64(most[k])
	}
	if v.State != reserve.Admitted || fits < float64(r.Rate) {
		part := float64(kept) / float64(r.Rate)
		v.Verdict = reserve.Verdict{State: reserve.Reduced, Granted: v.Granted * part, Fits: min(1, max(v.Granted*part, fits/float64(r.Rate)))}
		return
	}
	for k, m := range r.Members {
		taken[m] -= v.Parts[k]
	}
	v.Parts = DivideRateWithin(nil, r.Rate, r.Demands, most)
	for k, m := range r.Members {
		taken[m] += v.Parts[k]
	}
}

// readmitMargin is the room, in relation to its size, that a rate needs which was reduced before.
const readmitMargin = 1.05

// makeUp divides MakeUp among the nodes where the application can use more, in proportion to its parts there, as far as there is
// room beside all rates.
func (r *PlacedRate) makeUp(room, taken []int64, v *PlacedVerdict) {
	if r.MakeUp <= 0 || v.State != reserve.Admitted {
		return
	}
	used := 0.0 // the parts that are used fully
	for k := range r.Members {
		if _, open := r.Demands[k].need(); open {
			used += float64(v.Parts[k])
		}
	}
	if used == 0 {
		return
	}
	v.MadeUp = make([]int64, len(r.Members))
	for k, m := range r.Members {
		if _, open := r.Demands[k].need(); open {
			more := int64(float64(r.MakeUp) * float64(v.Parts[k]) / used)
			if room[m] != UnknownRoom {
				more = min(more, max(0, room[m]-taken[m]))
			}
			v.MadeUp[k] = more
			taken[m] += more
		}
	}
}
