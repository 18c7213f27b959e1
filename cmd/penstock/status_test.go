package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"penstock/node/status"
)

func TestStatusSaysWhatNeedsAttention(t *testing.T) {
	well := &status.Document{
		Build: "v1", PID: 7, Started: time.Unix(0, 0), Time: time.Unix(90, 0), Mode: "enforce",
		Agents: []status.Agent{{Role: "datanode"}, {Role: "task"}, {Role: "task", Loopback: true}}, Loopback: status.Loopback{Agents: 1},
		Devices: []status.Device{{Name: "sda", Answered: true, Depth: 2, SlowFactor: 1, Flows: []status.Flow{{Window: status.FlowWindow{Active: true}}, {}}}},
	}
	if p := attention(well); len(p) != 0 {
		t.Errorf("all is well, and it says %q", p)
	}
	var out bytes.Buffer
	printStatus(&out, well, nil)
	for _, want := range []string{"v1, process 7, up 1m30s", "enforce", "no weights file", "none is configured", "1 datanode, 2 task; 1 of them by loopback", "sda: 0 % busy, depth 2, 1 of 2 flows active"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	for want, change := range map[string]func(*status.Document){
		"kill switch":           func(d *status.Document) { d.KillSwitch.On = true },
		"weights file is wrong": func(d *status.Document) { d.Weights.Error = "line 3" },
		"no broker answers":     func(d *status.Document) { d.Cluster.Node = "n1" },
		"no agent":              func(d *status.Document) { d.Agents = nil },
		"sda is stalled":        func(d *status.Document) { d.Heartbeat.Stalled = []string{"sda"} },
		"sda does not answer":   func(d *status.Document) { d.Devices[0].Stuck = true },
		"4.0 times slower":      func(d *status.Document) { d.Devices[0].SlowFactor = 4 },
		"3 I/O errors":          func(d *status.Document) { d.Devices[0].Errors = 3 },
	} {
		ill := *well
		ill.Devices = append([]status.Device(nil), well.Devices...)
		change(&ill)
		if p := attention(&ill); len(p) != 1 || !strings.Contains(p[0], want) {
			t.Errorf("want %q, got %q", want, p)
		}
	}
}

func TestWrongCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"top --onse":             "did you mean --once?",
		"top --zzz":              "penstock top --help lists the flags",
		"doctr":                  "did you mean doctor?",
		"node rum":               "did you mean run?",
		"testbed disk --size 1G": "use penstock-lab disk run",
		"testbed":                "use penstock-lab --help",
		"bench isolation":        "use penstock-lab bench isolation",
		"demo":                   "use penstock-lab demo",
		"version 3":              "takes no arguments",
		"profile /x --plot a":    "penstock-lab plot",
	} {
		if _, err := run(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("penstock %s: %v, want %q", args, err, want)
		}
	}
}
