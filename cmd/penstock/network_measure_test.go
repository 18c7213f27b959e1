package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"
)

// Wrong flags are reported before anything is measured.
func TestNetworkMeasureFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"--set-ups host,docker": `"docker"`, "--parts streams,trip": `"trip"`, "--pairs 0": "use 1 to 128", "--pairs 129": "use 1 to 128",
		"--time 50ms": "0.1", "--cpu 100000": "CPU 100000", "all": "takes no arguments",
	} {
		root := newRoot()
		root.SetArgs(append([]string{"network", "measure"}, strings.Fields(flags)...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		var usage cli.UsageError
		if err := root.Execute(); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flags, err)
		}
	}
}
