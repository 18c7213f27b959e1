package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"
	"penstock/node/control"
	"penstock/node/control/journal"
)

// The record of a killed daemon has a gate's process that has ended, since its pid is that of a process with
// another start time.
func TestNodePutBack(t *testing.T) {
	dir := t.TempDir()
	settings, record := filepath.Join(dir, "node.yaml"), filepath.Join(dir, "run", "changes")
	if err := os.WriteFile(settings, fmt.Appendf(nil, "socket: %s/agent.sock\ncontrol: {journal: run/changes}\n", dir), 0o644); err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	ended := fmt.Sprintf(`{"change":{"mechanism":"gate","target":"gate process","before":"","after":"%d 1"}}`+"\n", os.Getpid())
	const unknown = `{"change":{"mechanism":"later","target":"a","before":"7","after":"8"}}` + "\n"
	write := func(changes string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("{\"boot\":%q}\n%s", strings.TrimSpace(string(boot)), changes)
		if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"node", "put-back"}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	gone := func() bool { _, err := os.Stat(record); return errors.Is(err, fs.ErrNotExist) }

	if out, err := run("--config", settings); err != nil || !strings.Contains(out, "nothing to put back") {
		t.Errorf("without a record: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Dir(record)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a record, the command has made its folder: %v", err)
	}
	write(ended)
	if out, err := run("--config", settings); err != nil || !strings.Contains(out, "put back by gate: gate process") || !gone() {
		t.Errorf("one change: %v\n%s", err, out)
	}
	write(ended + unknown)
	out, err := run("--journal", record, "--json")
	var answer struct{ Changes []putBackChange }
	if e := json.Unmarshal([]byte(out), &answer); e != nil || err == nil || !strings.Contains(err.Error(), "stays in "+record) {
		t.Errorf("a change that cannot be put back: %v, %v\n%s", err, e, out)
	}
	if c := answer.Changes; len(c) != 2 || c[0].Error == "" || c[0].Value != "7" || c[1].Error != "" {
		t.Errorf("a change that cannot be put back: %+v", c)
	}
	if text, err := os.ReadFile(record); err != nil || !bytes.Contains(text, []byte("later")) {
		t.Errorf("the record has lost the change that was not put back: %v\n%s", err, text)
	}

	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(record, control.Undo())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run("--config", settings); !errors.Is(err, journal.ErrInUse) || gone() {
		t.Errorf("beside a daemon: %v\n%s", err, out)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(settings, []byte("sockets: a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run("--config", settings); err == nil || !strings.Contains(err.Error(), "--journal") {
		t.Errorf("settings with a mistake: %v", err)
	}
	for _, args := range [][]string{nil, {"--config", settings, "--journal", record}} {
		var usage cli.UsageError
		if out, err := run(args...); !errors.As(err, &usage) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
