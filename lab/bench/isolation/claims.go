package isolation

import (
	"fmt"

	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

// Goals of IBIS, section 7.2, for WordCount beside TeraGen on hard disks.
const (
	ibisSlowdown   = 1.08 // against WordCount with the same CPU contention
	ibisThroughput = 0.96 // of native throughput
)

// claims are the figures of each phase against the floor and against the native phase. Low and high
// are the phase's least and greatest run against the other one's median.
func (res Result) claims() []claims.Claim {
	floor, native := res.phase("floor"), res.phase(res.Native)
	pair := fmt.Sprintf("%s beside %s on %ss, %d:%d", res.Setup.protected().title(), res.Setup.aggressor().title(), res.Setup.Disk.kindName(),
		res.Setup.Penstock.ProtectedWeight, res.Setup.Penstock.AggressorWeight)
	ibis := res.Setup.protected().kind == wordCount && res.Setup.Against == teraGen && res.Setup.Disk.Kind == ""
	var all []claims.Claim
	for _, f := range res.Phases {
		if f.Name == "alone" || f.Name == "floor" || f.Name == aggressorAlone {
			continue
		}
		add := func(what string, spread figures.Spread, base float64, higherIsBetter bool, goal float64) {
			if ratio(spread.Median, base) == nil {
				return
			}
			c := claims.Claim{Name: pair + ", " + f.Name + ": " + what, Unit: "ratio", Value: spread.Median / base, Low: spread.Min / base, High: spread.Max / base,
				Runs: len(f.RuntimesS), HigherIsBetter: higherIsBetter, Source: "IBIS, section 7.2"}
			if ibis && f.Name == "sfqd2" && higherIsBetter {
				c = c.AtLeast(goal)
			} else if ibis && f.Name == "sfqd2" {
				c = c.AtMost(goal)
			}
			all = append(all, c)
		}
		if floor != nil {
			add("run time / run time with CPU contention only", f.RuntimeSpread, floor.RuntimeS, false, ibisSlowdown)
		}
		if native != nil && f.Name != res.Native && f.DeviceSpread != nil {
			add("throughput of all disks / that of "+res.Native, *f.DeviceSpread, orNaN(native.DeviceMBps), true, ibisThroughput)
		}
	}
	return all
}
