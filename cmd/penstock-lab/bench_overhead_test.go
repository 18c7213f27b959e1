package main

import (
	"errors"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"
)

// Wrong flags end with code 2 and say what to use, before anything is started.
func TestWrongFlagsOfTheBenchmarks(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"bench overhead --rounds 0", "--rounds"},
		{"bench overhead --rounds 1001", "--rounds"},
		{"bench overhead --bytes ten", "--bytes"},
		{"bench overhead --bytes 1M", "--bytes"},
		{"bench overhead --rounds 1 --bytes 60G", "--bytes"},
		{"bench overhead --rate 1K", "--rate"},
		{"bench overhead --warm 1M", "--warm"},
		{"bench overhead --job-bytes 1", "--job-bytes"},
		{"bench overhead --variants enforced", "--variants"},
		{"bench overhead --variants native", "--variants"},
		{"bench overhead --hadoop 1.0", "--hadoop"},
		{"bench overhead --yarn 63M", "--yarn"},
		{"bench overhead --yarn ten", "--yarn"},
		{"bench overhead --yarn 1G --rounds 0", "--rounds"},
		{"bench overhead --yarn 1G --warm 1G", "--warm"},
		{"bench overhead --no-such-flag", "no-such-flag"},
		{"bench monitor --runs 0", "--runs"},
		{"bench monitor --runs 101", "--runs"},
		{"bench monitor --rows fio", "--rows"},
		{"bench monitor --wordcount-size ten", "--wordcount-size"},
		{"bench monitor --terasort-size 1M", "--terasort-size"},
		{"bench monitor --scheduler cfq", "--scheduler"},
		{"bench monitor --fio-jobs 65", "--fio-jobs"},
		{"bench monitor load copy file 1", "read or write"},
		{"bench monitor load read file 65", "jobs"},
		{"bench forecast --runs 0", "--runs"},
		{"bench forecast --runs 101", "--runs"},
		{"bench forecast --rows sort", "--rows"},
		{"bench forecast --disk-rate ten", "--disk-rate"},
		{"bench forecast --disk-rate 1M", "--disk-rate"},
		{"bench forecast --scheduler cfq", "--scheduler"},
		{"bench decision --flows 0", "--flows"},
		{"bench decision --flows ten", "--flows"},
		{"bench decision --trips 1", "--trips"},
		{"bench decision --length 1ms", "--length"},
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(c.args))
		err := root.ExecuteContext(t.Context())
		var usage cli.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
}
