package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"
)

// TestBrokerWrongUse: flags that would do nothing are refused, before anybody is dialled.
func TestBrokerWrongUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for args, want := range map[string]string{
		"--session 2s":                 "--session goes with --zookeeper",
		"--advertise here:1":           "--advertise goes with --zookeeper",
		"--zookeeper-auth FILE":        "--zookeeper-auth goes with --zookeeper",
		"--zookeeper-ca FILE":          "--zookeeper-ca goes with --zookeeper",
		"--zookeeper : --store " + dir: "give --store or --zookeeper",
	} {
		_, err := run(t, append([]string{"broker", "--listen", "0.0.0.0:0"}, strings.Fields(args)...)...)
		var usage cli.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
