package containers

import (
	"fmt"

	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
	"penstock/lab/hadoop"
)

// Goals: joining never makes a job worse by more than 2 %.
const (
	mostSlower      = 1.02 // run time / nat
	leastThroughput = 0.98 // throughput / nat
	sourceFigures   = "Figures 6 and 8: elapsed time against the number of containers"
	sourceCure      = "a remedy in the path of the bridge (the paper's future work): never worse by more than 2 %"
)

// job returns the result of a job in a run; false if it was not measured.
func (r Result) job(kind hadoop.Kind, row Row, run int) (Job, bool) {
	for _, t := range r.Turns {
		if t.Row != row.Name() || t.Run != run {
			continue
		}
		for _, j := range t.Jobs {
			if j.Kind == kind {
				return j, true
			}
		}
	}
	return Job{}, false
}

// runs returns the greatest number of a run.
func (r Result) runs() (n int) {
	for _, t := range r.Turns {
		n = max(n, t.Run)
	}
	return n
}

// each returns a figure of a job in each run.
func (r Result) each(kind hadoop.Kind, row Row, of func(Job) float64) (values []float64) {
	for run := 1; run <= r.runs(); run++ {
		if j, ok := r.job(kind, row, run); ok {
			values = append(values, of(j))
		}
	}
	return values
}

// ratios returns a figure with joined connections divided by that without, in each run that has both.
func (r Result) ratios(kind hadoop.Kind, nodes int, of func(Job) float64) (values []float64) {
	for run := 1; run <= r.runs(); run++ {
		own, ok1 := r.job(kind, Row{nodes, Joined}, run)
		base, ok2 := r.job(kind, Row{nodes, NAT}, run)
		if ok1 && ok2 && of(base) > 0 {
			values = append(values, of(own)/of(base))
		}
	}
	return values
}

func seconds(j Job) float64 { return j.RunS }
func rate(j Job) float64    { return j.MBPerSecond }
func p50(j Job) float64     { return j.Trip.P50US }
func p99(j Job) float64     { return j.Trip.P99US }

// points returns the medians of a job for each number of containers that was measured with a set-up.
func (r Result) points(kind hadoop.Kind, setUp string) (all []point) {
	for _, n := range r.Setup.Nodes {
		row := Row{n, setUp}
		if len(r.each(kind, row, seconds)) == 0 {
			continue
		}
		median := func(of func(Job) float64) float64 { return figures.Median(r.each(kind, row, of)) }
		all = append(all, point{Nodes: n, Replication: replication(n), MBPerSecond: median(rate), CPU: median(func(j Job) float64 { return j.CPU }),
			Disks: median(func(j Job) float64 { return j.Disks }), RunDelayUS: median(func(j Job) float64 { return j.RunDelayUS }), SwitchesPerMB: median(Job.SwitchesPerMB),
			TripP50US: median(p50), TripP99US: median(p99), TripMeanUS: median(func(j Job) float64 { return j.Trip.MeanUS }),
			TripDelayUS: median(func(j Job) float64 { return j.Trip.RunDelayUS })})
	}
	return all
}

// findings returns the knees of all jobs and set-ups.
func (r Result) findings() (all []Finding) {
	for _, w := range works {
		for _, setUp := range SetUps {
			if f, ok := find(w.title, setUp, r.points(w.kind, setUp)); ok {
				all = append(all, f)
			}
		}
	}
	return all
}

// place is where joined connections are compared: some numbers of containers.
type place struct {
	name  string
	nodes []int
}

// places returns where a job is compared: at the knee without joining and past it or, if there is no knee, with the most
// containers.
func (r Result) places(kind hadoop.Kind) []place {
	f, ok := find("", "", r.points(kind, NAT))
	if !ok {
		return nil
	}
	if f.Knee == 0 {
		return []place{{"with the most containers", []int{f.Most}}}
	}
	past := place{name: "past the knee"}
	for _, n := range r.Setup.Nodes {
		if n > f.Knee {
			past.nodes = append(past.nodes, n)
		}
	}
	return []place{{"at the knee", []int{f.Knee}}, past}
}

// worst returns the claim with the worst value.
func worst(all []claims.Claim, higherIsBetter bool) (w claims.Claim) {
	for _, c := range all {
		if c.Runs > 0 && (w.Runs == 0 || (c.Value < w.Value) == higherIsBetter && c.Value != w.Value) {
			w = c
		}
	}
	return w
}

func (r Result) claims() (all []claims.Claim) {
	add := func(c claims.Claim) { all = claims.Add(all, c) }
	for _, w := range works {
		for _, setUp := range SetUps {
			for _, n := range r.Setup.Nodes {
				add(claims.Of(fmt.Sprintf("%s, %s: time with %d containers", w.title, setUp, n), "s", r.each(w.kind, Row{n, setUp}, seconds)...).From(sourceFigures))
			}
			if f, ok := find("", "", r.points(w.kind, setUp)); ok && f.Knee > 0 {
				add(claims.Of(fmt.Sprintf("%s, %s: knee", w.title, setUp), "containers", float64(f.Knee)).From(sourceFigures))
			}
		}
	}
	for _, w := range works {
		for _, at := range r.places(w.kind) {
			compare := func(what string, of func(Job) float64, higherIsBetter bool) claims.Claim {
				var each []claims.Claim
				for _, n := range at.nodes {
					each = append(each, claims.Of(fmt.Sprintf("%s %s: %s, joined / nat", w.title, at.name, what), "ratio", r.ratios(w.kind, n, of)...))
				}
				return worst(each, higherIsBetter)
			}
			if c := compare("time", seconds, false); c.Runs > 0 {
				add(c.AtMost(mostSlower).From(sourceCure))
			}
			if c := compare("throughput", rate, true); c.Runs > 0 {
				add(c.AtLeast(leastThroughput).From(sourceCure))
			}
			add(compare("median round trip", p50, false).From(sourceCure))
			add(compare("p99 of round trips", p99, false).From(sourceCure))
		}
	}
	return all
}

// KnownClaims returns the claims of invented results, with a knee and without one. Their names, units and goals are
// those of the claims of every measurement with the numbers of containers of DefaultSetup.
func KnownClaims() (all []claims.Claim) {
	seen := map[string]bool{}
	for _, bends := range []bool{true, false} {
		for _, c := range invented(DefaultSetup(), bends).claims() {
			if !seen[c.Name] {
				seen[c.Name], all = true, append(all, c)
			}
		}
	}
	return all
}

// invented returns a result of one run. The throughput grows with the number of containers; with a knee, up to 4.
func invented(s Setup, bends bool) Result {
	var turns []Turn
	for _, row := range s.rows() {
		t := Turn{Row: row.Name(), Run: 1, Nodes: row.Nodes, SetUp: row.SetUp, Replication: replication(row.Nodes)}
		for _, w := range works {
			rate := float64(row.Nodes)
			if bends {
				rate = min(rate, 4)
			}
			j := Job{Kind: w.kind, RunS: 100 / rate, MBPerSecond: rate, CPU: 0.5, SwitchesPerSecond: 100 * rate, RunDelayUS: 10, Disks: 0.5}
			j.Trip.MeanUS, j.Trip.P50US, j.Trip.P99US, j.Trip.RunDelayUS = 30, 25, 60, 5
			t.Jobs = append(t.Jobs, j)
		}
		turns = append(turns, t)
	}
	return newResult(s, turns)
}
