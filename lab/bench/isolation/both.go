package isolation

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"penstock/lab/experiment/figures"
)

// BothSides holds the figures of the two sides of a phase, each over its own run.
type BothSides struct {
	Phase     string   `json:"-"`
	Protected Side     `json:"protected"`
	Aggressor Side     `json:"aggressor"`
	Mean      *float64 `json:"mean_relative"` // of the two relative performances (IBIS, Figure 10b)
}

// Side holds the medians of one side: decimal MB/s of all modelled disks by their own log.
// All are null if it did not run.
type Side struct {
	ReadMBps  *float64 `json:"read_mb_s"`
	WriteMBps *float64 `json:"write_mb_s"`
	RuntimeS  *float64 `json:"runtime_s"`
	Relative  *float64 `json:"relative"` // its run time alone / here
}

// bothSides returns nil if the aggressor was killed in the phase.
func bothSides(p Phase, runs []Run) *BothSides {
	var protected, aggressor sideRuns
	for _, r := range runs {
		if p.Against && r.AggressorRuntimeS == 0 {
			return nil
		}
		if p.Against {
			aggressor.add(r.AggressorRuntimeS, r.AggressorVerdict, ownerAggressor)
		}
		if !p.Unprotected {
			protected.add(r.RuntimeS, r.Verdict, ownerProtected)
		}
	}
	return &BothSides{Phase: p.Name, Protected: protected.side(), Aggressor: aggressor.side()}
}

type sideRuns struct{ seconds, read, written []float64 }

func (s *sideRuns) add(seconds float64, v *Verdict, owner string) {
	s.seconds = append(s.seconds, seconds)
	if v != nil && seconds > 0 {
		s.read = append(s.read, float64(v.Read[owner])/megabyte/seconds)
		s.written = append(s.written, float64(v.Written[owner])/megabyte/seconds)
	}
}

func (s *sideRuns) side() Side {
	return Side{ReadMBps: ratio(figures.Median(s.read), 1), WriteMBps: ratio(figures.Median(s.written), 1),
		RuntimeS: ratio(figures.Median(s.seconds), 1)}
}

// relate computes the relative performances.
func (res *Result) relate() {
	if !res.hasBoth() {
		for i := range res.Phases {
			res.Phases[i].BothSides = nil
		}
		return
	}
	var alone, aggressorsAlone *float64
	for _, f := range res.Phases {
		if b := f.BothSides; b != nil && f.Name == "alone" {
			alone = b.Protected.RuntimeS
		} else if b != nil && f.Name == aggressorAlone {
			aggressorsAlone = b.Aggressor.RuntimeS
		}
	}
	for _, f := range res.Phases {
		if b := f.BothSides; b != nil {
			b.Protected.Relative = ratio(orNaN(alone), orNaN(b.Protected.RuntimeS))
			b.Aggressor.Relative = ratio(orNaN(aggressorsAlone), orNaN(b.Aggressor.RuntimeS))
			b.Mean = ratio(orNaN(b.Protected.Relative)+orNaN(b.Aggressor.Relative), 2)
		}
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
	p, a := res.Setup.Protected.kind(), res.Setup.Against
	fmt.Fprintf(t, "\nphase\t%s read\twritten\trun time\trelative\t%s read\twritten\trun time\trelative\tmean\t\n", p, a)
	for _, f := range res.Phases {
		b := f.BothSides
		if b == nil {
			continue
		}
		fmt.Fprintf(t, "%s\t", f.Name)
		for _, s := range []Side{b.Protected, b.Aggressor} {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t", optional(s.ReadMBps, "%.1f MB/s"), optional(s.WriteMBps, "%.1f MB/s"),
				optional(s.RuntimeS, "%.1f s"), times(s.Relative))
		}
		fmt.Fprintf(t, "%s\t\n", times(b.Mean))
	}
	return t.Flush()
}
