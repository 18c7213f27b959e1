package coordination

import (
	"slices"

	"penstock/lab/experiment/claims"
)

const (
	// ibisGain is the goal of IBIS, section 7.6: the average slowdown without the broker, divided
	// by the average slowdown with the broker. In the paper, the slowdown is 25 % lower with
	// coordination.
	ibisGain = 1 / (1 - 0.25)
	// mostMisplaced is the goal for the part of the disk time that is misallocated, in per cent.
	mostMisplaced = 1
)

// claims returns the misallocated part, and the applications' slowdowns.
func (r Result) claims() []claims.Claim {
	of := func(name, unit string, value func(Run) float64) claims.Claim {
		var values []float64
		for _, run := range r.Runs {
			values = append(values, value(run))
		}
		return claims.Of(name, unit, values...).From("IBIS, section 7.6")
	}
	return claims.Add([]claims.Claim{},
		of("disk time misallocated with the broker", "%", func(x Run) float64 { return 100 * x.With.Misplaced }).AtMost(mostMisplaced).From("at most 1 %"),
		of("disk time misallocated without the broker", "%", func(x Run) float64 { return 100 * x.Without.Misplaced }),
		of("average slowdown with the broker", "ratio", func(x Run) float64 { return mean(x.SlowdownWith) }),
		of("average slowdown without the broker", "ratio", func(x Run) float64 { return mean(x.SlowdownWithout) }),
		of("average slowdown without the broker / with it", "ratio", func(x Run) float64 { return mean(x.SlowdownWithout) / mean(x.SlowdownWith) }).AtLeast(ibisGain))
}

// claims returns the figures of the worst round; the best round is the other end of the interval.
func (r SoakResult) claims() []claims.Claim {
	worst := func(name, unit string, value func(Kills) float64) claims.Claim {
		var values []float64
		for _, k := range r.Rounds {
			values = append(values, value(k))
		}
		c := claims.Of("broker killed under load: "+name, unit, values...)
		c.Value = c.High
		return c
	}
	return claims.Add([]claims.Claim{},
		worst("disk time misallocated in the worst round", "%", func(k Kills) float64 { return 100 * k.Outcome.Misplaced }).
			AtMost(100*MaxMisplaced).From("shares survive the failure of a broker"),
		worst("longest pause of a task", "ms", func(k Kills) float64 { return float64(k.PauseMS) }))
}

// KnownClaims returns the claims of invented results. Their names, units and goals equal those of a
// measurement.
func KnownClaims() []claims.Claim {
	ones := []float64{1}
	return slices.Concat(Result{Runs: []Run{{SlowdownWith: ones, SlowdownWithout: ones}}}.claims(), SoakResult{Rounds: []Kills{{}}}.claims())
}
