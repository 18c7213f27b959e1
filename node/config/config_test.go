package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/node/device"
	"penstock/node/profile"
)

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestNodeDefaults(t *testing.T) {
	name := write(t, "socket: agent.sock\n")
	n, err := LoadNode(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(name)
	if n.Socket != dir+"/agent.sock" || n.KillSwitch != dir+"/agent.sock.off" || n.Mode != "observe" || n.Listen != "127.0.0.1:9707" {
		t.Errorf("defaults: %+v", n)
	}
	c, err := n.DeviceConfig("sda", true)
	if err != nil {
		t.Fatal(err)
	}
	if c.Algorithm != "sfqd2" || c.Quantum != 2<<20 || c.Depth.Read != rotational {
		t.Errorf("device defaults: %+v", c)
	}
	if c, _ = n.DeviceConfig("nvme0n1", false); c.Depth.Read != flash {
		t.Errorf("flash defaults: %+v", c)
	}
}

func TestNodeWhole(t *testing.T) {
	n, err := LoadNode(write(t, `
socket: /run/penstock/agent.sock
socket_mode: "0600"
users: [hdfs, "1000"]
data_dirs: [/data/1, /data/2]
local_dirs: [/local/1]
network: {rate: 117MiB, quantum: 512KiB}
listen: "off"
mode: enforce
weights: weights.yaml
kill_switch: /run/penstock/off
device: {algorithm: sfqd, quantum: 1MiB, ahead: 3, depth: {fixed: 4}}
devices:
  sdb: {quantum: 512KiB, backlog: 4MiB, lazy: 24MiB, lazy_age: 8s, lazy_files: 9, depth: {min: 1, max: 4, read: {fixed: 20ms, per_mib: 180ms}, write: {fixed: 1ms, per_mib: 2ms}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := n.DeviceConfig("sda", true)
	if err != nil || a.Algorithm != "sfqd" || a.FixedDepth != 4 || a.Ahead != 3 || a.Quantum != 1<<20 {
		t.Errorf("sda: %+v, %v", a, err)
	}
	b, err := n.DeviceConfig("sdb", true)
	if err != nil || b.Quantum != 512<<10 || b.Depth.Read.PerMiB != 180*time.Millisecond || b.Depth.Max != 4 {
		t.Errorf("sdb: %+v, %v", b, err)
	}
	if a.LazyAge != 22*time.Second || a.LazyFiles != 1024 || b.LazyAge != 8*time.Second || b.LazyFiles != 9 {
		t.Errorf("lazy draining: %v %d, %v %d", a.LazyAge, a.LazyFiles, b.LazyAge, b.LazyFiles)
	}
	if a.Lazy != 16<<20 || b.Lazy != 24<<20 {
		t.Errorf("lazy: %d and %d", a.Lazy, b.Lazy)
	}
	if dirty, lazy := n.SetsRoom("sda"); dirty || lazy {
		t.Errorf("sda sets dirty %v, lazy %v", dirty, lazy)
	}
	if dirty, lazy := n.SetsRoom("sdb"); dirty || !lazy {
		t.Errorf("sdb sets dirty %v, lazy %v", dirty, lazy)
	}
	w, err := n.NetworkConfig()
	if err != nil || !w.Network || w.Rate != 117<<20 || w.Quantum != 512<<10 || w.FixedDepth != 64 || len(n.LocalDirs) != 1 {
		t.Errorf("network: %+v, %v", w, err)
	}
	if w, err = (&Node{}).NetworkConfig(); err != nil || !w.Network || w.Rate != 0 || w.Quantum != 256<<10 {
		t.Errorf("no network: %+v, %v", w, err)
	}
}

func TestBadNodeFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                                             "socket: give",
		"sockt: x":                                     "line 1",
		"socket: x\nforeign: some":                     "users or totals",
		"socket: x\nmode: on":                          "off, observe or enforce",
		"socket: x\nsocket_mode: \"9\"":                "octal",
		"socket: x\ndata_dirs: [a]":                    "absolute path",
		"socket: x\nlocal_dirs: [a]":                   "local_dirs",
		"socket: x\ndevice: {lazy_age: 1ms}":           "lazy age",
		"socket: x\ndevice: {lazy_files: 65537}":       "lazy files",
		"socket: x\nnetwork: {}":                       "rate: give",
		"socket: x\nnetwork: {rate: 1KiB}":             "rate 1024",
		"socket: x\nnetwork:\n  rate: 1 Gbit":          "line 3",
		"socket: x\nnetwork: {rate: 1MiB, ahead: 20}":  "network: ahead",
		"socket: x\ndevice: {rate: 1MiB}":              "line 2",
		"socket: x\ndevice: {quantum: 2 MB}":           "line 2",
		"socket: x\ndevice: {quantum: 1KiB}":           "64 KiB",
		"socket: x\ndevice: {quantum: 128MiB}":         "64 MiB",
		"socket: x\ndevice: {backlog: 1MiB}":           "two quanta",
		"socket: x\ndevice: {dirty: 1MiB}":             "dirty",
		"socket: x\ndevice: {ahead: 17}":               "1 to 16",
		"socket: x\ndevice: {algorithm: drr}":          "penstock-lab node",
		"socket: x\ndevice: {max_wait: 11m}":           "60s",
		"socket: x\ndevice: {period: -1s}":             "duration",
		"socket: x\ndevice: {algorithm: cfq}":          "sfqd2",
		"socket: x\ndevices: {sda: {run: 1}}":          "run",
		"socket: x\n---\nsocket: y":                    "more than one document",
		"socket: x\ndevice: {depth: {min: 5, max: 2}}": "depth",
		strings.Repeat("# x\n", 300_000):               "over",
	} {
		n, err := LoadNode(write(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, %v; want an error with %q", text, n, err, want)
		}
	}
	if _, err := LoadNode("/nowhere/file.yaml"); err == nil {
		t.Error("a missing file was read")
	}
}

func TestFirstRuleThatMatchesWins(t *testing.T) {
	w, err := LoadWeights(write(t, `
default: 2
rules:
  - {application: "application_1_0001", weight: 32}
  - {flow: "replication", weight: 5, mode: observe, limit: 5MiB}
  - {application: "application_1_*", weight: 7}
  - {flow: "application_2_*", mode: "off"}
  - {application: "*", weight: 9}
`))
	if err != nil {
		t.Fatal(err)
	}
	for flow, want := range map[string]device.Rule{
		"application_1_0001":      {Weight: 32, Mode: device.Enforce},
		"application_1_0002":      {Weight: 7, Mode: device.Enforce},
		"application_2_0001":      {Weight: 2, Mode: device.Off},
		"application_3_0001":      {Weight: 9, Mode: device.Enforce},
		"app-20261122061429-0003": {Weight: 9, Mode: device.Enforce}, // a standalone Spark's
		"replication":             {Weight: 5, Mode: device.Observe, Limit: 5 << 20},
		"clients":                 {Weight: 2, Mode: device.Enforce}, // "*" of application means applications
	} {
		if got := w.Policy(flow); got != want {
			t.Errorf("%s: %+v, want %+v", flow, got, want)
		}
	}
}

func TestBadWeights(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{weight: 3}]":                              "rule 1: give application or flow",
		"rules: [{flow: a}, {flow: b, weight: -1}]":         "rule 2: weight -1",
		"rules: [{flow: a, weight: 1000001}]":               "1000001",
		"rules: [{flow: \"[\"}]":                            "pattern",
		"rules: [{flow: a, mode: maybe}]":                   "off, observe or enforce",
		"rules: [{flow: a}, {flow: b, limit: 65535}]":       "rule 2: limit 65535",
		"rules: [{flow: b, limit: 1025GiB}]":                "rule 1: limit",
		"rules:\n  - {flow: a}\n  - {flow: b, limit: fast}": "line 3",
		"default: -4": "default",
		"mode: x":     "off, observe or enforce",
		"rules:\n  - {flow: a}\n  - {flow: b, wieght: 4}":       "line 3",
		"rules: [" + strings.Repeat("{flow: a},", 10_001) + "]": "at most 10000",
	} {
		_, err := LoadWeights(write(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v; want an error with %q", text, err, want)
		}
	}
	w, err := LoadWeights("")
	if err != nil || w.Policy("x").Weight != 1 {
		t.Errorf("no weights file: %+v, %v", w, err)
	}
	if _, err := LoadWeights(write(t, "rules: ["+strings.Repeat("{flow: a},", MaxRules)+"]")); err != nil {
		t.Errorf("a file at the bound was refused: %v", err)
	}
}

func FuzzWeights(f *testing.F) {
	f.Add("default: 2\nrules:\n  - {application: \"application_1_*\", weight: 32}\n")
	f.Add("rules: [{flow: \"[a-\"}]")
	f.Add("rules: [{flow: a, limit: 64KiB}, {flow: b, limit: -1}]")
	f.Add("&a [*a, *a]")
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "w.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := LoadWeights(name)
		if err != nil {
			return
		}
		for _, flow := range []string{"", "application_1_0001", "clients"} {
			r := w.Policy(flow)
			if r.Weight < 1 || r.Weight > maxWeight {
				t.Errorf("%q gives weight %d", text, r.Weight)
			}
			if r.Limit != 0 && r.Limit < device.MinLimit {
				t.Errorf("%q gives limit %d", text, r.Limit)
			}
		}
	})
}

// measured writes a profile of a disk of 1 GB beside the settings.
func measured(t *testing.T, dir string) {
	t.Helper()
	line := func(fixed, perMiB time.Duration) profile.Line {
		return profile.Line{Fixed: profile.Duration(fixed), PerMiB: profile.Duration(perMiB)}
	}
	p := profile.Profile{
		Version: profile.Version, Device: profile.Device{Name: "loop3", Bytes: 1 << 30},
		Cost: profile.Cost{Read: profile.Coefficients{
			Random: line(time.Millisecond, 20*time.Millisecond), Sequential: line(0, 20*time.Millisecond), Alone: line(3*time.Millisecond, 22*time.Millisecond),
		}},
		Reference: profile.Reference{Read: profile.Latency{Line: line(2*time.Millisecond, 40*time.Millisecond), Concurrency: 2}},
		Quantum:   512 << 10,
	}
	text, err := p.Text()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "disk.profile"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestProfile(t *testing.T) {
	name := write(t, `
socket: agent.sock
device: {profile: disk.profile}
devices:
  sdb: {profile: disk.profile, quantum: 1MiB, depth: {write: {fixed: 9ms}}}
  sdc: {quantum: 4MiB}
`)
	if _, err := LoadNode(name); err == nil || !strings.Contains(err.Error(), "disk.profile") {
		t.Errorf("a profile that is not there: %v", err)
	}
	measured(t, filepath.Dir(name))
	n, err := LoadNode(name)
	if err != nil {
		t.Fatal(err)
	}
	c, misfit, err := n.ConfigFor(profile.Device{Name: "loop7", Bytes: 1 << 30})
	if err != nil || misfit != nil {
		t.Fatal(err, misfit)
	}
	if c.Quantum != 512<<10 || c.Cost.Read.Alone.Fixed != 3*time.Millisecond || c.Cost.Write.Random.Fixed != time.Millisecond || c.Depth.Write.PerMiB != 40*time.Millisecond {
		t.Errorf("settings with a profile: %+v", c)
	}
	b, err := n.DeviceConfig("sdb", false)
	if err != nil || b.Quantum != 1<<20 || b.Depth.Write.Fixed != 9*time.Millisecond || b.Depth.Read.Fixed != 2*time.Millisecond {
		t.Errorf("what is set holds: %+v, %v", b, err)
	}
	if c, err := n.DeviceConfig("sdc", false); err != nil || c.Cost.Read.Random.PerMiB != 0 || c.Depth.Read != flash {
		t.Errorf("a device without a profile: %+v, %v", c, err)
	}
	other, misfit, err := n.ConfigFor(profile.Device{Name: "loop7", Bytes: 2 << 30})
	if err != nil || misfit == nil || !strings.Contains(misfit.Error(), "not of this device") || !strings.Contains(misfit.Error(), "disk.profile") {
		t.Errorf("a profile of another device: %v, %v", misfit, err)
	}
	if other.Cost.Read.Random.PerMiB != 0 || other.Quantum != 2<<20 || other.Depth.Read != flash {
		t.Errorf("settings without the profile of another device: %+v", other)
	}
}
