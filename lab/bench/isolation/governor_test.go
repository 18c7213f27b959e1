package isolation

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/node/config"
	"penstock/node/device"
)

// The daemon reads the files that the experiment writes: settings for every governed phase, and
// weights before and after the applications are known.
func TestTheDaemonTakesOurFiles(t *testing.T) {
	dir := t.TempDir()
	phases, err := ParsePhases([]string{"sfqd2", "sfqd-4", "drr-4"}, testSetup())
	if err != nil {
		t.Fatal(err)
	}
	s := testSetup().Penstock
	for _, p := range phases {
		n := settingsOf(t, dir, s, p, "")
		c, err := n.DeviceConfig("loop0", true)
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		if c.Quantum != s.QuantumBytes || c.Backlog != s.BacklogBytes || c.Ahead != s.Ahead || n.Mode != "enforce" {
			t.Errorf("%s: %+v", p.Name, c)
		}
		if p.Adaptive() {
			want := time.Duration(s.ReferenceRead.PerMiBMillis * float64(time.Millisecond))
			if c.Algorithm != "sfqd2" || c.Depth.Read.PerMiB != want || c.Depth.Max != s.DepthMax || c.Depth.Gain != s.DepthGain {
				t.Errorf("%s: %+v", p.Name, c)
			}
		} else if c.Algorithm != p.Algorithm || c.FixedDepth != 4 {
			t.Errorf("%s: %+v", p.Name, c)
		}
	}
}

// settingsOf returns a phase's settings as the daemon reads them.
func settingsOf(t *testing.T, dir string, s PenstockSetup, p Phase, profile string) *config.Node {
	t.Helper()
	o := daemonOptions(s, p, profile)
	o.Base, o.Socket = filepath.Join(dir, "node"), filepath.Join(dir, "agent.sock")
	file := o.Base + ".yaml"
	if err := os.WriteFile(file, []byte(o.Settings()), 0o644); err != nil {
		t.Fatal(err)
	}
	n, err := config.LoadNode(file, "drr")
	if err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	return n
}

func TestWeights(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights.yaml")
	const wordcount, teragen = "application_1700000000000_0002", "application_1700000000000_0001"
	for _, c := range []struct {
		protected  string
		aggressors []string
		want       map[string]int
	}{
		{"", nil, map[string]int{wordcount: 1, teragen: 1, "clients": 32, "unattributed": 1}},
		{wordcount, []string{teragen}, map[string]int{wordcount: 32, teragen: 1, "clients": 32, "replication": 1}},
	} {
		text := weightsFile(testSetup().Penstock, c.protected, c.aggressors)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		w, err := config.LoadWeights(file)
		if err != nil {
			t.Fatal(err)
		}
		for flow, want := range c.want {
			if got := w.Policy(flow); got.Weight != want || got.Mode != device.Enforce {
				t.Errorf("%s after weights for %q: %+v, want weight %d", flow, c.protected, got, want)
			}
		}
	}
}
