package published

import (
	"fmt"
	"strings"

	"penstock/lab/chart"
)

const chartWidth = 660 // points

// Charts draws a chart for each result that has figures with Figure.Chart set. The keys of the
// returned map are the results' names.
func Charts(all []Result) (map[string][]byte, error) {
	charts := map[string][]byte{}
	for _, r := range all {
		c := chart.Bars{Title: r.Title, Width: chartWidth}
		for _, f := range r.Claims {
			if f.Chart == "" {
				continue
			}
			_, c.X, _ = strings.Cut(f.Name, ": ")
			colour := chart.Purple
			if f.Goal != nil { // only Penstock's figures have a goal
				colour = chart.Blue
			}
			c.Rows = append(c.Rows, chart.Row{Name: f.Chart, Bars: []chart.Bar{{Colour: colour, Value: f.Value, Low: f.Low, High: f.High,
				Runs: f.Runs, Label: fmt.Sprintf("%.2f", f.Value)}}})
		}
		if len(c.Rows) == 0 {
			continue
		}
		one := 1.0
		c.Reference = &one
		svg, err := chart.File(c)
		if err != nil {
			return nil, err
		}
		charts[r.name] = svg
	}
	return charts, nil
}
