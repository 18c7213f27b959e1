package together

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"

	"penstock/lab/chart"
	"penstock/lab/contest"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

// Result has the finished runs of a measurement.
type Result struct {
	Setup Setup `json:"setup"`
	Runs  []Run `json:"runs"`
}

// Of returns the runs of a row.
func (r Result) Of(row string) (all []Run) {
	for _, one := range r.Runs {
		if one.Row == row {
			all = append(all, one)
		}
	}
	return all
}

// Values returns a figure of each run of a row. It leaves out runs in which the figure is NaN.
func (r Result) Values(row string, figure func(Run) float64) (all []float64) {
	for _, one := range r.Of(row) {
		if v := figure(one); !math.IsNaN(v) {
			all = append(all, v)
		}
	}
	return all
}

// Median returns the median of a figure over the runs of a row; NaN without runs.
func (r Result) Median(row string, figure func(Run) float64) float64 {
	return figures.Median(r.Values(row, figure))
}

// AgainstMedian returns, for each run of a row, a figure divided by the median of the same figure over the runs
// of another row.
func (r Result) AgainstMedian(row, base string, figure func(Run) float64) (all []float64) {
	b := r.Median(base, figure)
	for _, v := range r.Values(row, figure) {
		if b > 0 {
			all = append(all, v/b)
		}
	}
	return all
}

// Completion returns a function for Values.
func Completion(job string) func(Run) float64 {
	return func(r Run) float64 { return r.Completion(job) }
}

// Builds returns the builds of penstock of all runs.
func (r Result) Builds() []string {
	builds := map[string]bool{}
	for _, one := range r.Runs {
		builds[one.Build] = true
	}
	return slices.Sorted(maps.Keys(builds))
}

// Best returns the row, of those given, with the least median of a figure; "" if none was measured.
func (r Result) Best(rows []string, figure func(Run) float64) (best string) {
	least := math.Inf(1)
	for _, row := range rows {
		if m := r.Median(row, figure); m < least {
			least, best = m, row
		}
	}
	return best
}

// WriteRows writes the completions of each row: medians, and for means the least and the greatest value.
func (r Result) WriteRows(w io.Writer, rows []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "ROW\tRUNS")
	for _, j := range r.Setup.Jobs {
		fmt.Fprintf(t, "\t%s, s", j.Name)
	}
	fmt.Fprintln(t, "\tMEAN, s\t\tMAKESPAN, s\tDISKS, MB/s\tFIRST JOB IDLE, s\tITS PART OF THE DISKS")
	for _, row := range rows {
		runs := r.Of(row)
		if len(runs) == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\t%d", row, len(runs))
		for _, j := range r.Setup.Jobs {
			if m := r.Median(row, Completion(j.Name)); m > 0 {
				fmt.Fprintf(t, "\t%.1f", m)
			} else {
				fmt.Fprint(t, "\t")
			}
		}
		mean := claims.Of("", "", r.Values(row, Run.Mean)...)
		fmt.Fprintf(t, "\t%.1f\t%.1f to %.1f\t%.1f\t%.1f\t%.1f\t%.2f\n", mean.Value, mean.Low, mean.High,
			r.Median(row, Run.Makespan), r.Median(row, Run.MBps), r.Median(row, func(r Run) float64 { return r.Jobs[0].IdleS }), r.Median(row, Run.FirstPart))
	}
	return t.Flush()
}

// typical returns the run of a row whose mean completion is nearest to the row's median.
func (r Result) typical(row string) (best Run, ok bool) {
	m := r.Median(row, Run.Mean)
	for _, one := range r.Of(row) {
		if !ok || math.Abs(one.Mean()-m) < math.Abs(best.Mean()-m) {
			best, ok = one, true
		}
	}
	return best, ok
}

// Charts draws the completions in some rows, and below them the rates over time in other rows, with a title. It
// leaves out a chart without any run.
func (r Result) Charts(completions []string, title string, rates []string) (all []chart.Chart) {
	if c := r.completions(completions); len(c.Rows) > 0 {
		all = append(all, c)
	}
	if c := r.throughputs(title, rates); len(c.Panels) > 0 {
		all = append(all, c)
	}
	return all
}

// throughputs draws the rates of each job over time, by the disks' log, in the typical run of each row.
func (r Result) throughputs(title string, rows []string) chart.Lines {
	c := chart.Lines{Title: title, Columns: 2, Shared: true, Width: 330, Height: 130}
	for _, row := range rows {
		run, ok := r.typical(row)
		if !ok {
			continue
		}
		p := chart.Panel{Title: row, X: "seconds", Y: "MB/s"}
		for i, j := range r.Setup.Jobs {
			if mbps := run.Verdict.MBps[j.Name]; len(mbps) > 0 {
				p.Lines = append(p.Lines, chart.Line{Name: j.Name, Colour: chart.Palette(i), Points: contest.Steps(mbps, run.Verdict.StepSeconds)})
			}
		}
		if len(p.Lines) > 0 {
			c.Panels = append(c.Panels, p)
		}
	}
	return c
}

// completions draws the completion of each job in each row.
func (r Result) completions(rows []string) chart.Bars {
	c := chart.Bars{X: "completion, s", Width: 660}
	for _, row := range rows {
		one := chart.Row{Name: row}
		for i, j := range r.Setup.Jobs {
			values := r.Values(row, Completion(j.Name))
			if v := claims.Of("", "", values...); v.Value > 0 {
				one.Bars = append(one.Bars, chart.Bar{Kind: j.Name, Colour: chart.Palette(i), Value: v.Value, Low: v.Low, High: v.High,
					Runs: v.Runs, Label: fmt.Sprintf("%.0f s", v.Value)})
			}
		}
		if len(one.Bars) > 0 {
			c.Rows = append(c.Rows, one)
		}
	}
	return c
}

// RowNames returns the names of rows.
func RowNames(rows []Row) (names []string) {
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}
