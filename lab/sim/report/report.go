// Package report shows the result of a simulation as text, and as one self-contained HTML page.
package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"penstock/lab/experiment/page"
	"penstock/lab/sim"
)

// mostRows bounds the table of the applications whose shares differ most from their entitlements.
const mostRows = 20

//go:embed page.html
var body string

var pageTemplate = page.Must(body, template.FuncMap{"checked": checked, "seen": seen, "percent": percent, "time": seconds, "slow": slow, "converged": converged})

func percent(part float64) string { return fmt.Sprintf("%.2f %%", 100*part) }

func seconds(s float64) string { return fmt.Sprintf("%.1f s", s) }

func slow(s float64) string {
	if s == 0 {
		return "not known"
	}
	return fmt.Sprintf("%.2f", s)
}

func converged(s float64) string {
	if s < 0 {
		return "not before the next"
	}
	return fmt.Sprintf("%g s", s)
}

// furthest returns the applications with the largest differences between share and entitlement,
// largest first.
func furthest(r *sim.Result) []sim.Application {
	all := slices.Clone(r.Shares)
	slices.SortStableFunc(all, func(a, b sim.Application) int {
		switch x, y := math.Abs(a.Had-a.Due), math.Abs(b.Had-b.Due); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return all[:min(len(all), mostRows)]
}

// Report is a result that can be shown.
type Report struct{ *sim.Result }

// Verdict returns the result as one line.
func (r Report) Verdict() string {
	what := r.Figures()
	if !r.Good {
		return "the scenario's expectations are not met: " + strings.Join(r.Faults, "; ") + " (" + what + ")"
	}
	return what
}

// Figures returns the run's figures as one line.
func (r Report) Figures() string {
	if len(r.Checks) > 0 {
		return fmt.Sprintf("%d expectations of single applications; by the weights alone, %s of the service would be misplaced (median of %d windows)", len(r.Checks), percent(r.Misplaced), r.Judged)
	}
	if len(r.Jobs) == 0 {
		return fmt.Sprintf("%s of the service misplaced (median of %d windows), %s in the worst window", percent(r.Misplaced), r.Judged, percent(r.Worst))
	}
	text := fmt.Sprintf("%d jobs", len(r.Jobs))
	before := "; average slowdown"
	for _, way := range r.ways() {
		if s := r.Average(way); s > 0 {
			text += fmt.Sprintf("%s %.2f %s", before, s, way)
			before = ","
		}
	}
	for _, way := range r.ways() {
		if ended := r.Ended(way); ended < len(r.Jobs) {
			text += fmt.Sprintf("; %s only %d of %d ended", way, ended, len(r.Jobs))
		}
	}
	return text
}

// ways returns the ways in which the jobs were played, except alone, in order.
func (r Report) ways() (ways []string) {
	for _, s := range r.Summaries {
		if s.Way != "alone" && !slices.Contains(ways, s.Way) {
			ways = append(ways, s.Way)
		}
	}
	return ways
}

// WriteJSON writes the whole result.
func (r Report) WriteJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r.Result)
}

// WriteTable writes the result for a terminal.
func (r Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%d nodes, %d applications, seed %d\n\n", r.Title, r.Nodes, r.Applications, r.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(r.Shares) > 0 {
		fmt.Fprintln(t, "application\tweight\tnodes\tdue\thad\t")
		for _, a := range furthest(r.Result) {
			fmt.Fprintf(t, "%s\t%g\t%d\t%s\t%s\t\n", a.Name, a.Weight, a.Nodes, percent(a.Due), percent(a.Had))
		}
	}
	if len(r.Summaries) > 0 {
		fmt.Fprintln(t, "jobs\tplayed\tended\tmedian\tp90\tslowdown: median\tp90\tmean\t")
		for _, s := range r.Summaries {
			fmt.Fprintf(t, "%s\t%s\t%d of %d\t%s\t%s\t%s\t%s\t%s\t\n", s.Of, s.Way, s.Jobs, s.All, seconds(s.Median), seconds(s.P90),
				slow(s.SlowdownMedian), slow(s.SlowdownP90), slow(s.SlowdownMean))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.writeDeadlines(w); err != nil {
		return err
	}
	if left := len(r.Shares) - mostRows; left > 0 {
		fmt.Fprintf(w, "and %d more with smaller differences between share and entitlement\n", left)
	}
	for _, c := range r.Changes[:min(len(r.Changes), mostRows)] {
		fmt.Fprintf(w, "%g s: %s; right again after: %s\n", c.At, c.What, converged(c.Converged))
	}
	for _, s := range r.Spans {
		fmt.Fprintf(w, "%s, %g s to %g s: %s misplaced\n", s.Name, s.From, s.To, percent(s.Misplaced))
	}
	if err := r.writeChecks(w); err != nil {
		return err
	}
	verdict := r.Verdict()
	_, err := fmt.Fprintf(w, "\n%s\n", strings.ToUpper(verdict[:1])+verdict[1:])
	return err
}

// mostChecks bounds the lines about single applications.
const mostChecks = 50

// writeChecks writes what was expected of single applications.
func (r Report) writeChecks(w io.Writer) error {
	for _, c := range r.Checks[:min(len(r.Checks), mostChecks)] {
		if _, err := fmt.Fprintf(w, "%s, %g s to %g s: %s\n", checked(c), c.From, c.To, seen(c)); err != nil {
			return err
		}
	}
	return nil
}

func checked(c sim.Check) string {
	if c.Node != nil {
		return fmt.Sprintf("%s at node %d", c.Application, *c.Node)
	}
	return c.Application
}

// seen returns what a check has seen.
func seen(c sim.Check) string {
	var all []string
	if c.Windows > 0 {
		all = append(all, fmt.Sprintf("%.1f to %.1f MB/s, within the bounds in %.0f %% of %d windows", c.Lowest/1e6, c.Highest/1e6, math.Floor(100*c.Kept), c.Windows))
	}
	if len(c.States) > 0 {
		all = append(all, "guaranteed rate "+strings.Join(c.States, ", then "))
	}
	if c.Reads > 0 {
		all = append(all, fmt.Sprintf("99 %% of %d small reads within %.1f ms", c.Reads, 1000*c.P99))
	}
	return strings.Join(all, "; ")
}

// WriteHTML writes the page, which depends only on the result.
func (r Report) WriteHTML(w io.Writer) error {
	charts, err := r.charts()
	if err != nil {
		return err
	}
	return pageTemplate.Write(w, page.Page{Headline: r.Title, Body: struct {
		Report
		Rows   []sim.Application
		Left   int
		Charts []template.HTML
	}{r, furthest(r.Result), max(0, len(r.Shares)-mostRows), charts}})
}
