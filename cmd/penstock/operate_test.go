package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"penstock/broker"
	"penstock/cmd/internal/cli"
	"penstock/core/arbiter"
	"penstock/core/policy"
	"penstock/node/coordination"
	"penstock/wire/cluster"
)

// steady is a device that always gives its flows the same service.
type steady struct {
	begin time.Time
	flows []string
}

func (*steady) Name() string                      { return "disk" }
func (*steady) SetParts(coordination.Parts)       {}
func (*steady) SetTotals(map[string]policy.Total) {}
func (d *steady) Uses() ([]coordination.Use, int64, bool) {
	var all []coordination.Use
	gone := time.Since(d.begin)
	for _, f := range d.flows {
		all = append(all, coordination.Use{Flow: f, Service: gone / time.Duration(len(d.flows)), Wanted: gone})
	}
	return all, 0, true
}

// startBroker starts a broker on loopback and returns its address.
func startBroker(t *testing.T, secure *tls.Config) string {
	t.Helper()
	facts := map[string]policy.Facts{
		"application_1_1": {Flow: "application_1_1", Queue: "root.etl.nightly", User: "alice", Name: "load\x1b[31m", Tags: []string{"gold"}},
		"application_1_2": {Flow: "application_1_2", Queue: "root.adhoc", User: "bob"},
	}
	b, err := broker.New(t.Context(), broker.Options{Name: "broker-1", Facts: func(flow string) policy.Facts {
		if f, known := facts[flow]; known {
			return f
		}
		return policy.Facts{Flow: flow}
	}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := listenFor(t.Context(), "127.0.0.1:0", secure != nil)
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) {
		p := newParts(ctx)
		p.addServer(b, listener, secure, broker.Limits{})
		p.add(b.Run)
		if err := p.run(); err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// background runs a function until the test ends.
func background(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func startNode(t *testing.T, broker, name string, secure *tls.Config, flows ...string) {
	t.Helper()
	d := &steady{time.Now(), flows}
	var config func() (*tls.Config, error)
	if secure != nil {
		config = func() (*tls.Config, error) { return secure, nil }
	}
	var mode atomic.Int32
	mode.Store(int32(arbiter.Enforce))
	c, err := coordination.New(coordination.Options{Node: name, Brokers: []string{broker}, TLS: config, Period: 100 * time.Millisecond,
		Bound: func(most arbiter.Mode) { mode.Store(int32(most)) }, Mode: func() arbiter.Mode { return arbiter.Mode(mode.Load()) },
		Devices: func() []coordination.Device { return []coordination.Device{d} }, Rights: func(map[string]coordination.Right) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	background(t, c.Run)
}

// penstock runs a command line.
func penstock(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func good(t *testing.T, args ...string) string {
	t.Helper()
	out, err := penstock(t, args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return out
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// decoded reads a command's JSON.
func decoded[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const examplePolicy = `default: 1
queues:
  - {queue: root.etl, weight: 3}
  - {queue: root.adhoc, weight: 1}
rules:
  - {flow: clients, group: outside, weight: 2}
  - {queue: "root.etl.*", user: alice, weight: 8, max_weight: 16, limit: 50MiB}
  - {tag: gold, weight: 4, reserve: 10MiB}
`

// TestPolicyWithoutBroker: commands that need no broker do not ask one.
func TestPolicyWithoutBroker(t *testing.T) {
	t.Setenv(brokerEnv, "127.0.0.1:1") // no broker listens there
	example := file(t, examplePolicy)
	contains(t, good(t, "policy", "check", example), "is good: 3 rules, 2 queues")
	if v := decoded[map[string]any](t, good(t, "policy", "check", example, "--json")); v["good"] != true || v["rules"] != 3.0 {
		t.Error(v)
	}
	contains(t, good(t, "policy", "test", example, "--facts", "user=alice,queue=root.etl.x,tag=io.weight=12"), "by       line 7, by tag", "weight   12 in queue root.etl", "limit    50.0 MiB/s")
	contains(t, good(t, "policy", "test", example, "--facts", "tag=gold", "--facts", "tag=x"), "by       line 8", "reserve  10.0 MiB/s")
	contains(t, good(t, "policy", "test", example, "--facts", "flow=clients"), "line 6, group outside", "limit    none")
	if v := decoded[map[string]any](t, good(t, "policy", "test", example, "--facts", "tag=gold", "--json")); v["reserve"].(map[string]any)["bytes_per_second"] != 10.0*(1<<20) || v["line"] != 8.0 {
		t.Error(v)
	}
	bad := file(t, "rules:\n  - {user: a}\n  - {weight: 0}\n")
	for _, args := range [][]string{{"policy", "check", bad}, {"policy", "test", bad}, {"policy", "apply", bad}, {"policy", "test", bad, "--facts", "user=a"}} {
		var usage cli.UsageError
		if _, err := penstock(t, args...); err == nil || errors.As(err, &usage) || !strings.Contains(err.Error(), bad+": line 3, column 6: rules[1]: weight 0") {
			t.Errorf("%q: %v", args, err)
		}
	}
	out, err := penstock(t, "policy", "check", bad, "--json")
	if v := decoded[map[string]any](t, out); err == nil || v["good"] != false || !strings.Contains(fmt.Sprint(v["mistake"]), "line 3") || !strings.Contains(fmt.Sprint(v["mistakes"]), "line:3") {
		t.Errorf("%v, %v", v, err)
	}
	for _, args := range []string{
		"policy check", "policy test", "policy test FILE --in-force", "policy test FILE --facts user", "policy test FILE --facts colour=red",
		"policy test FILE --facts user=a --application b", "policy apply", "policy apply FILE --wait 11m", "policy rollback", "policy rollback x",
		"policy show 0", "policy diff 1 2 3", "policy history --limit 1001", "policy history --limit 0", "app set-weight a 0", "app set-weight a 1000001", "app set-weight a",
		"app status", "app unset-weight", "app list --broker here", "app list --ca ca.pem", "top --cluster --once --sort device", "top --cluster --address 127.0.0.1:1", "certs --dir x",
		"policy kill-switch", "policy kill-switch up", "policy apply FILE --canary 0%", "policy apply FILE --canary 100%", "policy apply FILE --canary 1.5%", "policy canary more",
		"polcy", "policy chekc", "policy check " + example + " more", "app lst", "node lst", "node list more", "policy history more", "top more", "testbed disc",
	} {
		var usage cli.UsageError
		if out, err := penstock(t, strings.Fields(strings.ReplaceAll(args, "FILE", example))...); !errors.As(err, &usage) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	// Errors use the terms of the command line.
	for args, want := range map[string]string{
		"top --interval 5":            `--interval "5": give a duration with a unit, such as 20ms, 5s or 1m30s`,
		"top --width abc":             `--width "abc": give a whole number`,
		"top --interval":              "penstock top: --interval needs a value, ",
		"top -x":                      "penstock top has no flag -x: penstock top --help lists the flags",
		"app set-weight a -3":         "-3: penstock app set-weight takes no negative number",
		"top --intervall 2s":          "did you mean --interval?",
		"help polcy":                  `"polcy" is not a command of penstock: did you mean policy?`,
		"help policy aply":            `"aply" is not a command of penstock policy: did you mean apply?`,
		"policy history --limit=many": `--limit "many": give a whole number`,
		"policy apply FILE --base=-1": `--base "-1": give a whole number of 0 or more`,
		"app list --ca no.pem --cert no.pem --key no.key": "no.pem: no such file or folder",
	} {
		var usage cli.UsageError
		if out, err := penstock(t, strings.Fields(strings.ReplaceAll(args, "FILE", example))...); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s\n%s", args, err, want, out)
		}
	}
	for args, want := range map[string]string{"help policy apply": "Put a policy file into force", "help": "Per-application I/O control", "help app": "set-weight"} {
		if out := good(t, strings.Fields(args)...); !strings.Contains(out, want) && !strings.Contains(out, "penstock policy apply FILE") {
			t.Errorf("%q:\n%s", args, out)
		}
	}
	for _, args := range []string{"policy history", "policy test " + example, "policy diff " + example, "policy apply " + example, "node list", "app list", "top --cluster --once"} {
		var usage cli.UsageError
		if _, err := penstock(t, strings.Fields(args)...); err == nil || errors.As(err, &usage) || !strings.Contains(err.Error(), ": connection refused, nothing listens there (start one with penstock broker run, or give its address with --broker HOST:PORT") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestPolicyCommands: the versions of a policy, with two nodes.
func TestPolicyCommands(t *testing.T) {
	address := startBroker(t, nil)
	t.Setenv(brokerEnv, "127.0.0.1:1,"+address) // the first broker is down
	startNode(t, address, "node-1", nil, "application_1_1", "application_1_2")
	startNode(t, address, "node-2", nil, "application_1_2", "clients")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		busy := 0
		for _, a := range decoded[[]appJSON](t, good(t, "app", "list", "--json")) {
			if a.RateNS > 0 {
				busy++
			}
		}
		if busy == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the applications are not at work within 30 s")
		}
	}
	example := file(t, examplePolicy)
	contains(t, good(t, "policy", "show"), "default: 1\n")
	contains(t, good(t, "policy", "test", example), "application_1_1  root.etl.nightly  alice  1 > 3", "- > 50.0 MiB/s", "default > line 7", "default > line 6, group outside", "33.3 % > 50.0 %")
	contains(t, good(t, "policy", "diff", example), "--- no policy\n+++ "+example, "+  - {queue: root.etl, weight: 3}", "2 of 3 applications at work get another share, limit or reserve")

	deadlines := file(t, "rules: [{flow: application_1_1, deadline: 2h}, {flow: application_1_2, deadline: 2199-01-01T00:00:00Z}]\n")
	contains(t, good(t, "policy", "test", deadlines), "- > for the deadline 2h0m0s", "deadline of application_1_1: refused: the time of its submission is not known",
		"deadline of application_1_2: 2199-01-01", "refused: its progress is not known")

	out := good(t, "policy", "apply", example, "--note", "etl first")
	contains(t, out, "version 1 is in force at all 2 nodes")
	t.Log(out)
	contains(t, good(t, "node", "list"), "broker broker-1, 2 nodes", "node-1", "node-2")
	nodes := decoded[struct {
		Broker string
		Nodes  []nodeJSON
	}](t, good(t, "node", "list", "--json"))
	if len(nodes.Nodes) != 2 || nodes.Nodes[0].Policy != 1 || nodes.Nodes[1].Policy != 1 || nodes.Nodes[1].Applications != 2 || nodes.Broker != "broker-1" {
		t.Errorf("%+v", nodes)
	}
	contains(t, good(t, "app", "status", "application_1_1"), "weight       3 among all at work, by line 7 of version 1", "due          50.0 %", "limit        50.0 MiB/s", "name         load?[31m")
	if a := decoded[appJSON](t, good(t, "app", "status", "application_1_1", "--json")); a.Due != 0.5 || a.Rule != 1 || a.Nodes != 1 {
		t.Errorf("%+v", a)
	}
	if _, err := penstock(t, "app", "status", "nobody"); err == nil || !strings.Contains(err.Error(), "not at work") {
		t.Error(err)
	}
	contains(t, good(t, "policy", "test", "--in-force", "--application", "clients"), "clients", "2", "33.3 %", "line 6, group outside")
	if _, err := penstock(t, "policy", "test", "--in-force", "--application", "nobody"); err == nil || !strings.Contains(err.Error(), "--facts") {
		t.Error(err)
	}
	contains(t, good(t, "policy", "test", "--in-force", "--facts", "tag=gold"), "line 8")

	if r := decoded[applied](t, good(t, "app", "set-weight", "application_1_2", "5", "--json")); r.Version != 2 || !r.Live || r.Nodes != 2 {
		t.Errorf("%+v", r)
	}
	contains(t, good(t, "app", "status", "application_1_2"), "by set of version 2")
	contains(t, good(t, "policy", "diff"), "--- version 1\n+++ version 2", "+# set for application_1_2: 5")
	contains(t, good(t, "policy", "apply", example, "--wait", "0"), "version 2") // the same text makes no new version
	if _, err := penstock(t, "policy", "apply", file(t, "default: 2\n"), "--base", "1"); err == nil || !strings.Contains(err.Error(), "version 2 is in force, but this change was made from version 1") {
		t.Error(err)
	}
	contains(t, good(t, "policy", "apply", file(t, "default: 2\n"), "--base", "2", "--wait", "0"), "version 3 is written")
	if text := good(t, "policy", "show"); text != "default: 2\n" {
		t.Error(text)
	}
	if text := good(t, "policy", "diff", "1"); !strings.Contains(text, "+  - {queue: root.etl") || strings.Contains(text, "-# set for") {
		t.Errorf("a rollback keeps set weights:\n%s", text)
	}
	contains(t, good(t, "policy", "diff", "1", "3"), "-# set for application_1_2: 5")
	contains(t, good(t, "app", "unset-weight", "application_1_2"), "version 4 is in force at all 2 nodes")
	if _, err := penstock(t, "app", "unset-weight", "application_1_2"); err == nil || !strings.Contains(err.Error(), "has no weight set") {
		t.Error(err)
	}
	contains(t, good(t, "policy", "rollback", "1"), "version 5 is in force at all 2 nodes")
	if good(t, "policy", "show") != examplePolicy || good(t, "policy", "show", "1") != examplePolicy {
		t.Error("version 5 is not version 1")
	}
	contains(t, good(t, "policy", "diff", "5", "1"), "version 1 and version 5 are the same")
	if _, err := penstock(t, "policy", "rollback", "77"); err == nil || !strings.Contains(err.Error(), "no such version") {
		t.Error(err)
	}
	history := good(t, "policy", "history")
	contains(t, history, "etl first", "back to version 1", "weight of application_1_2 set to 5")
	versions := decoded[[]versionJSON](t, good(t, "policy", "history", "--json", "--limit", "2"))
	if len(versions) != 2 || versions[0].Version != 5 || versions[1].Version != 4 {
		t.Errorf("%+v", versions)
	}
	t.Log(history)

	contains(t, good(t, "top", "--cluster", "--once"), "broker broker-1  ", "  2 nodes  3 applications  ", "policy 5", "application_1_1", "root.etl.nightly")
	if text := good(t, "top", "--cluster", "--once", "--filter", "clients"); strings.Contains(text, "application_1_1") || !strings.Contains(text, "clients") {
		t.Error(text)
	}
	view := decoded[struct {
		Nodes        []nodeJSON
		Applications []appJSON
	}](t, good(t, "top", "--broker", address, "--once", "--json"))
	if len(view.Nodes) != 2 || len(view.Applications) != 3 {
		t.Errorf("%+v", view)
	}
}

// TestEmptyCluster: a command that finds nothing prints why, and the error of a wrong number names
// it.
func TestEmptyCluster(t *testing.T) {
	t.Setenv(brokerEnv, startBroker(t, nil))
	said := func(args ...string) string { // includes standard error
		t.Helper()
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(args)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		return out.String()
	}
	contains(t, said("node", "list"), "0 nodes", "broker")
	contains(t, said("app", "list"), "no application is at work")
	contains(t, said("policy", "history"), "no policy was applied yet")
	contains(t, said("policy", "show"), "no policy was applied yet", "default: 1")
	if text := said("policy", "show", "--json"); strings.Contains(text, "1970") {
		t.Error(text)
	}
	contains(t, said("policy", "diff", file(t, examplePolicy)), "no application is at work")
	if _, err := penstock(t, "app", "set-weight", "aplication_1_1", "5", "--wait", "0"); err == nil || !strings.Contains(err.Error(), "check the spelling, or set the weight in advance with --force") {
		t.Errorf("a misspelt application: %v", err)
	}
	contains(t, said("app", "set-weight", "aplication_1_1", "5", "--wait", "0", "--force"), "note: aplication_1_1 is not at work", "version 1 is written")
	contains(t, said("top", "--cluster", "--once"), "0 nodes", "APPLICATION")
	for _, args := range []string{"policy show 77", "policy rollback 77"} {
		if _, err := penstock(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), "version 77: no such version") || !strings.Contains(err.Error(), "policy history") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestNotLive: the error names a node that does not apply a version.
func TestNotLive(t *testing.T) {
	address := startBroker(t, nil)
	stubborn := dialNodes(t, address)
	if err := stubborn.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "stubborn", PeriodMs: 30_000}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stubborn.Recv(); err != nil {
		t.Fatal(err)
	}
	out, err := penstock(t, "policy", "apply", file(t, "default: 2\n"), "--broker", address, "--wait", "300ms", "--json")
	if r := decoded[applied](t, out); err == nil || !strings.Contains(err.Error(), "1 of 1 do not have it: stubborn") || r.Live || r.Version != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestOperatorsCertificate: the commands with certificates that --operator has made.
func TestOperatorsCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	contains(t, good(t, "certs", "--dir", dir, "broker-1", "node-1", "--operator", "alice"), "alice.pem", "node-1.key")
	files := func(name string) cluster.Files {
		return cluster.Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
	}
	secure, err := files("broker-1").Server()
	if err != nil {
		t.Fatal(err)
	}
	address := startBroker(t, secure)
	as := func(name string, args ...string) []string {
		f := files(name)
		return append(args, "--broker", address, "--ca", f.CA, "--cert", f.Cert, "--key", f.Key)
	}
	node, err := files("node-1").Client()
	if err != nil {
		t.Fatal(err)
	}
	startNode(t, address, "node-1", node, "application_1_1")
	contains(t, good(t, as("alice", "policy", "apply", file(t, examplePolicy))...), "version 1 is")
	contains(t, good(t, as("alice", "policy", "history")...), "alice")
	if _, err := penstock(t, as("node-1", "policy", "history")...); err == nil || !strings.Contains(err.Error(), "operator's certificate") {
		t.Errorf("a node: %v", err)
	}
	if _, err := penstock(t, "policy", "history", "--broker", address); err == nil || !strings.Contains(err.Error(), "needs --ca, --cert and --key") {
		t.Errorf("plain: %v", err)
	}
}

// dialNodes opens a node's stream, on which the test sends any report.
func dialNodes(t *testing.T, address string) cluster.Nodes_ExchangeClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := cluster.NewNodesClient(conn).Exchange(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}
