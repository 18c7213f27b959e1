package chart

import (
	"cmp"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars is a chart of horizontal bars with a row for each name. Horizontal bars leave room for long
// names.
type Bars struct {
	Title, X string
	Rows     []Row
	// Dots draws values as dots. The axis need not begin at 0, which suits values near Reference.
	Dots      bool
	Reference *float64 // value of a dashed vertical line
	Width     float64  // in points
}

// Row is a name with its bars, from top to bottom.
type Row struct {
	Name string
	Bars []Bar
}

// Bar is one value.
type Bar struct {
	Kind   string // entry in the legend; "": no entry
	Colour Colour
	Value  float64
	// Low and High are the ends of the bar's whisker. The whisker is drawn only if Runs is more than
	// 1.
	Low, High float64
	Runs      int
	Label     string // text to the right of the bar
}

// span returns the visible beginning and end of the bar with its whisker. The label is to the right
// of the end.
func (b Bar) span() (start, end float64) {
	if b.Runs > 1 {
		return min(b.Value, b.Low), max(b.Value, b.High)
	}
	return b.Value, b.Value
}

const (
	barHeight = 13
	rowGap    = 9
	barsFrame = 34 // height of the axis with its labels
)

func (b Bars) describe() (title, text string) { return b.Title, cmp.Or(b.Title, b.X) }

func (b Bars) legend() (all []entry) {
	for _, r := range b.Rows {
		for _, bar := range r.Bars {
			all = append(all, entry{name: bar.Kind, colour: bar.Colour, bar: true})
		}
	}
	return all
}

// height returns the height of the data area, which is also the scale of the plot's Y axis.
func (b Bars) height() (h float64) {
	for _, r := range b.Rows {
		h += rowGap + barHeight*float64(len(r.Bars))
	}
	return h
}

func (b Bars) size() (width, height vg.Length) {
	return vg.Length(b.Width), vg.Length(b.height() + barsFrame)
}

func (b Bars) draw(c draw.Canvas) {
	p := newPlot("", b.X, "")
	g := plotter.NewGrid()
	g.Horizontal.Width, g.Vertical.Color = 0, faint.drawn()
	p.Add(g)
	p.X.Min, p.X.Max = b.bounds()
	p.Y.Min, p.Y.Max = 0, b.height()
	y := b.height()
	var ticks rowTicks
	for _, r := range b.Rows {
		top := y - rowGap/2.
		y -= rowGap + barHeight*float64(len(r.Bars))
		ticks = append(ticks, rowTick{(top + y + rowGap/2.) / 2, r.Name})
		for i, bar := range r.Bars {
			p.Add(drawnBar{bar, top - barHeight*(float64(i)+0.5), b.Dots})
		}
	}
	if b.Reference != nil {
		p.Add(vertical{*b.Reference, ink})
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length, p.Y.Padding = 0, 0
	p.Draw(c)
}

// bounds returns the range of the axis of values.
func (b Bars) bounds() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	if b.Reference != nil {
		low, high = *b.Reference, *b.Reference
	}
	for _, r := range b.Rows {
		for _, bar := range r.Bars {
			start, end := bar.span()
			low, high = min(low, start), max(high, end)
		}
	}
	if !b.Dots {
		return min(0, low), 1.01 * max(high, 1e-9)
	}
	room := max(0.08*(high-low), 1e-3)
	return low - room, high + room
}

type rowTick struct {
	y    float64
	name string
}

// rowTicks are the labels of the rows.
type rowTicks []rowTick

func (r rowTicks) Ticks(_, _ float64) (ticks []plot.Tick) {
	for _, t := range r {
		ticks = append(ticks, plot.Tick{Value: t.y, Label: t.name})
	}
	return ticks
}

// drawnBar is a plotter for one bar.
type drawnBar struct {
	Bar
	y   float64 // position of the bar's middle
	dot bool
}

const labelGap = 5

func (b drawnBar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	middle := y(b.y)
	const half = barHeight/2. - 1
	if b.dot {
		c.DrawGlyph(draw.GlyphStyle{Color: b.Colour.drawn(), Radius: 3, Shape: draw.CircleGlyph{}}, vg.Point{X: x(b.Value), Y: middle})
	} else {
		box := vg.Rectangle{Min: vg.Point{X: x(0), Y: middle - half}, Max: vg.Point{X: x(b.Value), Y: middle + half}}
		c.SetColor(b.Colour.drawn())
		c.Fill(box.Path())
	}
	start, end := b.span()
	if b.Runs > 1 {
		for _, style := range []draw.LineStyle{{Color: ground.drawn(), Width: 3}, {Color: ink.drawn(), Width: 1}} { // the wider line in the ground's colour separates the whisker from the bar
			c.StrokeLine2(style, x(start), middle, x(end), middle)
			for _, cap := range []float64{start, end} {
				c.StrokeLine2(style, x(cap), middle-half/2, x(cap), middle+half/2)
			}
		}
	}
	c.FillText(labelStyle(), vg.Point{X: x(end) + labelGap, Y: middle}, b.Label)
}

// GlyphBoxes reserves space for the label.
func (b drawnBar) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	if b.Label == "" {
		return nil
	}
	_, end := b.span()
	box := labelStyle().Rectangle(b.Label).Add(vg.Point{X: labelGap})
	return []plot.GlyphBox{{X: p.X.Norm(end), Y: p.Y.Norm(b.y), Rectangle: box}}
}

func labelStyle() text.Style { return textStyle(fontSize, text.XLeft, text.YCenter) }
