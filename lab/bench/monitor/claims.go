package monitor

import (
	"fmt"
	"math"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
)

const (
	// mostOff is the largest deviation of a held background's rate from its limit that meets the goal, in
	// per cent.
	mostOff = 5
	// mostSlower is the largest ratio of WordCount's run time beside a held background to its run time
	// alone that meets the goal.
	mostSlower = 1.10
	// paperAlone is WordCount's run time alone in the paper, in seconds (Table 1).
	paperAlone = 40.5
)

// paperRuntime has the run times of WordCount in the paper, in seconds, by row (Tables 1 and 2, and
// Experiment 2).
var paperRuntime = map[string]float64{
	rowTogether:              71.3,
	rowOf(FioReader, Native): 90.8, rowOf(FioWriter, Native): 143.6, rowOf(HDFSReader, Native): 54.9, rowOf(HDFSWriter, Native): 162.1,
	rowOf(FioReader, Paper): 44.2, rowOf(FioWriter, Paper): 143.7, rowOf(HDFSReader, Paper): 49.6, rowOf(HDFSWriter, Paper): 52.6,
}

// paperTeraSort is the ratio of TeraSort's run time with WordCount to its run time alone in the paper
// (Table 1).
const paperTeraSort = 133.2 / 99.8

var mechanism = map[string]string{"cgroup": "cgroup v1", "shaper": "tc", "gate": "Penstock's gate", "": "Penstock's arbiter"}

// claims returns how much each activity slows WordCount down natively and under control. The two figures of a
// ratio are from the same run.
func (r Result) claims() (all []claims.Claim) {
	of := func(row, name string) claims.Claim {
		return claims.Of("WordCount's run time "+name+" / alone", "ratio", r.ratios(row, rowAlone, jobFigure(wordCount, runtime))...)
	}
	paper := func(row string) string {
		if p, known := paperRuntime[row]; known {
			return fmt.Sprintf("paper: %.2f", p/paperAlone)
		}
		return ""
	}
	add := func(c ...claims.Claim) { all = claims.Add(all, c...) }

	add(claims.Of("WordCount alone: part of the disk's rate", "ratio", r.Values(rowAlone, func(t Turn) (float64, bool) {
		if t.WordCount == nil || t.Disk.Rate == 0 {
			return 0, false
		}
		return t.WordCount.ReadMBps * megabyte / float64(t.Disk.Rate), true
	})...).From("the set-up's goal: about 0.45"), of(rowAloneEnforced, "under Penstock, without a background").From("what Penstock costs"))
	add(of(rowTogether, "with TeraSort, natively").From("Table 1, "+paper(rowTogether)),
		claims.Of("TeraSort's run time with WordCount, natively / alone", "ratio", r.ratios(rowTogether, rowTeraSort, jobFigure(teraSort, runtime))...).
			From(fmt.Sprintf("Table 1, paper: %.2f", paperTeraSort)))
	for _, a := range Activities {
		row := rowOf(a, Native)
		add(of(row, fmt.Sprintf("with %s, natively", a)).From("Table 2, " + paper(row)))
	}
	add(claims.Of("pairs of activities that harm WordCount natively in the paper's order, of 10", "pairs", r.ordered()...).AtLeast(10).From("Tables 1 and 2"))

	for _, a := range Activities {
		for _, c := range []Control{Paper, Penstock} {
			row := Row{Name: rowOf(a, c), Beside: a, Control: c}
			by := fmt.Sprintf("%s held by %s", a, mechanism[row.mechanism()])
			time := of(row.Name, "with "+by)
			off := claims.Of(by+": its rate's deviation from its limit", "%", r.Values(row.Name, deviation(a))...)
			if c == Penstock {
				time, off = time.AtMost(mostSlower).From("within 10 % of the floor"), off.AtMost(mostOff).From("within 5 % of the limit")
			} else {
				time, off = time.From("Experiment 2, "+paper(row.Name)), off.From("Experiment 2")
			}
			var lost []float64
			for _, kept := range r.ratios(row.Name, rowOf(a, Native), backgroundRate(a)) {
				lost = append(lost, 100*(1-kept))
			}
			add(time, off, claims.Of(by+": its loss against native", "%", lost...).From("what the control costs the background"))
		}
	}
	add(of(rowPrefer, "with TeraSort, WordCount preferred").From("Experiment 1b"),
		claims.Of("TeraSort's run time with WordCount, TeraSort preferred / alone", "ratio", r.ratios(rowPreferTeraSort, rowTeraSort, jobFigure(teraSort, runtime))...).
			From("Experiment 1c"))
	return all
}

// deviation returns a function for Values. The function returns by how many per cent the rate of an activity
// differs from its limit.
func deviation(a Activity) func(Turn) (float64, bool) {
	rate := backgroundRate(a)
	return func(t Turn) (float64, bool) {
		v, known := rate(t)
		if !known || t.Disk.Limit == 0 {
			return 0, false
		}
		return 100 * math.Abs(v*megabyte-float64(t.Disk.Limit)) / float64(t.Disk.Limit), true
	}
}

// ordered returns, for each run with all native rows, the number of pairs of activities (of ten) that slow
// WordCount down in the same order as in the paper.
func (r Result) ordered() (all []float64) {
	rows := []string{rowTogether}
	for _, a := range Activities {
		rows = append(rows, rowOf(a, Native))
	}
	times := map[int]map[string]float64{} // by run
	for _, row := range rows {
		for _, t := range r.Of(row) {
			if times[t.Run] == nil {
				times[t.Run] = map[string]float64{}
			}
			times[t.Run][row] = t.WordCount.RuntimeS
		}
	}
	for run := 1; run <= experiment.MaxRuns; run++ {
		one := times[run]
		if len(one) < len(rows) {
			continue
		}
		pairs := 0
		for i, a := range rows {
			for _, b := range rows[:i] {
				if (one[a]-one[b])*(paperRuntime[a]-paperRuntime[b]) > 0 {
					pairs++
				}
			}
		}
		all = append(all, float64(pairs))
	}
	return all
}

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims
// of every measurement.
func KnownClaims() []claims.Claim {
	r := Result{}
	for _, row := range Rows() {
		r.Turns = append(r.Turns, Turn{Row: row.Name, Run: 1, Disk: Disk{1, 1}, WordCount: &Job{RuntimeS: 1}, TeraSort: &Job{RuntimeS: 1}, Background: &Background{1, 1}})
	}
	return r.claims()
}
