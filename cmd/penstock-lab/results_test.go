package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/lab/bench/broker"
	"penstock/lab/bench/containers"
	"penstock/lab/bench/coordination"
	"penstock/lab/bench/forecast"
	"penstock/lab/bench/guarantees"
	"penstock/lab/bench/isolation"
	"penstock/lab/bench/latency"
	"penstock/lab/bench/monitor"
	"penstock/lab/bench/network"
	"penstock/lab/bench/overhead"
	"penstock/lab/bench/sharedfs"
	"penstock/lab/bench/shortest"
	"penstock/lab/bench/slowdown"
	"penstock/lab/bench/soak"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/published"
	"penstock/lab/sim"
)

// knownClaims are the claims that the benchmarks print, by the name of the result.
func knownClaims(t *testing.T) map[string][]claims.Claim {
	t.Helper()
	known := map[string][]claims.Claim{
		"broker": broker.KnownClaims(10_000), "containers": containers.KnownClaims(), "sharedfs": sharedfs.KnownClaims(), "coordination": coordination.KnownClaims(),
		"forecast":   forecast.KnownClaims(),
		"guarantees": guarantees.KnownClaims(), "latency": latency.KnownClaims(), "latency-80": latency.KnownClaims(), "hbase": latency.KnownClaims(), "profiles": forecast.KnownClaims(),
		"monitor": monitor.KnownClaims(), "network": network.KnownClaims(), "overhead": overhead.KnownClaims(), "soak": soak.KnownClaims(),
	}
	for _, disk := range []string{isolation.HDD, isolation.SSD} {
		more, err := isolation.KnownClaims("wordcount", "teragen", disk)
		if err != nil {
			t.Fatal(err)
		}
		known["isolation"] = append(known["isolation"], more...)
		for _, workload := range shortest.Workloads {
			more, err := shortest.KnownClaims(workload, disk)
			if err != nil {
				t.Fatal(err)
			}
			known["shortest"], known["shortest-mix"] = append(known["shortest"], more...), append(known["shortest-mix"], more...)
		}
		for _, pair := range slowdown.Pairs {
			more, err := slowdown.KnownClaims(pair, disk)
			if err != nil {
				t.Fatal(err)
			}
			known["slowdown"] = append(known["slowdown"], more...)
		}
	}
	for _, scenario := range []string{"scale-10000", "scale-10000-local", "swim"} {
		s, err := sim.Load("../../lab/sim/scenarios/" + scenario + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		known["simulator"] = append(known["simulator"], s.KnownClaims()...)
	}
	return known
}

// A published figure has the name, the unit and the goal that its benchmark prints, so that the
// next measurement replaces the figure.
func TestPublishedFiguresAreTheBenches(t *testing.T) {
	all, err := published.Load("../../results")
	if err != nil {
		t.Fatal(err)
	}
	known := knownClaims(t)
	compared := 0
	for _, r := range all {
		for _, f := range r.Claims {
			if strings.HasPrefix(f.Build, "earlier build") || strings.HasPrefix(r.Command, "go test ") {
				continue // from an earlier benchmark, or from a test, which has no --json
			}
			found := false
			for _, c := range known[r.Name()] {
				if c.Name != f.Name {
					continue
				}
				found = true
				if c.Unit != f.Unit || c.HigherIsBetter != f.HigherIsBetter || (c.Goal == nil) != (f.Goal == nil) || c.Goal != nil && *c.Goal != *f.Goal {
					t.Errorf("results/%s.json: %+v, and the bench has %+v", r.Name(), f.Claim, c)
				}
			}
			if !found {
				t.Errorf("results/%s.json: the bench has no claim %q", r.Name(), f.Name)
			}
			compared++
		}
	}
	if compared < 15 {
		t.Errorf("only %d figures were compared", compared)
	}
}

// A benchmark's --json output becomes a published result, and the documents change accordingly.
func TestResultsImportCommand(t *testing.T) {
	dir := t.TempDir()
	into, measured := filepath.Join(dir, "isolation.json"), filepath.Join(dir, "measured.json")
	text, err := os.ReadFile("../../results/isolation.json")
	if err != nil {
		t.Fatal(err)
	}
	bench, err := json.Marshal(map[string]any{"claims": knownClaims(t)["isolation"], "builds": []string{"v1-2-g0123abc"}, "setup": map[string]int{}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{into: text, measured: bench, filepath.Join(dir, "README.md"): []byte("1.00<!-- isolation.native -->")} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := newRoot()
		cmd.SetOut(&out)
		cmd.SetErr(&bytes.Buffer{})
		cmd.SetArgs(append([]string{"results"}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := run("import", measured, "--into", into, "--date", "2026-12-01")
	if err != nil || !strings.Contains(out, "replaced: WordCount beside TeraGen, hard disks, 32:1, mq-deadline: run time / with CPU contention only: 1 instead of") {
		t.Fatalf("%v: %s", err, out)
	}
	documents := []string{"--dir", dir, "--out", filepath.Join(dir, "results.md"), "--images", dir, "--readme", filepath.Join(dir, "README.md")}
	if err := os.Remove(measured); err != nil {
		t.Fatal(err)
	}
	if _, err := run(append(documents, "--check")...); err == nil || !strings.Contains(err.Error(), "isolation.svg differs") {
		t.Errorf("documents that are not there: %v", err)
	}
	for _, args := range [][]string{documents, append(documents, "--check")} {
		if _, err := run(args...); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	if page, err := os.ReadFile(filepath.Join(dir, "results.md")); err != nil || !strings.Contains(string(page), "Measured 2026-12-01, commit 0123abc.") {
		t.Errorf("%v: %s", err, page)
	}
	if _, err := run("import", measured, "--into", into); err == nil {
		t.Error("a file that is not there was imported")
	}
}
