package overhead

import (
	"slices"

	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

const source = "IBIS, section 7.7"

// ratioClaim returns the claim of a ratio to native, with its 95 % confidence interval.
func ratioClaim(name string, r *figures.Ratio, rounds int) claims.Claim {
	if r == nil {
		return claims.Claim{}
	}
	return claims.Claim{Name: name + " / native", Unit: "ratio", Value: r.Mean, Low: r.Low, High: r.High, Runs: rounds, Source: source}
}

// operationNames holds the operations' names in claims.
var operationNames = map[Operation]string{Write: "writes", Cold: "cold reads", Cached: "cached reads",
	FullWrite: "draining at full speed", FullCold: "staging at full speed", TeraGen: "TeraGen", TeraSort: "TeraSort"}

// claims returns the ratios to native of each governed variant. Their goals are the bounds of the
// targets (Verdicts). Whether a claim meets its goal is judged by the mean, and whether a target
// keeps its bound by the end of the interval. If a target is open, the claim with the same bound is
// open, too (Claim.Open).
func (r Result) claims() (all []claims.Claim) {
	for _, s := range r.Streams {
		name := operationNames[s.Operation] + ", " + string(s.Variant)
		cpu, rate := ratioClaim(name+": DataNode's CPU", s.CPURatio, r.Rounds), ratioClaim(name+": throughput", s.ThroughputRatio, r.Rounds)
		rate.HigherIsBetter = true
		if slices.Contains(Paced, s.Operation) {
			cpu = cpu.AtMost(s.Variant.cpuBound())
		}
		if slices.Contains(FullSpeed, s.Operation) && s.Variant == Enforce {
			rate = rate.AtLeast(rateBound)
		}
		all = claims.Add(all, cpu, rate)
	}
	for _, j := range r.Jobs {
		all = claims.Add(all, ratioClaim(operationNames[j.Operation]+", "+string(j.Variant)+": run time", j.Ratio, r.Rounds).AtMost(timeBound))
	}
	for _, m := range r.Memory {
		all = claims.Add(all, memoryClaim(string(m.Variant), m.Peak))
	}
	return all
}

// memoryClaim returns the largest resident size of the daemon, over all rounds.
func memoryClaim(what string, peak int64) claims.Claim {
	return claims.Of(what+": daemon's memory", "MiB", float64(peak)/mib).AtMost(memoryBound / mib).From("at most 40 MiB")
}

const onYARN = "TeraSort on YARN, everything enabled"

// claims returns the ratios to native of a TeraSort on YARN with everything enabled.
func (res YARNResult) claims() (all []claims.Claim) {
	bounds := map[string]float64{}
	for _, f := range yarnFigures {
		bounds[f.what] = f.bound
	}
	for _, f := range res.Figures {
		c := ratioClaim(onYARN+": "+f.What, f.Ratio, res.Rounds)
		if bound := bounds[f.What]; bound > 0 {
			c = c.AtMost(bound)
		}
		all = claims.Add(all, c)
	}
	return claims.Add(all, memoryClaim(onYARN, res.DaemonPeak))
}

// KnownClaims returns the claims of invented results with the default set-up: their names, units
// and goals equal those of a measurement.
func KnownClaims() []claims.Claim {
	one := &figures.Ratio{Mean: 1, Low: 1, High: 1}
	r, yarn := Result{Outcome: Outcome[Setup]{Rounds: 1}}, YARNResult{Outcome: Outcome[YARNSetup]{Rounds: 1}}
	for _, v := range allVariants[1:] { // all but native
		for _, op := range Streams {
			r.Streams = append(r.Streams, Stream{Variant: v, Operation: op, CPURatio: one, ThroughputRatio: one})
		}
		for _, op := range Jobs {
			r.Jobs = append(r.Jobs, Job{Variant: v, Operation: op, Ratio: one})
		}
		if v.governed() {
			r.Memory = append(r.Memory, Memory{v, mib})
		}
	}
	for _, f := range yarnFigures {
		yarn.Figures = append(yarn.Figures, YARNFigure{What: f.what, Ratio: one})
	}
	return append(r.claims(), yarn.claims()...)
}
