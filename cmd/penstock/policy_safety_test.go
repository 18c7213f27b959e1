package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/cmd/internal/cli"
)

// TestKillSwitchAndCanary: the commands with three nodes.
func TestKillSwitchAndCanary(t *testing.T) {
	address := startBroker(t, nil)
	t.Setenv(brokerEnv, address)
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		startNode(t, address, name, nil, "application_1_1")
	}
	both := func(args ...string) string { // with standard error
		t.Helper()
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(args)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%q: %v\n%s", args, err, out.String())
		}
		return out.String()
	}
	contains(t, good(t, "policy", "apply", file(t, "mode: observe\n")), "version 1 is in force at all 3 nodes")
	if text := good(t, "node", "list"); strings.Count(text, "observe") != 3 {
		t.Errorf("nodes in observe mode:\n%s", text)
	}
	contains(t, both("policy", "kill-switch", "on", "--note", "trial"), "version 2 is in force at all 3 nodes", "kill switch is on")
	contains(t, both("node", "list"), "kill switch is on")
	if text := good(t, "node", "list"); strings.Count(text, "  off  ") != 3 {
		t.Errorf("nodes in mode off:\n%s", text)
	}
	contains(t, both("policy", "apply", file(t, "mode: enforce\n")), "version 3", "kill switch is on")
	contains(t, both("policy", "show"), "kill switch is on", "mode: enforce")
	contains(t, good(t, "policy", "history"), "kill switch on: trial")
	if r := decoded[applied](t, good(t, "policy", "kill-switch", "off", "--json")); r.Version != 4 || r.KillSwitch || !r.Live {
		t.Errorf("%+v", r)
	}
	contains(t, good(t, "policy", "canary"), "no canary is in force")

	trial := file(t, "mode: observe\nrules: [{flow: application_1_1, weight: 2}]\n")
	contains(t, both("policy", "apply", trial, "--canary", "99%"), "a canary of 99 % is in force, at 3 nodes")
	contains(t, good(t, "policy", "canary"), "canary of 99 %: 3 of 3 nodes that report", "node-3")
	if v := decoded[map[string]any](t, good(t, "policy", "canary", "--json")); v["canary_percent"] != 99.0 || len(v["canary_nodes"].([]any)) != 3 {
		t.Error(v)
	}
	contains(t, good(t, "node", "list"), "canary of 99 %: 3 nodes", "CANARY", "yes")
	if text := good(t, "policy", "show"); text != "mode: enforce\n" {
		t.Error(text)
	}
	contains(t, good(t, "policy", "show", "--canary"), "weight: 2")
	if _, err := penstock(t, "policy", "rollback", "1"); err == nil || !strings.Contains(err.Error(), "penstock policy canary take-back") {
		t.Error(err)
	}
	contains(t, good(t, "policy", "canary", "take-back"), "version 6 is in force at all 3 nodes")
	if _, err := penstock(t, "policy", "show", "--canary"); err == nil || !strings.Contains(err.Error(), "has no canary") {
		t.Error(err)
	}
	contains(t, both("policy", "apply", trial, "--canary", "1%"), "warning: none of the 3 nodes")
	contains(t, good(t, "policy", "canary", "complete", "--note", "well"), "version 8")
	contains(t, good(t, "policy", "show"), "weight: 2")
	contains(t, good(t, "policy", "history"), "canary completed: well", "canary taken back", "canary at 99 % of the nodes")

	all := file(t, "rules: [{limit: 10MiB}]\n")
	contains(t, both("policy", "check", all), "warning", "needs --force")
	if _, err := penstock(t, "policy", "apply", all); err == nil || !strings.Contains(err.Error(), "limits all applications") {
		t.Error(err)
	}
	contains(t, good(t, "policy", "apply", all, "--force"), "version 9")
}

// TestBrokersFiles: mistakes in the files of --roles, --audit and --policy keep the broker from starting.
func TestBrokersFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"roles": "viewers: [a]", "policy": "rules: [{limit: 10MiB}]"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"--roles DIR/roles":   "--roles: " + dir + "/roles: operators: name at least one",
		"--audit DIR":         "--audit: audit log: ",
		"--policy DIR/policy": "--policy-force",
	} {
		args = strings.ReplaceAll(args, "DIR", dir)
		_, err := run(t, append([]string{"broker", "run", "--listen", "127.0.0.1:0", "--metrics", "off"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestZooKeeperNeedsCredentials: certificates at the broker's port are of no use if ZooKeeper lets everybody change the policy.
func TestZooKeeperNeedsCredentials(t *testing.T) {
	dir := t.TempDir()
	good(t, "certs", "--dir", dir, "broker-1")
	_, err := run(t, "broker", "run", "--listen", "127.0.0.1:0", "--metrics", "off", "--zookeeper", "127.0.0.1:1",
		"--ca", dir+"/ca.pem", "--cert", dir+"/broker-1.pem", "--key", dir+"/broker-1.key")
	var usage cli.UsageError
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), "give --zookeeper-auth, or --zookeeper-open") {
		t.Error(err)
	}
}
