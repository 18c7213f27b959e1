package overhead

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"penstock/lab/chart"
	"penstock/lab/experiment/figures"
	"penstock/lab/experiment/page"
)

//go:embed report.html
var reportHTML string

var reportTemplate = page.Must(reportHTML, template.FuncMap{"interval": interval})

// WriteReport writes one self-contained HTML page.
func (res Result) WriteReport(w io.Writer, made time.Time) error {
	setup, err := json.MarshalIndent(res.Setup, "", "  ")
	if err != nil {
		return err
	}
	svg, err := res.chart()
	if err != nil {
		return err
	}
	return reportTemplate.Write(w, page.Page{Headline: "Overhead of Penstock", Body: struct {
		Made, Setup string
		Result      Result
		Notes       []string
		Chart       template.HTML
	}{made.UTC().Format("2006-01-02 15:04 UTC"), string(setup), res, res.Notes(), svg}})
}

// chart draws every ratio with its confidence interval. It is empty without ratios.
func (res Result) chart() (template.HTML, error) {
	one := 1.0
	c := chart.Bars{X: "ratio to native: CPU of the DataNode per GB, run time of jobs", Dots: true, Reference: &one, Width: 660}
	add := func(op Operation, v Variant, r *figures.Ratio) {
		if r == nil {
			return
		}
		if n := len(c.Rows); n == 0 || c.Rows[n-1].Name != string(op) {
			c.Rows = append(c.Rows, chart.Row{Name: string(op)})
		}
		row := &c.Rows[len(c.Rows)-1]
		row.Bars = append(row.Bars, chart.Bar{Kind: string(v), Colour: chart.Palette(slices.Index(res.Setup.Variants, v)),
			Value: r.Mean, Low: r.Low, High: r.High, Runs: r.Pairs, Label: fmt.Sprintf("%.2f", r.Mean)})
	}
	for _, op := range Paced {
		for _, s := range res.Streams {
			if s.Operation == op {
				add(op, s.Variant, s.CPURatio)
			}
		}
	}
	for _, j := range res.Jobs {
		add(j.Operation, j.Variant, j.Ratio)
	}
	if len(c.Rows) == 0 {
		return "", nil
	}
	return chart.Inline(c)
}
