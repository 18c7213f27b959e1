package isolation

import (
	"fmt"
	"strings"

	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

// mostSlowdown is the goal for a job's run time with Penstock, relative to its run with CPU
// contention only (IBIS, sections 7.2 and 7.4).
const mostSlowdown = 1.05

// leastThroughput is the part of a kernel scheduler's throughput that Penstock must keep.
var leastThroughput = map[string]float64{"native-mq-deadline": 0.97, "native-bfq": 0.95}

// claims returns the figures of each phase relative to the floor and to native phases. Low and High
// are the phase's smallest and largest run, divided by the other phase's median. The goals apply to
// Penstock's phase with any aggressor, unless the protected job is a query
// (docs/design/isolation.md).
func (res Result) claims() []claims.Claim {
	floor := res.phase("floor")
	protected := res.Setup.protected()
	pair := fmt.Sprintf("%s beside %s, %ss, %d:%d, ", protected.title(), res.Setup.aggressor().title(), res.Setup.Disk.KindName(),
		res.Setup.Penstock.ProtectedWeight, res.Setup.Penstock.AggressorWeight)
	source := "IBIS, section 7.2"
	if res.Setup.Intermediate {
		source = "IBIS, section 7.4"
	}
	var all []claims.Claim
	add := func(f Figure, what, unit string, spread figures.Spread, base float64) *claims.Claim {
		if ratio(spread.Median, base) == nil {
			return &claims.Claim{} // not measured
		}
		all = append(all, claims.Claim{Name: pair + res.claimant(f.Name) + ": " + what, Unit: unit, Value: spread.Median / base,
			Low: spread.Min / base, High: spread.Max / base, Runs: len(f.RuntimesS), Source: source})
		return &all[len(all)-1]
	}
	if floor != nil {
		add(*floor, "run time", "s", floor.RuntimeSpread, 1)
	}
	for _, f := range res.Phases {
		if f.Name == "alone" || f.Name == "floor" || f.Name == aggressorAlone {
			continue
		}
		goals := f.Name == "sfqd2" && protected.query() == ""
		if floor != nil {
			c := add(f, "run time / with CPU contention only", "ratio", f.RuntimeSpread, floor.RuntimeS)
			if goals {
				*c = c.AtMost(mostSlowdown)
			}
		}
		if f.DeviceSpread == nil {
			continue
		}
		add(f, "throughput of all disks", "MB/s", *f.DeviceSpread, 1).HigherIsBetter = true
		for _, n := range res.Phases {
			// The phase with Penstock is compared with the phases of all kernel schedulers. The
			// remaining phases are compared only with the best kernel scheduler.
			if !strings.HasPrefix(n.Name, nativePrefix) || n.Name == f.Name || n.Name != res.Native && f.Name != "sfqd2" {
				continue
			}
			c := add(f, "throughput of all disks / "+res.claimant(n.Name)+"'s", "ratio", *f.DeviceSpread, orNaN(n.DeviceMBps))
			c.HigherIsBetter = true
			if least := leastThroughput[n.Name]; goals && least > 0 {
				*c = c.AtLeast(least).From(fmt.Sprintf("at most %.0f %% lost", 100*(1-least)))
			}
		}
	}
	return all
}

// claimant returns the name of a phase in claims. Unlike the names in the report, it does not
// depend on which other phases ran.
func (res Result) claimant(phase string) string {
	if phase == "sfqd2" {
		return "Penstock"
	}
	if kernel, ok := strings.CutPrefix(phase, nativePrefix); ok {
		return kernel
	}
	return res.plainName(phase)
}

// KnownClaims returns the claims of an invented result with the default set-up. Their names, units
// and goals equal those of a measurement.
func KnownClaims(protected, against, disk string) ([]claims.Claim, error) {
	setup, err := DefaultSetup(protected, against, disk)
	if err != nil {
		return nil, err
	}
	phases, err := ParsePhases([]string{"all"}, setup)
	if err != nil {
		return nil, err
	}
	var runs []Run
	for _, p := range phases {
		runs = append(runs, Run{Phase: p.Name, RuntimeS: 1, DeviceMBps: 1, Series: Series{Disks: map[string][]float64{"disk": {1}}}})
	}
	return Summarise(setup, phases, runs).Claims, nil
}
