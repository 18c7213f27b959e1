package isolation

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Comparison sets SFQ(D2) against one peer, both under the same conditions.
type Comparison struct {
	With    string   `json:"with"`          // a phase
	Role    string   `json:"role"`          // why that one
	Runtime float64  `json:"runtime_ratio"` // SFQ(D2)'s run time of the protected job / the peer's, medians
	Device  *float64 `json:"device_ratio"`  // of the MB/s of all disks
	Verdict string   `json:"verdict"`       // of SFQ(D2): better, as good, worse or mixed
}

// even is how far two medians may differ and still count as the same: repeated
// runs of one phase differ by more, so that less says nothing.
const even = 0.05

// peers are the families of phases that SFQ(D2) is set against, each by its best.
var peers = []struct{ prefix, role string }{
	{sfqdPrefix, "the best fixed depth"},
	{throttlerPrefix, "the best cap of the DataNodes' own throttler"},
	{weightsPrefix, "the best weights of cgroups"},
	{capsPrefix, "the best cap of cgroups"},
	{drrPrefix, "deficit round robin"},
}

// comparisons set SFQ(D2) against the best of every family that ran.
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

// bestOf is the phase of a family that an operator would choose: of those that
// protect as well as any of them, within what counts as even, the one that keeps
// the disks busiest.
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

// text says it of the protected job.
func (c Comparison) text(protected string) string {
	return fmt.Sprintf("SFQ(D2) against %s, %s: %s takes %.2f of its time, the disks move %s of its bytes a second: %s.",
		c.With, c.Role, protected, c.Runtime, times(c.Device), c.Verdict)
}

// loser says what the aggressor pays under SFQ(D2).
func (res Result) loser() string {
	for _, f := range res.Phases {
		if f.Name == "sfqd2" && f.AggressorMBps != nil && f.AggressorVsNative != nil {
			return fmt.Sprintf("%s gets %.1f MB/s while %s runs, %.2f of what it gets natively.",
				res.Setup.aggressor().title(), *f.AggressorMBps, res.Setup.protected().title(), *f.AggressorVsNative)
		}
	}
	return ""
}
