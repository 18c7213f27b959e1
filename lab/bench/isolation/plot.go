package isolation

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours that read on light and dark ground alike, and apart from each other
// for eyes that do not tell red from green.
var (
	colourProtected = color.RGBA{0x1f, 0x77, 0xb4, 0xff}
	colourAggressor = color.RGBA{0xe0, 0x7b, 0x1a, 0xff}
	colourOther     = color.RGBA{0x8a, 0x8a, 0x8a, 0xff}
	colourPeer      = color.RGBA{0x2b, 0x9e, 0x8f, 0xff}
	colourGrid      = color.NRGBA{0x99, 0x99, 0x99, 0x66}
	lineColours     = []color.Color{colourProtected, colourAggressor, color.RGBA{0x6a, 0x51, 0xa3, 0xff}, colourPeer}
)

func colourOf(owner string) color.Color {
	switch owner {
	case ownerProtected, wordCount: // so it was called when there was no other
		return colourProtected
	case ownerAggressor:
		return colourAggressor
	}
	return colourOther
}

// legendGap keeps a name off its line or bar where the page's font is wider than the one that
// the plot was measured with.
const legendGap = "\u00a0\u00a0\u00a0"

// edge leaves room for the last tick's label.
const edge = 1.03

const (
	plotWidth  = 16 * vg.Centimeter
	plotHeight = 7 * vg.Centimeter
)

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil // the page's own
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, s := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		s.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
	}
	p.Title.TextStyle.Font.Size = 10
	p.Title.Padding = 6
	p.X.Tick.Marker, p.Y.Tick.Marker = roundTicks{}, roundTicks{}
	p.Legend.Top = true
	p.Legend.Padding = 3
	p.Legend.XOffs = -6
	p.Y.Min = 0
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

func grid(p *plot.Plot) {
	g := plotter.NewGrid()
	g.Vertical.Width = 0
	g.Horizontal.Color = colourGrid
	p.Add(g)
}

// runtimePlot is the main chart: a bar per phase in which the protected job runs, with
// its slowdown behind it, and its runs as points. The bars lie, so that sixteen names can be read.
func runtimePlot(res Result) (*plot.Plot, error) {
	p := newPlot("", res.Setup.protected().title()+"'s run time, s", "")
	g := plotter.NewGrid()
	g.Horizontal.Width = 0
	g.Vertical.Color = colourGrid
	p.Add(g)
	phases := res.compared()
	n := len(phases)
	names := make([]string, n)
	for i, f := range phases {
		y := float64(n - 1 - i) // the first one on top
		bar, err := plotter.NewBarChart(plotter.Values{f.RuntimeS}, barHeight*3/5)
		if err != nil {
			return nil, err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width = true, y, 0
		bar.Color = barColour(f.Name)
		p.Add(bar)
		if err := addRuns(p, y, f.RuntimesS); err != nil {
			return nil, err
		}
		if err := addLabel(p, f.RuntimeSpread.Max, y, barLabel(f)); err != nil {
			return nil, err
		}
		names[n-1-i] = f.Name + legendGap
		p.X.Max = max(p.X.Max, f.RuntimeSpread.Max*1.25)
	}
	p.NominalY(names...)
	p.X.Min, p.Y.Min, p.Y.Max = 0, -0.6, float64(n)-0.4
	return p, nil
}

// Of the main chart: so much for each bar, and for axis and title.
const (
	barHeight   = 0.75 * vg.Centimeter
	chartMargin = 1.8 * vg.Centimeter
)

func (res Result) chartHeight() vg.Length {
	return chartMargin + barHeight*vg.Length(len(res.compared()))
}

// compared are the phases in which the protected job runs.
func (res Result) compared() []Figure {
	return slices.DeleteFunc(slices.Clone(res.Phases), func(f Figure) bool { return f.Name == aggressorAlone })
}

func barLabel(f Figure) string {
	switch {
	case f.SlowdownVsFloor != nil && f.Name != "alone" && f.Name != "floor":
		return fmt.Sprintf("%.2f× floor", *f.SlowdownVsFloor)
	case f.Slowdown != nil && f.Name != "alone":
		return fmt.Sprintf("%.2f× alone", *f.Slowdown)
	}
	return fmt.Sprintf("%.0f s", f.RuntimeS)
}

func barColour(phase string) color.Color {
	switch {
	case phase == "alone" || phase == "floor":
		return colourOther
	case strings.HasPrefix(phase, nativePrefix):
		return colourAggressor
	case strings.HasPrefix(phase, throttlerPrefix), strings.HasPrefix(phase, drrPrefix),
		strings.HasPrefix(phase, weightsPrefix), strings.HasPrefix(phase, capsPrefix):
		return colourPeer
	}
	return colourProtected
}

func addRuns(p *plot.Plot, y float64, values []float64) error {
	if len(values) < 2 {
		return nil
	}
	var pts plotter.XYs
	for _, v := range values {
		pts = append(pts, plotter.XY{X: v, Y: y})
	}
	s, err := plotter.NewScatter(pts)
	if err != nil {
		return err
	}
	s.GlyphStyle = draw.GlyphStyle{Color: color.Black, Radius: 1.6, Shape: draw.RingGlyph{}}
	p.Add(s)
	return nil
}

func addLabel(p *plot.Plot, x, y float64, s string) error {
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{s}})
	if err != nil {
		return err
	}
	l.TextStyle[0].Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
	l.TextStyle[0].XAlign, l.TextStyle[0].YAlign = text.XLeft, text.YCenter
	l.Offset.X = 5
	p.Add(l)
	return nil
}

// throughputPlot shows whose the device bytes of one run were, over time: by
// the disks' own log where it was judged, else by the daemon's account, else
// only the total. yMax is the same for all phases, so that they compare.
func throughputPlot(r Run, yMax float64) (*plot.Plot, string, error) {
	p := newPlot(fmt.Sprintf("%s, run %d", r.Phase, r.Number), "seconds since its start", "MB/s")
	grid(p)
	lines, source := throughputs(r)
	for _, owner := range slices.Sorted(keys(lines)) {
		l, err := plotter.NewLine(lines[owner])
		if err != nil {
			return nil, "", err
		}
		l.Color, l.Width = colourOf(owner), 1.4
		p.Add(l)
		p.Legend.Add(owner+legendGap, l)
	}
	p.X.Min, p.X.Max, p.Y.Max = 0, max(1, r.RuntimeS*edge), yMax
	return p, source, nil
}

const (
	sourceLog    = "by the modelled disks' request log and file extents"
	sourceDaemon = "by Penstock's account"
	sourceTotal  = "device counters, total only"
	ownerTotal   = "total"
)

func throughputs(r Run) (map[string]plotter.XYs, string) {
	out := map[string]plotter.XYs{}
	if v := r.Verdict; v != nil {
		for owner, mbps := range v.MBps {
			out[owner] = steps(mbps, v.StepSeconds)
		}
		return out, sourceLog
	}
	if s := r.Series.Scrapes; len(s) > 1 {
		for i := 1; i < len(s); i++ {
			sums := map[string]float64{ownerProtected: 0, ownerAggressor: 0, ownerOther: 0}
			for flow, bytes := range s[i].FlowBytes {
				sums[ownerOf(r, flow)] += bytes - s[i-1].FlowBytes[flow]
			}
			for owner, b := range sums {
				out[owner] = append(out[owner], plotter.XY{X: s[i].At, Y: b / megabyte / max(0.01, s[i].At-s[i-1].At)})
			}
		}
		return out, sourceDaemon
	}
	out[ownerTotal] = steps(total(r.Series), r.Series.StepSeconds)
	return out, sourceTotal
}

func ownerOf(r Run, flow string) string {
	switch {
	case flow == r.Protected:
		return ownerProtected
	case slices.Contains(r.aggressors(), flow):
		return ownerAggressor
	}
	return ownerOther
}

func steps(mbps []float64, step float64) plotter.XYs {
	pts := make(plotter.XYs, len(mbps))
	for i, v := range mbps {
		pts[i] = plotter.XY{X: (float64(i) + 0.5) * step, Y: v}
	}
	return pts
}

// total is MB/s of all disks by step.
func total(s Series) []float64 {
	var sum []float64
	for _, name := range slices.Sorted(keys(s.Disks)) {
		for i, v := range s.Disks[name] {
			if i == len(sum) {
				sum = append(sum, 0)
			}
			sum[i] += v
		}
	}
	return sum
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// depthPlots are IBIS, Figure 7: the depth over time, and below it the latency
// that it was adapted to, against the reference. One line a busy device.
func depthPlots(r Run) (depth, latency *plot.Plot, err error) {
	depth = newPlot("", "", "depth D, requests")
	latency = newPlot("", "seconds since its start", "latency, ms")
	grid(depth)
	grid(latency)
	depth.X.Max, latency.X.Max = max(1, r.RuntimeS*edge), max(1, r.RuntimeS*edge)
	depth.X.Min, latency.X.Min = 0, 0
	for i, device := range busyDevices(r) {
		c := lineColours[i%len(lineColours)]
		if err := addSeries(depth, r, device, device, c, false, func(s Scrape) map[string]float64 { return s.Depth }); err != nil {
			return nil, nil, err
		}
		if err := addSeries(latency, r, device, device, c, false, func(s Scrape) map[string]float64 { return s.LatencyMS }); err != nil {
			return nil, nil, err
		}
		if err := addSeries(latency, r, device, device+" reference", c, true, func(s Scrape) map[string]float64 { return s.ReferenceMS }); err != nil {
			return nil, nil, err
		}
	}
	return depth, latency, nil
}

func addSeries(p *plot.Plot, r Run, device, name string, c color.Color, dashed bool, of func(Scrape) map[string]float64) error {
	var pts plotter.XYs
	for _, s := range r.Series.Scrapes {
		if v, ok := of(s)[device]; ok {
			pts = append(pts, plotter.XY{X: s.At, Y: v})
			p.Y.Max = max(p.Y.Max, v*1.2)
		}
	}
	if len(pts) < 2 {
		return nil
	}
	l, err := plotter.NewLine(pts)
	if err != nil {
		return err
	}
	l.Color, l.Width = c, 1.4
	if dashed {
		l.Dashes = []vg.Length{4, 3}
		l.Width = 1
	}
	p.Add(l)
	p.Legend.Add(name+legendGap, l)
	return nil
}

// busyDevices are the devices whose latency ever was above zero.
func busyDevices(r Run) []string {
	seen := map[string]bool{}
	for _, s := range r.Series.Scrapes {
		for device, ms := range s.LatencyMS {
			if ms > 0 {
				seen[device] = true
			}
		}
	}
	names := slices.Collect(keys(seen))
	sort.Strings(names)
	return names
}

// typical is the run of a phase whose run time is nearest to the phase's median.
func typical(runs []Run, f Figure) (Run, bool) {
	best, found := Run{}, false
	for _, r := range runs {
		if r.Phase == f.Name && (!found || math.Abs(r.RuntimeS-f.RuntimeS) < math.Abs(best.RuntimeS-f.RuntimeS)) {
			best, found = r, true
		}
	}
	return best, found
}

// svg draws the plot. Inline, text and axes take the page's own colour and font
// and there is no XML declaration; as a file it has a white ground.
func svg(p *plot.Plot, width, height vg.Length, inline bool) (string, error) {
	if !inline {
		p.BackgroundColor = color.White
	}
	c := vgsvg.New(width, height)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	s := b.String()
	if !inline {
		return s, nil
	}
	if i := strings.Index(s, "<svg"); i >= 0 {
		s = s[i:]
	}
	return strings.NewReplacer("#000000", "currentColor", "Liberation Sans", "inherit").Replace(s), nil
}
