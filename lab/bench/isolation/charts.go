package isolation

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"

	"penstock/lab/chart"
	"penstock/lab/contest"
)

const (
	barsWidth   = 660 // points
	panelWidth  = 330
	panelHeight = 130
	// leastDrawn is the rate in MB/s from which I/O that belongs to neither job is drawn.
	leastDrawn = 2
)

// runtimeChart draws the protected job's run time in each phase.
func (res Result) runtimeChart() chart.Bars {
	c := chart.Bars{Width: barsWidth, X: res.Setup.protected().title() + "'s run time, s"}
	for _, f := range res.Phases {
		if f.Name == aggressorAlone {
			continue
		}
		label := fmt.Sprintf("%.0f s", f.RuntimeS)
		if v := f.SlowdownVsFloor; v != nil && f.Name != "alone" && f.Name != "floor" {
			label += fmt.Sprintf(", %.2f×", *v)
		}
		c.Rows = append(c.Rows, chart.Row{Name: res.plainName(f.Name), Bars: []chart.Bar{{Colour: phaseColour(f.Name), Value: f.RuntimeS,
			Low: f.RuntimeSpread.Min, High: f.RuntimeSpread.Max, Runs: len(f.RuntimesS), Label: label}}})
	}
	if res.phase("floor") != nil {
		c.X += " (×: against CPU contention only)"
	}
	return c
}

func phaseColour(phase string) chart.Colour {
	switch {
	case phase == "alone" || phase == "floor" || phase == fullSpeed.Name:
		return chart.Grey
	case strings.HasPrefix(phase, nativePrefix):
		return chart.Purple
	case sfqd.has(phase) || phase == "sfqd2":
		return chart.Blue
	}
	return chart.Teal
}

const ownerTotal = "total"

// line returns the throughput chart's line of an owner's device bytes.
func (s Setup) line(owner string, points []chart.Point) chart.Line {
	l := chart.Line{Name: "other", Colour: chart.Grey, Points: points}
	switch owner {
	case ownerProtected, wordCount: // wordCount is the protected job's name in older journals
		l.Name, l.Colour = s.protected().title(), chart.Blue
	case ownerAggressor:
		l.Name, l.Colour = s.aggressor().title(), chart.Orange
	case ownerTotal:
		l.Name = "all bytes"
	}
	return l
}

// throughputChart draws the device bytes of each phase's typical run over time, by owner.
func (res Result) throughputChart() (c chart.Lines, sources []string) {
	c = chart.Lines{Columns: 2, Shared: true, Width: panelWidth, Height: panelHeight}
	for _, f := range res.Phases {
		r, ok := typical(res.runs, f)
		if !ok {
			continue
		}
		p := chart.Panel{Title: res.plainName(f.Name), X: "seconds since " + res.Setup.measured(Phase{Unprotected: f.Name == aggressorAlone}) + "'s start", Y: "MB/s"}
		lines, source := throughputs(r)
		for _, owner := range slices.Backward(slices.Sorted(maps.Keys(lines))) { // the protected job first
			small := !slices.ContainsFunc(lines[owner], func(at chart.Point) bool { return at.Y >= leastDrawn })
			if owner != ownerOther || !small {
				p.Lines = append(p.Lines, res.Setup.line(owner, lines[owner]))
			}
		}
		c.Panels = append(c.Panels, p)
		if !slices.Contains(sources, source) {
			sources = append(sources, source)
		}
	}
	return c, sources
}

// throughputs returns MB/s over time by owner, and the source of the figures: the disks' own log if
// it was judged, else the daemon, else the device counters, which do not distinguish owners.
func throughputs(r Run) (map[string][]chart.Point, string) {
	out := map[string][]chart.Point{}
	if v := r.Verdict; v != nil {
		for owner, mbps := range v.MBps {
			out[owner] = contest.Steps(mbps, v.StepSeconds)
		}
		return out, "the modelled disks' request log and file extents"
	}
	if s := r.Series.Scrapes; len(s) > 1 {
		for i := 1; i < len(s); i++ {
			sums := map[string]float64{ownerProtected: 0, ownerAggressor: 0, ownerOther: 0}
			for flow, bytes := range s[i].FlowBytes {
				sums[ownerOf(r, flow)] += bytes - s[i-1].FlowBytes[flow]
			}
			for owner, b := range sums {
				out[owner] = append(out[owner], chart.Point{X: s[i].At, Y: b / megabyte / max(0.01, s[i].At-s[i-1].At)})
			}
		}
		return out, "Penstock's metrics"
	}
	out[ownerTotal] = contest.Steps(r.Series.total(), r.Series.StepSeconds)
	return out, "device counters, which do not tell the jobs apart"
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

// depthChart draws two charts as in IBIS, Figure 7. One shows the depth over time. The other shows
// the latency from which the depth was computed, and the reference latency.
func depthChart(r Run) chart.Lines {
	depth := chart.Panel{Title: "depth", X: "seconds", Y: "requests in flight"}
	latency := chart.Panel{Title: "latency", X: "seconds", Y: "ms"}
	for i, device := range busyDevices(r) {
		line := func(name string, dashed bool, of func(Scrape) map[string]float64) chart.Line {
			l := chart.Line{Name: name, Colour: chart.Palette(i), Dashed: dashed}
			for _, s := range r.Series.Scrapes {
				if v, ok := of(s)[device]; ok {
					l.Points = append(l.Points, chart.Point{X: s.At, Y: v})
				}
			}
			return l
		}
		depth.Lines = append(depth.Lines, line(device, false, func(s Scrape) map[string]float64 { return s.Depth }))
		latency.Lines = append(latency.Lines, line(device, false, func(s Scrape) map[string]float64 { return s.LatencyMS }),
			line(device+", reference", true, func(s Scrape) map[string]float64 { return s.ReferenceMS }))
	}
	return chart.Lines{Columns: 2, Width: panelWidth, Height: panelHeight, Panels: []chart.Panel{depth, latency}}
}

// busyDevices returns the devices that had a latency above zero in any scrape.
func busyDevices(r Run) []string {
	seen := map[string]bool{}
	for _, s := range r.Series.Scrapes {
		for device, ms := range s.LatencyMS {
			if ms > 0 {
				seen[device] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// typical returns the run of a phase with the run time nearest to the phase's median.
func typical(runs []Run, f Figure) (Run, bool) {
	best, found := Run{}, false
	for _, r := range runs {
		if r.Phase == f.Name && (!found || math.Abs(r.RuntimeS-f.RuntimeS) < math.Abs(best.RuntimeS-f.RuntimeS)) {
			best, found = r, true
		}
	}
	return best, found
}

// figureView is a chart with its caption.
type figureView struct {
	SVG     template.HTML
	Caption string
}

// figures draws the report's charts.
func (v *reportView) figures(res Result) (err error) {
	if v.Runtime, err = chart.Inline(res.runtimeChart()); err != nil {
		return err
	}
	throughput, sources := res.throughputChart()
	v.Throughput.Caption = strings.Join(sources, "; ")
	if v.Throughput.SVG, err = chart.Inline(throughput); err != nil {
		return err
	}
	f := res.phase("sfqd2")
	if f == nil {
		return nil
	}
	r, ok := typical(res.runs, *f)
	if !ok || len(busyDevices(r)) == 0 {
		return nil
	}
	v.Depth.Caption = fmt.Sprintf("%s, run %d: the depth of each device, and the mean latency of its requests against the reference, by control period.",
		res.plainName(r.Phase), r.Number)
	v.Depth.SVG, err = chart.Inline(depthChart(r))
	return err
}
