package isolation

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/lab/contest"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/figures"
	"penstock/lab/experiment/progress"
)

// sampleRuns are invented, with figures that are easy to compute by hand.
func sampleRuns() ([]Phase, []Run) {
	phases, err := ParsePhases([]string{"alone", "floor", "native", "sfqd2", "sfqd-4"}, testSetup())
	if err != nil {
		panic(err)
	}
	median := map[string]float64{"alone": 80, "floor": 100, "native-mq-deadline": 160, "native-bfq": 150, "native-none": 170, "sfqd2": 105, "sfqd-4": 130}
	mbps := map[string]float64{"alone": 12, "floor": 40, "native-mq-deadline": 22, "native-bfq": 20, "native-none": 23, "sfqd2": 19.4, "sfqd-4": 21}
	var runs []Run
	for _, t := range Interleave(phases, 3) {
		name := t.Phase.Name
		r := Run{Phase: name, Number: t.Run, Build: "v1", Protected: "application_1_0001", Aggressor: "application_1_0002",
			RuntimeS: median[name] + float64(t.Run-2), DeviceMBps: mbps[name], DemandMBps: 15,
			Series: Series{StepSeconds: 1, Disks: map[string][]float64{"disk0": {5, 10, 9, 11}, "disk1": {11, 9, 10, 5}}}}
		if t.Phase.Governed {
			for s := range 50 {
				at := 2 * float64(s)
				r.Series.Scrapes = append(r.Series.Scrapes, Scrape{At: at, Depth: map[string]float64{"loop0": 1 + at},
					LatencyMS: map[string]float64{"loop0": 200 + at}, ReferenceMS: map[string]float64{"loop0": 380},
					FlowBytes: map[string]float64{"application_1_0001": 7e6 * at, "application_1_0002": 12e6 * at, "clients": 1e5 * at}})
			}
			r.Depth = &Periods{Min: 20, Max: 5, Between: 75}
			p99 := 400.0
			r.LatencyP99MS = &p99
		}
		runs = append(runs, r)
	}
	return phases, runs
}

func TestSummarise(t *testing.T) {
	phases, runs := sampleRuns()
	res := Summarise(testSetup(), phases, runs)
	if res.Native != "native-bfq" {
		t.Errorf("native is %q, want the one with the least slowdown", res.Native)
	}
	byName := map[string]Figure{}
	for _, f := range res.Phases {
		byName[f.Name] = f
	}
	near := func(what string, got *float64, want float64) {
		t.Helper()
		if got == nil || math.Abs(*got-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", what, optional(got, "%v"), want)
		}
	}
	near("slowdown", byName["sfqd2"].Slowdown, 105.0/80)
	near("slowdown against the floor", byName["sfqd2"].SlowdownVsFloor, 1.05)
	near("device against native", byName["sfqd2"].DeviceVsNative, 19.4/20)
	near("device against the fastest native", byName["sfqd2"].DeviceVsFastest, 19.4/23)
	near("time at bounds", byName["sfqd2"].TimeAtDepthBounds, 0.25)
	near("demand", res.ProtectedDemand, 15.0/24)
	if byName["sfqd-4"].TimeAtDepthBounds != nil || byName["alone"].DeviceVsNative != nil {
		t.Error("a figure that means nothing was given")
	}
	if got := byName["alone"].RuntimeSpread; got != (figures.Spread{Median: 80, Min: 79, Max: 81, MAD: 1}) {
		t.Errorf("spread %+v", got)
	}
}

func TestSummariseWithoutReferencePhases(t *testing.T) {
	phases, runs := sampleRuns()
	res := Summarise(testSetup(), phases[5:6], runs)
	if len(res.Phases) != 1 {
		t.Fatalf("%d phases, want the chosen one", len(res.Phases))
	}
	if f := res.Phases[0]; f.Slowdown != nil || f.SlowdownVsFloor != nil || f.DeviceVsNative != nil || res.Native != "" {
		t.Errorf("ratios to what did not run: %+v", f)
	}
}

// The notes state the aggressor's throughput, and the outputs that were checked.
func TestAggressorAndChecks(t *testing.T) {
	phases, runs := sampleRuns()
	for i := range runs {
		r := &runs[i]
		r.Killed = r.Phase != "alone" && r.Number > 1
		part := map[string]float64{"native-bfq": 10, "sfqd2": 4}[r.Phase]
		r.Verdict = &contest.Verdict{Bytes: map[string]int64{ownerAggressor: int64(part * megabyte * r.RuntimeS)}}
	}
	res := Summarise(testSetup(), phases, runs)
	for _, f := range res.Phases {
		if f.Name == "sfqd2" && (times(f.AggressorVsNative) != "0.40" || f.AggressorSpread == nil || f.CheckedRuns != 1) {
			t.Errorf("sfqd2: %+v", f)
		}
		if f.Name == "alone" && (f.AggressorMBps != nil || f.AggressorVsNative != nil || f.CheckedRuns != 3) {
			t.Errorf("alone: %+v", f)
		}
	}
	notes := strings.Join(res.Notes(), "\n")
	for _, want := range []string{"TeraGen gets 4.0 MB/s while WordCount runs: 0.40 of", "after the first run of each phase", "Penstock against SFQ(D), depth 4 (the best fixed depth): ", ": mixed."} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in\n%s", want, notes)
		}
	}
	if res.CheckedAll {
		t.Error("says that every output was checked")
	}
}

// The JSON has the documented fields, and is valid without counters.
func TestJSONForm(t *testing.T) {
	phases, runs := sampleRuns()
	for i := range runs {
		runs[i].Series.Disks = nil // a plain folder: no counters
	}
	var b bytes.Buffer
	if err := Summarise(testSetup(), phases, runs).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Setup  map[string]any   `json:"setup"`
		Phases []map[string]any `json:"phases"`
	}
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"name", "runtimes_s", "runtime_s", "slowdown", "slowdown_vs_floor", "device_mb_s", "device_vs_native", "time_at_depth_bounds",
		"aggressor_mb_s", "aggressor_vs_native", "checked_runs"} {
		if _, ok := doc.Phases[0][field]; !ok {
			t.Errorf("no field %q", field)
		}
	}
	if v := doc.Phases[0]["device_mb_s"]; v != nil {
		t.Errorf("device_mb_s without counters is %v, want null", v)
	}
	if doc.Setup["against"] != "teragen" {
		t.Errorf("setup %v", doc.Setup)
	}
}

func TestClaims(t *testing.T) {
	phases, runs := sampleRuns()
	res := Summarise(testSetup(), phases, runs)
	byName := map[string]claims.Claim{}
	for _, c := range res.Claims {
		_, name, _ := strings.Cut(c.Name, ", 32:1, ")
		byName[name] = c
	}
	runtime, throughput := byName["Penstock: run time / with CPU contention only"], byName["Penstock: throughput of all disks / bfq's"]
	if math.Abs(runtime.Value-1.05) > 1e-9 || math.Abs(runtime.Low-1.04) > 1e-9 || math.Abs(runtime.High-1.06) > 1e-9 || runtime.Runs != 3 ||
		runtime.Met == nil || !*runtime.Met || *runtime.Goal != mostSlowdown || runtime.HigherIsBetter {
		t.Errorf("run time: %+v", runtime)
	}
	if math.Abs(throughput.Value-0.97) > 1e-9 || throughput.Met == nil || !*throughput.Met || *throughput.Goal != 0.95 || !throughput.HigherIsBetter {
		t.Errorf("throughput: %+v", throughput)
	}
	if deadline := byName["Penstock: throughput of all disks / mq-deadline's"]; deadline.Met == nil || *deadline.Met || *deadline.Goal != 0.97 {
		t.Errorf("throughput against mq-deadline: %+v", deadline)
	}
	if floor := byName["CPU contention only: run time"]; floor.Value != 100 || floor.Low != 99 || floor.High != 101 || floor.Unit != "s" {
		t.Errorf("floor: %+v", floor)
	}
	if native := byName["bfq: run time / with CPU contention only"]; native.Value != 1.5 || native.Goal != nil || native.Met != nil {
		t.Errorf("native: %+v", native)
	}
	if len(res.Claims) != 1+5+5+6 { // floor, run times, throughputs, throughputs against native
		t.Errorf("%d claims: %v", len(res.Claims), byName)
	}
	for i := range runs { // slower than the goal, and the disks idle
		if runs[i].Phase == "sfqd2" {
			runs[i].RuntimeS, runs[i].DeviceMBps = 120, 10
		}
	}
	for _, c := range Summarise(testSetup(), phases, runs).Claims {
		if c.Goal != nil && *c.Met {
			t.Errorf("met: %+v", c)
		}
	}
}

// The report is well-formed, names each phase and needs nothing from elsewhere.
func TestReport(t *testing.T) {
	phases, runs := sampleRuns()
	runs[0].Verdict = &contest.Verdict{StepSeconds: 1, MBps: map[string][]float64{ownerProtected: {1, 2}}}
	res := Summarise(testSetup(), phases, runs)
	var b bytes.Buffer
	if err := res.WriteReport(&b, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Entity = xml.HTMLEntity
	plots := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "svg" {
			plots++
		}
	}
	if plots != 3 {
		t.Errorf("%d charts, want run times, throughput, depth", plots)
	}
	for _, p := range phases {
		if !strings.Contains(page, " ("+p.Name+")</td>") {
			t.Errorf("phase %s is not in the table", p.Name)
		}
	}
	if !strings.Contains(page, "<h1>Protected: 105 s instead of 150 s; the disks just as busy</h1>") || strings.Contains(page, "reloads") {
		t.Error("the page does not begin with the headline of a finished experiment")
	}
	for _, bad := range []string{"<script", "src=", "@import", "url(", "NaN", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	var chart bytes.Buffer
	if err := res.WriteSVG(&chart); err != nil || !strings.Contains(chart.String(), "105 s, 1.05×") {
		t.Errorf("chart: %v", err)
	}
}

func TestHeadline(t *testing.T) {
	for want, c := range map[string]struct {
		floor, native, with, device float64
	}{
		"Protected: 72 s instead of 101 s; the disks just as busy":                 {70, 101, 72, 1.02},
		"Protected: 72 s instead of 101 s; the disks move 12 % less":               {70, 101, 72, 0.88},
		"Protected: 72 s instead of 101 s; the disks move 9 % more":                {0, 101, 72, 1.09},
		"Protected: 72 s instead of 101 s":                                         {0, 101, 72, 0},
		"Faster, but not protected: 90 s instead of 101 s; the disks just as busy": {70, 101, 90, 1},
		"No difference: 100 s instead of 101 s; the disks just as busy":            {99, 101, 100, 1},
		"Slower: 120 s instead of 101 s; the disks just as busy":                   {70, 101, 120, 1},
	} {
		res := Result{Setup: testSetup(), Native: "native-none", Phases: []Figure{{Name: "native-none", RuntimeS: c.native}, {Name: "sfqd2", RuntimeS: c.with}}}
		if c.floor > 0 {
			res.Phases = append(res.Phases, Figure{Name: "floor", RuntimeS: c.floor})
		}
		if c.device > 0 {
			res.Phases[1].DeviceVsNative = &c.device
		}
		if got := res.Headline(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (Result{Phases: []Figure{{Name: "sfqd2", RuntimeS: 5}}}).Headline(); got != "" {
		t.Errorf("a headline without a native phase: %q", got)
	}
}

// Each phase has its own name for people, also if several kernel schedulers ran.
func TestPlainNames(t *testing.T) {
	setup := testSetup()
	setup.Intermediate = true
	phases, err := ParsePhases([]string{"all"}, setup)
	if err != nil {
		t.Fatal(err)
	}
	res := Result{Setup: setup}
	for _, p := range phases {
		res.Phases = append(res.Phases, Figure{Name: p.Name})
	}
	seen := map[string]string{}
	for _, p := range phases {
		name := res.plainName(p.Name)
		if other, ok := seen[name]; ok || name == p.Name && name != "alone" {
			t.Errorf("%s is called %q, as %q is", p.Name, name, other)
		}
		seen[name] = p.Name
	}
	res.Phases = res.Phases[:3]
	if got := res.plainName(res.Phases[2].Name); got != "Hadoop today" {
		t.Errorf("the only native phase is called %q", got)
	}
}

func TestTable(t *testing.T) {
	phases, runs := sampleRuns()
	var b bytes.Buffer
	if err := Summarise(testSetup(), phases, runs).WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"105.0 s", "104.0-106.0", "1.31", "1.05", "19.4 MB/s", "0.97", "25 %",
		"CPU contention only", "Hadoop today, bfq", "with Penstock", "SFQ(D), depth 4", "TeraGen"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for _, identifier := range []string{"floor", "native", "sfqd", "D at"} {
		if strings.Contains(b.String(), identifier) {
			t.Errorf("the table has %q, which is not a name for people:\n%s", identifier, b.String())
		}
	}
}

func TestProgressEstimates(t *testing.T) {
	var out bytes.Buffer
	phases, runs := sampleRuns()
	x := &Experiment{Request: Request{Setup: testSetup(), Phases: phases[:1], Runs: 2, Progress: &progress.Log{Out: &out}}}
	x.done = runs[:1]
	x.took(x.done[0], 95)
	second := Turn{phases[0], 2}
	x.step(second, "prepare")
	x.finished(Run{Phase: "alone", Number: 2, Protected: "application_1_0001", RuntimeS: 80, Warnings: []string{"odd"}})
	for _, want := range []string{"alone run 2", "prepare", "about 01:3", "done: WordCount 80.0 s", "odd"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	x.Progress = nil
	x.say("nothing %d", 1)
	x.step(second, "nothing")
}
