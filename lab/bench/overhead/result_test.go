package overhead

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/lab/experiment/figures"
)

func summary(t *testing.T, rounds int) Result {
	t.Helper()
	j, err := run(t, t.Context(), &fakeWorld{t: t}, "", rounds)
	if err != nil {
		t.Fatal(err)
	}
	return Summarise(DefaultSetup(), j)
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) < 1e-9) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestRatiosArePairedWithinRounds(t *testing.T) {
	res := summary(t, 5)
	for _, s := range res.Streams {
		if s.Variant == Native {
			if s.CPURatio != nil || s.ThroughputRatio != nil {
				t.Errorf("native is compared with itself: %+v", s)
			}
			near(t, "native CPU", s.DataNodeCPU.Median, 1.003)
			near(t, "native rate", s.MBps.Median, 500)
			continue
		}
		// Changes from round to round are the same for both.
		want := map[Variant]float64{Absent: 1.01, Observe: 1.02, Enforce: 1.03}[s.Variant]
		near(t, "ratio", s.CPURatio.Mean, want)
		near(t, "upper end", s.CPURatio.High, want)
		near(t, "throughput", s.ThroughputRatio.Mean, 1/want)
		if s.Variant == Enforce && !(s.TotalRatio.Mean > 1.5) {
			t.Errorf("the daemon's CPU time is not in %+v", *s.TotalRatio)
		}
	}
	if len(res.Jobs) != 8 || res.Jobs[3].Ratio == nil {
		t.Errorf("jobs: %+v", res.Jobs)
	}
}

func TestTargetsAreHeldAgainstTheUpperEnd(t *testing.T) {
	res := summary(t, 5)
	kept := map[string]bool{}
	for _, v := range res.Verdicts {
		kept[v.What] = v.Kept
	}
	for what, want := range map[string]bool{
		"DataNode CPU per GB, write, enforce: at most +10 %":  true,
		"run time of teragen, observe: at most +2 %":          true, // 2 % exactly
		"run time of teragen, enforce: at most +2 %":          false,
		"throughput of staging: all of native's, within 3 %":  true,
		"throughput of draining: all of native's, within 3 %": true,
		"the daemon's memory, enforce: under 40 MiB":          true,
	} {
		if got, told := kept[what]; !told || got != want {
			t.Errorf("%s: told %v, kept %v, want %v; all: %v", what, told, got, want, kept)
		}
	}
	noisy := Result{Jobs: []Job{{Variant: Enforce, Operation: TeraGen, Ratio: &figures.Ratio{Mean: 1.01, Low: 0.99, High: 1.03}}}}
	noisy.judge()
	if len(noisy.Verdicts) != 1 || noisy.Verdicts[0].Kept || noisy.Verdicts[0].Word() != "open" {
		t.Errorf("a bound within the interval: %+v", noisy.Verdicts)
	}
	over := Result{Memory: []Memory{{Enforce, memoryBound}}}
	over.judge()
	if len(over.Verdicts) != 1 || over.Verdicts[0].Kept {
		t.Errorf("40 MiB are not under 40 MiB: %+v", over.Verdicts)
	}
}

func TestOneRoundHasNoIntervals(t *testing.T) {
	res := summary(t, 1)
	for _, s := range res.Streams {
		if s.CPURatio != nil {
			t.Errorf("%+v", s)
		}
	}
	if !strings.Contains(strings.Join(res.Notes(), "\n"), "Fewer than 5 rounds") {
		t.Errorf("notes: %q", res.Notes())
	}
	if _, err := res.chart(); err != nil {
		t.Error(err)
	}
}

func TestTableJSONAndReport(t *testing.T) {
	res := summary(t, 5)
	var table, doc, page strings.Builder
	if err := res.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cold read", "enforce", "1.030 (1.030-1.030)", "MISSED", "kept", "5 rounds"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
	if err := res.WriteJSON(&doc); err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal([]byte(doc.String()), &back); err != nil || len(back.Streams) != len(res.Streams) {
		t.Errorf("%v: %s", err, &doc)
	}
	if err := res.WriteReport(&page, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "1970-01-01", "cold read", "MISSED", "stream_bytes"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if strings.Contains(page.String(), "http://") && strings.Count(page.String(), "http://") != strings.Count(page.String(), "http://www.w3.org/") {
		t.Error("the report needs something from elsewhere")
	}
}
