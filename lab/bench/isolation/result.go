package isolation

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"penstock/lab/contest"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
)

// Result holds the experiment's figures, in the form of --json. A figure that was not
// measured is null, never zero.
type Result struct {
	Setup  Setup    `json:"setup"`
	Phases []Figure `json:"phases"`
	// Native names the native phase that device_vs_native refers to: of those
	// that ran, the one that slowed the protected job down least.
	Native string `json:"native,omitempty"`
	// ProtectedDemand is the part of the disks' rate that the protected job alone used while
	// it did I/O. The experiment is valid between a half and three quarters.
	ProtectedDemand *float64 `json:"protected_demand"`
	// Comparisons compare SFQ(D2) with the best phase of each family of peers that ran.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// CheckedAll reports whether the aggressor's output was checked after every run, or only
	// after the first of each phase (checked_runs).
	CheckedAll bool           `json:"checked_all"`
	Claims     []claims.Claim `json:"claims"`
	Builds     []string       `json:"builds"` // of penstock; more than one is a warning
	// Calibration describes how the disks' rate was chosen; nil if it was not measured.
	Calibration *Calibration `json:"calibration,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"`

	runs    []Run
	pending int // runs that have not been done yet
}

// Figure holds the figures of one phase. Times are in seconds. Rates are decimal MB/s of all
// modelled disks, reads and writes together, over the window in which both jobs run.
type Figure struct {
	Name              string          `json:"name"`
	RuntimesS         []float64       `json:"runtimes_s"`
	RuntimeS          float64         `json:"runtime_s"` // median
	RuntimeSpread     figures.Spread  `json:"runtime_spread_s"`
	Slowdown          *float64        `json:"slowdown"`          // against alone
	SlowdownVsFloor   *float64        `json:"slowdown_vs_floor"` // against floor
	DeviceMBps        *float64        `json:"device_mb_s"`       // median
	DeviceSpread      *figures.Spread `json:"device_spread_mb_s"`
	DeviceVsNative    *float64        `json:"device_vs_native"`         // against Result.Native
	DeviceVsFastest   *float64        `json:"device_vs_fastest_native"` // against the native phase with the most MB/s
	TimeAtDepthBounds *float64        `json:"time_at_depth_bounds"`     // part of control periods, 0 to 1; SFQ(D2) only
	RequestP99MS      *float64        `json:"request_p99_ms"`           // of Penstock's requests, median of the runs
	DeviceP99MS       *float64        `json:"device_p99_ms"`            // by the disks' own log, median of the runs
	AggressorMBps     *float64        `json:"aggressor_mb_s"`           // by the disks' own log
	AggressorSpread   *figures.Spread `json:"aggressor_spread_mb_s"`
	AggressorVsNative *float64        `json:"aggressor_vs_native"` // against Result.Native
	CheckedRuns       int             `json:"checked_runs"`        // in which the aggressor's output was checked, in addition to the protected job's

	BothSides *BothSides `json:"both_sides,omitempty"` // when the aggressor ran to its own end
}

// Range returns the shortest and the longest run time as text, or "-" if there is only one run.
func (f Figure) Range() string {
	if len(f.RuntimesS) < 2 {
		return "-"
	}
	return fmt.Sprintf("%.1f-%.1f", f.RuntimeSpread.Min, f.RuntimeSpread.Max)
}

// Summarise computes the result of the phases from their runs. It ignores runs of other
// phases in the journal.
func Summarise(setup Setup, phases []Phase, runs []Run) Result {
	res := Result{Setup: setup, CheckedAll: true}
	of := map[string][]Run{}
	for _, r := range runs {
		if slices.ContainsFunc(phases, func(p Phase) bool { return p.Name == r.Phase }) {
			of[r.Phase] = append(of[r.Phase], r)
			res.runs = append(res.runs, r)
			res.CheckedAll = res.CheckedAll && !r.Killed
			if !slices.Contains(res.Builds, r.Build) {
				res.Builds = append(res.Builds, r.Build)
			}
		}
	}
	for _, p := range phases {
		if len(of[p.Name]) > 0 {
			res.Phases = append(res.Phases, figure(p, of[p.Name]))
		}
	}
	for _, r := range res.runs {
		for _, w := range r.Warnings {
			res.Warnings = append(res.Warnings, fmt.Sprintf("%s, run %d: %s", res.plainName(r.Phase), r.Number, w))
		}
	}
	res.compare(phases, of)
	res.Comparisons = res.comparisons()
	res.Claims = res.claims()
	return res
}

func figure(p Phase, runs []Run) Figure {
	f := Figure{Name: p.Name}
	var mbps, p99, deviceP99, aggressor, atBounds []float64
	for _, r := range runs {
		f.RuntimesS = append(f.RuntimesS, r.RuntimeS)
		if !r.Killed {
			f.CheckedRuns++
		}
		if len(r.Series.Disks) > 0 {
			mbps = append(mbps, r.DeviceMBps)
		}
		if r.LatencyP99MS != nil {
			p99 = append(p99, *r.LatencyP99MS)
		}
		if v := r.Verdict; v != nil && r.RuntimeS > 0 {
			deviceP99 = append(deviceP99, v.LatencyP99MS)
			if p.Against {
				aggressor = append(aggressor, float64(v.Bytes[ownerAggressor])/megabyte/r.RuntimeS)
			}
		}
		if d := r.Depth; d != nil && p.Adaptive() {
			atBounds = append(atBounds, (d.Min+d.Max)/(d.Min+d.Max+d.Between))
		}
	}
	f.RuntimeSpread = figures.NewSpread(f.RuntimesS)
	f.RuntimeS = f.RuntimeSpread.Median
	f.DeviceSpread, f.DeviceMBps = spread(mbps)
	f.AggressorSpread, f.AggressorMBps = spread(aggressor)
	f.RequestP99MS, f.DeviceP99MS, f.TimeAtDepthBounds = median(p99), median(deviceP99), median(atBounds)
	f.BothSides = bothSides(p, runs)
	return f
}

// spread returns nil without values.
func spread(values []float64) (*figures.Spread, *float64) {
	if len(values) == 0 {
		return nil, nil
	}
	s := figures.NewSpread(values)
	return &s, &s.Median
}

// median returns nil without values.
func median(values []float64) *float64 { return ratio(figures.Median(values), 1) }

// compare computes the ratios between phases.
func (res *Result) compare(phases []Phase, of map[string][]Run) {
	alone, floor, native, fastest := Figure{RuntimeS: math.NaN()}, Figure{RuntimeS: math.NaN()}, Figure{RuntimeS: math.NaN()}, math.NaN()
	for _, f := range res.Phases {
		switch i := slices.IndexFunc(phases, func(p Phase) bool { return p.Name == f.Name }); {
		case f.Name == "alone":
			alone = f
		case f.Name == "floor":
			floor = f
		case phases[i].Native():
			if !(native.RuntimeS <= f.RuntimeS) { // also when native is not set yet
				native = f
			}
			if mbps := orNaN(f.DeviceMBps); !(fastest >= mbps) {
				fastest = mbps
			}
		}
	}
	res.Native = native.Name
	res.relate()
	for i := range res.Phases {
		f := &res.Phases[i]
		if f.Name == aggressorAlone {
			continue // its run time is the aggressor's
		}
		f.Slowdown, f.SlowdownVsFloor = ratio(f.RuntimeS, alone.RuntimeS), ratio(f.RuntimeS, floor.RuntimeS)
		if f.Name == "alone" || f.Name == "floor" {
			continue // there is no contention for disks
		}
		mbps := orNaN(f.DeviceMBps)
		f.DeviceVsNative, f.DeviceVsFastest = ratio(mbps, orNaN(native.DeviceMBps)), ratio(mbps, fastest)
		f.AggressorVsNative = ratio(orNaN(f.AggressorMBps), orNaN(native.AggressorMBps))
	}
	var demands []float64
	for _, r := range of["alone"] {
		demands = append(demands, r.DemandMBps)
	}
	rate := float64(res.Setup.Disk.BytesPerSecond*int64(res.Setup.Disk.DataNodes)) / megabyte
	if res.Setup.Disk.Modelled {
		res.ProtectedDemand = ratio(figures.Median(demands), rate)
	}
}

// demandMin and demandMax bound the demand for which the experiment is valid. Below demandMin there
// is no contention. Above demandMax, the protected job is slowed down by any share that is less
// than the whole disks.
const (
	demandMin = 0.50
	demandMax = 0.75
)

// demandPercent returns a demand in whole percent, and whether it is outside of demandMin and demandMax. Whole percents
// are compared, since a text that shows 75 % must not say that it is above 75 %.
func demandPercent(part float64) (percent float64, outside bool) {
	percent = math.Round(100 * part)
	return percent, percent < 100*demandMin || percent > 100*demandMax
}

// Notes returns the remarks that a reader of the table needs.
func (res Result) Notes() []string {
	var notes []string
	protected := res.Setup.protected().title()
	if c := res.Calibration; c != nil {
		notes = append(notes, c.text(protected))
	}
	if d := res.ProtectedDemand; d != nil {
		percent, outside := demandPercent(*d)
		text := fmt.Sprintf("%s alone uses %.0f %% of the disks' rate", protected, percent)
		if outside {
			advice := "choose another --disk-rate before you compare"
			if res.Calibration != nil {
				advice = "the machine's speed has changed since the rate was chosen"
			}
			text += " (not 50 to 75 %: " + advice + ")"
		}
		notes = append(notes, text+".")
	}
	if natives(res.names()) > 1 {
		notes = append(notes, "Figures against Hadoop today refer to "+strings.TrimPrefix(res.Native, nativePrefix)+
			", the kernel scheduler that slowed "+protected+" down least.")
	}
	for _, c := range res.Comparisons {
		notes = append(notes, res.text(c))
	}
	if text := res.aggressorNote(); text != "" {
		notes = append(notes, text)
	}
	if !res.CheckedAll {
		notes = append(notes, protected+"'s output was checked after every run, the aggressor's after the first run of each phase; later runs killed the aggressor when "+protected+" had ended.")
	}
	if len(res.Builds) > 1 {
		notes = append(notes, "The runs are of several builds of penstock: "+strings.Join(res.Builds, ", ")+".")
	}
	return append(notes, res.Warnings...)
}

// WriteTable prints the figures for a terminal, with the phases' plain names.
func (res Result) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "phase\truns\trun time\tmin-max\tagainst\tagainst CPU\tall disks\tagainst\t"+res.Setup.aggressor().title()+"\tagainst\tdevice\tdepth at\t")
	fmt.Fprintln(t, "\t\t\t\talone\tcontention only\t\tHadoop today\t\tHadoop today\tp99\ta bound\t")
	for _, f := range res.Phases {
		fmt.Fprintf(t, "%s\t%d\t%.1f s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", res.plainName(f.Name), len(f.RuntimesS), f.RuntimeS,
			f.Range(), times(f.Slowdown), times(f.SlowdownVsFloor), optional(f.DeviceMBps, "%.1f MB/s"),
			times(f.DeviceVsNative), optional(f.AggressorMBps, "%.1f MB/s"), times(f.AggressorVsNative), optional(f.DeviceP99MS, "%.0f ms"),
			percent(f.TimeAtDepthBounds))
	}
	return errors.Join(t.Flush(), res.writeBoth(w))
}

func times(v *float64) string { return optional(v, "%.2f") }

func percent(v *float64) string { return optional(ratio(100*orNaN(v), 1), "%.0f %%") }

func optional(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// Names of the owners of device bytes, in a Verdict and in the plots.
const (
	ownerProtected = "protected"
	ownerAggressor = "aggressor"
	ownerOther     = contest.OwnerOther
)
