package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Lines is a chart of panels with lines.
type Lines struct {
	Title   string
	Panels  []Panel
	Columns int // default 1
	// Shared gives all panels the same axes, and labels only the outer axes.
	Shared        bool
	LogX          bool
	XTicks        []float64 // default: round numbers
	Width, Height float64   // size of a panel with its labels, in points
}

// Panel is a diagram of a chart.
type Panel struct {
	Title, X, Y string // with Shared, the first panel's X and Y apply to all panels
	Lines       []Line
	Marks       []float64 // vertical dashed lines
}

// Line is a series. Lines with the same name in several panels share one entry in the legend.
type Line struct {
	Name   string // "": no entry in the legend
	Colour Colour
	Points []Point
	Dashed bool
	Dots   bool    // a dot at each point
	Rings  []Point // points to emphasise
}

// Point is a position in a panel.
type Point struct{ X, Y float64 }

func points(all []Point) plotter.XYs {
	xys := make(plotter.XYs, len(all))
	for i, p := range all {
		xys[i] = plotter.XY(p)
	}
	return xys
}

func (l Lines) describe() (title, text string) {
	if l.Title == "" && len(l.Panels) > 0 {
		return "", l.Panels[0].Y + " against " + l.Panels[0].X
	}
	return l.Title, l.Title
}

func (l Lines) legend() (all []entry) {
	for _, p := range l.Panels {
		for _, line := range p.Lines {
			all = append(all, entry{name: line.Name, colour: line.Colour, dashed: line.Dashed})
		}
	}
	if len(all) == 1 {
		return nil // the axis shows the name
	}
	return all
}

func (l Lines) grid() (rows, columns int) {
	columns = max(1, min(l.Columns, len(l.Panels)))
	return (len(l.Panels) + columns - 1) / columns, columns
}

func (l Lines) size() (width, height vg.Length) {
	rows, columns := l.grid()
	return vg.Length(l.Width * float64(columns)), vg.Length(l.Height * float64(rows))
}

func (l Lines) draw(c draw.Canvas) {
	rows, columns := l.grid()
	plots := make([][]*plot.Plot, rows)
	for i := range plots {
		plots[i] = make([]*plot.Plot, columns)
	}
	for i, panel := range l.Panels {
		plots[i/columns][i%columns] = l.plot(panel)
	}
	if l.Shared {
		l.share(plots)
	}
	for i, row := range plot.Align(plots, draw.Tiles{Rows: rows, Cols: columns, PadX: 14, PadY: 10}, c) {
		for j, tile := range row {
			if p := plots[i][j]; p != nil {
				p.Draw(tile)
			}
		}
	}
}

func (l Lines) plot(panel Panel) *plot.Plot {
	p := newPlot(panel.Title, panel.X, panel.Y)
	g := plotter.NewGrid()
	g.Vertical.Width, g.Horizontal.Color = 0, faint.drawn()
	p.Add(g)
	for _, line := range panel.Lines {
		for _, at := range line.Points {
			p.X.Max, p.Y.Max = max(p.X.Max, at.X), max(p.Y.Max, 1.05*at.Y)
			p.X.Min = min(p.X.Min, at.X)
		}
	}
	for _, x := range panel.Marks {
		p.Add(vertical{x, Grey})
	}
	for _, line := range panel.Lines {
		xys := points(line.Points)
		p.Add(&plotter.Line{XYs: xys, LineStyle: lineStyle(line.Colour, line.Dashed)})
		if line.Dots {
			p.Add(&plotter.Scatter{XYs: xys, GlyphStyle: draw.GlyphStyle{Color: line.Colour.drawn(), Radius: 1.6, Shape: draw.CircleGlyph{}}})
		}
		if len(line.Rings) > 0 {
			p.Add(&plotter.Scatter{XYs: points(line.Rings), GlyphStyle: draw.GlyphStyle{Color: line.Colour.drawn(), Radius: 4.5, Shape: draw.RingGlyph{}}})
		}
	}
	if !l.LogX {
		p.X.Min = 0
	}
	p.Y.Min = 0
	if l.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if len(l.XTicks) > 0 {
		var ticks plot.ConstantTicks
		for _, x := range l.XTicks {
			ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'g', 4, 64)})
		}
		p.X.Tick.Marker = ticks
	}
	return p
}

// share gives all plots one range, and labels only the outer axes.
func (l Lines) share(plots [][]*plot.Plot) {
	x, y := plots[0][0].X, plots[0][0].Y
	each := func(do func(p *plot.Plot, i, j int)) {
		for i, row := range plots {
			for j, p := range row {
				if p != nil {
					do(p, i, j)
				}
			}
		}
	}
	each(func(p *plot.Plot, _, _ int) {
		x.Min, x.Max = math.Min(x.Min, p.X.Min), math.Max(x.Max, p.X.Max)
		y.Min, y.Max = math.Min(y.Min, p.Y.Min), math.Max(y.Max, p.Y.Max)
	})
	each(func(p *plot.Plot, i, j int) {
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = x.Min, x.Max, y.Min, y.Max
		p.X.Label.Text, p.Y.Label.Text = "", ""
		if last := i+1 == len(plots) || plots[i+1][j] == nil; last {
			p.X.Label.Text = x.Label.Text
		} else {
			p.X.Tick.Marker = unlabelled{p.X.Tick.Marker}
		}
		if j == 0 {
			p.Y.Label.Text = y.Label.Text
		} else {
			p.Y.Tick.Marker = unlabelled{p.Y.Tick.Marker}
		}
	})
}
