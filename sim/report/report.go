// Package report shows a simulation's result: as text, and as one HTML page that needs
// nothing else.
package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"penstock/sim"
)

// mostRows bounds the table of applications: those that are furthest off.
const mostRows = 20

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"percent": percent}).Parse(page))

func percent(part float64) string { return fmt.Sprintf("%.2f %%", 100*part) }

// furthest are the applications whose shares are furthest from what they are due, by weight
// of all service.
func furthest(r *sim.Result) []sim.Application {
	all := slices.Clone(r.Shares)
	slices.SortStableFunc(all, func(a, b sim.Application) int {
		switch x, y := math.Abs(a.Had-a.Due), math.Abs(b.Had-b.Due); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return all[:min(len(all), mostRows)]
}

// Report is a result that can be shown.
type Report struct{ *sim.Result }

// Verdict is the result in a line.
func (r Report) Verdict() string {
	if !r.Good {
		return "not as the scenario expects: " + r.Fault
	}
	return fmt.Sprintf("%s of the service misplaced (median of %d windows), %s in the worst window", percent(r.Misplaced), r.Judged, percent(r.Worst))
}

// WriteJSON writes the whole result.
func (r Report) WriteJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r.Result)
}

// WriteTable writes the result for a terminal.
func (r Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%d nodes, %d applications, seed %d\n\n", r.Title, r.Nodes, r.Applications, r.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "application\tweight\tnodes\tdue\thad\t")
	for _, a := range furthest(r.Result) {
		fmt.Fprintf(t, "%s\t%g\t%d\t%s\t%s\t\n", a.Name, a.Weight, a.Nodes, percent(a.Due), percent(a.Had))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if left := len(r.Shares) - mostRows; left > 0 {
		fmt.Fprintf(w, "and %d that are nearer to what they are due\n", left)
	}
	verdict := r.Verdict()
	_, err := fmt.Fprintf(w, "\n%s\n", strings.ToUpper(verdict[:1])+verdict[1:])
	return err
}

// WriteHTML writes the page.
func (r Report) WriteHTML(w io.Writer, made time.Time) error {
	chart, err := chart(r.Result)
	if err != nil {
		return err
	}
	return pageTemplate.Execute(w, struct {
		Made    string
		Result  *sim.Result
		Verdict string
		Rows    []sim.Application
		Left    int
		Chart   template.HTML
	}{made.UTC().Format("2006-01-02 15:04 UTC"), r.Result, r.Verdict(), furthest(r.Result), max(0, len(r.Shares)-mostRows), chart})
}

// chart draws what is misplaced over the time.
func chart(r *sim.Result) (template.HTML, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "s", "% of the service misplaced"
	p.Y.Min = 0
	var points plotter.XYs
	for _, w := range r.Windows {
		points = append(points, plotter.XY{X: w.To, Y: 100 * w.Misplaced})
	}
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return "", err
	}
	marks.Shape = draw.CircleGlyph{}
	marks.Radius = vg.Points(1.5)
	p.Add(plotter.NewGrid(), line, marks)
	canvas := vgsvg.New(18*vg.Centimeter, 8*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return "", err
	}
	text := svg.String()
	return template.HTML(text[max(0, strings.Index(text, "<svg")):]), nil // our own drawing
}
