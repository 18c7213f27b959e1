package sim

import (
	"strings"
	"testing"

	"penstock/settings"
)

func TestMistakesInScenarios(t *testing.T) {
	const good = "nodes: [{count: 2}]\napplications: [{name: a}]\n"
	for text, want := range map[string]string{
		"":                      "nodes: give at least one kind",
		good + "lenght: 3s\n":   "field lenght",
		good + "settle: 2m\n":   "settle 2m0s: less than the length",
		good + "window: 10ms\n": "window 10ms",
		good + "length: 25h\n":  "at most 24h",
		"nodes: [{count: 100001}]\napplications: [{name: a}]\n":          "count 100001: 1 to 100000",
		"nodes: [{disk: tape}]\napplications: [{name: a}]\n":             `disk "tape": hdd, ssd or nvme`,
		"nodes: [{quantum: 1}]\napplications: [{name: a}]\n":             "quantum 1: 64KiB to 64MiB",
		"nodes: [{algorithm: best}]\napplications: [{name: a}]\n":        `unknown algorithm "best"`,
		"nodes: [{count: 2}]\napplications: [{name: a}, {name: a}]\n":    `name "a": give each kind one of its own`,
		"nodes: [{count: 2}]\napplications: [{name: a, on: [2]}]\n":      "on node 2 of 2",
		"nodes: [{count: 2}]\napplications: [{name: a, spread: 2}]\n":    "spread from 0 to 1",
		"nodes: [{count: 2}]\napplications: [{name: a, weight: 1001}]\n": "weight 1001",
		good + "events: [{at: 1s}]\n":                                    "events[0]: give one of",
		good + "events: [{at: 1s, leave: 2}]\n":                          "there is no such node",
		good + "events: [{at: 1s, application: b, weight: 1}]\n":         `there is no application "b"`,
		good + "events: [{at: 1s, broker: gone}]\n":                      "up or down",
		good + "exchange: {loss: 1}\n":                                   "loss 1: 0 to 0.9",
	} {
		var s Scenario
		err := settings.Parse([]byte(text), &s)
		if err == nil {
			err = s.validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// FuzzScenario: what is taken for a scenario can be begun, if it is a small one.
func FuzzScenario(f *testing.F) {
	f.Add([]byte("nodes: [{count: 2}]\napplications: [{name: a, spread: 0.5}]\nexchange: {loss: 0.5, delay_max: 1s}\nlength: 1s\n"))
	f.Add([]byte("nodes: [{disk: nvme}]\napplications: [{name: a, on: [0]}]\nevents: [{at: 1ms, leave: 0}, {at: 2ms, join: 0}]\nlength: 1s\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Scenario
		if settings.Parse(text, &s) != nil || s.validate() != nil {
			return
		}
		nodes, apps := 0, 0
		for _, n := range s.Nodes {
			nodes += n.Count
		}
		for _, a := range s.Applications {
			apps += a.Count
		}
		if nodes > 8 || apps > 8 {
			return
		}
		p, err := newPlay(&s, 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			if len(p.cluster.events) == 0 {
				break
			}
			e := p.cluster.pop()
			p.cluster.now = e.at
			e.do()
		}
	})
}
