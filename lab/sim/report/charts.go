package report

import (
	"html/template"

	"penstock/lab/chart"
	"penstock/lab/sim"
)

const (
	chartWidth  = 520
	chartHeight = 220
	mostMarks   = 200 // most changes to mark; more marks would cover the chart
)

// charts returns the charts for which the result has data.
func (r Report) charts() (all []template.HTML, err error) {
	for _, c := range []chart.Chart{r.misplaced(), r.shares(), r.slowdowns(), r.times()} {
		if c == nil {
			continue
		}
		svg, err := chart.Inline(c)
		if err != nil {
			return nil, err
		}
		all = append(all, svg)
	}
	return all, nil
}

// misplaced draws the misallocated fraction of the service over time, with a mark at every change.
func (r Report) misplaced() chart.Chart {
	if len(r.Windows) == 0 {
		return nil
	}
	p := chart.Panel{X: "s", Y: "% of the service"}
	line := chart.Line{Dots: true}
	for _, w := range r.Windows {
		line.Points = append(line.Points, chart.Point{X: w.To, Y: 100 * w.Misplaced})
	}
	for _, c := range r.Changes[:min(len(r.Changes), mostMarks)] {
		p.Marks = append(p.Marks, c.At)
	}
	p.Lines = []chart.Line{line}
	return chart.Lines{Title: "Misallocated service; dashed: changes", Panels: []chart.Panel{p}, Width: chartWidth, Height: chartHeight}
}

// shares draws the shares that differ most from their entitlements.
func (r Report) shares() chart.Chart {
	c := chart.Bars{Title: "Shares that differ most from their entitlements", X: "% of all service", Width: chartWidth}
	for i, a := range furthest(r.Result) {
		if i == 10 {
			break
		}
		c.Rows = append(c.Rows, chart.Row{Name: a.Name, Bars: []chart.Bar{
			{Kind: "entitlement", Colour: chart.Grey, Value: 100 * a.Due}, {Kind: "share", Colour: chart.Blue, Value: 100 * a.Had}}})
	}
	if len(c.Rows) == 0 {
		return nil
	}
	return c
}

// slowdowns draws the mean slowdown of each kind of job in each way. It draws nothing if slowdowns
// are not known, or if the ways have different kinds of jobs.
func (r Report) slowdowns() chart.Chart {
	ways := r.ways()
	if len(ways) == 0 || r.Average(ways[0]) == 0 {
		return nil
	}
	c := chart.Bars{Title: "Mean slowdown", X: "run time / run time alone", Width: chartWidth}
	rows := map[string]int{}
	for i, way := range ways {
		n := 0
		for _, s := range r.Summaries {
			if s.Way != way {
				continue
			}
			if i == 0 {
				rows[s.Of] = len(c.Rows)
				c.Rows = append(c.Rows, chart.Row{Name: s.Of})
			}
			row, ok := rows[s.Of]
			if !ok {
				return nil
			}
			c.Rows[row].Bars = append(c.Rows[row].Bars, chart.Bar{Kind: way, Colour: chart.Palette(i), Value: s.SlowdownMean})
			n++
		}
		if n != len(c.Rows) {
			return nil
		}
	}
	return c
}

// times draws, over time, the percentage of the jobs that ended within that time.
func (r Report) times() chart.Chart {
	if len(r.Jobs) < 10 {
		return nil
	}
	p := chart.Panel{X: "s", Y: "% of the jobs"}
	for i, way := range append(r.ways(), "alone") {
		if points := cumulated(r.Jobs, way); len(points) > 0 {
			p.Lines = append(p.Lines, chart.Line{Name: way, Colour: chart.Palette(i), Points: points})
		}
	}
	return chart.Lines{Title: "Run times of all jobs", Panels: []chart.Panel{p}, LogX: true, Width: chartWidth, Height: chartHeight}
}

func cumulated(jobs []sim.Job, way string) (points []chart.Point) {
	for i, t := range sim.Times(jobs, way) {
		points = append(points, chart.Point{X: t, Y: 100 * float64(i+1) / float64(len(jobs))})
	}
	return points
}
