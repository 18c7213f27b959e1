package latency

import (
	"penstock/lab/experiment/claims"
)

// Goals.
const (
	mostContended = 5.   // p99 with a goal beside others / alone
	leastActive   = 0.85 // the disk's throughput / native, while reads are made
	leastIdle     = 0.97 // likewise, without reads
	mostAlone     = 1.1  // reads alone / native
)

func quotient(a, b float64) (float64, bool) { return a / b, b > 0 }

func (r Result) claims() (all []claims.Claim) {
	add := func(c claims.Claim) { all = claims.Add(all, c) }
	alone := func(name string, of func(a Alone) (own, native float64)) {
		add(claims.Of(name+" / native", "ratio", r.Pairs(rowAlone, rowAlone, func(t, _ Turn) (float64, bool) { return quotient(of(*t.Alone)) })...).
			AtMost(mostAlone).From("reads alone cost at most a tenth"))
	}
	alone("cold reads alone: mean", func(a Alone) (float64, float64) { return a.Cold.MeanMS, a.ColdNative.MeanMS })
	alone("cold reads alone: p99", func(a Alone) (float64, float64) { return a.Cold.P99MS, a.ColdNative.P99MS })
	alone("cached reads alone: mean", func(a Alone) (float64, float64) { return a.Cached.MeanMS, a.CachedNative.MeanMS })
	alone("cached reads alone: p99", func(a Alone) (float64, float64) { return a.Cached.P99MS, a.CachedNative.P99MS })
	for _, x := range []struct{ row, name, native string }{
		{writersNative, "beside writers, natively", ""}, {writersWeight, "beside writers, weight only", writersNative}, {writersGoal, "beside writers, with a goal", writersNative},
		{teraGenNative, "beside TeraGen, natively", ""}, {teraGenGoal, "beside TeraGen, with a goal", teraGenNative},
	} {
		p99 := claims.Of(x.name+": p99 / alone natively", "ratio", r.Pairs(x.row, rowAlone, func(t, b Turn) (float64, bool) {
			return quotient(t.Beside.P99MS, b.Alone.ColdNative.P99MS)
		})...)
		goal := x.row == writersGoal || x.row == teraGenGoal
		if goal {
			p99 = p99.AtMost(mostContended).From("at most 5 times alone")
		}
		add(p99)
		add(claims.Of(x.name+": mean", "ms", r.Pairs(x.row, x.row, func(t, _ Turn) (float64, bool) { return t.Beside.MeanMS, true })...))
		if x.native == "" {
			continue
		}
		active := claims.Of(x.name+": the disk's throughput while reads are made / native", "ratio", r.Pairs(x.row, x.native, func(t, b Turn) (float64, bool) {
			return quotient(t.Beside.Active, b.Beside.Active)
		})...)
		idle := claims.Of(x.name+": the disk's throughput without reads / native", "ratio", r.Pairs(x.row, x.native, func(t, b Turn) (float64, bool) {
			return quotient(t.Beside.Idle, b.Beside.Idle)
		})...)
		if goal {
			active, idle = active.AtLeast(leastActive).From("at least 0.85 of native"), idle.AtLeast(leastIdle).From("at least 0.97 of native")
		}
		add(active)
		add(idle)
	}
	return all
}

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims
// of every measurement.
func KnownClaims() []claims.Claim {
	t := Times{MeanMS: 1, P99MS: 1}
	var r Result
	for _, row := range rows {
		r.Turns = append(r.Turns, Turn{Row: row.Name, Run: 1, Alone: &Alone{ColdNative: t, Cold: t, CachedNative: t, Cached: t}, Beside: &Beside{Times: t, Idle: 1, Active: 1}})
	}
	return r.claims()
}
