package overhead

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

// Outcome is the common part of both measurements' results. Figures that were not measured are
// null. Ratios are to the native variant of the same rounds, with their 95 % confidence intervals.
type Outcome[S any] struct {
	Setup    S              `json:"setup"`
	Rounds   int            `json:"rounds"`
	Verdicts []Target       `json:"targets"`
	Builds   []string       `json:"builds"` // of penstock; more than one is a warning
	Claims   []claims.Claim `json:"claims"`
}

// Result holds the results of streams and jobs, in the form of --json.
type Result struct {
	Outcome[Setup]
	Bytes   int64    `json:"bytes_per_variant"` // moved by streams, over all rounds
	Streams []Stream `json:"streams"`
	Jobs    []Job    `json:"jobs"`
	Memory  []Memory `json:"daemon_memory"`
}

// Stream is one operation of one variant. All values are medians over the rounds: costs per decimal
// GB, and rates in decimal MB/s.
type Stream struct {
	Variant         Variant        `json:"variant"`
	Operation       Operation      `json:"operation"`
	DataNodeCPU     figures.Spread `json:"datanode_cpu_s_per_gb"`
	DaemonCPU       figures.Spread `json:"daemon_cpu_s_per_gb"`
	MBps            figures.Spread `json:"mb_s"` // for a write, until the device has all data
	CPURatio        *figures.Ratio `json:"datanode_cpu_ratio,omitempty"`
	TotalRatio      *figures.Ratio `json:"datanode_and_daemon_cpu_ratio,omitempty"`
	ThroughputRatio *figures.Ratio `json:"throughput_ratio,omitempty"`
}

// Job is one job's run time in one variant.
type Job struct {
	Variant   Variant        `json:"variant"`
	Operation Operation      `json:"job"`
	Seconds   figures.Spread `json:"run_time_s"`
	Ratio     *figures.Ratio `json:"ratio,omitempty"`
}

// Memory is the daemon's largest resident size in any round.
type Memory struct {
	Variant Variant `json:"variant"`
	Peak    int64   `json:"peak_bytes"`
}

// YARNResult holds the results of TeraSort on YARN, in the form of --json.
type YARNResult struct {
	Outcome[YARNSetup]
	Figures    []YARNFigure `json:"figures"`
	DaemonPeak int64        `json:"daemon_peak_bytes"`
}

// YARNFigure is one figure, in seconds, without Penstock and with all parts of Penstock. A figure
// that is 0 natively, such as the daemon's CPU time, has no ratio.
type YARNFigure struct {
	What     string         `json:"figure"`
	Native   figures.Spread `json:"native_s"`
	Governed figures.Spread `json:"governed_s"`
	Ratio    *figures.Ratio `json:"ratio,omitempty"`
}

// Target is a bound and its verdict. An upper bound on a ratio is kept if the upper end of the
// confidence interval does not exceed it. The verdict is open if the bound is within the interval:
// then the measurement was too noisy or too short for a verdict.
type Target struct {
	What  string  `json:"what"`
	Bound float64 `json:"bound"`
	Found float64 `json:"found"` // the interval's upper end; for throughput, its lower end; for memory, the largest value
	Kept  bool    `json:"kept"`
	Open  bool    `json:"open,omitempty"`
}

// The targets.
const (
	cpuBound      = 1.10
	markedBound   = 1.03 // CPU time of a DataNode on a marked file system
	timeBound     = 1.02
	memoryBound   = 40 * mib
	rateBound     = 0.97 // "full" throughput, within a machine's noise
	yarnCPUBound  = 1.05
	yarnTimeBound = 1.02
	leastRounds   = 5
)

// cpuBound returns the bound on the ratio of the DataNode's CPU time to native.
func (v Variant) cpuBound() float64 {
	if v == Marked {
		return markedBound
	}
	return cpuBound
}

// figure is a number that is computed from each sample.
type figure func(Sample) float64

func dataNodeCPU(s Sample) float64 { return perGB(s.DataNodeCPU, s) }
func daemonCPU(s Sample) float64   { return perGB(s.DaemonCPU, s) }
func totalCPU(s Sample) float64    { return perGB(s.DataNodeCPU+s.DaemonCPU, s) }
func rate(s Sample) float64        { return float64(s.Bytes) / 1e6 / (s.Seconds + s.SyncSeconds) }
func runTime(s Sample) float64     { return s.Seconds }

// yarnFigures lists the figures of a TeraSort on YARN. Some figures have a bound.
var yarnFigures = []struct {
	what  string
	of    figure
	bound float64 // 0: none
}{
	{"run time", runTime, yarnTimeBound},
	{"CPU, DataNode", func(s Sample) float64 { return s.DataNodeCPU }, 0},
	{"CPU, NodeManager", func(s Sample) float64 { return s.NodeManagerCPU }, 0},
	{"CPU, containers", func(s Sample) float64 { return s.TasksCPU }, 0},
	{"CPU, daemon", func(s Sample) float64 { return s.DaemonCPU }, 0},
	{"CPU of DataNode, NodeManager, containers and daemon", Sample.CPU, yarnCPUBound},
	{"CPU, the machine", func(s Sample) float64 { return s.MachineCPU }, 0},
}

// spread returns a figure's spread over the rounds in a variant, and the figure's ratio to native,
// paired within rounds. The ratio of native itself is nil.
func (f figure) spread(rounds []Round, v Variant, op Operation) (figures.Spread, *figures.Ratio) {
	var values, bases []float64
	for _, r := range rounds {
		values = append(values, f(r.Variants[v].Samples[op]))
		bases = append(bases, f(r.Variants[Native].Samples[op]))
	}
	s := figures.NewSpread(values)
	if v == Native {
		return s, nil
	}
	return s, figures.PairedRatio(values, bases)
}

func outcome[S any](setup S, rounds []Round) Outcome[S] {
	o := Outcome[S]{Setup: setup, Rounds: len(rounds)}
	for _, r := range rounds {
		if !slices.Contains(o.Builds, r.Build) {
			o.Builds = append(o.Builds, r.Build)
		}
	}
	return o
}

func daemonPeak(rounds []Round, of ...Variant) (bytes int64) {
	for _, r := range rounds {
		for _, v := range of {
			bytes = max(bytes, r.Variants[v].DaemonPeak)
		}
	}
	return bytes
}

// Summarise computes the result of at least one round.
func Summarise(setup Setup, rounds []Round) Result {
	res := Result{Outcome: outcome(setup, rounds), Bytes: int64(len(Streams)*len(rounds)) * setup.StreamBytes}
	for _, v := range setup.Variants {
		for _, op := range Streams {
			s := Stream{Variant: v, Operation: op}
			s.DataNodeCPU, s.CPURatio = figure(dataNodeCPU).spread(rounds, v, op)
			s.DaemonCPU, _ = figure(daemonCPU).spread(rounds, v, op)
			_, s.TotalRatio = figure(totalCPU).spread(rounds, v, op)
			s.MBps, s.ThroughputRatio = figure(rate).spread(rounds, v, op)
			res.Streams = append(res.Streams, s)
		}
		if v.governed() {
			res.Memory = append(res.Memory, Memory{v, daemonPeak(rounds, v)})
		}
	}
	for _, op := range setup.operations()[len(Streams):] {
		for _, v := range setup.Variants {
			j := Job{Variant: v, Operation: op}
			j.Seconds, j.Ratio = figure(runTime).spread(rounds, v, op)
			res.Jobs = append(res.Jobs, j)
		}
	}
	res.judge()
	res.Claims = res.claims()
	return res
}

// judge compares the figures with the targets.
func (res *Result) judge() {
	for _, s := range res.Streams {
		if slices.Contains(Paced, s.Operation) {
			res.atMost(fmt.Sprintf("DataNode CPU per GB, %s, %s", s.Operation, s.Variant), s.Variant.cpuBound(), s.CPURatio)
		}
	}
	for _, j := range res.Jobs {
		res.atMost(fmt.Sprintf("run time of %s, %s", j.Operation, j.Variant), timeBound, j.Ratio)
	}
	for _, s := range res.Streams {
		if r := s.ThroughputRatio; r != nil && s.Variant == Enforce && slices.Contains(FullSpeed, s.Operation) {
			what := map[Operation]string{FullCold: "staging", FullWrite: "draining"}[s.Operation]
			res.Verdicts = append(res.Verdicts, Target{What: fmt.Sprintf("throughput of %s: all of native's, within %.0f %%", what, (1-rateBound)*100),
				Bound: rateBound, Found: r.Low, Kept: r.Low >= rateBound, Open: r.Low < rateBound && r.High >= rateBound})
		}
	}
	for _, m := range res.Memory {
		res.memoryTarget(string(m.Variant), m.Peak)
	}
}

// SummariseYARN computes the result of at least one round.
func SummariseYARN(setup YARNSetup, rounds []Round) YARNResult {
	res := YARNResult{Outcome: outcome(setup, rounds), DaemonPeak: daemonPeak(rounds, YARNVariants...)}
	for _, f := range yarnFigures {
		found := YARNFigure{What: f.what}
		found.Native, _ = f.of.spread(rounds, Native, YARNSort)
		found.Governed, found.Ratio = f.of.spread(rounds, Enforce, YARNSort)
		res.Figures = append(res.Figures, found)
		if f.bound > 0 {
			res.atMost("TeraSort on YARN, everything on, "+f.what, f.bound, found.Ratio)
		}
	}
	res.memoryTarget("everything on", res.DaemonPeak)
	res.Claims = res.claims()
	return res
}

// atMost adds the target that the ratio r is at most bound. If r is nil, it adds nothing.
func (o *Outcome[S]) atMost(what string, bound float64, r *figures.Ratio) {
	if r != nil {
		o.Verdicts = append(o.Verdicts, Target{What: fmt.Sprintf("%s: at most %+.0f %%", what, (bound-1)*100), Bound: bound,
			Found: r.High, Kept: r.High <= bound, Open: r.High > bound && r.Low <= bound})
	}
}

func (o *Outcome[S]) memoryTarget(variant string, peak int64) {
	o.Verdicts = append(o.Verdicts, Target{What: fmt.Sprintf("the daemon's memory, %s: under 40 MiB", variant),
		Bound: memoryBound, Found: float64(peak), Kept: peak < memoryBound})
}

// notes returns the method and the caveats that a reader of the tables must see. little is the
// caveat about too few bytes, which is included only if enough is false.
func (o Outcome[S]) notes(method string, enough bool, little string, further []string) []string {
	notes := []string{method}
	if o.Rounds < leastRounds {
		notes = append(notes, fmt.Sprintf("Fewer than %d rounds: do not rely on the figures.", leastRounds))
	}
	if !enough {
		notes = append(notes, little)
	}
	if len(o.Builds) > 1 {
		notes = append(notes, "The rounds are of several builds of penstock: "+strings.Join(o.Builds, ", ")+".")
	}
	return append(notes, further...)
}

// Notes returns the caveats that a reader of the tables must see.
func (res Result) Notes() []string {
	return res.notes(fmt.Sprintf("%d rounds, %.1f GB moved in each variant; each round has DataNodes of its own, warmed with %d MiB. The CPU time of their compilers is left out. Ratios are paired within rounds, with %.0f %% confidence intervals.",
		res.Rounds, float64(res.Bytes)/gb, res.Setup.WarmBytes/mib, figures.Confidence*100),
		res.Bytes >= 10*gb, "Less than 10 GB in each variant.", res.Setup.Notes)
}

// Notes returns the caveats that a reader of the tables must see.
func (res YARNResult) Notes() []string {
	return res.notes(fmt.Sprintf("%d rounds; each sorts %.2f GB on both clusters. Ratios are paired within rounds, with %.0f %% confidence intervals. "+
		"With Penstock, the daemon writes the data that the kernel writes back natively; only the machine's CPU time includes both.",
		res.Rounds, float64(res.Setup.Bytes)/gb, figures.Confidence*100),
		res.Setup.Bytes >= gb, "Less than 1 GB sorted.", res.Setup.Notes)
}

// WriteTable prints the figures for a terminal.
func (res Result) WriteTable(w io.Writer) error {
	streams := []string{"CPU s/GB\tvariant\tDataNode\tratio\tdaemon\tboth, ratio\tMB/s\tratio\t"}
	for _, op := range Streams {
		for _, s := range res.Streams {
			if s.Operation == op {
				streams = append(streams, fmt.Sprintf("%s\t%s\t%.3f\t%s\t%.3f\t%s\t%.0f\t%s\t", op, s.Variant, s.DataNodeCPU.Median, interval(s.CPURatio),
					s.DaemonCPU.Median, interval(s.TotalRatio), s.MBps.Median, interval(s.ThroughputRatio)))
			}
		}
	}
	jobs := []string{"\nrun time\tvariant\tmedian\tmin-max\tratio\t"}
	for _, j := range res.Jobs {
		jobs = append(jobs, fmt.Sprintf("%s\t%s\t%.2f s\t%.2f-%.2f\t%s\t", j.Operation, j.Variant, j.Seconds.Median, j.Seconds.Min, j.Seconds.Max, interval(j.Ratio)))
	}
	return res.write(w, res.Notes(), streams, jobs)
}

// WriteTable prints the figures for a terminal.
func (res YARNResult) WriteTable(w io.Writer) error {
	lines := []string{"TeraSort, s\tnative\tmin-max\teverything on\tmin-max\tratio\t"}
	for _, f := range res.Figures {
		lines = append(lines, fmt.Sprintf("%s\t%.2f\t%.2f-%.2f\t%.2f\t%.2f-%.2f\t%s\t", f.What, f.Native.Median, f.Native.Min, f.Native.Max,
			f.Governed.Median, f.Governed.Min, f.Governed.Max, interval(f.Ratio)))
	}
	return res.write(w, res.Notes(), lines)
}

// write prints tables, each with a header, then verdicts and notes. It leaves out a table without
// rows.
func (o Outcome[S]) write(w io.Writer, notes []string, tables ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, lines := range tables {
		if len(lines) > 1 {
			fmt.Fprintln(t, strings.Join(lines, "\n"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, v := range o.Verdicts {
		fmt.Fprintln(w, v)
	}
	for _, n := range notes {
		fmt.Fprintln(w, n)
	}
	return nil
}

// WriteJSON writes the figures in the documented form.
func (res Result) WriteJSON(w io.Writer) error { return experiment.WriteJSON(w, res) }

// WriteJSON writes the figures in the documented form.
func (res YARNResult) WriteJSON(w io.Writer) error { return experiment.WriteJSON(w, res) }

// String returns the target's line.
func (t Target) String() string {
	found := fmt.Sprintf("%.3f", t.Found)
	if t.Bound == memoryBound {
		found = fmt.Sprintf("%.1f MiB", t.Found/mib)
	}
	return fmt.Sprintf("%-6s  %s (%s)", t.Word(), t.What, found)
}

// Word returns kept, open or MISSED.
func (t Target) Word() string {
	switch {
	case t.Kept:
		return "kept"
	case t.Open:
		return "open"
	}
	return "MISSED"
}

func interval(r *figures.Ratio) string {
	if r == nil || math.IsNaN(r.Mean) {
		return "-"
	}
	return fmt.Sprintf("%.3f (%.3f-%.3f)", r.Mean, r.Low, r.High)
}
