package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/settings"
)

func TestMistakesInScenarios(t *testing.T) {
	const good = "nodes: [{count: 2}]\napplications: [{name: a}]\n"
	const dsfq = "exchange: {rule: dsfq}\n"
	for text, want := range map[string]string{
		"":                      "nodes: give at least one entry",
		good + "lenght: 3s\n":   `line 3, column 1: the file has no field "lenght": did you mean length?`,
		good + "settle: 2m\n":   "settle 2m0s: must be less than the length",
		good + "window: 10ms\n": "window 10ms",
		good + "length: 25h\n":  "use at most 24h",
		"nodes: [{count: 100001}]\napplications: [{name: a}]\n":                          "count 100001: use 1 to 100000",
		"nodes: [{disk: tape}]\napplications: [{name: a}]\n":                             `disk "tape": use hdd, ssd or nvme`,
		"nodes: [{quantum: 1}]\napplications: [{name: a}]\n":                             "quantum 1: use 64KiB to 64MiB",
		"nodes: [{algorithm: best}]\napplications: [{name: a}]\n":                        `algorithm "best": use one of sfq, sfqd, sfqd2, drr, fifo`,
		"nodes: [{count: 2}]\napplications: [{name: a}, {name: a}]\n":                    `name "a": give each entry a name that no other entry has`,
		"nodes: [{count: 2}]\napplications: [{name: a, on: [2]}]\n":                      "on: there is no node 2: the scenario has 2",
		"nodes: [{count: 2}]\napplications: [{name: a, spread: 2}]\n":                    "spread from 0 to 1",
		"nodes: [{count: 2}]\napplications: [{name: a, weight: 1001}]\n":                 "weight 1001",
		good + "events: [{at: 1s}]\n":                                                    "events[0]: give exactly one of",
		good + "events: [{at: 1s, leave: 2}]\n":                                          "there is no such node",
		good + "events: [{at: 1s, application: b, weight: 1}]\n":                         `the scenario has no application "b"`,
		good + "events: [{at: 1s, broker: gone}]\n":                                      "use up or down",
		"nodes: [{datanodes: 17}]\napplications: [{name: a}]\n":                          "datanodes 17: use 1 to 16",
		"nodes: [{scheduler: none}]\napplications: [{name: a}]\n":                        `scheduler "none": use device or datanode`,
		"nodes: [{}]\napplications: [{name: a, io: both}]\n":                             `io "both": use read or write`,
		"nodes: [{}]\napplications: [{name: a, on_for: 1s}]\n":                           "give both on_for and off_for, or neither",
		"nodes: [{}]\napplications: [{name: a, on_for: 10ms, off_for: 9ms}]\n":           "use at least 10ms",
		"nodes: [{}]\nlength: 24h\napplications: [{name: a, on_for: 1s, off_for: 1s}]\n": "use at most 10000",
		good + "exchange: {session: 900ms}\n":                                            "session 900ms: use 1s to 5m",
		good + "expect: {spans: [{from: 2s, to: 1s}]}\n":                                 "spans[0]: from must be before to",
		good + "expect: {converged: 2s}\n":                                               "give misplaced too",
		"nodes: [{}]\njobs: [{name: j}]\n":                                               "give either input, or maps",
		"nodes: [{}]\njobs: [{name: j, input: 1, maps: 2}]\n":                            "give either input, or maps",
		"nodes: [{}]\njobs: [{name: j, maps: 2, shuffle: 1}]\n":                          "shuffle without input",
		"nodes: [{}]\njobs: [{name: j, input: 1, on: [1]}]\n":                            "jobs[0]: on: there is no node 1: the scenario has 1",
		"nodes: [{}]\njobs: [{name: j, input: 1, background: true}]\n":                   "all are background jobs",
		"nodes: [{}]\njobs: [{name: j, input: 1}]\nexpect: {misplaced: 0.1}\n":           "judged by their slowdowns",
		"nodes: [{}]\njobs: [{name: j, input: 1}]\nmapreduce: {slots: 257}\n":            "slots 257: use 1 to 256",
		"nodes: [{}]\njobs: [{name: j, input: 1}]\nmapreduce: {order: any}\n":            `order "any"`,
		"nodes: [{}]\njobs: [{name: j, input: 1}]\nmapreduce: {play: [twice]}\n":         `play "twice"`,
		"nodes: [{}]\ntraces: [{name: t, bytes: 1001}]\n":                                "bytes and time",
		"nodes: [{}]\napplications: [{name: j}]\njobs: [{name: j, input: 1}]\n":          `the name "j" belongs to an application already`,
		good + "exchange: {rule: tags}\n":                                                `rule "tags": use parts or dsfq`,
		dsfq + "nodes: [{}]\njobs: [{name: j, input: 1}]\n":                              "always on",
		dsfq + "nodes: [{}]\napplications: [{name: a, begin: 1s}]\n":                     "always on",
		dsfq + "applications: [{name: a, on_for: 1s, off_for: 1s}]\n":                    "always on",
		"nodes: [{}]\ntraces: [{name: t, machines: 100001}]\n":                           "machines 100001: use 0 to 100000",
		"nodes: [{count: 1001}]\ntraces: [{name: t, machines: 1}]\n":                     "scaled from 1 machines to 1001 are over 1000 times",
		"nodes: [{}]\ntraces: [{name: t, least: 1025GiB}]\n":                             "use at most 1TiB",
		good + "exchange: {loss: 1}\n":                                                   "loss 1: use 0 to 0.9",
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

// TestAllMistakesOfAScenario: one error lists all mistakes, with their places.
func TestAllMistakesOfAScenario(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte("lenght: 3s\nnodes: [{count: 100001}, {disk: tape}]\napplications: [{name: a, spread: 2, weight: x}]\nexchange: {session: 900ms, rule: [a]}\nexpect: {spans: [{from: 2s, to: 1s}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file)
	want := file + `: line 1, column 1: the file has no field "lenght": did you mean length?
  line 2, column 10: nodes[0]: count 100001: use 1 to 100000
  line 2, column 27: nodes[1]: disk "tape": use hdd, ssd or nvme
  line 3, column 16: applications[0]: give either on, or spread from 0 to 1
  line 3, column 45: weight: "x": give a number
  line 4, column 12: exchange: session 900ms: use 1s to 5m
  line 4, column 34: rule: give a text
  line 5, column 19: expect: spans[0]: from must be before to, and to within the length
  the scenario has 100001 nodes: use at most 100000`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// FuzzScenario: the simulator can start every small scenario that is accepted.
func FuzzScenario(f *testing.F) {
	f.Add([]byte("nodes: [{count: 2}]\napplications: [{name: a, spread: 0.5}]\nexchange: {loss: 0.5, delay_max: 1s}\nlength: 1s\n"))
	f.Add([]byte("nodes: [{count: 2}]\napplications: [{name: a}, {name: b, on: [1]}]\nexchange: {rule: dsfq}\nevents: [{at: 1ms, broker: up}, {at: 2ms, leave: 0}]\nlength: 1s\n"))
	f.Add([]byte("nodes: [{disk: nvme}]\napplications: [{name: a, on: [0]}]\nevents: [{at: 1ms, leave: 0}, {at: 2ms, join: 0}]\nlength: 1s\n"))
	f.Add([]byte("nodes: [{datanodes: 2, scheduler: datanode}]\napplications: [{name: a, on_for: 10ms, off_for: 20ms, io: write}]\nexchange: {session: 1s}\nevents: [{at: 1ms, broker: down}]\nlength: 1s\n"))
	f.Add([]byte("nodes: [{count: 4}]\njobs: [{name: j, input: 1GiB, shuffle: 1, count: 3, every: 1s}, {name: k, maps: 3, output: 9}]\nlength: 1s\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Scenario
		if settings.Parse(text, &s) != nil || s.validate() != nil {
			return
		}
		if len(s.Traces) == 0 {
			works, err := s.works(1)
			for _, w := range works {
				if err == nil && (w.maps < 1 || w.reduces < 0 || w.shuffle > 0 && w.reduces == 0) {
					t.Fatalf("%+v", w)
				}
			}
		}
		nodes, apps := 0, 0
		for _, n := range s.Nodes {
			nodes += n.Count * n.Datanodes
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
