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
	return append(all, r.hbaseClaims()...)
}

// hbaseClaims returns the claims of the rows with HBase.
func (r Result) hbaseClaims() (all []claims.Claim) {
	alone := func(name string, of func(a HBaseAlone) (own, native float64)) claims.Claim {
		return claims.Of("HBase, "+name+" / native", "ratio", r.Pairs(hbaseAlone, hbaseAlone, func(t, _ Turn) (float64, bool) { return quotient(of(*t.HBaseAlone)) })...)
	}
	goal := func(c claims.Claim) claims.Claim {
		return c.AtMost(mostAlone).From("HBase alone costs at most a tenth")
	}
	all = claims.Add(all, goal(alone("cold reads alone: p99", func(a HBaseAlone) (float64, float64) { return a.Cold.P99MS, a.ColdNative.P99MS })))
	all = claims.Add(all, goal(alone("cached reads alone: p99", func(a HBaseAlone) (float64, float64) { return a.Cached.P99MS, a.CachedNative.P99MS })))
	all = claims.Add(all, goal(alone("writes alone: p99", func(a HBaseAlone) (float64, float64) { return a.Writes.P99MS, a.WritesNative.P99MS })))
	all = claims.Add(all, alone("scan alone: run time", func(a HBaseAlone) (float64, float64) { return a.ScanS, a.ScanSNative }))
	for _, x := range []struct{ row, name string }{{hbaseNative, "natively"}, {hbaseWeight, "with a weight"}, {hbaseGoal, "with a goal"}} {
		for _, y := range []struct {
			name string
			of   func(b HBaseBeside, a HBaseAlone) (beside, alone float64)
		}{
			{"reads", func(b HBaseBeside, a HBaseAlone) (float64, float64) { return b.Reads.P99MS, a.ColdNative.P99MS }},
			{"writes", func(b HBaseBeside, a HBaseAlone) (float64, float64) { return b.Writes.P99MS, a.WritesNative.P99MS }},
		} {
			c := claims.Of("HBase beside TeraGen, "+x.name+": p99 of "+y.name+" / alone natively", "ratio", r.Pairs(x.row, hbaseAlone, func(t, a Turn) (float64, bool) {
				return quotient(y.of(*t.HBaseBeside, *a.HBaseAlone))
			})...)
			if x.row == hbaseGoal {
				c = c.AtMost(mostContended).From("at most 5 times alone")
			}
			all = claims.Add(all, c)
		}
	}
	return all
}

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims
// of every measurement.
func KnownClaims() []claims.Claim {
	t := Times{MeanMS: 1, P99MS: 1}
	var r Result
	for _, row := range rows {
		r.Turns = append(r.Turns, Turn{Row: row.Name, Run: 1, Alone: &Alone{ColdNative: t, Cold: t, CachedNative: t, Cached: t}, Beside: &Beside{Times: t, Idle: 1, Active: 1},
			HBaseAlone:  &HBaseAlone{ColdNative: t, Cold: t, CachedNative: t, Cached: t, WritesNative: t, Writes: t, ScanSNative: 1, ScanS: 1},
			HBaseBeside: &HBaseBeside{Reads: t, Writes: t}})
	}
	return r.claims()
}
