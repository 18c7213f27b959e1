package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"penstock/core/sfq"
	"penstock/node/device"
)

func TestQueuesOfTheWeightsFile(t *testing.T) {
	w, err := LoadWeights(write(t, `
queues:
  - {queue: root.etl, weight: 3}
  - {queue: root.etl.nightly, weight: 2}
  - {queue: root.adhoc, weight: 1}
rules:
  - {flow: a, weight: 4, queue: root.etl.nightly}
  - {flow: b, queue: root.etl.nightly.copies}
  - {flow: c, queue: root.etl.hourly}
  - {flow: d, weight: 5}
`))
	if err != nil {
		t.Fatal(err)
	}
	etl := []sfq.Level{{Name: "root.etl", Weight: 3}}
	nightly := append(etl[:1:1], sfq.Level{Name: "root.etl.nightly", Weight: 2})
	for flow, want := range map[string]device.Rule{
		"a": {Weight: 4, Mode: device.Enforce, Queue: device.NewQueue(nightly)},
		"b": {Weight: 1, Mode: device.Enforce, Queue: device.NewQueue(nightly), Order: 1},
		"c": {Weight: 1, Mode: device.Enforce, Queue: device.NewQueue(etl), Order: 2},
		"d": {Weight: 5, Mode: device.Enforce, Order: 3},
		"e": {Weight: 1, Mode: device.Enforce},
	} {
		if got := w.Policy(flow); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", flow, got, want)
		}
	}
	if w.Policy("a").Queue != w.Policy("b").Queue {
		t.Error("flows of one queue have two")
	}
}

func TestBadQueues(t *testing.T) {
	rule := "\nrules: [{flow: x, queue: q}]"
	for text, want := range map[string]string{
		"queues:\n  - {queue: a, weight: 1}\n  - {queue: b}":                 "line 3, column 5: queues[1]: weight 0",
		"queues:\n  - {queue: a, weight: 1000001}":                           "line 2, column 16: queues[0]: weight 1000001",
		"queues: [{queue: a, weight: 1}, {queue: a, weight: 2}]":             "line 1, column 34: queues[1]: queue \"a\" is listed twice",
		"queues: [{weight: 1}]":                                              "queues[0]: queue \"\": give its path",
		"queues: [{queue: a..b, weight: 1}]":                                 "such as root.etl",
		"queues: [{queue: [a], weight: 1}]":                                  `line 1, column 18: queue: give a text`,
		"queues:\n  - {queue: a, weight: 1}\n  - {queue: b, wieght: 1}":      "line 3",
		"queues: [{queue: " + strings.Repeat("a.", 16) + "a, weight: 1}]":    "at most 16 levels",
		"queues: [" + strings.Repeat("{queue: a, weight: 1},", 10_001) + "]": "at most 10000",
		"rules:\n  - {flow: x}\n  - {flow: y, queue: root.a}":                "line 3, column 15: rule 2: queue \"root.a\": give it, or a queue above it, a weight",
		"queues: [{queue: q.x, weight: 1}]" + rule:                           "line 2, column 19: rule 1: queue \"q\"",
		"rules: [{flow: x, queue: " + strings.Repeat("a", 257) + "}]":        "line 1, column 19: rule 1: a queue's path has at most 256",
	} {
		_, err := LoadWeights(write(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v; want an error with %q", text, err, want)
		}
	}
	deepest := strings.Repeat("a.", 15) + "a"
	if _, err := LoadWeights(write(t, "queues: [{queue: "+deepest+", weight: 1000000}]\nrules: [{flow: x, queue: "+deepest+"}]")); err != nil {
		t.Errorf("a queue at the bounds was refused: %v", err)
	}
}

func FuzzQueues(f *testing.F) {
	f.Add("queues: [{queue: root.etl, weight: 3}]\nrules: [{flow: a, queue: root.etl.x, weight: 2}]")
	f.Add("queues:\n  - {queue: a.b, weight: 1}\n  - {queue: a, weight: 2}\nrules: [{flow: a, queue: a.b}]")
	f.Add("queues: [{queue: &x a, weight: 1}]\nrules: [{flow: a, queue: *x}]")
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "w.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := LoadWeights(name)
		if err != nil {
			return
		}
		s, err := sfq.New(sfq.Config{})
		if err != nil {
			t.Fatal(err)
		}
		id, err := s.AddFlow(1)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range w.Rules {
			if q := w.places[r.Queue]; q != nil { // the scheduler accepts all values of a valid file
				if err := s.SetQueue(id, q.Levels()); err != nil {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
	})
}
