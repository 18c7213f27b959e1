package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/cmd/internal/cli"
)

// TestBrokerWrongUse: flags without effect are refused before the broker connects to anything.
func TestBrokerWrongUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for args, want := range map[string]string{
		"--session 2s":           "--session has no effect without --zookeeper",
		"--advertise here:1":     "--advertise has no effect without --zookeeper",
		"--zookeeper-auth FILE":  "--zookeeper-auth has no effect without --zookeeper",
		"--zookeeper-ca FILE":    "--zookeeper-ca has no effect without --zookeeper",
		"--kerberos-keytab FILE": "--kerberos-keytab has no effect without --resource-manager",
		"--hadoop-ca FILE":       "--hadoop-ca has no effect without --resource-manager",
		"--resource-manager http://rm:8088 --kerberos-keytab FILE":                                                          "give a principal",
		"--resource-manager http://rm:8088 --hadoop-ca FILE":                                                                "only https has certificates",
		"--resource-manager http://rm:8088 --kerberos-principal p@R --kerberos-keytab " + dir + " --kerberos-config " + dir: "no such file",
		"--zookeeper : --store " + dir:                                                                                      "give --store or --zookeeper",
	} {
		_, err := run(t, append([]string{"broker", "--listen", "0.0.0.0:0"}, strings.Fields(args)...)...)
		var usage cli.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestBrokerRuns: a broker without ResourceManager, ZooKeeper, policy file and metrics runs until
// it is stopped, and then ends without an error.
func TestBrokerRuns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := newBrokerCommand()
	cmd.SetArgs([]string{"--listen", "127.0.0.1:0", "--metrics", "off", "--store", t.TempDir()})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	select {
	case err := <-ended:
		t.Fatalf("it ended by itself: %v", err)
	case <-time.After(time.Second):
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
