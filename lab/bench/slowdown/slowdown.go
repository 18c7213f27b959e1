package slowdown

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"penstock/lab/bench/together"
	"penstock/lab/contest"
	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/report"
	"penstock/lab/hadoop"
)

// Pairs of jobs.
const (
	SortPair  = "terasort-teragen"
	CountPair = "wordcount-teragen"
)

// Pairs are all pairs.
var Pairs = []string{SortPair, CountPair}

// Names of rows.
const (
	nativeRow = "native"
	equalRow  = "equal"
	goalRow   = "equal-slowdown"
)

// mostApart is the goal for the difference of the two slowdowns, in points.
const mostApart = 5

// Setup is everything that may change a figure.
type Setup struct {
	Pair string `json:"pair"`
	together.Setup
}

// DefaultSetup returns the set-up of a pair on a kind of disk. Each job alone takes about 80 s, so that both end at
// about the same time if they are slowed down alike.
func DefaultSetup(pair, kind string) (Setup, error) {
	common, err := together.NewSetup(kind)
	if err != nil {
		return Setup{}, err
	}
	s := Setup{Pair: pair, Setup: common}
	const mib = contest.MiB
	generate := together.Job{Name: "teragen", Kind: hadoop.TeraGen, Bytes: 1536 * mib, Maps: 4, CPUs: "1"}
	switch pair {
	case SortPair:
		s.Intermediate = true
		s.Jobs = []together.Job{{Name: "terasort", Kind: hadoop.TeraSort, Bytes: 208 * mib, Maps: 4, Reduces: 2, SortMB: 100, CPUs: "0"}, generate}
	case CountPair:
		s.Jobs = []together.Job{{Name: "wordcount", Kind: hadoop.WordCount, Bytes: 448 * mib, Maps: 4, Reduces: 1, WordBytes: 4, SortMB: 16, CPUs: "0"}, generate}
	default:
		return s, fmt.Errorf("--pair %q: choose one of %s", pair, strings.Join(Pairs, ", "))
	}
	return s, nil
}

// title returns the pair for a reader.
func (s Setup) title() string {
	if s.Pair == SortPair {
		return "TeraSort and TeraGen"
	}
	return "WordCount (bound by the CPU) and TeraGen"
}

// Rows returns all rows, in the order in which they are measured.
func (s Setup) Rows() []together.Row {
	return append(together.Alone(s.Setup), s.shared()...)
}

// shared returns the rows in which both jobs run.
func (s Setup) shared() []together.Row {
	return []together.Row{
		{Name: nativeRow},
		{Name: equalRow, Way: together.Way{Governed: true}},
		{Name: goalRow, Way: together.Way{Governed: true, Policy: "goal: equal-slowdown"}},
	}
}

// Request is a measurement with the options of the command line.
type Request struct {
	Setup Setup
	together.Request
}

// Validate returns an error for a request that cannot be measured.
func (q Request) Validate() error {
	q.Request.Setup = q.Setup.Setup
	return q.Request.Validate()
}

// Result has the finished runs.
type Result struct {
	Setup Setup
	together.Result
}

func newResult(s Setup, runs []together.Run) Result {
	return Result{Setup: s, Result: together.Result{Setup: s.Setup, Runs: runs}}
}

// Perform performs the runs that the journal lacks.
func Perform(ctx context.Context, q Request) (Result, error) {
	q.Request.Name, q.Request.Setup = "slowdown-"+q.Setup.Pair, q.Setup.Setup
	runs, err := together.Perform(ctx, q.Request)
	return newResult(q.Setup, runs), err
}

// slowdowns returns the slowdown of each job, in per cent and in the order of the set-up, for each run of a row. It
// returns nothing if a job has not run alone.
func (r Result) slowdowns(row string) (all [][]float64) {
	for _, run := range r.Of(row) {
		var one []float64
		for _, j := range r.Setup.Jobs {
			alone := r.Median(together.AlonePrefix+j.Name, together.Completion(j.Name))
			if !(alone > 0) {
				return nil
			}
			one = append(one, 100*(run.Completion(j.Name)/alone-1))
		}
		all = append(all, one)
	}
	return all
}

// errors returns the broker's estimate of a job's slowdown less the measured one, in points, for each run of a row with an
// estimate.
func (r Result) errors(row, job string) (all []float64) {
	alone := r.Median(together.AlonePrefix+job, together.Completion(job))
	for _, run := range r.Of(row) {
		for _, j := range run.Jobs {
			if j.Name == job && j.Slowdown > 0 && alone > 0 {
				all = append(all, 100*(j.Slowdown-j.CompletionS/alone))
			}
		}
	}
	return all
}

// each returns a figure of the slowdowns of each run of a row.
func (r Result) each(row string, figure func([]float64) float64) (all []float64) {
	for _, one := range r.slowdowns(row) {
		all = append(all, figure(one))
	}
	return all
}

// apart returns the difference of the largest and the smallest slowdown, in points.
func apart(slowdowns []float64) float64 { return slices.Max(slowdowns) - slices.Min(slowdowns) }

// claims returns the published figures.
func (r Result) claims() (all []claims.Claim) {
	name := fmt.Sprintf("%s, %ss, ", r.Setup.title(), r.Setup.Disk.KindName())
	const source = "IBIS, section 7.5"
	for _, row := range together.RowNames(r.Setup.shared()) {
		for i, j := range r.Setup.Jobs {
			all = claims.Add(all, claims.Of(name+row+": slowdown of "+j.Name, "%", r.each(row, func(s []float64) float64 { return s[i] })...).From(source))
		}
		for _, j := range r.Setup.Jobs {
			if errors := r.errors(row, j.Name); len(errors) > 0 {
				all = claims.Add(all, claims.Of(name+row+": the broker's estimate of the slowdown of "+j.Name+" less the measured one", "points", errors...).From(source))
			}
		}
		difference := claims.Of(name+row+": difference of the slowdowns", "points", r.each(row, apart)...)
		if row == goalRow {
			difference = difference.AtMost(mostApart)
		}
		all = claims.Add(all, difference.From(source))
	}
	equal := claims.Of("", "", r.each(equalRow, slices.Max[[]float64])...)
	if equal.Runs == 0 {
		return all
	}
	var better []float64
	for _, worst := range r.each(goalRow, slices.Max[[]float64]) {
		better = append(better, equal.Value-worst)
	}
	return claims.Add(all, claims.Of(name+goalRow+": how much less the worst slowdown is than with equal weights", "points", better...).AtLeast(0).From(source))
}

// WriteJSON writes the result.
func (r Result) WriteJSON(w io.Writer) error {
	return experiment.WriteJSON(w, struct {
		Setup  Setup          `json:"setup"`
		Runs   []together.Run `json:"runs"`
		Claims []claims.Claim `json:"claims"`
		Builds []string       `json:"builds"`
	}{r.Setup, r.Runs, r.claims(), r.Builds()})
}

// WriteTable writes the completions and the slowdowns of all rows.
func (r Result) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s on %d %s\n", r.Setup.title(), r.Setup.Disk.DataNodes, r.Setup.Disk)
	if err := r.WriteRows(w, together.RowNames(r.Setup.Rows())); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nSLOWDOWN")
	for _, j := range r.Setup.Jobs {
		fmt.Fprintf(t, "\t%s, %%", j.Name)
	}
	fmt.Fprintln(t, "\tDIFFERENCE, points\tWORST, %\tESTIMATES LESS MEASURED, points")
	for _, row := range together.RowNames(r.Setup.shared()) {
		if len(r.slowdowns(row)) == 0 {
			continue
		}
		fmt.Fprint(t, row)
		for i := range r.Setup.Jobs {
			fmt.Fprintf(t, "\t%s", spread(r.each(row, func(s []float64) float64 { return s[i] })))
		}
		fmt.Fprintf(t, "\t%s\t%s\t", spread(r.each(row, apart)), spread(r.each(row, slices.Max[[]float64])))
		for i, j := range r.Setup.Jobs {
			if errors := r.errors(row, j.Name); len(errors) > 0 {
				fmt.Fprintf(t, "%s%s", strings.Repeat("; ", min(i, 1)), spread(errors))
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// spread returns the median of values, and the least and the greatest one if there are several.
func spread(values []float64) string {
	c := claims.Of("", "", values...)
	if c.Runs < 2 {
		return fmt.Sprintf("%.0f", c.Value)
	}
	return fmt.Sprintf("%.0f (%.0f to %.0f)", c.Value, c.Low, c.High)
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	headline := r.Setup.title() + ": equal slowdown"
	if values := r.each(goalRow, apart); len(values) > 0 {
		headline = fmt.Sprintf("%s: slowdowns %.0f points apart", r.Setup.title(), math.Abs(claims.Of("", "", values...).Value))
	}
	return report.Report{Headline: headline, Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup,
		Charts: r.Charts(together.RowNames(r.Setup.Rows()), "Throughput by job, from the disks' request log", together.RowNames(r.Setup.shared())),
		About:  "Two jobs of a real Hadoop share modelled disks: natively, under Penstock with equal weights, and under Penstock with the goal of an equal slowdown (IBIS, section 7.5). Each chart over time shows a typical run."}
}

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims of
// every measurement.
func KnownClaims(pair, kind string) ([]claims.Claim, error) {
	s, err := DefaultSetup(pair, kind)
	if err != nil {
		return nil, err
	}
	var runs []together.Run
	for _, row := range s.Rows() {
		run := together.Run{Row: row.Name, Number: 1, Verdict: &contest.Verdict{}}
		for _, j := range s.Jobs {
			one := together.JobRun{Name: j.Name, CompletionS: 1}
			if row.Way.Governed {
				one.Slowdown = 1
			}
			run.Jobs = append(run.Jobs, one)
		}
		runs = append(runs, run)
	}
	return newResult(s, runs).claims(), nil
}
