package operate

import (
	"strings"
	"testing"
	"time"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// TestProgressAndDeadlinesInTheTable: the columns are there if an application has something in them.
func TestProgressAndDeadlinesInTheTable(t *testing.T) {
	table := func(states ...*cluster.ApplicationState) string {
		return strings.Join(applications(states).Lines(), "\n")
	}
	plain := &cluster.ApplicationState{Application: "app-1"}
	if text := table(plain); strings.Contains(text, "DONE") || strings.Contains(text, "DEADLINE") {
		t.Errorf("without: %s", text)
	}
	at := time.Date(2026, 11, 25, 18, 0, 0, 0, time.Local).UnixMilli()
	text := table(plain, &cluster.ApplicationState{Application: "app-2", Progress: 0.421, ForecastEndUnixMs: at},
		&cluster.ApplicationState{Application: "app-3", DeadlineUnixMs: at, DeadlineState: "refused", DeadlineReason: "its progress is not known"})
	for _, want := range []string{"DONE", "ENDS", "42 %", "2026-11-25 18:00:00 refused: its progress is not known"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if got := Deadline(&cluster.ApplicationState{DeadlineState: "granted"}); got != "granted" {
		t.Error(got)
	}
}

// TestADeadlineInAPolicy: a deadline is shown, and makes a difference.
func TestADeadlineInAPolicy(t *testing.T) {
	parse := func(text string) *Policy {
		t.Helper()
		p, err := ParsePolicy("p", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	facts := []policy.Facts{{Flow: "app"}}
	if w := parse("rules:\n- {flow: app, deadline: 2h}\n- {flow: b, deadline: 2199-01-01T00:00:00Z}\n- {flow: c, deadline: 2021-01-01T00:00:00Z}\n").Warnings(); len(w) != 1 ||
		w[0] != "line 4: rules[2]: the deadline 2021-01-01T00:00:00Z has passed" {
		t.Error(w)
	}
	for rule, want := range map[string]string{
		"deadline: 2h, limit: 50MiB":                        "line 2: rules[0]: deadline and limit: the guaranteed rate is at most 50.0 MiB/s on each device.",
		"deadline: 2h, total_limit: 50MiB":                  "line 2: rules[0]: deadline and total_limit: the guaranteed rate is at most 50.0 MiB/s in all.",
		"deadline: 2h, limit: 1MiB, total_limit: 50MiB":     "line 2: rules[0]: deadline and limit, total_limit: the guaranteed rate is at most 1.0 MiB/s on each device and 50.0 MiB/s in all.",
		"limit: 1MiB, total_limit: 50MiB":                   "",
		"deadline: 2h, weight: 3":                           "",
		"deadline: 2021-01-01T00:00:00Z, limit: 50MiB":      "line 2: rules[0]: the deadline 2021-01-01T00:00:00Z has passed",
		"deadline: 2199-01-01T00:00:00Z, total_limit: 1MiB": "line 2: rules[0]: deadline and total_limit",
	} {
		w := parse("rules:\n- {flow: app, " + rule + "}\n").Warnings()
		if want == "" && len(w) > 0 || want != "" && (len(w) != 1 || !strings.HasPrefix(w[0], want)) {
			t.Errorf("%s: %q, want %q", rule, w, want)
		}
	}
	changes := Compare(parse("default: 1"), parse("rules: [{flow: app, deadline: 2h}]"), facts)
	if c := changes[0]; !c.Differs() || c.New.Reserves() != "for the deadline 2h0m0s" {
		t.Errorf("%+v", c)
	}
	if by, ok := changes[0].New.By(1000); by != 7_201_000 || !ok {
		t.Error(by, ok)
	}
	if _, ok := changes[0].New.By(0); ok {
		t.Error("known without the submission")
	}
	if _, ok := changes[0].Old.By(1000); ok {
		t.Error("no deadline is known")
	}
}
