package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"
)

// Wrong flags are usage errors before anything is started. The error names the flag or the valid choices.
func TestTogetherBenchesRefuseWrongFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"shortest --disk tape", "--disk"},
		{"shortest --workload sleep", "mix"},
		{"shortest --runs 0", "--runs"},
		{"shortest --rows nothing", "shortest-70-20-10"},
		{"shortest --workload mix --rows shortest-70-20-10", "shortest-90"},
		{"shortest --scale 0", "--scale"},
		{"shortest --scale NaN", "--scale"},
		{"shortest --check never", "--check"},
		{"slowdown --disk tape", "--disk"},
		{"slowdown --pair sleep", "wordcount-teragen"},
		{"slowdown --runs 101", "--runs"},
		{"slowdown --rows nothing", "equal-slowdown"},
		{"slowdown --unknown", "--unknown"},
	} {
		root := newRoot()
		root.SetArgs(append([]string{"bench"}, strings.Fields(c.args)...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(t.Context())
		var usage cli.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want a usage error that says %q", c.args, err, c.want)
		}
	}
}
