// Package report writes the HTML page of a measurement whose results are claims. The page has the
// figures with their goals, charts of the intervals, the table that the terminal shows, and the
// set-up.
package report

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"penstock/lab/chart"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/page"
	"penstock/lab/experiment/runs"
)

// Report is a page's content.
type Report struct {
	Headline string                // the result in a sentence
	About    string                // what was measured
	Claims   []claims.Claim        // each is a row of the table and a row of its unit's chart
	Charts   []chart.Chart         // drawn before those of the claims
	Table    func(io.Writer) error // writes the table that the terminal shows
	Setup    any                   // written as JSON
}

var layout = page.Must(`<p>{{.Made}}. {{.About}}</p>
{{range .Charts}}<figure>{{.}}</figure>
{{end}}<div class="wide"><table><tr><th>figure</th><th>unit</th><th>value</th><th>interval</th><th>runs</th><th>goal</th></tr>
{{range .Claims}}<tr><td>{{.Name}}</td><td>{{.Unit}}</td><td>{{number .Value}}</td><td>{{number .Low}} to {{number .High}}</td><td>{{.Runs}}</td>
<td{{if missed .}} class="bad"{{end}}>{{goal .}}</td></tr>
{{end}}</table></div>
<pre>{{.Table}}</pre>
<details><summary>Set-up</summary><pre>{{.Setup}}</pre></details>
`, template.FuncMap{"number": number, "goal": goal, "missed": func(c claims.Claim) bool { return c.Met != nil && !*c.Met }})

func number(x float64) string { return fmt.Sprintf("%.4g", x) }

func goal(c claims.Claim) string {
	switch {
	case c.Goal == nil:
		return ""
	case c.HigherIsBetter:
		return "at least " + number(*c.Goal)
	}
	return "at most " + number(*c.Goal)
}

// Write writes the page, with the time at which it was made.
func (r Report) Write(w io.Writer, made time.Time) error {
	setup, err := json.MarshalIndent(r.Setup, "", "  ")
	if err != nil {
		return err
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		return err
	}
	charts, err := r.charts()
	if err != nil {
		return err
	}
	return layout.Write(w, page.Page{Headline: r.Headline, Body: struct {
		Made, About, Table, Setup string
		Claims                    []claims.Claim
		Charts                    []template.HTML
	}{made.UTC().Format("2006-01-02 15:04 UTC"), r.About, table.String(), string(setup), r.Claims, charts}})
}

// charts draws the measurement's own charts, and the claims with their intervals, in one chart for each
// unit.
func (r Report) charts() (drawn []template.HTML, err error) {
	for _, c := range r.Charts {
		svg, err := chart.Inline(c)
		if err != nil {
			return nil, err
		}
		drawn = append(drawn, svg)
	}
	var all []chart.Bars
	for _, c := range r.Claims {
		i := slices.IndexFunc(all, func(b chart.Bars) bool { return b.X == c.Unit })
		if i < 0 {
			i, all = len(all), append(all, chart.Bars{X: c.Unit, Width: 660})
		}
		all[i].Rows = append(all[i].Rows, chart.Row{Name: c.Name, Bars: []chart.Bar{{Value: c.Value, Low: c.Low, High: c.High, Runs: c.Runs,
			Colour: chart.Palette(i), Label: number(c.Value)}}})
	}
	for _, c := range all {
		svg, err := chart.Inline(c)
		if err != nil {
			return nil, err
		}
		drawn = append(drawn, svg)
	}
	return drawn, nil
}

// WriteFile writes the page to a file, whole or not at all. If path is "", it writes nothing.
func (r Report) WriteFile(path string) error {
	return runs.WriteFile(path, func(w io.Writer) error { return r.Write(w, time.Now()) })
}
