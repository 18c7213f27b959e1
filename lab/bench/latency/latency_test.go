package latency

import (
	"strings"
	"testing"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
)

func TestTimes(t *testing.T) {
	var millis []float64
	for i := range 100 {
		millis = append(millis, float64(i+1))
	}
	if got := newTimes(millis); got.Reads != 100 || got.MeanMS != 50.5 || got.P50MS != 50.5 || got.P99MS < 99 || got.P99MS > 100 || got.MaxMS != 100 {
		t.Errorf("%+v", got)
	}
	if got := newTimes(nil); got != (Times{}) {
		t.Errorf("without reads: %+v", got)
	}
}

// invented is a run in which every goal is just met.
func invented() Result {
	t := Times{Reads: 10, MeanMS: 10, P99MS: 20}
	own := Times{Reads: 10, MeanMS: 11, P99MS: 22}
	beside := func(p99, active, idle float64) *Beside {
		return &Beside{Times: Times{MeanMS: 30, P99MS: p99}, Active: active, Idle: idle}
	}
	return Result{experiment.TurnTable[Setup, Turn]{Setup: DefaultSetup(), Turns: []Turn{
		{Row: rowAlone, Run: 1, Alone: &Alone{ColdNative: t, Cold: own, CachedNative: t, Cached: own}},
		{Row: writersNative, Run: 1, Beside: beside(500, 0.8, 0.9)},
		{Row: writersWeight, Run: 1, Beside: beside(200, 0.8, 0.9)},
		{Row: writersGoal, Run: 1, Beside: beside(100, 0.68, 0.873)},
		{Row: teraGenNative, Run: 1, Beside: beside(500, 0.8, 0.9)},
		{Row: teraGenGoal, Run: 1, Beside: beside(100, 0.68, 0.873)},
		{Row: hbaseAlone, Run: 1, HBaseAlone: &HBaseAlone{ColdNative: t, Cold: own, CachedNative: t, Cached: own, WritesNative: t, Writes: own, ScanSNative: 10, ScanS: 10}},
		{Row: hbaseNative, Run: 1, HBaseBeside: &HBaseBeside{Reads: Times{P99MS: 500}, Writes: Times{P99MS: 500}}},
		{Row: hbaseWeight, Run: 1, HBaseBeside: &HBaseBeside{Reads: Times{P99MS: 200}, Writes: Times{P99MS: 200}}},
		{Row: hbaseGoal, Run: 1, HBaseBeside: &HBaseBeside{Reads: Times{P99MS: 100}, Writes: Times{P99MS: 100}}},
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
	if goals != 15 {
		t.Errorf("%d claims have goals", goals)
	}
	for name, change := range map[string]func(*Result){
		"cold reads alone: p99":                                      func(r *Result) { r.Turns[0].Alone.Cold.P99MS = 23 },
		"cached reads alone: mean":                                   func(r *Result) { r.Turns[0].Alone.Cached.MeanMS = 12 },
		"beside writers, with a goal: p99":                           func(r *Result) { r.Turns[3].Beside.P99MS = 101 },
		"beside TeraGen, with a goal: the disk's throughput while":   func(r *Result) { r.Turns[5].Beside.Active = 0.67 },
		"beside TeraGen, with a goal: the disk's throughput without": func(r *Result) { r.Turns[5].Beside.Idle = 0.87 },
		"HBase, cold reads alone: p99":                               func(r *Result) { r.Turns[6].HBaseAlone.Cold.P99MS = 23 },
		"HBase beside TeraGen, with a goal: p99 of writes":           func(r *Result) { r.Turns[9].HBaseBeside.Writes.P99MS = 101 },
	} {
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

// Figures of different runs are not compared.
func TestPairsAreOfOneRun(t *testing.T) {
	r := invented()
	r.Turns[1].Run = 2
	for _, c := range r.claims() {
		if strings.HasPrefix(c.Name, "beside writers") && strings.Contains(c.Name, "native") && strings.Contains(c.Name, "throughput") {
			t.Errorf("%+v", c)
		}
	}
}

func TestReport(t *testing.T) {
	var page, table strings.Builder
	r := invented()
	if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil || !strings.Contains(page.String(), "at most 5") {
		t.Errorf("%v:\n%s", err, &page)
	}
	if err := r.WriteTable(&table); err != nil || strings.Count(table.String(), "\n") != len(rows)+1 {
		t.Errorf("%v:\n%s", err, &table)
	}
}

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
		"a small goal": func(q *Request) { q.Setup.GoalMS = 9 }, "a large goal": func(q *Request) { q.Setup.GoalMS = 10_001 },
	} {
		q := good
		change(&q)
		if q.Validate() == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
