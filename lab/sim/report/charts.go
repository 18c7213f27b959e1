package report

import (
	"bytes"
	"html/template"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"penstock/lab/sim"
)

var colours = []color.Color{
	color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}, color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, color.RGBA{G: 0x9e, B: 0x73, A: 0xff}, color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff},
}

// charts are those that the result has something for.
func (r Report) charts() (all []template.HTML, err error) {
	for _, make := range []func() (*plot.Plot, error){r.misplaced, r.shares, r.slowdowns, r.times} {
		p, err := make()
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		canvas := vgsvg.New(18*vg.Centimeter, 8*vg.Centimeter)
		p.Draw(draw.New(canvas))
		var svg bytes.Buffer
		if _, err := canvas.WriteTo(&svg); err != nil {
			return nil, err
		}
		text := svg.String()
		all = append(all, template.HTML(text[max(0, strings.Index(text, "<svg")):])) // our own drawing
	}
	return all, nil
}

// misplaced is what is over the time, with a mark for every change.
func (r Report) misplaced() (*plot.Plot, error) {
	if len(r.Windows) == 0 {
		return nil, nil
	}
	p := plot.New()
	p.Title.Text = "Service that went to others than it was due to; grey: changes"
	p.X.Label.Text, p.Y.Label.Text = "s", "%"
	var points plotter.XYs
	most := 1.0
	for _, w := range r.Windows {
		points = append(points, plotter.XY{X: w.To, Y: 100 * w.Misplaced})
		most = max(most, 100*w.Misplaced)
	}
	p.Y.Min, p.Y.Max = 0, 1.05*most
	p.Add(plotter.NewGrid())
	for i, c := range r.Changes {
		if i == 200 {
			break // more would be a grey page
		}
		mark, err := plotter.NewLine(plotter.XYs{{X: c.At, Y: 0}, {X: c.At, Y: most}})
		if err != nil {
			return nil, err
		}
		mark.Color = colours[3]
		mark.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
		p.Add(mark)
	}
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, err
	}
	marks.Shape, marks.Radius = draw.CircleGlyph{}, vg.Points(1.5)
	p.Add(line, marks)
	return p, nil
}

// bars adds groups of bars, a colour for each of some names.
func bars(p *plot.Plot, names []string, values [][]float64) error {
	width := vg.Points(min(24, 300/float64(len(names)*max(1, len(values[0])))))
	for i, name := range names {
		b, err := plotter.NewBarChart(plotter.Values(values[i]), width)
		if err != nil {
			return err
		}
		b.Color, b.LineStyle.Width = colours[i%len(colours)], 0
		b.Offset = width * vg.Length(float64(i)-float64(len(names)-1)/2)
		p.Add(b)
		p.Legend.Add(name, b)
	}
	p.Legend.Top = true
	return nil
}

// shares shows those that are furthest from what they are due.
func (r Report) shares() (*plot.Plot, error) {
	rows := furthest(r.Result)
	if len(rows) == 0 {
		return nil, nil
	}
	rows = rows[:min(len(rows), 10)]
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = "Shares, those furthest from what is due", "% of all service"
	due, had, names := make([]float64, len(rows)), make([]float64, len(rows)), make([]string, len(rows))
	most := 0.0
	for i, a := range rows {
		due[i], had[i], names[i] = 100*a.Due, 100*a.Had, a.Name
		most = max(most, due[i], had[i])
	}
	if err := bars(p, []string{"due", "had"}, [][]float64{due, had}); err != nil {
		return nil, err
	}
	p.Y.Max = 1.25 * most // room for the legend
	p.NominalX(names...)
	return p, nil
}

// slowdowns shows the mean of each kind of jobs, way by way.
func (r Report) slowdowns() (*plot.Plot, error) {
	ways := r.ways()
	if len(ways) == 0 || r.Average(ways[0]) == 0 {
		return nil, nil
	}
	var of []string
	values := make([][]float64, len(ways))
	most := 0.0
	for i, way := range ways {
		for _, s := range r.Summaries {
			if s.Way != way {
				continue
			}
			if i == 0 {
				of = append(of, s.Of)
			}
			values[i] = append(values[i], s.SlowdownMean)
			most = max(most, s.SlowdownMean)
		}
		if len(values[i]) != len(values[0]) {
			return nil, nil // some jobs have not ended, which the page says
		}
	}
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = "Mean slowdown", "times as long as alone"
	if err := bars(p, ways, values); err != nil {
		return nil, err
	}
	p.Y.Min, p.Y.Max = 0, 1.3*most
	p.NominalX(of...)
	return p, nil
}

// times shows which part of the jobs has ended within a time.
func (r Report) times() (*plot.Plot, error) {
	if len(r.Jobs) < 10 {
		return nil, nil
	}
	p := plot.New()
	p.Title.Text = "Run times of all jobs"
	p.X.Label.Text, p.Y.Label.Text = "s", "% of the jobs"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	for i, way := range append(r.ways(), "alone") {
		points := cumulated(r.Jobs, way)
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.Color = colours[i%len(colours)]
		p.Add(line)
		p.Legend.Add(way, line)
	}
	p.Legend.Top, p.Legend.Left = true, true
	return p, nil
}

func cumulated(jobs []sim.Job, way string) (points plotter.XYs) {
	times := sim.Times(jobs, way)
	for i, t := range times {
		points = append(points, plotter.XY{X: t, Y: 100 * float64(i+1) / float64(len(jobs))})
	}
	return points
}
