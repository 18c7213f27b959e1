package sim

import (
	"math"
	"strings"
	"testing"

	"penstock/settings"
)

// TestAComputingJobTakesNothing: beside TeraGen and WordCount, a job that computes has a slowdown of 1 within 5 %, and the
// others' slowdowns are as without it.
func TestAComputingJobTakesNothing(t *testing.T) {
	play := func(more string) map[string]Job {
		const text = `
length: 2h
nodes: [{count: 2, seek: 8ms, quantum: 8MiB}]
jobs:
  - {name: teragen, maps: 144, output: 72GiB, slots: 8}
  - {name: wordcount, input: 60GiB, slots: 8, rate: 22MiB}
  - {name: teragen2, application: teragen, at: 1ms, maps: 144, output: 144GiB, slots: 8, background: true}
  - {name: wordcount2, application: wordcount, at: 1ms, input: 180GiB, slots: 8, rate: 22MiB, background: true}
`
		var s Scenario
		if err := settings.Parse([]byte(text+more+"mapreduce: {slots: 12, replication: 1, order: fifo, play: [alone, coordinated, equal]}\n"), &s); err != nil {
			t.Fatal(err)
		}
		if err := s.validate(); err != nil {
			t.Fatal(err)
		}
		r, err := s.Play(1, nil)
		if err != nil {
			t.Fatal(err)
		}
		jobs := map[string]Job{}
		for _, j := range r.Jobs {
			jobs[j.Name] = j
		}
		return jobs
	}
	two := play("")
	three := play("  - {name: compute, input: 1GiB, slots: 8, rate: 1MiB}\n")
	if c := three["compute"]; c.Equal > 1.05*c.Alone || c.EqualEstimate > 1.05 {
		t.Errorf("compute: %.0f s, alone %.0f s, estimated slowdown %.3f", c.Equal, c.Alone, c.EqualEstimate)
	}
	for _, name := range []string{"teragen", "wordcount"} {
		if a, b := two[name].Equal, three[name].Equal; math.Abs(a-b) > 0.05*a {
			t.Errorf("%s: %.0f s, and %.0f s beside a job that computes", name, a, b)
		}
	}
}

// TestEqualExpectations: a run that does not meet its expectations of equal slowdowns is not good.
func TestEqualExpectations(t *testing.T) {
	r := func() *Result {
		r := &Result{Good: true, Jobs: []Job{{Name: "a", Kind: "a", Alone: 10, Coordinated: 20, Equal: 16, EqualEstimate: 1.6}, {Name: "b", Kind: "b", Alone: 10, Coordinated: 13, Equal: 15, EqualEstimate: 1.5}}}
		r.summarise([]string{wayAlone, wayCoordinated, wayEqual})
		return r
	}
	for _, test := range []struct {
		expect EqualSpec
		want   string
	}{
		{EqualSpec{Within: 0.11, Better: 0.39, Estimate: 0.01}, ""},
		{EqualSpec{Within: 0.09}, "1.500 to 1.600: they should be within 0.09"},
		{EqualSpec{Better: 0.5}, "1.600 in the way equal and 2.000 coordinated"},
	} {
		got := r()
		(&Scenario{Expect: ExpectSpec{Equal: test.expect}}).judgeEqual(got)
		if text := strings.Join(got.Faults, "\n"); got.Good != (test.want == "") || !strings.Contains(text, test.want) {
			t.Errorf("%+v: %q, want %q", test.expect, text, test.want)
		}
	}
	bad := r()
	bad.Jobs[0].EqualEstimate = 1.4
	(&Scenario{Expect: ExpectSpec{Equal: EqualSpec{Estimate: 0.1}}}).judgeEqual(bad)
	if bad.Good || len(bad.Faults) != 1 || !strings.Contains(bad.Faults[0], "a: the broker's estimate") {
		t.Errorf("%q", bad.Faults)
	}
	unknown := &Result{}
	(&Scenario{Expect: ExpectSpec{Equal: EqualSpec{Within: 1}}}).judgeEqual(unknown)
	if len(unknown.Faults) == 0 {
		t.Error("a run without slowdowns meets expectations")
	}
}
