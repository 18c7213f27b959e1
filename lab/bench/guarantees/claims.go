package guarantees

import (
	"fmt"
	"slices"

	"penstock/lab/experiment/claims"
)

// Goals.
const (
	leastPart       = 0.97 // of a guaranteed rate, in mostWindows of the windows
	mostWindows     = 99.  // per cent
	leastTotal      = 0.95 // of a guaranteed total rate, in mostTotal of the windows
	mostTotal       = 95.  // per cent
	leastThroughput = 0.95 // of the native throughput
	limitOff        = 3.   // per cent
	brokenWithin    = 10.  // seconds
)

// reaching returns the per cent of the windows with at least the given part.
func (p Parts) reaching(least float64) float64 {
	n := 0
	for _, v := range p.Parts {
		if v >= least {
			n++
		}
	}
	return 100 * float64(n) / float64(max(1, len(p.Parts)))
}

// window returns the windows of the given length.
func (t Turn) window(lengthS float64) (Parts, bool) {
	if t.One == nil {
		return Parts{}, false
	}
	i := slices.IndexFunc(t.One.Windows, func(p Parts) bool { return p.LengthS == lengthS })
	if i < 0 {
		return Parts{}, false
	}
	return t.One.Windows[i], true
}

func (r Result) claims() (all []claims.Claim) {
	add := func(c claims.Claim) { all = claims.Add(all, c) }
	for _, x := range []struct {
		row, name, native string
		long              float64 // windows in which the rate must be kept
	}{
		{hddTime, "hard disk, part of its time", hddNative, 20},
		{hddBytes, "hard disk, bytes", hddNative, 20},
		{ssdTime, "solid-state disk, part of its time", ssdNative, 5},
	} {
		for _, length := range []float64{1, 5, 20} {
			add(claims.Of(fmt.Sprintf("%s: most that a window of %g s lacks, less D+1", x.name, length), "quanta", r.Values(x.row, func(t Turn) (float64, bool) {
				p, ok := t.window(length)
				if !ok {
					return 0, false
				}
				return p.ShortQuanta - float64(t.One.Depth+1), true
			})...).AtMost(0).From("rate x t less D+1 quanta"))
		}
		add(claims.Of(fmt.Sprintf("%s: windows of %g s with at least %g of the rate", x.name, x.long, leastPart), "%", r.Values(x.row, func(t Turn) (float64, bool) {
			p, ok := t.window(x.long)
			return p.reaching(leastPart), ok
		})...).AtLeast(mostWindows).From("97 % of the rate in 99 % of the windows"))
		var moved []float64
		for _, t := range r.Turns {
			for _, n := range r.Turns {
				if t.Row == x.row && n.Row == x.native && t.Run == n.Run && t.One != nil && n.One != nil && n.One.Moved > 0 {
					moved = append(moved, t.One.Moved/n.One.Moved)
				}
			}
		}
		add(claims.Of(x.name+": the disk's throughput / native", "ratio", moved...).AtLeast(leastThroughput).From("at least 0.95 of native"))
	}
	of := func(row, name, unit string, value func(Turn) float64) claims.Claim {
		return claims.Of(name, unit, r.Values(row, func(t Turn) (float64, bool) { return value(t), true })...)
	}
	add(of(rowCluster, fmt.Sprintf("three nodes: windows of 30 s with at least %g of the total rate", leastTotal), "%", func(t Turn) float64 {
		return t.Cluster.Windows.reaching(leastTotal)
	}).AtLeast(mostTotal).From("95 % of the rate in 95 % of the windows"))
	add(of(rowCluster, "three nodes: the least part of the rate in the 5 s after a move", "ratio", func(t Turn) float64 { return slices.Min(t.Cluster.Moving.Parts) }).From("counted apart"))
	add(of(rowCluster, "three nodes: part of an impossible rate that was granted", "ratio", func(t Turn) float64 { return t.Cluster.RefusedGranted }).AtMost(0).From("over-promises are refused"))
	off := func(part func(Turn) float64) func(Turn) float64 {
		return func(t Turn) float64 { return round(100 * max(part(t)-1, 1-part(t))) }
	}
	add(of(rowLimit, "a limit on one disk: deviation", "%", off(func(t Turn) float64 { return t.Limit.Limit })).AtMost(limitOff).From("within 3 %"))
	add(of(rowLimit, "a total limit on two nodes: deviation", "%", off(func(t Turn) float64 { return t.Limit.Total })).AtMost(limitOff).From("within 3 %"))
	add(of(rowHalved, "a disk half as fast: time until the rate was reported broken", "s", func(t Turn) float64 { return t.Halved.BrokenAfterS }).AtMost(brokenWithin).From("within 10 s"))
	add(of(rowHalved, "a disk half as fast: part of the first rule's rate", "ratio", func(t Turn) float64 { return t.Halved.First }).AtLeast(leastPart).From("shared by the policy's order"))
	add(of(rowHalved, "a disk half as fast: part of the second rule's rate / part that was granted", "ratio", func(t Turn) float64 { return t.Halved.Second / max(t.Halved.SecondGranted, 0.01) }).
		AtLeast(leastPart).From("shared by the policy's order"))
	add(of(rowHalved, "a disk half as fast: part of a rate on another disk", "ratio", func(t Turn) float64 { return t.Halved.Elsewhere }).AtLeast(leastPart).From("nothing else changes"))
	return all
}

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims
// of every measurement.
func KnownClaims() []claims.Claim {
	p := Parts{Parts: []float64{1}}
	var r Result
	for _, row := range rows {
		one := &One{Moved: 1}
		for _, l := range []float64{1, 5, 20} {
			one.Windows = append(one.Windows, Parts{LengthS: l, Parts: []float64{1}})
		}
		r.Turns = append(r.Turns, Turn{Row: row.Name, Run: 1, One: one, Cluster: &Cluster{Windows: p, Moving: p}, Limit: &Limit{}, Halved: &Halved{SecondGranted: 1}})
	}
	return r.claims()
}
