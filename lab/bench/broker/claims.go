package broker

import (
	"fmt"

	"penstock/lab/experiment/claims"
)

// claims returns the broker's cost under the steady load, and the time until all nodes have
// reconnected after a restart.
func (r Result) claims() []claims.Claim {
	of := func(name, unit string, value func(Window) float64) claims.Claim {
		var values []float64
		for _, w := range r.Windows {
			values = append(values, value(w))
		}
		return claims.Of(fmt.Sprintf("%d nodes: %s", r.Nodes, name), unit, values...)
	}
	var storms []float64
	for _, s := range r.Storms {
		storms = append(storms, s.Seconds)
	}
	const mib = 1 << 20
	return claims.Add([]claims.Claim{},
		of("broker's CPU", "cores", func(w Window) float64 { return w.Cores }),
		of("broker's memory", "MiB", func(w Window) float64 { return w.Resident / mib }),
		of("report to answer, p99", "ms", func(w Window) float64 { return w.Delay.P99 }),
		of("change to another node's total, p99", "ms", func(w Window) float64 { return w.Stale.P99 }),
		claims.Of(fmt.Sprintf("%d nodes: all answered after a restart", r.Nodes), "s", storms...))
}

// KnownClaims returns the claims of an invented result with a number of nodes: their names, units
// and goals equal those of a measurement.
func KnownClaims(nodes int) []claims.Claim {
	return Result{Request: Request{Nodes: nodes}, Windows: []Window{{}}, Storms: []Storm{{}}}.claims()
}
