package isolation

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Comparison compares SFQ(D2) with one peer under the same conditions.
type Comparison struct {
	With    string   `json:"with"`          // a phase
	Role    string   `json:"role"`          // the reason to compare with it
	Runtime float64  `json:"runtime_ratio"` // SFQ(D2)'s run time of the protected job / the peer's, medians
	Device  *float64 `json:"device_ratio"`  // of the MB/s of all disks
	Verdict string   `json:"verdict"`       // of SFQ(D2): better, as good, worse or mixed
}

// even is the difference up to which two medians count as the same: repeated runs of one
// phase differ by more.
const even = 0.05

// peers are the families of phases that SFQ(D2) is compared with: with the best of each.
var peers = []struct{ prefix, role string }{
	{sfqdPrefix, "the best fixed depth"},
	{throttlerPrefix, "the best cap of the DataNodes' own throttler"},
	{weightsPrefix, "the best weights of cgroups"},
	{capsPrefix, "the best cap of cgroups"},
	{drrPrefix, "deficit round robin"},
}

// comparisons compares SFQ(D2) with the best of every family that ran.
func comparisons(figures []Figure) []Comparison {
	i := slices.IndexFunc(figures, func(f Figure) bool { return f.Name == "sfqd2" })
	if i < 0 {
		return nil
	}
	own := figures[i]
	var all []Comparison
	for _, peer := range peers {
		best, ok := bestOf(figures, peer.prefix)
		if !ok {
			continue
		}
		c := Comparison{With: best.Name, Role: peer.role, Runtime: own.RuntimeS / best.RuntimeS,
			Device: ratio(orNaN(own.DeviceMBps), orNaN(best.DeviceMBps))}
		c.Verdict = verdictOf(c)
		all = append(all, c)
	}
	return all
}

// bestOf returns the phase of a family that an operator would choose: of those whose run
// time is even with the shortest, the one with the highest throughput.
func bestOf(figures []Figure, prefix string) (best Figure, ok bool) {
	least := math.Inf(1)
	for _, f := range figures {
		if strings.HasPrefix(f.Name, prefix) {
			least = min(least, f.RuntimeS)
		}
	}
	for _, f := range figures {
		if !strings.HasPrefix(f.Name, prefix) || f.RuntimeS > least*(1+even) {
			continue
		}
		if !ok || orNaN(f.DeviceMBps) > orNaN(best.DeviceMBps) {
			best, ok = f, true
		}
	}
	return best, ok
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

// text is the comparison in a sentence.
func (c Comparison) text(protected string) string {
	return fmt.Sprintf("SFQ(D2) against %s, %s: %.2f of %s's run time, %s of the disks' throughput: %s.",
		c.With, c.Role, c.Runtime, protected, times(c.Device), c.Verdict)
}

// aggressorNote is the aggressor's throughput under SFQ(D2), in a sentence.
func (res Result) aggressorNote() string {
	for _, f := range res.Phases {
		if f.Name == "sfqd2" && f.AggressorMBps != nil && f.AggressorVsNative != nil {
			return fmt.Sprintf("%s gets %.1f MB/s while %s runs: %.2f of its native throughput.",
				res.Setup.aggressor().title(), *f.AggressorMBps, res.Setup.protected().title(), *f.AggressorVsNative)
		}
	}
	return ""
}
