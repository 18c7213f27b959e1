package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/settings"
)

// smallDeadline is a small scenario: a job that its weight ends late, beside one of four times its weight.
const smallDeadline = `
length: 20m
nodes: [{count: 4, rate: 100000000, quantum: 16MiB, profile: true}]
jobs:
  - {name: report, input: 18GiB, slots: 8, deadline: 4m}
  - {name: scan, input: 100GiB, slots: 8, weight: 4}
mapreduce: {slots: 4, start: 200ms, replication: 1, play: [coordinated, deadline]}
expect: {deadline: {kept: 1, missed_coordinated: 1, others: 2}}
`

// TestADeadlineIsKept: the job ends in time only in the way deadline. Alone it takes 51 s, and 255 s at a fifth of the disks, which the other one outlasts.
func TestADeadlineIsKept(t *testing.T) {
	r := played(t, parsed(t, smallDeadline), 1)
	if !r.Good {
		t.Fatalf("%q", r.Faults)
	}
	j := &r.Jobs[0]
	if states := j.Due.States(); j.Due.After != 240 || len(states) < 2 || states[0] != "refused" || states[1] != "granted" || j.Due.Rate() < 50e6 || j.Due.Rate() > 400e6 {
		t.Errorf("%+v", j.Due)
	}
	if !j.InTime(wayDeadline) || j.InTime(wayCoordinated) || r.Jobs[1].Due != nil {
		t.Errorf("%+v", r.Jobs)
	}
}

// TestADeadlineNeedsTheBroker: a broker that stays away grants nothing, and the job is late. One that returns has forgotten everything, and
// grants the deadline again when it has seen some progress.
func TestADeadlineNeedsTheBroker(t *testing.T) {
	late := played(t, parsed(t, smallDeadline+"events: [{at: 5s, broker: down}]\n"), 1)
	if late.Good || !strings.Contains(strings.Join(late.Faults, "\n"), "0 of 1 jobs ended by their deadlines") {
		t.Errorf("without the broker: %q", late.Faults)
	}
	again := played(t, parsed(t, smallDeadline+"events: [{at: 120s, broker: down}, {at: 125s, broker: up}]\n"), 1)
	if states := again.Jobs[0].Due.States(); !slices.Equal(states[:min(4, len(states))], []string{"refused", "granted", "refused", "granted"}) {
		t.Errorf("with a new broker: %q, %q", states, again.Faults)
	}
}

// TestDeadlineExpectations: a run that does not meet its expectations of deadlines is not good.
func TestDeadlineExpectations(t *testing.T) {
	job := func(name string, coordinated, deadline, after float64, states ...string) Job {
		j := Job{Name: name, Kind: name, Coordinated: coordinated, Deadline: deadline}
		if after > 0 {
			j.Due = &Deadline{After: after}
			for _, s := range states {
				j.Due.note(Decision{State: s})
			}
		}
		return j
	}
	jobs := []Job{job("kept", 200, 90, 100, "refused", "granted"), job("edge", 101, 100, 100, "granted"), job("late", 0, 101, 100, "refused", "granted", "missed"),
		job("never", 300, 300, 100, "refused", "missed"), job("other", 10, 19, 0)}
	for _, test := range []struct {
		expect DeadlineSpec
		want   string
	}{
		{DeadlineSpec{Kept: 0.66, MissedCoordinated: 1, Refused: []string{"never"}, Others: 1.9}, ""},
		{DeadlineSpec{Kept: 0.67, Refused: []string{"never"}}, "2 of 3 jobs ended by their deadlines in the way deadline"},
		{DeadlineSpec{Kept: 0.51}, "2 of 4 jobs ended by"},
		{DeadlineSpec{Refused: []string{"late"}}, "late: its deadline should be refused, and it was [refused granted missed]"},
		{DeadlineSpec{Others: 1.8}, "other: the mean run time is 19.0 s in the way deadline and 10.0 s coordinated"},
	} {
		r := &Result{Good: true, Jobs: jobs}
		(&Scenario{Expect: ExpectSpec{Deadline: test.expect}}).judgeDeadlines(r)
		if text := strings.Join(r.Faults, "\n"); r.Good != (test.want == "") || !strings.Contains(text, test.want) {
			t.Errorf("%+v: %q, want %q", test.expect, text, test.want)
		}
	}
	r := &Result{Good: true, Jobs: []Job{job("early", 99, 99, 100, "granted")}}
	(&Scenario{Expect: ExpectSpec{Deadline: DeadlineSpec{MissedCoordinated: 1}}}).judgeDeadlines(r)
	if r.Good || !strings.Contains(r.Faults[0], "0 of 1 jobs ended after their deadlines in the way coordinated") {
		t.Errorf("%q", r.Faults)
	}
}

// TestDecisionsAreBounded: only new states and rates are kept, up to a bound.
func TestDecisionsAreBounded(t *testing.T) {
	var d Deadline
	for i := range 3 * mostDecisions {
		d.note(Decision{State: "granted", Rate: int64(i / 2), At: float64(i)})
	}
	if len(d.Decisions) != mostDecisions || d.Decisions[1].At != 2 || d.Rate() != mostDecisions-1 {
		t.Errorf("%d decisions, %+v", len(d.Decisions), d.Decisions[1])
	}
}

func TestMistakesInDeadlines(t *testing.T) {
	for text, want := range map[string]string{
		"deadline: 59s}]":                               "jobs[0]: deadline 59s: use 1m0s to 720h0m0s",
		"deadline: 5m, application: b}]":                "jobs[0]: deadline: a job with a deadline is an application of its own",
		"deadline: 5m, background: true}]":              "jobs[0]: deadline: the run does not wait",
		"deadline: 5m}]\nexpect: {deadline: {kept: 1}}": "let play include deadline",
		"deadline: 5m}]\nmapreduce: {play: [deadline]}\nexpect: {deadline: {others: 1}}":                      "let play include coordinated",
		"deadline: 5m}]\nmapreduce: {play: [deadline]}\nexpect: {deadline: {kept: 2}}":                        "use 0 to 1",
		"deadline: 5m}]\nmapreduce: {play: [deadline]}\nexpect: {deadline: {others: 0.5}}":                    "others 0.5: use 1 to 1000",
		"deadline: 5m}]\nmapreduce: {play: [deadline]}\nexpect: {deadline: {refused: [x]}}":                   `the scenario has no job "x"`,
		"weight: 1}]\nmapreduce: {play: [deadline]}\nexpect: {deadline: {kept: 1}}":                           "no job has a deadline",
		"weight: 1}]\nmapreduce: {play: [deadline]}\nexpect: {deadline: {refused: [a]}}":                      `the job "a" has no deadline`,
		"deadline: 5m}]\nexchange: {off: true}\nmapreduce: {play: [deadline]}\nexpect: {deadline: {kept: 1}}": "remove exchange.off",
		"deadline: 721h}]": "deadline 721h0m0s: use",
	} {
		var s Scenario
		err := settings.Parse([]byte("nodes: [{count: 2}]\njobs: [{name: a, input: 1GiB, "+text+"\n"), &s)
		if err == nil {
			err = s.validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestTheEdgesOfDeadlines: the least deadline is accepted.
func TestTheEdgesOfDeadlines(t *testing.T) {
	s := parsed(t, "nodes: [{count: 2}]\njobs: [{name: a, input: 1GiB, deadline: 1m}, {name: b, input: 1GiB, deadline: 720h}]\n")
	works, err := s.works(1)
	if err != nil || works[0].deadline != time.Minute || works[1].deadline != 720*time.Hour {
		t.Errorf("%v", err)
	}
}
