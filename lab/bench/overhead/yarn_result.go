package overhead

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

// YARNResult is what was found of TeraSort on YARN, and the form of --json.
type YARNResult struct {
	Setup      YARNSetup      `json:"setup"`
	Rounds     int            `json:"rounds"`
	Figures    []YARNFigure   `json:"figures"`
	DaemonPeak int64          `json:"daemon_peak_bytes"`
	Verdicts   []Target       `json:"targets"`
	Builds     []string       `json:"builds"` // of penstock; more than one is a warning
	Claims     []claims.Claim `json:"claims"`
}

// YARNFigure is one figure, in seconds, without Penstock and with all of it. The
// ratio is paired within rounds; none for what native lacks.
type YARNFigure struct {
	What     string         `json:"figure"`
	Native   Spread         `json:"native_s"`
	Governed Spread         `json:"governed_s"`
	Ratio    *figures.Ratio `json:"ratio,omitempty"`
}

// The figures, and the bounds of those that have one.
const (
	runTime       = "run time"
	allCPU        = "CPU, all of these"
	yarnCPUBound  = 1.05
	yarnTimeBound = 1.02
)

var yarnFigures = []struct {
	what  string
	of    func(YARNSample) float64
	bound float64 // 0: none
}{
	{runTime, func(s YARNSample) float64 { return s.Seconds }, yarnTimeBound},
	{"CPU, DataNode", func(s YARNSample) float64 { return s.DataNodeCPU }, 0},
	{"CPU, NodeManager", func(s YARNSample) float64 { return s.NodeManagerCPU }, 0},
	{"CPU, containers", func(s YARNSample) float64 { return s.TasksCPU }, 0},
	{"CPU, daemon", func(s YARNSample) float64 { return s.DaemonCPU }, 0},
	{allCPU, YARNSample.CPU, yarnCPUBound},
	{"CPU, the machine", func(s YARNSample) float64 { return s.MachineCPU }, 0},
}

// SummariseYARN computes the result of rounds; there is at least one.
func SummariseYARN(setup YARNSetup, rounds []YARNRound) YARNResult {
	res := YARNResult{Setup: setup, Rounds: len(rounds)}
	for _, r := range rounds {
		if !slices.Contains(res.Builds, r.Build) {
			res.Builds = append(res.Builds, r.Build)
		}
		res.DaemonPeak = max(res.DaemonPeak, r.DaemonPeak)
	}
	for _, f := range yarnFigures {
		var natives, governed []float64
		for _, r := range rounds {
			natives = append(natives, f.of(r.Samples[Native]))
			governed = append(governed, f.of(r.Samples[Enforce]))
		}
		found := YARNFigure{What: f.what, Native: spread(natives), Governed: spread(governed), Ratio: figures.PairedRatio(governed, natives)}
		res.Figures = append(res.Figures, found)
		if f.bound > 0 && found.Ratio != nil {
			res.Verdicts = append(res.Verdicts, upper(fmt.Sprintf("TeraSort on YARN, everything on, %s: at most %+.0f %%", f.what, (f.bound-1)*100), f.bound, *found.Ratio))
		}
	}
	res.Verdicts = append(res.Verdicts, memoryTarget("everything on", res.DaemonPeak))
	res.Claims = res.claims()
	return res
}

// Notes are the caveats that a reader of the tables must see.
func (res YARNResult) Notes() []string {
	notes := []string{fmt.Sprintf("%d rounds; each sorts %.2f GB on both clusters. Ratios are paired within rounds, with %.0f %% confidence intervals. "+
		"What the kernel writes back natively the daemon writes here, and only the machine's CPU holds both.",
		res.Rounds, float64(res.Setup.Bytes)/gb, figures.Confidence*100)}
	if res.Rounds < leastRounds {
		notes = append(notes, fmt.Sprintf("Fewer than %d rounds: no figure to rely on.", leastRounds))
	}
	if res.Setup.Bytes < gb {
		notes = append(notes, "Less than 1 GB sorted.")
	}
	if len(res.Builds) > 1 {
		notes = append(notes, "Rounds are of several builds of penstock: "+strings.Join(res.Builds, ", ")+".")
	}
	return append(notes, res.Setup.Notes...)
}

// WriteTable prints the figures for a terminal.
func (res YARNResult) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "TeraSort, s\tnative\tmin-max\teverything on\tmin-max\tratio\t")
	for _, f := range res.Figures {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f-%.2f\t%.2f\t%.2f-%.2f\t%s\t\n", f.What, f.Native.Median, f.Native.Min, f.Native.Max,
			f.Governed.Median, f.Governed.Min, f.Governed.Max, interval(f.Ratio))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, v := range res.Verdicts {
		fmt.Fprintln(w, v)
	}
	for _, n := range res.Notes() {
		fmt.Fprintln(w, n)
	}
	return nil
}

// WriteJSON writes the figures in the documented form.
func (res YARNResult) WriteJSON(w io.Writer) error {
	return experiment.WriteJSON(w, res)
}
