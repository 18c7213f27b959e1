package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/cmd/internal/cli"
	"penstock/lab/kdc"
)

// TestBrokerWrongUse: flags without effect are refused before the broker connects to anything.
func TestBrokerWrongUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for args, want := range map[string]string{
		"--session 2s":          "--session has no effect without --zookeeper",
		"--advertise here:1":    "--advertise has no effect without --zookeeper",
		"--zookeeper-auth FILE": "--zookeeper-auth has no effect without --zookeeper",
		"--zookeeper-open":      "--zookeeper-open has no effect without --zookeeper",
		"--zookeeper a:1 --zookeeper-open --zookeeper-auth FILE": "not both",
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

// TestSecuredCluster: the broker and the doctor ask a ResourceManager that requires Kerberos, by their flags.
func TestSecuredCluster(t *testing.T) {
	r := kdc.ForTest(t, "")
	listed := make(chan string, 100)
	_, address := r.Site(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws/v1/cluster/info" {
			fmt.Fprint(w, `{"clusterInfo":{}}`)
			return
		}
		fmt.Fprint(w, `{"apps":null}`)
		select {
		case listed <- r.Header.Get(kdc.UserHeader):
		default:
		}
	}))
	flags := []string{"--resource-manager", address, "--kerberos-principal", "penstock", "--kerberos-keytab", r.User, "--kerberos-config", r.Config}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := newBrokerCommand()
	cmd.SetArgs(append([]string{"--listen", "127.0.0.1:0", "--metrics", "off", "--store", t.TempDir()}, flags...))
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	select {
	case err := <-ended:
		t.Fatalf("it ended by itself: %v", err)
	case user := <-listed:
		if user != "penstock" {
			t.Errorf("the broker asks as %q", user)
		}
	case <-time.After(30 * time.Second):
		t.Error("the broker does not ask")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	text, err := run(t, append([]string{"doctor", "--address", "127.0.0.1:1", "--datanode", "http://127.0.0.1:1"}, flags...)...)
	if !strings.Contains(text, "ok    kerberos       "+address+" asks for Kerberos and accepts penstock") {
		t.Errorf("%v\n%s", err, text)
	}
}
