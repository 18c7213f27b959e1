package monitor

import (
	"penstock/lab/chart"
	"penstock/lab/experiment/report"
)

// Report returns the HTML page.
func (r Result) Report() report.Report {
	return report.Report{Headline: "Background activities and control", Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup, Charts: r.charts(),
		About: "WordCount and TeraSort of Spark on a modelled hard disk, alone, together, and beside readers and writers of local files and of HDFS; natively, under the mechanisms of the monitor-and-controller paper, and under Penstock."}
}

// charts draws the read rates of Experiment 1, of the first run that has them.
func (r Result) charts() []chart.Chart {
	lines := chart.Lines{Title: "Experiment 1: read rates", Columns: 3, Shared: true, Width: 230, Height: 200}
	for _, p := range []struct{ row, title string }{
		{rowTogether, "a) no limits"}, {rowPrefer, "b) WordCount preferred"}, {rowPreferTeraSort, "c) TeraSort preferred"},
	} {
		turns := r.Of(p.row)
		if len(turns) == 0 || turns[0].WordCount == nil || turns[0].TeraSort == nil {
			return nil
		}
		lines.Panels = append(lines.Panels, chart.Panel{Title: p.title, X: "seconds", Y: "MB/s", Lines: []chart.Line{
			{Name: "WordCount", Colour: chart.Palette(0), Points: series(turns[0].WordCount.Reads)},
			{Name: "TeraSort", Colour: chart.Palette(1), Points: series(turns[0].TeraSort.Reads)},
		}})
	}
	return []chart.Chart{lines}
}

func series(values []float64) (all []chart.Point) {
	for i, v := range values {
		all = append(all, chart.Point{X: float64(i) + 0.5, Y: v})
	}
	return all
}
