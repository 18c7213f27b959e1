package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"penstock/node/device"
)

func TestControlSettings(t *testing.T) {
	load := func(text string) (*Node, error) {
		return LoadNode(write(t, "socket: /run/penstock/agent.sock\ndata_dirs: [/data/1]\nlocal_dirs: [/data/2]\n"+text))
	}
	n, err := load("")
	if err != nil || n.Control != nil {
		t.Errorf("without the section: %+v, %v", n.Control, err)
	}
	n, err = load("control: {}")
	want := &Control{Mode: "observe", Journal: "/run/penstock/control.journal", Mechanisms: []string{"gate", "cgroup", "pacing"}, Directories: []string{"/data/1", "/data/2"}}
	if err != nil || !reflect.DeepEqual(n.Control, want) {
		t.Errorf("defaults: %+v, %v", n.Control, err)
	}
	n, err = load("control: {mode: enforce, journal: /var/x, mechanisms: [], directories: [/d]}")
	if err != nil || len(n.Control.Mechanisms) != 0 || n.Control.Directories[0] != "/d" || n.Control.Journal != "/var/x" {
		t.Errorf("all set: %+v, %v", n.Control, err)
	}
	if n, err = load("control: {joining: {}}"); err != nil || !reflect.DeepEqual(n.Control.Joining, &Joining{Ports: DefaultJoinedPorts()}) {
		t.Errorf("joining by default: %+v, %v", n.Control, err)
	}
	if n, err = load("control: {joining: {ports: [], cgroup: /a}}"); err != nil || len(n.Control.Joining.Ports) != 0 || n.Control.Joining.Cgroup != "/a" {
		t.Errorf("joining of all ports: %+v, %v", n.Control, err)
	}
	if n, err = load("control: {joining: {ports: }}"); err != nil || !reflect.DeepEqual(n.Control.Joining, &Joining{Ports: DefaultJoinedPorts()}) {
		t.Errorf("ports without a list are not all ports: %+v, %v", n.Control, err)
	}
	many := func(n int) string { return "control: {joining: {ports: [1" + strings.Repeat(", 1", n-1) + "]}}" }
	if _, err = load(many(MaxJoinedPorts)); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"control: {joining: {ports: [1, 0]}}": `line 4, column 32: control: port 0: use 1 to 65535`,
		"control: {joining: {cgroup: a}}":     `give the absolute path of a cgroup's folder`,
		many(MaxJoinedPorts + 1):              `1025 ports: use at most 1024`,
		"control: {mode: on}":                 `line 4, column 11: control: mode "on"`,
		"control: {mechanisms: [gates]}":      `line 4, column 24: control: mechanism "gates": use gate, cgroup, freezer, pacing, shaper`,
		"control: {directories: [x]}":         `line 4, column 25: directories: "x": give an absolute path`,
		"control: {mechanism: [freezer]}":     `mechanism`,
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error with %q", text, err, want)
		}
	}
}

func TestProcesses(t *testing.T) {
	w, err := LoadWeights(write(t, `
default: 2
rules: [{flow: "process:*", weight: 99}, {flow: "service:hbase", weight: 5, limit: 30MiB}]
services: [{name: hbase, user: hbase}]
processes:
  - {name: files, user: hbase, command: java, service: hbase}
  - {name: backup, user: "1005", limit: 20MiB, mode: observe}
  - {name: fio, command: fio, cgroup: /system.slice/x.service, weight: 7}
connections:
  - {application: "application_*", limit: 10MiB}
  - {application: "*", direction: read, limit: 1MiB}
`))
	if err != nil {
		t.Fatal(err)
	}
	for flow, want := range map[string]device.Rule{
		"process:backup": {Weight: 2, Mode: device.Observe, Limit: 20 << 20},
		"process:fio":    {Weight: 7, Mode: device.Enforce},
		"process:other":  {Weight: 99, Mode: device.Enforce},
		"service:hbase":  {Weight: 5, Mode: device.Enforce, Limit: 30 << 20, Order: 1},
		"other":          {Weight: 2, Mode: device.Enforce},
	} {
		if got := w.Policy(flow); got != want {
			t.Errorf("%s: %+v, want %+v", flow, got, want)
		}
	}
	if a, b := w.Processes[0].Flow(), w.Processes[1].Flow(); a != "service:hbase" || b != "process:backup" {
		t.Errorf("the flows are %s and %s", a, b)
	}
	if c := w.Connections; c[0].Direction != "both" || c[1].Direction != "read" || c[0].Limit != 10<<20 {
		t.Errorf("%+v", c)
	}
}

func TestBadProcesses(t *testing.T) {
	for text, want := range map[string]string{
		"processes: [{name: a}]":                                                                      `line 1, column 13: process 1: give user, command, cgroup or application`,
		"processes: [{name: a, application: \"[\"}]":                                                  `application: pattern "["`,
		"processes: [{name: a, application: a, cgroup: /b}]":                                          `give application or cgroup`,
		"processes: [{name: a, application: " + strings.Repeat("x", 257) + "}]":                       `use at most 256 bytes`,
		"processes: [{user: a}]":                                                                      `process 1: name "": give 1 to 64`,
		"processes: [{name: a b, user: a}]":                                                           `line 1, column 14: process 1: name "a b": use letters`,
		"processes: [{name: " + strings.Repeat("a", 65) + ", user: a}]":                               `give 1 to 64`,
		"processes: [{name: a, user: a}, {name: a, user: b}]":                                         `line 1, column 34: process 2: the name a is in use already`,
		"processes: [{name: a, command: much-too-long-name}]":                                         `the kernel keeps 15 bytes of a command's name; use "much-too-long-n"`,
		"processes: [{name: a, cgroup: x}]":                                                           `cgroup "x": give a path`,
		"processes: [{name: a, cgroup: /" + strings.Repeat("x", 256) + "}]":                           `at most 256 bytes`,
		"processes: [{name: a, user: a, weight: 0}]":                                                  `weight 0: use 1 to 1000000`,
		"processes: [{name: a, user: a, limit: 1KiB}]":                                                `limit 1024: use 65536 (64KiB)`,
		"processes: [{name: a, user: a, mode: on}]":                                                   `mode "on"`,
		"processes: [" + strings.Repeat("{name: a, user: a},", MaxProcesses+1) + "]":                  `65 processes: use at most 64`,
		"processes: [{name: a, cgroup: /}]":                                                           `cgroup "/": give a path`,
		"processes: [{name: a, cgroup: /a/../b}]":                                                     `cgroup "/a/../b": give a path`,
		"processes: [{name: a, user: a, service: b}]":                                                 `process 1: service "b": no entry of services has this name and user "a"`,
		"services: [{name: b, user: b}]\nprocesses: [{name: a, command: b, service: b}]":              `give the service's user: anybody can have a command's name`,
		"services: [{name: b, user: b}]\nprocesses: [{name: a, user: \"*\", service: b}]":             `give the service's user`,
		"services: [{name: b, user: b}]\nprocesses: [{name: a, user: c, service: b}]":                 `no entry of services has this name and user "c"`,
		"services: [{name: b, user: b}]\nprocesses: [{name: a, user: b, service: b, weight: 2}]":      `weight: not with service; give the rule {flow: "service:b"} the weight`,
		"services: [{name: b, user: b}]\nprocesses: [{name: a, user: b, service: b, application: c}]": `give application or service`,
		"connections: [{limit: 1MiB}]":                                                                `connection 1: give application`,
		"connections: [{application: a}]":                                                             `connection 1: give limit`,
		"connections: [{application: a, limit: 1}]":                                                   `limit 1: use 65536`,
		"connections: [{application: a, limit: 1MiB, direction: up}]":                                 `direction "up": use read, write or both`,
		"connections: [{application: '[', limit: 1MiB}]":                                              `application: pattern "["`,
		"connections: [" + strings.Repeat("{application: a},", MaxConnections+1) + "]":                `1001 connections: use at most 1000`,
	} {
		if _, err := LoadWeights(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v; want an error with %q", text, err, want)
		}
	}
	var names strings.Builder
	for i := range MaxProcesses {
		names.WriteString("{name: n" + strings.Repeat("x", i) + ", user: a},")
	}
	text := "processes: [" + strings.ReplaceAll(names.String(), strings.Repeat("x", 63), "y") + "]"
	if _, err := LoadWeights(write(t, text)); err != nil {
		t.Errorf("as many entries as allowed: %v", err)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		process         Process
		uid             uint32
		command, cgroup string
		want            bool
	}{
		{Process{User: "7"}, 7, "x", "/", true},
		{Process{User: "7"}, 8, "x", "/", false},
		{Process{Command: "fio"}, 0, "fio", "/", true},
		{Process{Command: "fio"}, 0, "fio-3", "/", false},
		{Process{Cgroup: "/a/b"}, 0, "x", "/a/b", true},
		{Process{Cgroup: "/a/b"}, 0, "x", "/a/b/c/d", true},
		{Process{Cgroup: "/a/b"}, 0, "x", "/a/bc", false},
		{Process{Cgroup: "/a/b"}, 0, "x", "/a", false},
		{Process{User: "7", Command: "fio", Cgroup: "/a"}, 7, "fio", "/a", true},
		{Process{User: "7", Command: "fio", Cgroup: "/a"}, 7, "fio", "/b", false},
	} {
		if got := c.process.Matches(7, c.uid, c.command, c.cgroup); got != c.want {
			t.Errorf("%+v: uid %d, command %s, cgroup %s: %v", c.process, c.uid, c.command, c.cgroup, got)
		}
	}
}

func FuzzProcesses(f *testing.F) {
	f.Add("processes: [{name: a, user: b, command: c, cgroup: /d, weight: 3, limit: 1MiB}, {name: e, user: b, service: s}]\nservices: [{name: s, user: b}]\nconnections: [{application: x, limit: 1MiB}]")
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "w.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := LoadWeights(name)
		if err != nil {
			return
		}
		for _, p := range w.Processes {
			if r := w.Policy(p.Flow()); r.Weight < 1 {
				t.Errorf("%q: %+v", text, r)
			}
		}
	})
}
