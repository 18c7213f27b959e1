package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"

	"penstock/ops/install"
)

func runInstall(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"install"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestInstallCommand(t *testing.T) {
	dir := t.TempDir()
	site := filepath.Join(dir, "mapred-site.xml")
	const before = "<configuration>\n</configuration>\n"
	if err := os.WriteFile(site, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	content := func() string {
		data, err := os.ReadFile(site)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	flags := []string{"--hadoop-conf", dir, "--agent-jar", "/opt/penstock/penstock-agent.jar"}
	for _, c := range []struct {
		args, says string
		prepared   bool
	}{
		{"", "nothing was written", false},
		{"--dry-run", "+++ b" + site, false},
		{"--remove", "nothing to change", false},
		{"--apply", "to restart: the DataNode and the NodeManager", true},
		{"--apply", "nothing to change", true},
		{"--remove --dry-run", "-    <name>fs.file.impl</name>", true},
		{"--remove", "written", false},
	} {
		out, err := runInstall(t, append(flags, strings.Fields(c.args)...)...)
		if err != nil || !strings.Contains(out, c.says) {
			t.Errorf("%q: %v\n%s", c.args, err, out)
		}
		if prepared := content() != before; prepared != c.prepared {
			t.Errorf("after %q the file is\n%s", c.args, content())
		}
	}
	for _, args := range []string{"--apply --remove", "--apply --dry-run", "--socket agent.sock", "--disk-bandwidth 200", "--remove --disk-bandwidth 0", "--hadoop-conf=", "--nothing"} {
		var usage cli.UsageError
		if out, err := runInstall(t, append(flags, strings.Fields(args)...)...); !errors.As(err, &usage) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	if err := os.WriteFile(site, []byte("<configuration><property><name>fs.file.impl</name><value>a.B</value></property></configuration>"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := runInstall(t, append(flags, "--apply", "--json")...)
	var report install.Report
	if e := json.Unmarshal([]byte(out), &report); e != nil || !errors.Is(err, install.ErrConflict) || len(report.Conflicts) != 1 || report.Done {
		t.Errorf("a conflict as JSON: %v, %v\n%s", err, e, out)
	}
}

func TestInstallFor(t *testing.T) {
	for _, c := range []struct {
		args, says string
		wrong      bool
	}{
		{"--for ambari", "# HDFS > Configs > Advanced", false},
		{"--for cloudera --agent-jar /a.jar", "-javaagent:/a.jar=socket=/run/penstock/agent.sock", false},
		{"--for ansible --json", `"field": "hadoop-env.sh"`, false},
		{"--for puppet", "use ambari, cloudera, ansible", true},
		{"--for=", "use ambari, cloudera, ansible", true},
		{"--for ambari --apply --force", "cannot be combined with --apply, --force", true},
		{"--for ambari --hadoop-conf /etc", "cannot be combined with --hadoop-conf", true},
		{"--for ambari --socket agent.sock", "absolute path", true},
	} {
		out, err := runInstall(t, strings.Fields(c.args)...)
		if err != nil {
			out += err.Error()
		}
		var usage cli.UsageError
		if !strings.Contains(out, c.says) || errors.As(err, &usage) != c.wrong || (err != nil) != c.wrong {
			t.Errorf("%q: %v\n%s", c.args, err, out)
		}
	}
}
