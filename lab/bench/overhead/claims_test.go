package overhead

import (
	"testing"

	"penstock/lab/experiment/figures"
)

// The goal of a claim is compared with the mean, and the bound of a target with the interval's end.
// A figure that is open as a target is open as a claim, too.
func TestClaims(t *testing.T) {
	r := Result{Outcome: Outcome[Setup]{Rounds: 5}, Streams: []Stream{
		{Variant: Enforce, Operation: Write, CPURatio: &figures.Ratio{Mean: 1.06, Low: 1.00, High: 1.11}, ThroughputRatio: &figures.Ratio{Mean: 0.9, Low: 0.8, High: 1}},
		{Variant: Enforce, Operation: FullWrite, CPURatio: &figures.Ratio{Mean: 2, Low: 2, High: 2}, ThroughputRatio: &figures.Ratio{Mean: 0.95, Low: 0.90, High: 1.01}},
	}, Jobs: []Job{{Variant: Enforce, Operation: TeraSort, Ratio: &figures.Ratio{Mean: 0.98, Low: 0.96, High: 0.99}},
		{Variant: Observe, Operation: TeraSort, Ratio: &figures.Ratio{Mean: 1.1, Low: 1.05, High: 1.2}}, {Variant: Native, Operation: TeraSort}},
		Memory: []Memory{{Enforce, 30 * mib}}}
	r.judge()
	if len(r.Verdicts) != 5 {
		t.Fatalf("targets: %+v", r.Verdicts)
	}
	yarn := YARNResult{Outcome: Outcome[YARNSetup]{Rounds: 5}, DaemonPeak: 50 * mib, Figures: []YARNFigure{{What: "run time", Ratio: &figures.Ratio{Mean: 1.018, Low: 1, High: 1.036}}, {What: "CPU, daemon"}}}
	want := map[string]struct {
		value     float64
		goal, met bool
		word      string // of the target
	}{
		"writes, enforce: DataNode's CPU / native":                 {1.06, true, true, r.Verdicts[0].Word()},
		"writes, enforce: throughput / native":                     {0.9, false, false, ""},
		"draining at full speed, enforce: DataNode's CPU / native": {2, false, false, ""},
		"draining at full speed, enforce: throughput / native":     {0.95, true, false, r.Verdicts[3].Word()},
		"TeraSort, enforce: run time / native":                     {0.98, true, true, r.Verdicts[1].Word()},
		"TeraSort, observe: run time / native":                     {1.1, true, false, r.Verdicts[2].Word()},
		"enforce: daemon's memory":                                 {30, true, true, r.Verdicts[4].Word()},
		"TeraSort on YARN, everything enabled: run time / native":  {1.018, true, true, "open"},
		"TeraSort on YARN, everything enabled: daemon's memory":    {50, true, false, "MISSED"},
	}
	all := append(r.claims(), yarn.claims()...)
	for _, c := range all {
		w, known := want[c.Name]
		if !known || c.Value != w.value || (c.Goal != nil) != w.goal || w.goal && *c.Met != w.met {
			t.Errorf("%+v, want %+v", c, w)
		}
		if w.goal && c.Open() != (w.word == "open") || !c.Open() && w.goal && *c.Met != (w.word == "kept") {
			t.Errorf("%s: met %v, open %v, and the target is %s", c.Name, *c.Met, c.Open(), w.word)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d claims: %+v", len(all), all)
	}
}
