package isolation

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"time"

	"penstock/lab/chart"
	"penstock/lab/experiment"
	"penstock/lab/experiment/page"
)

//go:embed report.html
var reportHTML string

var reportTemplate = page.Must(reportHTML, template.FuncMap{"times": times, "percent": percent, "optional": optional})

type reportView struct {
	Result
	Title, Made          string
	Remarks              []string
	Runtime              template.HTML
	Throughput, Depth    figureView
	SetupJSON            string
	Protected, Aggressor string
	Both                 bool // the aggressor's run times are known
}

// PlainName is Result.plainName for the template.
func (v reportView) PlainName(phase string) string { return v.plainName(phase) }

// WriteReport writes one self-contained HTML page, without scripts, fonts or images from elsewhere.
func (res Result) WriteReport(w io.Writer, made time.Time) error {
	setup, err := json.MarshalIndent(res.Setup, "", "  ")
	if err != nil {
		return err
	}
	v := reportView{
		Result: res,
		Title:  fmt.Sprintf("%s beside %s on %ss", res.Setup.protected().title(), res.Setup.aggressor().title(), res.Setup.Disk.KindName()),
		Made:   made.UTC().Format("2006-01-02 15:04 UTC"), Remarks: append(res.Notes(), res.Setup.Notes...),
		SetupJSON: string(setup), Protected: res.Setup.protected().title(), Aggressor: res.Setup.aggressor().title(), Both: res.hasBoth(),
	}
	if err := v.figures(res); err != nil {
		return err
	}
	return reportTemplate.Write(w, page.Page{Headline: cmp.Or(res.Headline(), v.Title), Pending: res.pending, Body: v})
}

// WriteSVG writes the main chart alone, for a document.
func (res Result) WriteSVG(w io.Writer) error {
	c := res.runtimeChart()
	c.Title = fmt.Sprintf("%s beside %s, %s, %d:%d", res.Setup.protected().title(), res.Setup.aggressor().title(), res.Setup.Disk.KindName(),
		res.Setup.Penstock.ProtectedWeight, res.Setup.Penstock.AggressorWeight)
	svg, err := chart.File(c)
	if err != nil {
		return err
	}
	_, err = w.Write(svg)
	return err
}

// WriteJSON writes the figures in the documented form.
func (res Result) WriteJSON(w io.Writer) error {
	return experiment.WriteJSON(w, res)
}
