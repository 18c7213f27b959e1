package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"
)

// Wrong flags are usage errors before anything is started. The error names the flag or the valid
// choices.
func TestBenchIsolationRefusesWrongFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--weights 32", "--weights"},
		{"--weights 0:1", "--weights"},
		{"--disk tape", "--disk"},
		{"--check none", "--check"},
		{"--hadoop 2.10.2", "3.4.2"},
		{"--against sleep", "--against"},
		{"--phases drr-0", "drr-0"},
		{"--phases nothing", "throttler"},
		{"--runs 0", "--runs"},
		{"--disk-rate 12", "1000000"},
		{"--protected-size x", "--protected-size"},
		{"--protected sleep", "--protected"},
		{"--protected tpch-q9 --intermediate=false", "intermediate"},
		{"--phases cgroup", "--intermediate"},
		{"--intermediate --phases cgroup-weights-1001", "1000"},
		{"--setup nowhere.json", "nowhere.json"},
		{"--unknown", "--unknown"},
	} {
		root := newRoot()
		root.SetArgs(append([]string{"bench", "isolation"}, strings.Fields(c.args)...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(t.Context())
		var usage cli.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want a usage error that says %q", c.args, err, c.want)
		}
	}
}
