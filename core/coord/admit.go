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
	Rate    int64         // bytes per second
	Order   int           // the place of its rule in the policy; smaller is earlier
	Since   time.Duration // when the application came
	State   reserve.State // of the last verdict; Unused for a new application
	Members []int         // indexes of the nodes
	Demands []Demand      // at these nodes, in the same order
}

// PlacedVerdict is what is kept of a PlacedRate.
type PlacedVerdict struct {
	reserve.Verdict
	Parts []int64 // of the nodes in PlacedRate.Members, in bytes per second
}

// UnknownRoom is the room of a node that does not report what it can guarantee.
const UnknownRoom = math.MaxInt64

// keepRoom is the room for rates that are admitted, in relation to that for new ones (as in package reserve).
const keepRoom = 0.95 / reserve.AdmitMost

// AdmitRates decides which guaranteed rates of whole applications the nodes keep (IBIS, section 9), and divides them among
// the nodes. room is what each node can guarantee, in bytes per second. The order is that of reserve.Admit: rates that are
// admitted come first, so that no newcomer breaks a rate that is kept; then the order of the policy's rules counts, then that
// of arrival. A new rate is queued unless all of it fits on its nodes; an admitted one is reduced to what fits. A rate that was
// queued or reduced needs room for 5 % more than itself, so that it does not come and go.
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
	needed := float64(r.Rate)
	if r.State == reserve.Queued || r.State == reserve.Reduced {
		needed *= readmitMargin
	}
	granted := r.Rate
	switch {
	case len(r.Members) == 0:
		return v
	case needed <= fits:
		v.Verdict = reserve.Verdict{State: reserve.Admitted, Granted: 1, Fits: 1}
	case r.rank() == 0:
		part := min(1, fits/float64(r.Rate))
		granted = int64(part * float64(r.Rate))
		v.Verdict = reserve.Verdict{State: reserve.Reduced, Granted: part, Fits: part}
	default:
		granted = 0
		v.Verdict = reserve.Verdict{State: reserve.Queued, Fits: min(1, fits/float64(r.Rate))}
	}
	v.Parts = DivideRateWithin(nil, granted, r.Demands, most)
	for k, m := range r.Members {
		taken[m] += v.Parts[k]
	}
	return v
}

// readmitMargin is the room, in relation to its size, that a rate needs which was refused or reduced before.
const readmitMargin = 1.05
