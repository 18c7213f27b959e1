package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"
)

// Wrong flags are reported before anything is joined.
func TestNetworkAccelerateFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"--ports 0": "use 1 to 65535", "--ports 65536": "use 1 to 65535", "--ports 1 --all-ports": "not both", "--cgroup hadoop": "absolute",
		"--for -1s": "above 0", "--folder penstock": "give an absolute path", "all": "takes no arguments",
	} {
		root := newRoot()
		root.SetArgs(append([]string{"network", "accelerate"}, strings.Fields(flags)...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		var usage cli.UsageError
		if err := root.Execute(); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flags, err)
		}
	}
}
