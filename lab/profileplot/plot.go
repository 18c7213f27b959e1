// Package profileplot draws the measurements of `penstock profile --json`.
package profileplot

import (
	"fmt"
	"time"

	"penstock/lab/chart"
	"penstock/ops/measure"
)

// Plot draws throughput and latency of random requests against the number of requests at a time, as
// SVG. It draws a line for each size, and a ring where the disk was saturated.
func Plot(r *measure.Result) ([]byte, error) {
	c := chart.Lines{Columns: 2, Width: 330, Height: 190}
	for _, n := range measure.Ladder {
		c.XTicks = append(c.XTicks, float64(n))
	}
	names := map[bool]string{false: "random reads", true: "random writes"}
	for _, write := range []bool{false, true} {
		if write && r.Profile.Cost.Write == nil {
			continue
		}
		throughput := chart.Panel{Title: names[write], X: "requests at a time", Y: "MB/s"}
		latency := chart.Panel{Title: names[write], X: "requests at a time", Y: "mean latency, ms"}
		for i, size := range measure.Sizes {
			line := chart.Line{Name: fmt.Sprintf("%d KiB", size>>10), Colour: chart.Palette(i), Dots: true}
			throughput.Lines = append(throughput.Lines, curve(line, r.Points, write, size, func(p measure.Point) float64 { return p.BytesPerSecond / 1e6 }))
			latency.Lines = append(latency.Lines, curve(line, r.Points, write, size, func(p measure.Point) float64 { return float64(p.Latency) / float64(time.Millisecond) }))
		}
		c.Panels = append(c.Panels, throughput, latency)
	}
	return chart.File(c)
}

// curve fills a line with the points of one direction and size.
func curve(line chart.Line, points []measure.Point, write bool, size int64, y func(measure.Point) float64) chart.Line {
	for _, p := range points {
		if p.Write != write || p.Sequential || p.Bytes != size {
			continue
		}
		at := chart.Point{X: float64(p.Concurrency), Y: y(p)}
		line.Points = append(line.Points, at)
		if p.Saturated {
			line.Rings = append(line.Rings, at)
		}
	}
	return line
}
