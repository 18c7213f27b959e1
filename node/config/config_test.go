package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/core/reserve"
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
		"socket: x\nflow_metrics: some":                "used, all or off",
		"socket: x\nmode: on":                          "off, observe or enforce",
		"socket: x\nsocket_mode: \"9\"":                "octal",
		"socket: x\ndata_dirs: [a]":                    "absolute path",
		"socket: x\nlocal_dirs: [a]":                   "local_dirs",
		"socket: x\ndevice: {lazy_age: 1ms}":           "lazy age",
		"socket: x\ndevice: {lazy_files: 65537}":       "lazy files",
		"socket: " + strings.Repeat("x", 108):          "at most 107",
		"socket: x\nlisten: 127.0.0.1":                 "give HOST:PORT",
		"socket: x\nlisten: 127.0.0.1:70000":           "from 0 to 65535",
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

// TestAllMistakesOfAllFiles: one error contains all mistakes in the settings, on this machine and
// in the weights file.
func TestAllMistakesOfAllFiles(t *testing.T) {
	name := write(t, `sockt: /run/a.sock
mode: enforcing
listen: 127.0.0.1:99999
data_dirs: /data/1
local_dirs: [/local, relative]
users: [nobodyknowsme]
task_users: ["*", nobodyelse]
socket_group: nogroupofthisname
backlog: 10MBps
weights: w.yaml
socket_mode: rw
device: {quantm: 2M, profile: no.profile, max_wait: 45}
devices:
  sda: {algorithm: sfq3, ahead: 99, quantum: -1, max_wait: 1ms, depth: {min: 5, max: 2}}
  sdb: {algorithm: drr, depth: {fixed: 2000}}
  sdc: {ahead: 2.5}
`)
	if err := os.WriteFile(filepath.Join(filepath.Dir(name), "w.yaml"), []byte(`default: 0
rules:
  - {application: "a*", weight: -3}
  - {application: b, weight: heavy}
  - {application: c, weight: 2, limit: 10MBps}
  - {aplication: d, weight: 2}
  - {weight: 5}
  - {flow: e, weight: 0}
  - {flow: f, weight: 2.5, mode: sometimes, limit: 10}
  - {flow: "[", queue: root.etl}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := CheckNode(name)
	want := "settings: " + name + `: line 1, column 1: the file has no field "sockt": did you mean socket?
  line 2, column 1: mode "enforcing": use off, observe or enforce
  line 3, column 1: listen "127.0.0.1:99999": the port must be a number from 0 to 65535 (0: any that is free)
  line 4, column 12: data_dirs is a list: begin each entry with "- "
  line 5, column 22: local_dirs: "relative": give an absolute path
  line 6, column 9: users: "nobodyknowsme": this machine has no such user
  line 7, column 19: task_users: "nobodyelse": this machine has no such user
  line 8, column 1: socket_group "nogroupofthisname": this machine has no such group
  line 9, column 1: the file has no field "backlog": there are broker, control, data_dirs, device, devices, flow_metrics, foreign, identity, kill_switch, listen, listen_token, local_dirs, loopback, mode, network, orchestrators, socket, socket_group, socket_mode, storage, task_users, users, weights
  line 11, column 1: socket_mode "rw": use octal permissions such as "0660"
  line 12, column 10: device has no field "quantm": did you mean quantum?
  line 12, column 22: device: profile: ` + filepath.Dir(name) + `/no.profile: no such file or folder
  line 12, column 53: max_wait: "45": use a duration with a unit, such as 20ms, 1s or 1m30s
  line 14, column 9: device sda: algorithm "sfq3": use one of sfq, sfqd, sfqd2
  line 14, column 26: device sda: ahead 99: use 1 to 16 quanta
  line 14, column 46: quantum: "-1": use a number of bytes such as 65536, 64KiB or 2MiB
  line 14, column 50: device sda: max wait 1ms: use 1s to 10m (HDFS clients give up after 60s)
  line 14, column 65: device sda: depth: bounds 5 to 2: give whole numbers, 1 <= min <= max <= 65536
  line 15, column 9: device sdb: algorithm "drr" is only for comparison: run a daemon with it as ` + "`penstock-lab node`" + `, or use one of sfq, sfqd, sfqd2
  line 15, column 33: device sdb: depth: fixed 2000: use 1 to 1024
  and 1 more
weights: ` + filepath.Dir(name) + `/w.yaml: line 1, column 1: default: weight 0: use 1 to 1000000
  line 3, column 25: rule 1: weight -3: use 1 to 1000000
  line 4, column 30: weight: "heavy": give a whole number
  line 5, column 40: limit: "10MBps": use a number of bytes such as 10MiB (units are KiB, MiB and GiB)
  line 6, column 6: a rule has no field "aplication": did you mean application?
  line 7, column 5: rule 5: give application or flow, a pattern such as "application_*"
  line 8, column 15: rule 6: weight 0: use 1 to 1000000
  line 9, column 23: weight: "2.5": give a whole number
  line 9, column 28: rule 7: mode "sometimes": use off, observe or enforce
  line 9, column 45: rule 7: limit 10: use 65536 (64KiB) to 1099511627776 bytes a second
  line 10, column 6: rule 8: flow: pattern "[": use * ? and [abc]
  line 10, column 17: rule 8: queue "root.etl": give it, or a queue above it, a weight under queues`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, err = LoadNode(write(t, `mode: observe
devices:
  sdc: {ahead: 2.5, period: {a: b}, algorithm: ddr}
broker: {addres: b:9717, node: n}
identity: {mode: stric, spark_dirs: [x]}
network: {rate: 1, ahead: 20}
foreign: [users]
`), "fifo", "drr")
	_, text, _ := strings.Cut(err.Error(), ": ")
	want = `line 3, column 16: ahead: "2.5": give a whole number
  line 3, column 29: period: give a duration with a unit, such as 20ms, 1s or 1m30s
  line 3, column 37: device sdc: algorithm "ddr": use one of sfq, sfqd, sfqd2, drr, fifo
  line 4, column 10: broker has no field "addres": did you mean addresses?
  line 5, column 12: identity: mode "stric": use trust, verify or strict
  line 5, column 38: identity: spark_dirs[0]: "x": give an absolute path
  line 6, column 11: network: rate 1: use at least 65536 bytes a second, for a network device
  line 6, column 20: network: ahead 20: use 1 to 16 quanta
  line 7, column 10: foreign: give a text
  socket: give the path of the Unix socket for agents, such as /run/penstock/agent.sock`
	if text != want {
		t.Errorf("%v", err)
	}
}

func TestWeightsWarnings(t *testing.T) {
	w, err := LoadWeights(write(t, `rules:
  - {application: "*", weight: 3}
  - {application: b, weight: 2}
  - {flow: clients}
  - {application: b}
  - {flow: clients, weight: 4}
  - {application: c, flow: "c*"}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"line 3, column 5: unreachable: the rule on line 2 matches everything that this rule matches, and comes first",
		"line 5, column 5: duplicate: the rule on line 3 has the same patterns and comes first",
		"line 6, column 5: duplicate: the rule on line 4 has the same patterns and comes first",
		"line 7, column 5: unreachable: the rule on line 2 matches everything that this rule matches, and comes first",
	}
	if got := w.Warnings(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if w, err := LoadWeights(""); err != nil || w.Warnings() != nil {
		t.Error("no file, and warnings")
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
		"application_1_0002":      {Weight: 7, Mode: device.Enforce, Order: 2},
		"application_2_0001":      {Weight: 2, Mode: device.Off, Order: 3},
		"application_3_0001":      {Weight: 9, Mode: device.Enforce, Order: 4},
		"app-20261122061429-0003": {Weight: 9, Mode: device.Enforce, Order: 4}, // of a standalone Spark
		"replication":             {Weight: 5, Mode: device.Observe, Limit: 5 << 20, Order: 1},
		"clients":                 {Weight: 2, Mode: device.Enforce}, // "*" of application matches only applications
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
		"default: -4":                      "default",
		"default: 0":                       "line 1, column 1: default: weight 0",
		"rules: [{flow: a, weight: 0}]":    "line 1, column 19: rule 1: weight 0",
		"mode: x":                          "off, observe or enforce",
		"rules: [{flow: a, reserve: 95%}]": "reserve 95 %: use 0.1 % to 90 %",
		"rules: [{flow: a, reserve: 2MiB, limit: 1MiB}]":        "above the limit",
		"rules: [{flow: a, strict: true}]":                      "strict: give a reserve",
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

func TestReserves(t *testing.T) {
	w, err := LoadWeights(write(t, "rules: [{flow: a, reserve: 40%, strict: true}, {flow: b, reserve: 20MiB, limit: 30MiB}, {flow: c, weight: 2}]"))
	if err != nil {
		t.Fatal(err)
	}
	for flow, want := range map[string]reserve.Rate{"a": {Part: 0.4, Strict: true}, "b": {Bytes: 20 << 20}, "c": {}, "d": {}} {
		if got := w.Policy(flow).Reserve; got != want {
			t.Errorf("%s: %+v, want %+v", flow, got, want)
		}
	}
}

func FuzzWeights(f *testing.F) {
	f.Add("rules: [{flow: a, reserve: 40%, strict: true}]")
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

// measured writes a profile of a disk of 1 GB next to the settings.
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
