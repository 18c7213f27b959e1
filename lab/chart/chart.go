// Package chart draws the charts of all reports as SVG: lines in several panels, and bars with
// intervals. The legend is above the panels, never over the curves. A chart is drawn in the colours
// for a light page, and contains a style sheet that replaces them on a dark page.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colour is a colour of a chart.
type Colour int

// Colours for data. They also differ in lightness, for readers who cannot distinguish red and
// green.
const (
	Blue Colour = iota
	Orange
	Teal
	Purple
	Grey
	Brown
	ink    // text and axes
	faint  // grid
	ground // background of a chart in its own file
	colours
)

// Palette returns the colour of the i-th series that has no colour of its own.
func Palette(i int) Colour { return Colour(i % int(Grey)) }

// light and dark are the colours on a light and on a dark page. Each light colour is unique,
// because the style sheet uses it to find the elements to recolour.
var (
	light = [colours]color.RGBA{{0x1f, 0x77, 0xb4, 255}, {0xd9, 0x66, 0x0a, 255}, {0x2b, 0x8a, 0x7e, 255}, {0x6a, 0x51, 0xa3, 255},
		{0x7f, 0x7f, 0x7f, 255}, {0x8c, 0x56, 0x4b, 255}, {0x1b, 0x1b, 0x1b, 255}, {0xd4, 0xd4, 0xd4, 255}, {0xff, 0xff, 0xff, 255}}
	dark = [colours]color.RGBA{{0x6c, 0xb4, 0xee, 255}, {0xf5, 0x9e, 0x4c, 255}, {0x4c, 0xc4, 0xb4, 255}, {0xb3, 0xa0, 0xe6, 255},
		{0xa0, 0xa0, 0xa0, 255}, {0xc8, 0x98, 0x8e, 255}, {0xe6, 0xe6, 0xe6, 255}, {0x43, 0x47, 0x4f, 255}, {0x16, 0x18, 0x1c, 255}}
)

func (c Colour) on(page [colours]color.RGBA) string {
	return fmt.Sprintf("#%02X%02X%02X", page[c].R, page[c].G, page[c].B)
}

func (c Colour) drawn() color.Color { return light[c] }

// styleSheet recolours a chart on a dark page. Programs that do not support style sheets show the
// light colours.
var styleSheet = func() string {
	var b strings.Builder
	b.WriteString("<style>@media (prefers-color-scheme: dark) {\n")
	for c := range colours {
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&b, `.chart [style*="%s:%s"] { %[1]s: %[3]s !important }`+"\n", property, c.on(light), c.on(dark))
		}
	}
	b.WriteString("}</style>\n")
	return b.String()
}()

// Chart is a chart that File or Inline can write.
type Chart interface {
	// describe returns the title to draw, if any, and a text for readers who cannot see the chart.
	describe() (title, text string)
	size() (width, height vg.Length)
	legend() []entry
	draw(draw.Canvas)
}

// Inline returns the chart as part of an HTML page, with the page's own background.
func Inline(c Chart) (template.HTML, error) {
	s, err := svg(c, false)
	return template.HTML(s), err // the SVG is drawn here, and gonum escapes all text
}

// File returns the chart as an SVG file with its own background.
func File(c Chart) ([]byte, error) {
	s, err := svg(c, true)
	return []byte(`<?xml version="1.0"?>` + "\n" + s), err
}

func svg(c Chart, ownGround bool) (string, error) {
	width, height := c.size()
	title, description := c.describe()
	rows := layOut(c.legend(), width)
	strip := vg.Length(len(rows)) * legendRow
	if len(rows) > 0 {
		strip += stripGap
	}
	if title != "" {
		strip += titleRow
	}
	var margin vg.Length
	if ownGround {
		margin = fileMargin
	}
	canvas := vgsvg.New(width+2*margin, height+strip+2*margin)
	whole := draw.New(canvas)
	if ownGround {
		whole.SetColor(ground.drawn())
		whole.Fill(whole.Rectangle.Path())
		whole = draw.Crop(whole, margin, -margin, margin, -margin)
	}
	top := whole.Max.Y
	if title != "" {
		whole.FillText(textStyle(fontSize+2, text.XLeft, text.YCenter), vg.Point{X: whole.Min.X + inset, Y: top - titleRow/2}, title)
		top -= titleRow
	}
	for i, row := range rows {
		drawLegend(whole, row, top-(vg.Length(i)+0.5)*legendRow)
	}
	c.draw(draw.Crop(whole, 0, 0, 0, -strip))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw the chart %q: %w", description, err)
	}
	s := b.String()
	i := strings.Index(s, "<svg")
	j := i + strings.Index(s[i:], ">") + 1
	head := fmt.Sprintf(`<svg class="chart" role="img" aria-label="%s"`, template.HTMLEscapeString(description))
	s = head + s[i+len("<svg"):j] + "\n" + styleSheet + s[j:]
	s = drawnText.ReplaceAllStringFunc(s, fit)
	// These fonts have the same metrics as the font of the layout.
	return strings.ReplaceAll(s, "font-family:Liberation Sans", "font-family:'Liberation Sans',Arial,Helvetica,sans-serif"), nil
}

// drawnText matches a text element: its attributes, the size of its font and its text.
var drawnText = regexp.MustCompile(`<text ([^>]*font-size:([0-9.]+)px[^>]*)>([^<]+)</text>`)

// fit gives a text element the length that the layout has measured. Without it, a page on a machine with other fonts would cut texts
// off.
func fit(element string) string {
	parts := drawnText.FindStringSubmatch(element)
	size, err := strconv.ParseFloat(parts[2], 64)
	if err != nil {
		return element
	}
	length := textStyle(font.Length(size), 0, 0).Width(html.UnescapeString(parts[3]))
	return fmt.Sprintf(`<text textLength="%.5g" lengthAdjust="spacingAndGlyphs" %s>%s</text>`, length.Points(), parts[1], parts[3])
}

const (
	fontSize   = 9
	fileMargin = 8
	legendRow  = 16
	titleRow   = 20
	stripGap   = 6 // below the legend
	inset      = 4 // around title and legend
)

func textStyle(size font.Length, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{Color: ink.drawn(), Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		Handler: plot.DefaultTextHandler, XAlign: x, YAlign: y}
}

// entry is an entry of the legend.
type entry struct {
	name   string
	colour Colour
	dashed bool
	bar    bool // draw a filled square instead of a line
}

const (
	square   = 9
	stroke   = 18 // length of a line in the legend
	nameGap  = 4  // gap between the square or line and its name
	entryGap = 16
)

func (e entry) swatch() vg.Length {
	if e.bar {
		return square
	}
	return stroke
}

func (e entry) width() vg.Length {
	return e.swatch() + nameGap + textStyle(fontSize, 0, 0).Width(e.name) + entryGap
}

// layOut divides the legend into rows. It shows a name that occurs twice only once.
func layOut(all []entry, width vg.Length) (rows [][]entry) {
	var used vg.Length
	var seen []string
	for _, e := range all {
		if e.name == "" || slices.Contains(seen, e.name) {
			continue
		}
		seen = append(seen, e.name)
		if len(rows) == 0 || used+e.width() > width {
			rows, used = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		used += e.width()
	}
	return rows
}

func drawLegend(c draw.Canvas, row []entry, y vg.Length) {
	x := c.Min.X + inset
	for _, e := range row {
		if e.bar {
			box := vg.Rectangle{Min: vg.Point{X: x, Y: y - square/2}, Max: vg.Point{X: x + square, Y: y + square/2}}
			c.SetColor(e.colour.drawn())
			c.Fill(box.Path())
		} else {
			c.StrokeLine2(lineStyle(e.colour, e.dashed), x, y, x+stroke, y)
		}
		c.FillText(textStyle(fontSize, text.XLeft, text.YCenter), vg.Point{X: x + e.swatch() + nameGap, Y: y}, e.name)
		x += e.width()
	}
}

func lineStyle(c Colour, dashed bool) draw.LineStyle {
	s := draw.LineStyle{Color: c.drawn(), Width: 1.4}
	if dashed {
		s.Width, s.Dashes = 1, []vg.Length{4, 3}
	}
	return s
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle = textStyle(fontSize+1, text.XCenter, text.YTop)
	p.Title.Padding = 5
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color = ink.drawn(), ink.drawn()
		axis.Label.TextStyle.Font, axis.Label.TextStyle.Color = textStyle(fontSize, 0, 0).Font, ink.drawn()
		axis.Tick.Label.Font, axis.Tick.Label.Color = textStyle(fontSize, 0, 0).Font, ink.drawn()
		axis.Tick.Marker = roundTicks{}
	}
	return p
}

// roundTicks marks an axis at multiples of 1, 2 or 5 times a power of ten.
type roundTicks struct{}

func (roundTicks) Ticks(low, high float64) []plot.Tick {
	if !(high > low) {
		return nil
	}
	const most = 7
	step := math.Pow(10, math.Floor(math.Log10((high-low)/most)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*f) <= most {
			step *= f
			break
		}
	}
	var ticks []plot.Tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 4, 64)})
	}
	return ticks
}

// unlabelled keeps the ticks of an axis and removes their labels.
type unlabelled struct{ plot.Ticker }

func (u unlabelled) Ticks(low, high float64) []plot.Tick {
	ticks := u.Ticker.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = " "
		}
	}
	return ticks
}

// vertical is a dashed vertical line over the whole height of a panel.
type vertical struct {
	x      float64
	colour Colour
}

func (v vertical) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	c.StrokeLine2(lineStyle(v.colour, true), x(v.x), c.Min.Y, x(v.x), c.Max.Y)
}
