package shortest

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"penstock/broker/policyfile"
	"penstock/core/policy"
	"penstock/core/shortest"
	"penstock/lab/bench/together"
	"penstock/lab/contest"
	"penstock/lab/experiment/claims"
	"penstock/lab/sim"
)

func setup(t *testing.T, workload, kind string) Setup {
	t.Helper()
	s, err := DefaultSetup(workload, kind)
	if err != nil {
		t.Fatal(err)
	}
	s.Machine.CPUs = 2
	return s
}

func TestDefaultSetups(t *testing.T) {
	for _, workload := range Workloads {
		for _, kind := range []string{contest.HDD, contest.SSD} {
			s := setup(t, workload, kind)
			if err := s.Validate(); err != nil {
				t.Errorf("%s on %s: %v", workload, kind, err)
			}
			names := map[string]bool{}
			for _, row := range s.rowNames() {
				if names[row] {
					t.Errorf("%s: two rows are named %s", workload, row)
				}
				names[row] = true
			}
			for _, o := range s.orders() {
				if !names[o.row] || o.slices.Validate() != nil {
					t.Errorf("%s: the order %+v has no row, or wrong slices", workload, o)
				}
			}
		}
	}
	for _, wrong := range [][2]string{{"sleep", contest.HDD}, {Mix, "tape"}} {
		if _, err := DefaultSetup(wrong[0], wrong[1]); err == nil {
			t.Errorf("%v was accepted", wrong)
		}
	}
}

// The rows' words are what the policy means by them.
func TestPolicies(t *testing.T) {
	s := setup(t, Generate, contest.HDD)
	for _, row := range s.Rows() {
		if row.Way.Policy == "" {
			continue
		}
		p, err := policyfile.Parse([]byte("queues:\n- {queue: root.batch, weight: 1, " + row.Way.Policy + "}\n"))
		if err != nil {
			t.Errorf("%s: %v", row.Name, err)
			continue
		}
		if got := p.Queues[0]; len(p.Queues) != 1 || got.Order != policy.Shortest || text(got.Slices) != strings.TrimPrefix(strings.TrimPrefix(row.Name, shortestPrefix), sizedPrefix) {
			t.Errorf("%s: %+v", row.Name, p.Queues)
		}
	}
}

// The fluid optima of the disk contention paper's experiment. With equal shares, jobs of 1, 2 and 3 end at 3, 5 and
// 6. With everything for the first, they end at 1, 3 and 6.
func TestFluid(t *testing.T) {
	jobs := []measured{{seconds: 11, idle: 1}, {seconds: 20}, {seconds: 30}}
	if got := fluidMean(jobs, func(n int) []float64 { return []float64{1, 0, 0}[:n] }); math.Abs(got-100./3) > 1e-6 {
		t.Errorf("one after the other: %v s, want 33.3", got)
	}
	for _, c := range []struct {
		slices []int
		low    float64
		high   float64
	}{{[]int{70, 20, 10}, 0.15, 0.23}, {[]int{100}, 0.27, 0.29}} {
		if got := fluidGain(jobs, shortest.Slices{Percent: c.slices}); got < c.low || got > c.high {
			t.Errorf("%v: gain %v, want %v to %v", c.slices, got, c.low, c.high)
		}
	}
}

// The simulator sees the volumes and the times of the jobs alone.
func TestScenario(t *testing.T) {
	s := setup(t, Mix, contest.HDD)
	const mib = contest.MiB
	jobs := []measured{
		{Job: s.Jobs[0], seconds: 20, idle: 2, moved: 3 * s.Jobs[0].Bytes},
		{Job: s.Jobs[1], seconds: 30, idle: 1, moved: s.Jobs[1].Bytes + 8*mib},
		{Job: s.Jobs[2], seconds: 50, idle: 3, moved: 4 * s.Jobs[2].Bytes},
	}
	c, err := s.scenario(jobs, s.slices(), sim.WayShortest)
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(c.MapReduce.Start); got != 2*time.Second {
		t.Errorf("start %v, want 2 s", got)
	}
	for i, want := range [][4]int64{{96, 48, 96, 1}, {384, 0, 8, 0}, {320, 320, 320, 2}} {
		j := c.Jobs[i]
		if got := [4]int64{int64(j.Input) / mib, int64(j.Shuffle) / mib, int64(j.Output) / mib, int64(j.Reduces)}; got != want {
			t.Errorf("%s: input, shuffle, output, reduces %v, want %v", j.Name, got, want)
		}
		if moves := int64(j.Input + 2*j.Shuffle + j.Output); moves != jobs[i].moved {
			t.Errorf("%s moves %d bytes, want %d", j.Name, moves, jobs[i].moved)
		}
	}
	if got, want := int64(c.Jobs[1].Rate), jobs[1].moved/29/4; got != want {
		t.Errorf("rate of each of four maps %d, want %d", got, want)
	}
	if got, want := int64(c.Jobs[0].Rate), jobs[0].moved/18; got != want {
		t.Errorf("rate of the only reduce %d, want %d", got, want)
	}
}

// The predictions follow from the jobs alone, whatever else was measured, and are the same each time.
func TestPredictions(t *testing.T) {
	for _, kind := range []string{contest.HDD, contest.SSD} {
		r := invented(setup(t, Generate, kind))
		all, err := r.predict()
		if err != nil {
			t.Fatal(err)
		}
		only := r
		only.Runs = nil
		for _, run := range r.Runs {
			if strings.HasPrefix(run.Row, together.AlonePrefix) {
				only.Runs = append(only.Runs, run)
			}
		}
		again, err := only.predict()
		if err != nil || len(all) != 3 {
			t.Fatalf("%d predictions, %v", len(all), err)
		}
		for i, p := range all {
			if p != again[i] {
				t.Errorf("%+v, and from the jobs alone %+v", p, again[i])
			}
			if p.Gain < 0.05 || p.Gain > 0.4 || p.FluidGain < 0.15 || p.FluidGain > 0.3 {
				t.Errorf("%s: %+v", kind, p)
			}
		}
		only.Runs = only.Runs[1:]
		if _, err := only.predict(); err == nil {
			t.Error("predicted without one of the jobs alone")
		}
	}
}

// invent replaces the completions of a row's run.
func (r *Result) invent(row string, seconds ...float64) {
	for i := range r.Runs {
		if r.Runs[i].Row == row {
			for k := range seconds {
				r.Runs[i].Jobs[k].CompletionS = seconds[k]
			}
		}
	}
}

func find(t *testing.T, all []claims.Claim, end string) claims.Claim {
	t.Helper()
	for _, c := range all {
		if strings.HasSuffix(c.Name, end) {
			return c
		}
	}
	t.Fatalf("no claim %q", end)
	return claims.Claim{}
}

func TestClaims(t *testing.T) {
	r := invented(setup(t, Generate, contest.HDD))
	r.invent("native-none", 40, 60, 80) // mean 60
	r.invent("native-mq-deadline", 42, 60, 84)
	r.invent("native-bfq", 40, 60, 110)
	r.invent("equal", 41, 61, 81)
	r.invent("shortest-70-20-10", 20, 45, 79) // mean 48: 20 % less
	r.invent("shortest-100", 15, 40, 86)
	r.invent("caps-70-20-10", 1, 2, 3)
	predictions, err := r.predict()
	if err != nil {
		t.Fatal(err)
	}
	all := r.claims()
	near := func(end string, want float64, met *bool) {
		t.Helper()
		c := find(t, all, end)
		if math.Abs(c.Value-want) > 1e-6 || (c.Met == nil) != (met == nil) || met != nil && *c.Met != *met {
			t.Errorf("%+v, want %v", c, want)
		}
	}
	yes, no := true, false
	const row = "TeraGen 1:2:3, hard disks, shortest-70-20-10: "
	near(row+"mean completion / the best kernel scheduler's", 0.8, nil)
	achieved := 0.2 / predictions[0].Gain
	met := achieved >= leastGain
	near(row+"gain achieved / gain predicted", achieved, &met)
	near(row+"makespan / the best kernel scheduler's", 79./80, &yes)
	near(row+"completion of the job that loses most / the best kernel scheduler's", 79./80, nil)
	near("shortest-100: makespan / the best kernel scheduler's", 86./80, &no)
	near("shortest-100: completion of the job that loses most / the best kernel scheduler's", 86./80, &no)
	near("equal: mean completion / the best kernel scheduler's", 61./60, nil)
	near("caps-70-20-10: the first job's part of the disks while it runs", 1./3, nil)
	near("caps-70-20-10: rate of the last job while the first one runs / its cap", 1/2.4, nil)
	near("alone-small: start-up and clean-up / completion", 0.05, &yes)
}

// Without the native rows there is nothing to compare with, and a report can be written at any time.
func TestUnfinished(t *testing.T) {
	whole := invented(setup(t, Mix, contest.SSD))
	for _, n := range []int{0, 1, 3, 4, len(whole.Runs)} {
		r := whole
		r.Runs = whole.Runs[:n]
		var table, page, doc bytes.Buffer
		if err := r.WriteTable(&table); err != nil {
			t.Fatal(err)
		}
		if err := r.Report().Write(&page, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteJSON(&doc); err != nil || !json.Valid(doc.Bytes()) {
			t.Fatalf("%v: %s", err, doc.String())
		}
		if n == 4 && (len(r.claims()) < 1 || strings.Contains(doc.String(), "kernel scheduler's")) {
			t.Errorf("one native row of three: %s", table.String())
		}
	}
}
