package guarantees

import (
	"math"
	"strings"
	"testing"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/judge"
)

func TestParts(t *testing.T) {
	p := newParts(5*time.Second, []float64{50, 40, 60}, 10, 4)
	if p.LengthS != 5 || p.Parts[0] != 1 || p.Parts[1] != 0.8 || p.Parts[2] != 1.2 || p.ShortQuanta != 2.5 {
		t.Errorf("%+v", p)
	}
	if got := p.reaching(1); math.Abs(got-200./3) > 1e-9 {
		t.Errorf("%v %% of the windows have the rate", got)
	}
	if none := newParts(time.Second, nil, 10, 4); none.reaching(1) != 0 || len(none.Parts) != 0 {
		t.Errorf("without windows: %+v", none)
	}
}

func TestSliding(t *testing.T) {
	span := judge.Window{From: 100, To: 100 + int64(2*time.Second)}
	w := sliding(span, time.Second)
	if len(w) != 5 || w[0].From != span.From || w[4].To != span.To {
		t.Errorf("%v", w)
	}
	if w := sliding(span, 3*time.Second); w != nil {
		t.Errorf("windows longer than the span: %v", w)
	}
}

// invented is a run in which every goal is just met.
func invented() Result {
	parts := func(length float64, v ...float64) Parts { return Parts{LengthS: length, Parts: v, ShortQuanta: 3} }
	one := &One{Moved: 0.95, Depth: 2, Had: 1, Windows: []Parts{parts(1, 0.5, 1), parts(5, 0.97, 1), parts(20, 0.97, 1)}}
	return Result{experiment.TurnTable[Setup, Turn]{Setup: DefaultSetup(), Turns: []Turn{
		{Row: hddNative, Run: 1, One: &One{Moved: 1}}, {Row: hddTime, Run: 1, One: one}, {Row: hddBytes, Run: 1, One: one},
		{Row: ssdNative, Run: 1, One: &One{Moved: 1}}, {Row: ssdTime, Run: 1, One: one},
		{Row: rowCluster, Run: 1, Cluster: &Cluster{RefusedFits: 0.2, Windows: parts(30, 0.95, 1), Moving: parts(5, 0.4)}},
		{Row: rowLimit, Run: 1, Limit: &Limit{Limit: 1.03, Total: 0.97}},
		{Row: rowHalved, Run: 1, Halved: &Halved{BrokenAfterS: 10, First: 0.97, Second: 0.34, SecondGranted: 0.35, Elsewhere: 1}},
	}}}
}

func TestGoals(t *testing.T) {
	goals := 0
	for _, c := range invented().claims() {
		if c.Met != nil {
			if goals++; !*c.Met {
				t.Errorf("missed: %+v", c)
			}
		}
	}
	if goals != 23 {
		t.Errorf("%d claims have goals", goals)
	}
	worse := map[string]func(*Result){
		"hard disk, part of its time: most that a window of 20 s lacks": func(r *Result) { r.Turns[1].One.Windows[2].ShortQuanta = 3.1 },
		"hard disk, part of its time: windows of 20 s":                  func(r *Result) { r.Turns[1].One.Windows[2].Parts[0] = 0.969 },
		"hard disk, part of its time: the disk's throughput":            func(r *Result) { r.Turns[1].One.Moved = 0.949 },
		"three nodes: windows of 30 s":                                  func(r *Result) { r.Turns[5].Cluster.Windows.Parts[0] = 0.949 },
		"three nodes: part of an impossible rate":                       func(r *Result) { r.Turns[5].Cluster.RefusedGranted = 0.01 },
		"a limit on one disk":                                           func(r *Result) { r.Turns[6].Limit.Limit = 0.96 },
		"a disk half as fast: time until":                               func(r *Result) { r.Turns[7].Halved.BrokenAfterS = 10.1 },
		"a disk half as fast: part of the second":                       func(r *Result) { r.Turns[7].Halved.Second = 0.3 },
	}
	for name, change := range worse {
		r := invented()
		change(&r)
		found := false
		for _, c := range r.claims() {
			if strings.HasPrefix(c.Name, name) {
				found = true
				if c.Met == nil || *c.Met {
					t.Errorf("%s: still met: %+v", name, c)
				}
			}
		}
		if !found {
			t.Errorf("no claim %q", name)
		}
	}
}

func TestReport(t *testing.T) {
	var page, table, text strings.Builder
	r := invented()
	if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil || !strings.Contains(page.String(), "at most 10") {
		t.Errorf("%v:\n%s", err, &page)
	}
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "broken after 10.0 s") || strings.Count(table.String(), "\n") != len(rows)+1 {
		t.Errorf("%v:\n%s", err, &table)
	}
	if err := r.WriteJSON(&text); err != nil || !strings.Contains(text.String(), `"claims"`) {
		t.Errorf("%v:\n%s", err, &text)
	}
}

// Every claim of a measurement is known by its name, its unit and its goal.
func TestKnownClaims(t *testing.T) {
	known := map[string]claims.Claim{}
	for _, c := range KnownClaims() {
		known[c.Name] = c
	}
	for _, c := range invented().claims() {
		if k, ok := known[c.Name]; !ok || k.Unit != c.Unit || (k.Goal == nil) != (c.Goal == nil) {
			t.Errorf("%+v is not known: %+v", c, k)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Request{Setup: DefaultSetup(), TableRequest: experiment.TableRequest{Runs: 1}}
	good.Setup.Machine.CPUs = 2
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Request){
		"no runs": func(q *Request) { q.Runs = 0 }, "too many runs": func(q *Request) { q.Runs = experiment.MaxRuns + 1 },
		"one CPU": func(q *Request) { q.Setup.Machine.CPUs = 1 }, "an unknown Hadoop": func(q *Request) { q.Setup.Hadoop = "0.1" },
	} {
		q := good
		change(&q)
		if q.Validate() == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
