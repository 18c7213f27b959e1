package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/cmd/internal/cli"

	"penstock/node/profile"
	"penstock/ops/measure"
)

func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	root := newRoot()
	root.SetOut(&b)
	root.SetErr(&b)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return b.String(), err
}

func TestProfileWrongUse(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{}, {"a", "b"}, {dir, "--space", "3Q"}, {dir, "--space", "1M"}, {dir, "--time", "1s"}, {dir, "--write"}, {dir, "--colour"}} {
		_, err := run(t, append([]string{"profile"}, args...)...)
		var usage cli.UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%q: %v is not called wrong use", args, err)
		}
	}
	if _, err := run(t, "profile", filepath.Join(dir, "none")); err == nil || errors.As(err, new(cli.UsageError)) {
		t.Errorf("a folder that is not there: %v", err)
	}
	for out, want := range map[string]string{"no/such.profile": "there is no folder", ".": "it is a folder"} {
		began := time.Now() // the error comes before anything is measured
		if _, err := run(t, "profile", dir, "--out", filepath.Join(dir, out)); err == nil || !strings.Contains(err.Error(), want) || time.Since(began) > 2*time.Second {
			t.Errorf("--out %s: %v", out, err)
		}
	}
}

func TestCheckShowsProfiles(t *testing.T) {
	dir := t.TempDir()
	line := profile.Line{Fixed: profile.Duration(3 * time.Millisecond), PerMiB: profile.Duration(80 * time.Millisecond)}
	p := profile.Profile{
		Version: profile.Version, Device: profile.Device{Name: "sdq", Model: "Disk 3000", Bytes: 1 << 40},
		Cost:      profile.Cost{Read: profile.Coefficients{Random: line, Sequential: line}},
		Reference: profile.Reference{Read: profile.Latency{Line: line, Concurrency: 2}}, Quantum: 1 << 20,
	}
	text, err := p.Text()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "node.yaml")
	settings := "socket: s\ndevices: {no-such-disk: {profile: disk.profile}, sdz: {quantum: 256KiB}}\n"
	for name, b := range map[string][]byte{"disk.profile": text, "node.yaml": []byte(settings)} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := run(t, "node", "--check", "--config", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"are good", "not of this device", "Disk 3000", "quantum 256KiB", "no profile: measure one"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing of %q in:\n%s", want, out)
		}
	}
}

// TestCheckWarns: --check warns of rules in the weights file that have no effect.
func TestCheckWarns(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "node.yaml")
	for name, text := range map[string]string{"node.yaml": "socket: s\nweights: w.yaml\n", "w.yaml": "rules:\n- {application: \"*\", weight: 3}\n- {application: b}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = "line 3, column 3: unreachable: the rule on line 2 matches"
	for _, flag := range []string{"--check", "--check --json"} {
		out, err := run(t, append([]string{"node", "run", "--config", file}, strings.Fields(flag)...)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
	}
}

func TestProfileIsPrintedAndWritten(t *testing.T) {
	dir := t.TempDir()
	line := profile.Line{Fixed: profile.Duration(3 * time.Millisecond), PerMiB: profile.Duration(80 * time.Millisecond)}
	r := &measure.Result{Kept: 0.98, Profile: &profile.Profile{
		Version: profile.Version, Device: profile.Device{Name: "sdq", Bytes: 1 << 40, Rotational: true},
		Cost:      profile.Cost{Read: profile.Coefficients{Random: line, Sequential: line}},
		Reference: profile.Reference{Read: profile.Latency{Line: line, Concurrency: 2}}, Quantum: 1 << 20, Residual: 0.012,
	}}
	var b bytes.Buffer
	file := filepath.Join(dir, "sdq.profile")
	if err := conclude(&b, newProfileCommand(), r, file, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sdq", "hard disk", "3ms + 80ms/MiB", "12.5 MiB/s", "2 at a time", "1MiB", "98 %", "1.2 %", file} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("nothing of %q in:\n%s", want, b.String())
		}
	}
	if p, err := profile.Load(file); err != nil || p.Quantum != 1<<20 {
		t.Errorf("what was written: %+v, %v", p, err)
	}
}

func TestProgressBar(t *testing.T) {
	var b bytes.Buffer
	bar := progressBar{out: &b, terminal: true, began: time.Now()}
	bar.show(measure.Progress{Done: 3, Total: 6, What: "reads"})
	if !strings.Contains(b.String(), "[############............]  50 %") || !strings.Contains(b.String(), "reads") {
		t.Errorf("%q", b.String())
	}
}
