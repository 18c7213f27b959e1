package overhead

import (
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

const source = "IBIS, section 7.7"

// ratioClaim is a ratio to native with its 95 % confidence interval.
func ratioClaim(name string, r *figures.Ratio, rounds int) claims.Claim {
	if r == nil {
		return claims.Claim{}
	}
	return claims.Claim{Name: name + " / native", Unit: "ratio", Value: r.Mean, Low: r.Low, High: r.High, Runs: rounds, Source: source}
}

// claims are the ratios to native of each governed variant.
func (r Result) claims() (all []claims.Claim) {
	for _, s := range r.Streams {
		name := string(s.Variant) + ", " + string(s.Operation)
		all = claims.Add(all, ratioClaim(name+": DataNode's CPU", s.CPURatio, r.Rounds).AtMost(cpuBound),
			ratioClaim(name+": throughput", s.ThroughputRatio, r.Rounds).AtLeast(rateBound))
	}
	for _, j := range r.Jobs {
		all = claims.Add(all, ratioClaim(string(j.Variant)+", "+string(j.Operation)+": run time", j.Ratio, r.Rounds).AtMost(timeBound))
	}
	for _, m := range r.Memory {
		all = claims.Add(all, claims.Of(string(m.Variant)+": daemon's memory", "MiB", float64(m.Peak)/mib).AtMost(memoryBound/mib))
	}
	return all
}

// claims are the ratios to native of a TeraSort on YARN with everything enabled.
func (res YARNResult) claims() (all []claims.Claim) {
	bounds := map[string]float64{}
	for _, f := range yarnFigures {
		bounds[f.what] = f.bound
	}
	for _, f := range res.Figures {
		c := ratioClaim("TeraSort on YARN, everything enabled: "+f.What, f.Ratio, res.Rounds)
		if bound := bounds[f.What]; bound > 0 {
			c = c.AtMost(bound)
		}
		all = claims.Add(all, c)
	}
	return claims.Add(all, claims.Of("daemon's memory", "MiB", float64(res.DaemonPeak)/mib).AtMost(memoryBound/mib))
}
