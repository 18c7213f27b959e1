package forecast

import (
	"fmt"

	"penstock/core/character"
	"penstock/lab/chart"
	"penstock/lab/experiment/report"
	"penstock/lab/usageplot"
)

// Report returns the HTML page.
func (r Result) Report() report.Report {
	return report.Report{Headline: "Forecasts and profiles of applications", Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup, Charts: r.charts(),
		About: "The ends of WordCount, TeraSort and a Spark SQL query beside a reader of HDFS, as the broker foresees them, and the use of CPU, memory and disk of six applications alone, as penstock app profile sees it."}
}

// charts draws the progress and the forecasts of each row's last run, and the use of resources of each application's last run,
// as in Figure 1 of the paper.
func (r Result) charts() (all []chart.Chart) {
	lines := chart.Lines{Title: "Progress (line) and forecasts of the end (rings: when asked, and the end that was foreseen); dashed: the end", Columns: 2, Width: 330, Height: 190}
	for _, row := range rows {
		t, found := Turn{}, false
		for _, turn := range r.Of(row.Name) { // the last one has the most history
			if len(turn.Curve) > 0 || turn.Profile != nil {
				t, found = turn, true
			}
		}
		if !found {
			continue
		}
		if row.Profile {
			if t.Profile != nil {
				all = append(all, usageplot.Chart(fmt.Sprintf("%s: %s", titles[row.Job], character.Class(t.Profile.Intensive)), t.Profile))
			}
			continue
		}
		progress := chart.Line{Name: "progress", Colour: chart.Palette(0)}
		for _, p := range t.Curve {
			progress.Points = append(progress.Points, chart.Point{X: p.AtS, Y: 100 * p.Progress})
		}
		panel := chart.Panel{Title: row.Name, X: "s", Y: "%", Marks: []float64{t.RuntimeS}, Lines: []chart.Line{progress}}
		for i, f := range t.Forecasts {
			if f.known() {
				asked, end := chart.Point{X: f.AtS, Y: 100 * f.Progress}, chart.Point{X: f.ExpectedS, Y: 100}
				panel.Lines = append(panel.Lines, chart.Line{Name: fmt.Sprintf("asked at %.0f %% of %s", 100*f.Mark, f.Of), Colour: chart.Palette(i + 1), Dashed: true,
					Points: []chart.Point{asked, end}, Rings: []chart.Point{asked, end}})
			}
		}
		if len(progress.Points) > 0 {
			lines.Panels = append(lines.Panels, panel)
		}
	}
	if len(lines.Panels) > 0 {
		all = append([]chart.Chart{lines}, all...)
	}
	return all
}
