package reserve

import (
	"cmp"
	"slices"
	"time"
)

// Admission of guaranteed rates at one device. mClock (Gulati, Merchant and Varman, OSDI 2010, section 3) leaves it to its users;
// IBIS (section 9) asks for it.

const (
	// AdmitMost is the part of the device's time up to which new rates are admitted.
	AdmitMost = MaxPart
	// keepMost is the part up to which admitted rates are kept when the device has become slower. It is above
	// AdmitMost, so that small changes of the measured speed change nothing.
	keepMost = 0.95
	// readmitMargin is the room, in relation to its size, that a rate needs which was refused or reduced before. Otherwise
	// a rate at the edge would come and go with the measured speed.
	readmitMargin = 1.05
)

// State is the result of the admission of a guaranteed rate.
type State uint8

// The states of a rate.
const (
	// Unused means that the flow has not used the device recently. Its rate takes nothing from the device, and
	// is enforced until the admission has seen the flow's first request.
	Unused State = iota
	Admitted
	Queued  // there is no room; the rate is not enforced until there is
	Reduced // admitted, and reduced because the device has become slower
)

var stateNames = [...]string{"unused", "admitted", "queued", "reduced"}

func (s State) String() string { return stateNames[min(int(s), len(stateNames)-1)] }

// Claim is a flow's guaranteed rate, of a flow that uses the device.
type Claim struct {
	Part  float64       // of the device's time that the rate takes at the present speed; above 0
	Order int           // the place of its rule in the policy; smaller is earlier
	Since time.Duration // when the flow began to use the device
	State State         // the last verdict's state
}

// Verdict is the admission's result for a claim.
type Verdict struct {
	State State
	// Granted is the part of the rate that is enforced, 0 to 1.
	Granted float64
	// Fits is the part of the rate that would fit, 0 to 1.
	Fits float64
}

// Admit decides which guaranteed rates a device keeps. Rates that are admitted come first, so that no newcomer breaks
// a rate that is kept; among them, and among the others, the order is that of the policy's rules. A new
// rate is admitted if all rates together take at most AdmitMost of the device's time; of one rule, those that came first
// are. If the device has become so slow that it cannot keep the admitted rates, those that come first are kept in
// full, the rates of the next rule are reduced in equal proportion to what is left, and the others to nothing. Verdicts
// are in the order of claims; the slices order and verdicts are reused if they are large enough. The cost is that of
// sorting the claims.
func Admit(claims []Claim, order []int, verdicts []Verdict) ([]int, []Verdict) {
	order, verdicts = order[:0], slices.Grow(verdicts[:0], len(claims))[:len(claims)]
	for i := range claims {
		order = append(order, i)
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &claims[i], &claims[j]
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Order, b.Order), cmp.Compare(a.Since, b.Since), cmp.Compare(i, j))
	})
	taken := 0.0
	for k := 0; k < len(order); {
		next := k + 1
		if c := &claims[order[k]]; c.rank() == 0 { // the admitted rates of one rule stand together
			for next < len(order) && claims[order[next]].rank() == 0 && claims[order[next]].Order == c.Order {
				next++
			}
			taken += keep(claims, order[k:next], verdicts, max(0, keepMost-taken))
		} else {
			taken += c.admit(&verdicts[order[k]], max(0, AdmitMost-taken))
		}
		k = next
	}
	return order, verdicts
}

// admit decides about a new rate, and returns the part of the device that it takes of room.
func (c *Claim) admit(v *Verdict, room float64) float64 {
	*v = Verdict{State: Queued, Fits: min(1, room/c.Part)}
	needed := c.Part
	if c.State == Queued {
		needed *= readmitMargin
	}
	if needed > room+rounding {
		return 0
	}
	*v = Verdict{State: Admitted, Granted: 1, Fits: 1}
	return c.Part
}

// keep decides about the admitted rates of one rule, and returns the part of the device that they take of room.
func keep(claims []Claim, rates []int, verdicts []Verdict, room float64) float64 {
	all, needed := 0.0, 0.0
	for _, i := range rates {
		all += claims[i].Part
		needed += claims[i].Part
		if claims[i].State == Reduced {
			needed += claims[i].Part * (readmitMargin - 1)
		}
	}
	verdict := Verdict{State: Admitted, Granted: 1, Fits: 1}
	if needed > room+rounding {
		part := min(1, room/all)
		verdict = Verdict{State: Reduced, Granted: part, Fits: part}
	}
	for _, i := range rates {
		verdicts[i] = verdict
	}
	return all * verdict.Granted
}

// rounding bounds the rounding errors of sums of parts.
const rounding = 1e-9

// rank is 0 for a rate that is admitted, otherwise 1.
func (c *Claim) rank() int {
	if c.State == Admitted || c.State == Reduced {
		return 0
	}
	return 1
}
