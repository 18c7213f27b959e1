package isolation

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"times": times, "percent": percent, "optional": optional,
}).Parse(reportHTML))

// figureView is a plot with its caption.
type figureView struct {
	SVG     template.HTML
	Caption string
}

type reportView struct {
	Title      string
	Made       string
	Result     Result
	Notes      []string
	Runtime    figureView
	Throughput []figureView
	Depth      []figureView
	Setup      string // JSON
	Modelled   bool
	Protected  string
	Both       bool // the aggressor's run times are there
}

// WriteReport writes one HTML page that needs nothing else: no script, no font,
// no image from anywhere.
func (res Result) WriteReport(w io.Writer, made time.Time) error {
	setup, err := json.MarshalIndent(res.Setup, "", "  ")
	if err != nil {
		return err
	}
	v := reportView{
		Title:  fmt.Sprintf("%s against %s on a %s", res.Setup.protected().title(), res.Setup.Against, res.Setup.Disk.kindName()),
		Made:   made.UTC().Format("2006-01-02 15:04 UTC"),
		Result: res, Notes: append(res.Notes(), res.Setup.Notes...),
		Setup: string(setup), Modelled: res.Setup.Disk.Modelled,
		Protected: res.Setup.protected().title(), Both: res.hasBoth(),
	}
	if v.Runtime, err = res.runtimeFigure(); err != nil {
		return err
	}
	if err := res.timeFigures(&v); err != nil {
		return err
	}
	return reportTemplate.Execute(w, v)
}

func (res Result) runtimeFigure() (figureView, error) {
	p, err := runtimePlot(res)
	if err != nil {
		return figureView{}, err
	}
	s, err := svg(p, plotWidth, res.chartHeight(), true)
	return figureView{SVG: template.HTML(s), Caption: "Median run time of " + res.Setup.protected().title() + " in each phase; circles are single runs."}, err
}

// timeFigures draws, for the typical run of each phase, what happened over time.
func (res Result) timeFigures(v *reportView) error {
	var yMax float64
	var runs []Run
	for _, f := range res.Phases {
		r, ok := typical(res.runs, f)
		if !ok {
			continue
		}
		runs = append(runs, r)
		lines, _ := throughputs(r)
		for _, l := range lines {
			for _, pt := range l {
				yMax = max(yMax, pt.Y*1.1)
			}
		}
	}
	for _, r := range runs {
		p, source, err := throughputPlot(r, yMax)
		if err != nil {
			return err
		}
		s, err := svg(p, plotWidth, plotHeight*3/4, true)
		if err != nil {
			return err
		}
		v.Throughput = append(v.Throughput, figureView{template.HTML(s), source})
		if len(busyDevices(r)) == 0 || !strings.HasPrefix(r.Phase, "sfqd2") {
			continue
		}
		depth, latency, err := depthPlots(r)
		if err != nil {
			return err
		}
		upper, err := svg(depth, plotWidth, plotHeight*3/4, true)
		if err != nil {
			return err
		}
		lower, err := svg(latency, plotWidth, plotHeight*3/4, true)
		if err != nil {
			return err
		}
		v.Depth = append(v.Depth, figureView{template.HTML(upper + lower),
			fmt.Sprintf("%s, run %d: the depth of each device (above) and the mean latency of its requests against the reference (below), by control period.", r.Phase, r.Number)})
	}
	return nil
}

// WriteSVG writes the main chart alone, for a document.
func (res Result) WriteSVG(w io.Writer) error {
	p, err := runtimePlot(res)
	if err != nil {
		return err
	}
	protected, aggressor := res.Setup.Penstock.ProtectedWeight, res.Setup.Penstock.AggressorWeight
	p.Title.Text = fmt.Sprintf("%s beside %s, %s, %d:%d", res.Setup.protected().title(), res.Setup.Against, res.Setup.Disk.kindName(), protected, aggressor)
	s, err := svg(p, plotWidth, res.chartHeight(), false)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, s)
	return err
}

// WriteJSON writes the figures in the documented form.
func (res Result) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(res)
}
