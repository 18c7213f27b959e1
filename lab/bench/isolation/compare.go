package isolation

import (
	"fmt"
	"math"
)

// Comparison compares SFQ(D2) with one peer under the same conditions.
type Comparison struct {
	With    string   `json:"with"`          // a phase
	Role    string   `json:"role"`          // the reason to compare with it
	Runtime float64  `json:"runtime_ratio"` // SFQ(D2)'s run time of the protected job / the peer's, medians
	Device  *float64 `json:"device_ratio"`  // the same ratio of the MB/s of all disks
	Verdict string   `json:"verdict"`       // of SFQ(D2): better, as good, worse or mixed
}

// even is the relative difference up to which two medians are considered equal, because repeated
// runs of one phase differ by more.
const even = 0.05

// comparisons compares SFQ(D2) with the best of every family that ran.
func (res Result) comparisons() (all []Comparison) {
	own := res.phase("sfqd2")
	if own == nil {
		return nil
	}
	for _, family := range families {
		best := family.best(res.Phases)
		if best == nil {
			continue
		}
		c := Comparison{With: best.Name, Role: family.role, Runtime: own.RuntimeS / best.RuntimeS,
			Device: ratio(orNaN(own.DeviceMBps), orNaN(best.DeviceMBps))}
		c.Verdict = verdictOf(c)
		all = append(all, c)
	}
	return all
}

// best returns the phase of the family that an operator would choose: the one with the highest
// throughput among the phases with nearly the shortest run time. It returns nil if none ran.
func (f family) best(phases []Figure) (best *Figure) {
	least := math.Inf(1)
	for _, p := range phases {
		if f.has(p.Name) {
			least = min(least, p.RuntimeS)
		}
	}
	for _, p := range phases {
		if f.has(p.Name) && p.RuntimeS <= least*(1+even) && (best == nil || orNaN(p.DeviceMBps) > orNaN(best.DeviceMBps)) {
			best = &p
		}
	}
	return best
}

func verdictOf(c Comparison) string {
	better, worse := c.Runtime < 1/(1+even), c.Runtime > 1+even
	if d := c.Device; d != nil {
		better, worse = better || *d > 1+even, worse || *d < 1/(1+even)
	}
	switch {
	case better && worse:
		return "mixed"
	case better:
		return "better"
	case worse:
		return "worse"
	}
	return "as good"
}

// text returns the comparison as a sentence.
func (res Result) text(c Comparison) string {
	return fmt.Sprintf("Penstock against %s (%s): %.2f of %s's run time, %s of the disks' throughput: %s.",
		res.plainName(c.With), c.Role, c.Runtime, res.Setup.protected().title(), times(c.Device), c.Verdict)
}

// aggressorNote returns a sentence about the aggressor's throughput under SFQ(D2).
func (res Result) aggressorNote() string {
	if f := res.phase("sfqd2"); f != nil && f.AggressorMBps != nil && f.AggressorVsNative != nil {
		return fmt.Sprintf("%s gets %.1f MB/s while %s runs: %.2f of its throughput without Penstock.",
			res.Setup.aggressor().title(), *f.AggressorMBps, res.Setup.protected().title(), *f.AggressorVsNative)
	}
	return ""
}
