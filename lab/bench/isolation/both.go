package isolation

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"penstock/lab/contest"
)

// BothSides holds the figures of the two sides of a phase, each over its own run.
type BothSides struct {
	Phase     string   `json:"-"`
	Protected Side     `json:"protected"`
	Aggressor Side     `json:"aggressor"`
	Mean      *float64 `json:"mean_relative"` // of the two relative performances (IBIS, Figure 10b)
}

// Side holds the medians of one side. Rates are decimal MB/s of all modelled disks, by the disks'
// own log. All fields are null if the side did not run.
type Side struct {
	ReadMBps  *float64 `json:"read_mb_s"`
	WriteMBps *float64 `json:"write_mb_s"`
	RuntimeS  *float64 `json:"runtime_s"`
	Relative  *float64 `json:"relative"` // run time alone / run time in this phase
}

// bothSides returns nil if the aggressor was killed in the phase.
func bothSides(p Phase, runs []Run) *BothSides {
	if p.Against && slices.ContainsFunc(runs, func(r Run) bool { return r.AggressorRuntimeS == 0 }) {
		return nil
	}
	b := &BothSides{Phase: p.Name}
	if p.Against {
		b.Aggressor = newSide(runs, ownerAggressor, func(r Run) (float64, *contest.Verdict) { return r.AggressorRuntimeS, r.AggressorVerdict })
	}
	if !p.Unprotected {
		b.Protected = newSide(runs, ownerProtected, func(r Run) (float64, *contest.Verdict) { return r.RuntimeS, r.Verdict })
	}
	return b
}

// newSide returns the medians of a side. of returns the side's run time in a run, and the judge's
// verdict on that time.
func newSide(runs []Run, owner string, of func(Run) (float64, *contest.Verdict)) Side {
	var seconds, read, written []float64
	for _, r := range runs {
		took, v := of(r)
		seconds = append(seconds, took)
		if v != nil && took > 0 {
			read = append(read, float64(v.Read[owner])/megabyte/took)
			written = append(written, float64(v.Written[owner])/megabyte/took)
		}
	}
	return Side{ReadMBps: median(read), WriteMBps: median(written), RuntimeS: median(seconds)}
}

// relate computes the relative performances.
func (res *Result) relate() {
	both := res.hasBoth()
	alone, aggressorsAlone := math.NaN(), math.NaN()
	if f := res.phase("alone"); f != nil && f.BothSides != nil {
		alone = orNaN(f.BothSides.Protected.RuntimeS)
	}
	if f := res.phase(aggressorAlone); f != nil && f.BothSides != nil {
		aggressorsAlone = orNaN(f.BothSides.Aggressor.RuntimeS)
	}
	for i := range res.Phases {
		b := res.Phases[i].BothSides
		if !both || b == nil {
			res.Phases[i].BothSides = nil
			continue
		}
		b.Protected.Relative = ratio(alone, orNaN(b.Protected.RuntimeS))
		b.Aggressor.Relative = ratio(aggressorsAlone, orNaN(b.Aggressor.RuntimeS))
		b.Mean = ratio(orNaN(b.Protected.Relative)+orNaN(b.Aggressor.Relative), 2)
	}
}

// hasBoth reports whether an aggressor ran to its own end in any phase.
func (res Result) hasBoth() bool {
	return slices.ContainsFunc(res.Phases, func(f Figure) bool { return f.BothSides != nil && f.BothSides.Aggressor.RuntimeS != nil })
}

// writeBoth prints the two sides if the aggressor ran to its end.
func (res Result) writeBoth(w io.Writer) error {
	if !res.hasBoth() {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	p, a := res.Setup.protected().title(), res.Setup.aggressor().title()
	fmt.Fprintf(t, "\nphase\t%s read\twritten\trun time\trelative\t%s read\twritten\trun time\trelative\tmean\t\n", p, a)
	for _, f := range res.Phases {
		b := f.BothSides
		if b == nil {
			continue
		}
		fmt.Fprintf(t, "%s\t", res.plainName(f.Name))
		for _, s := range []Side{b.Protected, b.Aggressor} {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t", optional(s.ReadMBps, "%.1f MB/s"), optional(s.WriteMBps, "%.1f MB/s"),
				optional(s.RuntimeS, "%.1f s"), times(s.Relative))
		}
		fmt.Fprintf(t, "%s\t\n", times(b.Mean))
	}
	return t.Flush()
}
