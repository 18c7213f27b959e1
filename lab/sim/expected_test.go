package sim

import (
	"strings"
	"testing"

	"penstock/settings"
)

// TestExpectationsNeedTheGuarantees: the expectations of the scenarios of guarantees and latency goals are not met if the
// policy does not grant them. So the scenarios notice it if the code that keeps them does not work.
func TestExpectationsNeedTheGuarantees(t *testing.T) {
	for file, without := range map[string]map[string]func(*ApplicationSpec){
		"guarantees-hundred": {
			"moving: ":  func(a *ApplicationSpec) { a.TotalReserve = 1 << 20 },
			"staying: ": func(a *ApplicationSpec) { a.Reserve = settings.Reserve{} },
		},
		"moving-three":      {"moving: ": func(a *ApplicationSpec) { a.TotalReserve = 1 << 20 }},
		"limited-three":     {"capped: ": func(a *ApplicationSpec) { a.TotalLimit = 0 }},
		"admission-hundred": {"late, 20 s to 45 s: ": func(a *ApplicationSpec) { a.TotalReserve = 50 << 20 }},
		"limits-hundred": {
			"limited: ": func(a *ApplicationSpec) { a.Limit = 0 },
			"capped: ":  func(a *ApplicationSpec) { a.TotalLimit = 0 },
		},
		"latency-hundred": {"regions: the 99th percentile": func(a *ApplicationSpec) { a.Latency = 0 }},
	} {
		for fault, change := range without {
			t.Run(file+" "+strings.TrimSuffix(fault, ": "), func(t *testing.T) {
				t.Parallel()
				s := load(t, "scenarios/"+file+".yaml")
				for i := range s.Applications {
					if strings.HasPrefix(fault, s.Applications[i].Name) {
						change(&s.Applications[i])
					}
				}
				r := played(t, s, 1)
				if r.Good || !strings.Contains(strings.Join(r.Faults, "\n"), fault) {
					t.Errorf("faults %q, want %q", r.Faults, fault)
				}
			})
		}
	}
}

// TestADiskThatStaysFast: without the event, the expectations about slow disks are not met.
func TestADiskThatStaysFast(t *testing.T) {
	s := load(t, "scenarios/halved-hundred.yaml")
	s.Events = nil
	if r := played(t, s, 1); r.Good || !strings.Contains(strings.Join(r.Faults, "\n"), "behind at node 0, 40 s to 60 s: the guaranteed rate is [admitted]") {
		t.Errorf("faults %q", r.Faults)
	}
}

// TestWhatAnApplicationIsExpected: each kind of expectation fails with a message that says what was seen.
func TestWhatAnApplicationIsExpected(t *testing.T) {
	const base = "length: 20s\nsettle: 5s\nnodes: [{count: 8}]\napplications: [{name: a, size: 4KiB}, {name: b}]\nexpect: {applications: ["
	for text, want := range map[string]string{
		"{application: b, least: 100GiB}":                                "b: 0.0 % of 15 windows have a rate within the bounds",
		"{application: b, most: 1MiB, window: 5s}":                       "b: 0.0 % of 3 windows",
		"{application: b, most: 1MiB, window: 5s, step: 1s}":             "b: 0.0 % of 11 windows",
		"{application: b, node: 1, most: 1MiB}":                          "b at node 1: ",
		"{application: a, p99: 1ms}":                                     "a: the 99th percentile of the small reads is",
		"{application: b, least: 1, recovery: 1s, from: 5s, to: 5500ms}": "b: no window is judged",
	} {
		if r := played(t, parsed(t, base+text+"]}\n"), 1); r.Good || !strings.Contains(strings.Join(r.Faults, "\n"), want) {
			t.Errorf("%s: faults %q, want %q", text, r.Faults, want)
		}
	}
	r := played(t, parsed(t, base+"{application: b, least: 1MiB, part: 0.9}, {application: a, p99: 10s}]}\n"), 1)
	if !r.Good || len(r.Checks) != 2 || r.Checks[0].Kept != 1 || r.Checks[1].Reads < 100 || !(r.Checks[1].P99 > 0) {
		t.Errorf("%v, %+v", r.Faults, r.Checks)
	}
}

func TestMistakesInGuarantees(t *testing.T) {
	for text, want := range map[string]string{
		"{name: a, total_reserve: 1}]":                                                                        "applications[0]: total_reserve 1: use",
		"{name: a, total_reserve: 2MiB, total_limit: 1MiB}]":                                                  "above the total_limit",
		"{name: a, latency: 1ms}]":                                                                            "latency 1ms: use",
		"{name: a, size: 1MiB}]":                                                                              "size 1048576: use 1 to 131072",
		"{name: a, size: 1KiB, io: write}]":                                                                   "size is for reads only",
		"{name: a, pause: 1s}]":                                                                               "pause: use at least 1ms, with size",
		"{name: a, move: 1s}]":                                                                                "move: use at least 1s, with on or spread",
		"{name: a, move: 1s, on: [0], begin: 1s}]":                                                            "move: remove begin",
		"{name: a}]\nevents: [{slow: [2], factor: 1}]":                                                        "slow: there is no node 2",
		"{name: a}]\nevents: [{slow: [1], factor: 2}]":                                                        "factor 2: use 0.01 to 1",
		"{name: a}]\nexpect: {applications: [{application: c, least: 1}]}":                                    `the scenario has no application "c"`,
		"{name: a}]\nexpect: {applications: [{application: a}]}":                                              "give least, most, state or p99",
		"{name: a}]\nexpect: {applications: [{application: a, least: 1, window: 1500ms}]}":                    "use a multiple of the scenario's window",
		"{name: a}]\nexpect: {applications: [{application: a, least: 1, window: 2s, step: 3s}]}":              "up to window",
		"{name: a}]\nexpect: {applications: [{application: a, p99: 1s}]}":                                     "makes no small reads",
		"{name: a, reserve: 10%}]\nexpect: {applications: [{application: a, state: admitted}]}":               "give node",
		"{name: a}]\nexpect: {applications: [{application: a, state: admitted, node: 0}]}":                    "has no guaranteed rate",
		"{name: a, total_reserve: 1MiB}]\nexpect: {applications: [{application: a, state: kept}]}":            `state "kept"`,
		"{name: a}]\nexpect: {applications: [{application: a, least: 2, most: 1, part: 2, node: 2, to: 1h}]}": "least is above most",
	} {
		var s Scenario
		err := settings.Parse([]byte("nodes: [{count: 2}]\napplications: ["+text+"\n"), &s)
		if err == nil {
			err = s.validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
