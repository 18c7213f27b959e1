package soak

import "testing"

func TestClaims(t *testing.T) {
	r := Result{Kills: 10, Findings: []string{"a file is wrong"}, Loads: []LoadResult{{Failed: 1}, {Failed: 2}}, Kinds: []KindResult{
		{Kind: KillDaemon, Count: 6, Stall: Spread{Median: 20, P99: 300, Max: 410}}, {Kind: StopDaemon, Count: 2, Stall: Spread{Median: 500, Max: 1001}},
		{Kind: KillDataNode, Count: 4, Stall: Spread{Median: 100, Max: 3700}}, {Kind: Calm},
	}}
	want := map[string]struct {
		value, low float64
		runs       int
		goal, met  bool
	}{
		"kills of daemon and DataNodes":                     {10, 10, 1, false, false},
		"findings (lost or wrong data, failed jobs, leaks)": {1, 1, 1, true, false},
		"failed jobs": {3, 3, 1, true, false},
		"longest operation after a kill of the daemon":   {410, 20, 6, true, true},
		"longest operation while the daemon was stopped": {1001, 500, 2, true, false},
		"longest operation after a kill of a DataNode":   {3700, 100, 4, false, false},
	}
	all := r.claims()
	for _, c := range all {
		w, known := want[c.Name]
		if !known || c.Value != w.value || c.Low != w.low || c.High != w.value || c.Runs != w.runs || (c.Goal != nil) != w.goal || w.goal && *c.Met != w.met {
			t.Errorf("%+v, want %+v", c, w)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d claims: %+v", len(all), all)
	}
	for _, k := range append([]Kind{KillDaemon, KillDataNode}, between...) {
		if claimNames[k] == "" {
			t.Errorf("%s has no name", k)
		}
	}
}
