package overhead

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"image/color"
	"io"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgsvg"

	"gonum.org/v1/plot/vg/draw"

	"penstock/lab/experiment/figures"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"interval": interval}).Parse(reportHTML))

// WriteReport writes one HTML page that needs nothing else.
func (res Result) WriteReport(w io.Writer, made time.Time) error {
	setup, err := json.MarshalIndent(res.Setup, "", "  ")
	if err != nil {
		return err
	}
	chart, err := res.chart()
	if err != nil {
		return err
	}
	return reportTemplate.Execute(w, struct {
		Made, Setup string
		Result      Result
		Notes       []string
		Chart       template.HTML
	}{made.UTC().Format("2006-01-02 15:04 UTC"), string(setup), res, res.Notes(), chart})
}

// chart draws every ratio with its interval, one column each.
func (res Result) chart() (template.HTML, error) {
	var names []string
	var points plotter.XYs
	var errs plotter.YErrors
	add := func(what Operation, v Variant, r *figures.Ratio) {
		if r == nil {
			return
		}
		points = append(points, plotter.XY{X: float64(len(names)), Y: r.Mean})
		errs = append(errs, struct{ Low, High float64 }{r.Mean - r.Low, r.High - r.Mean})
		names = append(names, string(what)+"\n"+string(v))
	}
	for _, op := range Paced {
		for _, s := range res.Streams {
			if s.Operation == op {
				add(op, s.Variant, s.CPURatio)
			}
		}
	}
	for _, j := range res.Jobs {
		add(j.Operation, j.Variant, j.Ratio)
	}
	if len(points) == 0 {
		return "", nil
	}
	p := plot.New()
	p.Y.Label.Text = "ratio to native"
	p.NominalX(names...)
	bars, err := plotter.NewYErrorBars(struct {
		plotter.XYer
		plotter.YErrorer
	}{points, errs})
	if err != nil {
		return "", err
	}
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return "", err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: color.Black, Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
	one := plotter.NewFunction(func(float64) float64 { return 1 })
	one.Color = color.Gray{160}
	p.Add(plotter.NewGrid(), one, bars, dots)
	canvas := vgsvg.NewWith(vgsvg.UseWH(vg.Points(max(420, 62*float64(len(names)))), vg.Points(280)))
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	// The page is HTML: the XML declaration before the picture goes.
	return template.HTML(b.Bytes()[bytes.Index(b.Bytes(), []byte("<svg")):]), nil
}
