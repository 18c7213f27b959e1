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

// Result is what was found, and the form of --json. What was not measured is
// null. Ratios are to the native variant of the same rounds, with their 95 %
// confidence intervals.
type Result struct {
	Setup    Setup          `json:"setup"`
	Rounds   int            `json:"rounds"`
	Bytes    int64          `json:"bytes_per_variant"` // moved by streams, in all rounds
	Streams  []Stream       `json:"streams"`
	Jobs     []Job          `json:"jobs"`
	Memory   []Memory       `json:"daemon_memory"`
	Verdicts []Target       `json:"targets"`
	Builds   []string       `json:"builds"` // of penstock; more than one is a warning
	Claims   []claims.Claim `json:"claims"`
}

// Stream is one operation of one variant: medians over the rounds, per decimal
// GB, and rates in decimal MB/s.
type Stream struct {
	Variant         Variant        `json:"variant"`
	Operation       Operation      `json:"operation"`
	DataNodeCPU     Spread         `json:"datanode_cpu_s_per_gb"`
	DaemonCPU       Spread         `json:"daemon_cpu_s_per_gb"`
	MBps            Spread         `json:"mb_s"` // of a write: until the device has all
	CPURatio        *figures.Ratio `json:"datanode_cpu_ratio,omitempty"`
	TotalRatio      *figures.Ratio `json:"datanode_and_daemon_cpu_ratio,omitempty"`
	ThroughputRatio *figures.Ratio `json:"throughput_ratio,omitempty"`
}

// Job is one job's run time in one variant.
type Job struct {
	Variant   Variant        `json:"variant"`
	Operation Operation      `json:"job"`
	Seconds   Spread         `json:"run_time_s"`
	Ratio     *figures.Ratio `json:"ratio,omitempty"`
}

// Memory is the daemon's largest resident size in any round.
type Memory struct {
	Variant Variant `json:"variant"`
	Peak    int64   `json:"peak_bytes"`
}

// Spread describes the rounds' values.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spread(values []float64) Spread {
	return Spread{figures.Median(values), slices.Min(values), slices.Max(values)}
}

// Target is a bound and whether the measurement keeps it: an upper bound on a
// ratio is kept if the confidence interval's upper end keeps it. It is open if
// the bound lies within the interval: then the measurement was too noisy or too
// short to tell.
type Target struct {
	What  string  `json:"what"`
	Bound float64 `json:"bound"`
	Found float64 `json:"found"` // the interval's upper end; of a throughput the lower one; of memory the largest
	Kept  bool    `json:"kept"`
	Open  bool    `json:"open,omitempty"`
}

// The targets.
const (
	cpuBound    = 1.10
	timeBound   = 1.02
	memoryBound = 40 * mib
	rateBound   = 0.97 // "full" throughput, to what a machine's noise lets one tell
	leastRounds = 5
)

// Summarise computes the result of rounds; there is at least one.
func Summarise(setup Setup, rounds []Round) Result {
	res := Result{Setup: setup, Rounds: len(rounds), Bytes: int64(len(Streams)*len(rounds)) * setup.StreamBytes}
	for _, r := range rounds {
		if !slices.Contains(res.Builds, r.Build) {
			res.Builds = append(res.Builds, r.Build)
		}
	}
	for _, v := range setup.Variants {
		for _, op := range Streams {
			res.Streams = append(res.Streams, stream(v, op, rounds))
		}
		if v.governed() {
			peak := int64(0)
			for _, r := range rounds {
				peak = max(peak, r.Variants[v].DaemonPeak)
			}
			res.Memory = append(res.Memory, Memory{v, peak})
		}
	}
	for _, op := range Jobs {
		for _, v := range setup.Variants {
			if setup.JobBytes > 0 {
				times, bases := pairs(v, op, rounds, func(s Sample) float64 { return s.Seconds })
				res.Jobs = append(res.Jobs, Job{Variant: v, Operation: op, Seconds: spread(times), Ratio: ratio(v, times, bases)})
			}
		}
	}
	res.judge()
	res.Claims = res.claims()
	return res
}

func stream(v Variant, op Operation, rounds []Round) Stream {
	node, nodeBase := pairs(v, op, rounds, func(s Sample) float64 { return perGB(s.DataNodeCPU, s) })
	daemon, _ := pairs(v, op, rounds, func(s Sample) float64 { return perGB(s.DaemonCPU, s) })
	total, totalBase := pairs(v, op, rounds, func(s Sample) float64 { return perGB(s.DataNodeCPU+s.DaemonCPU, s) })
	rate, rateBase := pairs(v, op, rounds, func(s Sample) float64 { return float64(s.Bytes) / 1e6 / (s.Seconds + s.SyncSeconds) })
	return Stream{Variant: v, Operation: op, DataNodeCPU: spread(node), DaemonCPU: spread(daemon), MBps: spread(rate),
		CPURatio: ratio(v, node, nodeBase), TotalRatio: ratio(v, total, totalBase), ThroughputRatio: ratio(v, rate, rateBase)}
}

// pairs are a figure's values of a variant and of native, round by round.
func pairs(v Variant, op Operation, rounds []Round, of func(Sample) float64) (values, bases []float64) {
	for _, r := range rounds {
		values = append(values, of(r.Variants[v].Samples[op]))
		bases = append(bases, of(r.Variants[Native].Samples[op]))
	}
	return values, bases
}

func ratio(v Variant, values, bases []float64) *figures.Ratio {
	if v == Native {
		return nil
	}
	return figures.PairedRatio(values, bases)
}

// judge holds the figures against the targets.
func (res *Result) judge() {
	hold := func(what string, bound float64, r *figures.Ratio) {
		if r != nil {
			res.Verdicts = append(res.Verdicts, upper(what, bound, *r))
		}
	}
	for _, s := range res.Streams {
		if slices.Contains(Paced, s.Operation) {
			hold(fmt.Sprintf("DataNode CPU per GB, %s, %s: at most %+.0f %%", s.Operation, s.Variant, (cpuBound-1)*100), cpuBound, s.CPURatio)
		}
	}
	for _, j := range res.Jobs {
		hold(fmt.Sprintf("run time of %s, %s: at most %+.0f %%", j.Operation, j.Variant, (timeBound-1)*100), timeBound, j.Ratio)
	}
	for _, s := range res.Streams {
		if s.Variant == Enforce && slices.Contains(FullSpeed, s.Operation) && s.ThroughputRatio != nil {
			what := map[Operation]string{FullCold: "staging", FullWrite: "draining"}[s.Operation]
			r := s.ThroughputRatio
			res.Verdicts = append(res.Verdicts, Target{What: fmt.Sprintf("throughput of %s: all of native's, within %.0f %%", what, (1-rateBound)*100),
				Bound: rateBound, Found: r.Low, Kept: r.Low >= rateBound, Open: r.Low < rateBound && r.High >= rateBound})
		}
	}
	for _, m := range res.Memory {
		res.Verdicts = append(res.Verdicts, memoryTarget(string(m.Variant), m.Peak))
	}
}

// upper is the target of a ratio that is to be at most bound.
func upper(what string, bound float64, r figures.Ratio) Target {
	return Target{What: what, Bound: bound, Found: r.High, Kept: r.High <= bound, Open: r.High > bound && r.Low <= bound}
}

func memoryTarget(variant string, peak int64) Target {
	return Target{What: fmt.Sprintf("the daemon's memory, %s: under 40 MiB", variant),
		Bound: memoryBound, Found: float64(peak), Kept: peak < memoryBound}
}

// Notes are the caveats that a reader of the tables must see.
func (res Result) Notes() []string {
	notes := []string{fmt.Sprintf("%d rounds, %.1f GB moved in each variant; each round has DataNodes of its own, warmed with %d MiB, whose compilers' CPU time is left out. Ratios are paired within rounds, with %.0f %% confidence intervals.",
		res.Rounds, float64(res.Bytes)/gb, res.Setup.WarmBytes/mib, figures.Confidence*100)}
	if res.Rounds < leastRounds {
		notes = append(notes, fmt.Sprintf("Fewer than %d rounds: no figure to rely on.", leastRounds))
	}
	if res.Bytes < 10*gb {
		notes = append(notes, "Less than 10 GB in each variant.")
	}
	if len(res.Builds) > 1 {
		notes = append(notes, "Rounds are of several builds of penstock: "+strings.Join(res.Builds, ", ")+".")
	}
	return append(notes, res.Setup.Notes...)
}

// WriteTable prints the figures for a terminal.
func (res Result) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "CPU s/GB\tvariant\tDataNode\tratio\tdaemon\tboth, ratio\tMB/s\tratio\t")
	for _, op := range Streams {
		for _, s := range res.Streams {
			if s.Operation == op {
				fmt.Fprintf(t, "%s\t%s\t%.3f\t%s\t%.3f\t%s\t%.0f\t%s\t\n", op, s.Variant, s.DataNodeCPU.Median, interval(s.CPURatio),
					s.DaemonCPU.Median, interval(s.TotalRatio), s.MBps.Median, interval(s.ThroughputRatio))
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(res.Jobs) > 0 {
		fmt.Fprintln(t, "\nrun time\tvariant\tmedian\tmin-max\tratio\t")
		for _, j := range res.Jobs {
			fmt.Fprintf(t, "%s\t%s\t%.2f s\t%.2f-%.2f\t%s\t\n", j.Operation, j.Variant, j.Seconds.Median, j.Seconds.Min, j.Seconds.Max, interval(j.Ratio))
		}
		if err := t.Flush(); err != nil {
			return err
		}
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

// String is the target's line.
func (t Target) String() string {
	found := fmt.Sprintf("%.3f", t.Found)
	if t.Bound == memoryBound {
		found = fmt.Sprintf("%.1f MiB", t.Found/mib)
	}
	return fmt.Sprintf("%-6s  %s (%s)", t.Word(), t.What, found)
}

// Word is kept, open or MISSED.
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

// WriteJSON writes the figures in the documented form.
func (res Result) WriteJSON(w io.Writer) error {
	return experiment.WriteJSON(w, res)
}
