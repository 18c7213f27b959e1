package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
	"penstock/node/status"
	"penstock/ops/doctor"
)

// shared is the node that the tests share. DataNode 0 is governed, DataNode 1 has no agent.
var shared fixture.Stand

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:  "tools",
		Disks: []disk.Options{{Name: "disk", Size: 1 << 30}},
		Nodes: func(*stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", LogLevel: "debug", Device: "  quantum: 1MiB\n", Weights: "default: 7\n"}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{NoYARN: true, Replication: 2, DataNodes: append(s.GovernedDataNodes("data"), hadoop.DataNode{}), Settings: hadoop.SmallDisks}
		},
	}, func(context.Context) error { return shared.SetModel(disk.HDD(20e6)) })
}

// run runs penstock and returns its output and exit code.
func run(t *testing.T, args ...string) (out []byte, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), shared.Spec.Binary, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Logf("%v: %s", args, errs.Bytes())
	}
	return out, cmd.ProcessState.ExitCode()
}

// top returns one document of `penstock top`.
func top(t *testing.T) *status.Document {
	t.Helper()
	out, code := run(t, "top", "--once", "--json", "--address", shared.Nodes[0].Address)
	doc, err := status.Parse(out)
	if err != nil || code != 0 {
		t.Fatalf("top --once --json: exit %d, %v: %s", code, err, out)
	}
	return doc
}

// diagnose returns the report of `penstock doctor` on DataNode i, and the exit code.
func diagnose(t *testing.T, i int, args ...string) (*doctor.Report, int) {
	t.Helper()
	out, code := run(t, append([]string{
		"doctor", "--json", "--address", shared.Nodes[0].Address, "--datanode", shared.Hadoop.DataNodeURL(i),
	}, args...)...)
	r := &doctor.Report{}
	if err := json.Unmarshal(out, r); err != nil {
		t.Fatalf("doctor --json: exit %d, %v: %s", code, err, out)
	}
	return r, code
}

// expect compares the worst verdict of each named check with the wanted one.
func expect(t *testing.T, r *doctor.Report, want map[string]doctor.Verdict) {
	t.Helper()
	order := map[doctor.Verdict]int{doctor.OK: 1, doctor.Warn: 2, doctor.Fail: 3}
	got := map[string]doctor.Verdict{}
	for _, s := range r.Results {
		if order[s.Verdict] > order[got[s.Check]] {
			got[s.Check] = s.Verdict
		}
	}
	for name, verdict := range want {
		if got[name] != verdict {
			t.Errorf("%s: %q, want %q\n%s", name, got[name], verdict, r.Text())
		}
	}
}
