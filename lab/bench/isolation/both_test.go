package isolation

import (
	"bytes"
	"context"
	"penstock/lab/contest"
	"slices"
	"strings"
	"testing"
	"time"
)

// The aggressor's own run is measured, too: the limit stays until the aggressor has ended, and the
// judge is also called for the aggressor's time.
func TestBothRunToTheirEnd(t *testing.T) {
	f := &fake{aggressorEnds: true}
	x := newExperiment(t, f, "native-none")
	x.Setup.Both, x.Runs = true, 2
	runs, err := run(t, context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"limit true", "start aggressor", "start protected", "times protected", "times aggressor", "limit false",
		"judge", "judge", "check protected", "check aggressor"}
	if i := slices.Index(f.calls, "limit true"); i < 0 || !slices.Equal(f.calls[i:i+len(want)], want) {
		t.Errorf("calls\n  %s\nwant among them\n  %s", strings.Join(f.calls, "\n  "), strings.Join(want, "\n  "))
	}
	for _, r := range runs {
		if r.Killed || r.AggressorRuntimeS < r.RuntimeS {
			t.Errorf("run %d: killed %v, the aggressor took %v s, the protected job %v s", r.Number, r.Killed, r.AggressorRuntimeS, r.RuntimeS)
		}
	}
}

func TestAggressorAlone(t *testing.T) {
	f := &fake{aggressorEnds: true}
	x := newExperiment(t, f, aggressorAlone)
	x.Setup.Both = true
	runs, err := run(t, context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.calls {
		if strings.Contains(c, "protected") {
			t.Errorf("the protected job is not to run: %q", c)
		}
	}
	r := runs[0]
	if r.Protected != "" || r.Aggressor != "app-aggressor" || r.RuntimeS <= 0 || r.AggressorRuntimeS != r.RuntimeS {
		t.Errorf("run %+v", r)
	}
}

// bothRuns are invented: WordCount takes 40 s alone and 50 s with TeraGen, which takes 60 s alone
// and 80 s with WordCount.
func bothRuns(t *testing.T) ([]Phase, []Run) {
	t.Helper()
	phases, err := ParsePhases([]string{"alone", aggressorAlone, "native-bfq"}, testSetup())
	if err != nil {
		t.Fatal(err)
	}
	verdict := func(owner string, read, written int64) *contest.Verdict {
		return &contest.Verdict{Read: map[string]int64{owner: read * megabyte}, Written: map[string]int64{owner: written * megabyte}}
	}
	return phases, []Run{
		{Phase: "alone", Number: 1, Protected: "p", RuntimeS: 40, Verdict: verdict(ownerProtected, 400, 0)},
		{Phase: aggressorAlone, Number: 1, Aggressor: "a", RuntimeS: 60, AggressorRuntimeS: 60, AggressorVerdict: verdict(ownerAggressor, 60, 600)},
		{Phase: "native-bfq", Number: 1, Protected: "p", Aggressor: "a", RuntimeS: 50, AggressorRuntimeS: 80,
			Verdict: verdict(ownerProtected, 250, 0), AggressorVerdict: verdict(ownerAggressor, 80, 640)},
	}
}

func TestRelativePerformance(t *testing.T) {
	phases, runs := bothRuns(t)
	res := Summarise(testSetup(), phases, runs)
	b := res.Phases[2].BothSides
	if b == nil || times(b.Protected.Relative) != "0.80" || times(b.Aggressor.Relative) != "0.75" || optional(b.Mean, "%.3f") != "0.775" {
		t.Fatalf("both sides %+v", b)
	}
	if optional(b.Protected.ReadMBps, "%.1f") != "5.0" || optional(b.Aggressor.WriteMBps, "%.1f") != "8.0" {
		t.Errorf("rates %+v", b)
	}
	if a := res.Phases[1]; a.Slowdown != nil || a.DeviceVsNative != nil || a.BothSides.Protected.RuntimeS != nil || a.BothSides.Mean != nil {
		t.Errorf("the aggressor alone is compared with the protected job: %+v", a)
	}
	var table, page, chart bytes.Buffer
	if err := res.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if err := res.WriteReport(&page, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := res.WriteSVG(&chart); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"80.0 s", "0.75", "0.78", "8.0 MB/s"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if !strings.Contains(page.String(), "<h2>Both sides</h2>") || !strings.Contains(page.String(), "section 7.4") {
		t.Error("the report does not have both sides")
	}
	if strings.Contains(chart.String(), aggressorAlone) {
		t.Error("the chart has the aggressor's run time among the protected job's")
	}
}

// Without the aggressor's end there is nothing to compare.
func TestNoBothSidesWithoutTheAggressorsEnd(t *testing.T) {
	phases, runs := bothRuns(t)
	runs[2].AggressorRuntimeS, runs[2].Killed = 0, true
	res := Summarise(testSetup(), phases[2:], runs)
	if res.hasBoth() || res.Phases[0].BothSides != nil {
		t.Errorf("%+v", res.Phases[0].BothSides)
	}
}
