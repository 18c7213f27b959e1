// Package profileplot draws what `penstock profile --json` measured of a disk.
package profileplot

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"slices"
	"strconv"
	"time"

	"penstock/ops/measure"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours by size that read on light and dark ground alike.
var colours = []color.Color{
	color.RGBA{0x1f, 0x77, 0xb4, 0xff}, color.RGBA{0x2b, 0x9e, 0x8f, 0xff},
	color.RGBA{0xe0, 0x7b, 0x1a, 0xff}, color.RGBA{0x6a, 0x51, 0xa3, 0xff},
}

var foreground = color.RGBA{0x80, 0x80, 0x80, 0xff}

// Plot draws throughput and latency of requests at new places against their
// concurrency, a line for each size and a circle where it was found saturated,
// as SVG.
func Plot(r *measure.Result) ([]byte, error) {
	directions := []bool{false}
	if r.Profile.Cost.Write != nil {
		directions = append(directions, true)
	}
	var rows [][]*plot.Plot
	for _, write := range directions {
		what := "random reads"
		if write {
			what = "random writes"
		}
		throughput := newPlot(what, "MB/s")
		latency := newPlot(what, "mean latency, ms")
		for i, size := range measure.Sizes {
			curve := slices.DeleteFunc(slices.Clone(r.Points), func(p measure.Point) bool { return !(p.Write == write && !p.Sequential && p.Bytes == size) })
			name := fmt.Sprintf("%d KiB", size>>10)
			if err := errors.Join(
				add(throughput, curve, name, colours[i], func(p measure.Point) float64 { return p.BytesPerSecond / 1e6 }),
				add(latency, curve, name, colours[i], func(p measure.Point) float64 { return float64(p.Latency) / float64(time.Millisecond) }),
			); err != nil {
				return nil, err
			}
		}
		rows = append(rows, []*plot.Plot{throughput, latency})
	}
	const width, height = 12 * vg.Centimeter, 7 * vg.Centimeter
	canvas := vgsvg.New(2*width, height*vg.Length(len(rows)))
	tiles := draw.Tiles{Rows: len(rows), Cols: 2, PadX: vg.Centimeter, PadY: vg.Centimeter}
	for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
		for j, c := range row {
			rows[i][j].Draw(c)
		}
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func newPlot(title, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil // the page's own
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "requests at a time", y
	p.X.Min, p.Y.Min = 0, 0
	var ticks plot.ConstantTicks
	for _, n := range measure.Ladder {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: strconv.Itoa(n)})
	}
	p.X.Tick.Marker = ticks
	small := font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
	for _, s := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		s.Font, s.Color = small, foreground
	}
	for _, l := range []*draw.LineStyle{&p.X.LineStyle, &p.Y.LineStyle, &p.X.Tick.LineStyle, &p.Y.Tick.LineStyle} {
		l.Color = foreground
	}
	p.Legend.Top = true
	return p
}

func add(p *plot.Plot, curve []measure.Point, name string, c color.Color, y func(measure.Point) float64) error {
	var all, chosen plotter.XYs
	for _, point := range curve {
		xy := plotter.XY{X: float64(point.Concurrency), Y: y(point)}
		all = append(all, xy)
		if point.Saturated {
			chosen = append(chosen, xy)
		}
	}
	line, marks, err := plotter.NewLinePoints(all)
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(1.5)
	marks.Color, marks.Shape, marks.Radius = c, draw.CircleGlyph{}, vg.Points(1.5)
	circle, err := plotter.NewScatter(chosen)
	if err != nil {
		return err
	}
	circle.Color, circle.Shape, circle.Radius = c, draw.RingGlyph{}, vg.Points(5)
	p.Add(line, marks, circle)
	p.Legend.Add(name+"\u00a0\u00a0", line)
	for _, xy := range all {
		p.X.Max = max(p.X.Max, xy.X+2) // the legend's place
		p.Y.Max = max(p.Y.Max, 1.1*xy.Y)
	}
	return nil
}
