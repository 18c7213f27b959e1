package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/stand"
	"penstock/ops/doctor"
)

// TestDoctorOnAPreparedCluster: the settings that `penstock install` has prepared are in force, in
// the folder and in the NodeManager. If somebody removes one, doctor reports it.
func TestDoctorOnAPreparedCluster(t *testing.T) {
	shared.Begin(t, stand.Patience)
	conf := shared.Hadoop.ClientConfDir()
	verdicts := func(conf string) map[string]doctor.Result {
		r := &doctor.Report{}
		out := penstock(t, "doctor", "--json", "--address", shared.Nodes[0].Address, "--datanode", shared.Hadoop.DataNodeURL(0),
			"--nodemanager", shared.Hadoop.NodeManagerURL(0), "--hadoop-conf", conf)
		if err := json.Unmarshal([]byte(out), r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		found := map[string]doctor.Result{}
		for _, s := range r.Results {
			found[s.Check] = s
		}
		return found
	}
	got := verdicts(conf)
	for _, check := range []string{"installed", "nodemanager", "shuffle", "readahead", "short-circuit"} {
		if got[check].Verdict != doctor.OK {
			t.Errorf("%s: %+v", check, got[check])
		}
	}

	changed := t.TempDir()
	fixture.Must(t, os.CopyFS(changed, os.DirFS(conf)))
	site := filepath.Join(changed, "mapred-site.xml")
	text, err := os.ReadFile(site)
	fixture.Must(t, err)
	fixture.Must(t, os.WriteFile(site, bytes.Replace(text, []byte("<name>fs.file.impl</name>"), []byte("<name>fs.other.impl</name>"), 1), 0o644))
	if got := verdicts(changed)["installed"]; got.Verdict != doctor.Warn || got.Found != site+" lacks fs.file.impl" {
		t.Errorf("without its local files: %+v", got)
	}
}

// penstock runs a command and returns its output. Exit code 1 is accepted, since doctor uses it.
func penstock(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), shared.Spec.Binary, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("penstock %v: %v", args, err)
	}
	return string(out)
}
