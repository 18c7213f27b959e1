// Package usageplot draws what an application uses over time, from the file of `penstock app profile`,
// as in Figure 1 of the disk contention paper.
package usageplot

import (
	"io"

	"penstock/core/character"
	"penstock/lab/chart"
	"penstock/lab/experiment/page"
	"penstock/ops/characterise"

	"html/template"
)

var layout = page.Must(`{{range .}}<figure>{{.}}</figure>
{{end}}`, nil)

// Write writes a page with a chart for each application: the use of each resource in percent of its
// capacity, with a dashed line at each change of phase.
func Write(w io.Writer, files []*characterise.File) error {
	var charts []template.HTML
	for _, f := range files {
		p, err := character.New(f.Samples, character.DefaultThresholds)
		if err != nil {
			return err
		}
		svg, err := chart.Inline(Chart(f.Application+": "+character.Class(p.Intensive)+"; dashed: phases", p))
		if err != nil {
			return err
		}
		charts = append(charts, svg)
	}
	return layout.Write(w, page.Page{Headline: "What the applications use", Body: charts})
}

// Chart returns the chart of one application: the use of each resource in percent of its capacity, with a dashed line at
// each change of phase.
func Chart(title string, p *character.Profile) chart.Chart {
	c := chart.Lines{Title: title, Columns: 2, Width: 330, Height: 170}
	for r := range character.Resources {
		panel := chart.Panel{Title: r.String(), X: "s", Y: "% of capacity"}
		line := chart.Line{Colour: chart.Palette(int(r))}
		for _, at := range p.Points {
			middle := (at.From+at.To)/2 - p.From
			line.Points = append(line.Points, chart.Point{X: middle.Seconds(), Y: 100 * at.Use[r]})
		}
		for _, f := range p.Phases[1:] {
			panel.Marks = append(panel.Marks, (f.From - p.From).Seconds())
		}
		panel.Lines = []chart.Line{line}
		c.Panels = append(c.Panels, panel)
	}
	return c
}
