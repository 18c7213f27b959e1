package slowdown

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/lab/bench/together"
	"penstock/lab/contest"
)

func setup(t *testing.T, pair string) Setup {
	t.Helper()
	s, err := DefaultSetup(pair, contest.HDD)
	if err != nil {
		t.Fatal(err)
	}
	s.Machine.CPUs = 2
	return s
}

func TestDefaultSetups(t *testing.T) {
	for _, pair := range Pairs {
		if err := setup(t, pair).Validate(); err != nil {
			t.Errorf("%s: %v", pair, err)
		}
	}
	for _, wrong := range [][2]string{{"sleep", contest.HDD}, {SortPair, "tape"}} {
		if _, err := DefaultSetup(wrong[0], wrong[1]); err == nil {
			t.Errorf("%v was accepted", wrong)
		}
	}
}

// result is an invented result with the completions of both jobs, by row.
func result(t *testing.T, rows map[string][][2]float64) Result {
	t.Helper()
	s := setup(t, SortPair)
	var runs []together.Run
	for row, all := range rows {
		for i, seconds := range all {
			r := together.Run{Row: row, Number: i + 1, Verdict: &contest.Verdict{StepSeconds: 1, MBps: map[string][]float64{"teragen": {5, 5}}}}
			for k, j := range s.Jobs {
				if seconds[k] > 0 {
					r.Jobs = append(r.Jobs, together.JobRun{Name: j.Name, CompletionS: seconds[k]})
				}
			}
			runs = append(runs, r)
		}
	}
	return newResult(s, runs)
}

// The figures of IBIS, Figure 11: 83 and 61 without control, 42 and 42 with it.
func TestPaper(t *testing.T) {
	r := result(t, map[string][][2]float64{
		"alone-terasort": {{90, 0}, {100, 0}, {110, 0}}, "alone-teragen": {{0, 200}},
		nativeRow: {{183, 322}}, equalRow: {{150, 250}}, goalRow: {{142, 284}, {141, 290}, {143, 270}},
	})
	all := r.claims()
	want := func(end string, value float64, met *bool) {
		t.Helper()
		for _, c := range all {
			if !strings.HasSuffix(c.Name, end) {
				continue
			}
			if math.Abs(c.Value-value) > 1e-9 || (c.Met == nil) != (met == nil) || met != nil && *c.Met != *met {
				t.Errorf("%+v, want %v", c, value)
			}
			return
		}
		t.Errorf("no claim %q", end)
	}
	yes := true
	want("native: slowdown of terasort", 83, nil)
	want("native: slowdown of teragen", 61, nil)
	want("native: difference of the slowdowns", 22, nil)
	want("equal-slowdown: slowdown of terasort", 42, nil)
	want("equal-slowdown: difference of the slowdowns", 4, &yes)
	want("how much less the worst slowdown is than with equal weights", 7, &yes) // 50 with equal weights, 42, 45 and 43 with the goal
	var table, page, doc bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "4 (0 to 8)") {
		t.Errorf("%v\n%s", err, table.String())
	}
	if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil {
		t.Error(err)
	}
	if err := r.WriteJSON(&doc); err != nil || !json.Valid(doc.Bytes()) {
		t.Error(err)
	}
}

// Without a job alone there are no slowdowns.
func TestUnfinished(t *testing.T) {
	r := result(t, map[string][][2]float64{"alone-terasort": {{90, 0}}, equalRow: {{1, 2}}})
	var table bytes.Buffer
	if got := r.claims(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), equalRow) {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// The known claims have both goals, whatever the pair.
func TestKnownClaims(t *testing.T) {
	for _, pair := range Pairs {
		all, err := KnownClaims(pair, contest.SSD)
		goals := 0
		for _, c := range all {
			if c.Goal != nil {
				goals++
			}
		}
		if err != nil || len(all) != 14 || goals != 2 {
			t.Errorf("%s: %d claims, %d goals, %v", pair, len(all), goals, err)
		}
	}
}
