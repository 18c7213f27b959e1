package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"penstock/broker/audit"
	"penstock/broker/certs"
	"penstock/broker/roles"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// certified returns the context of a call by the holder of a certificate.
func certified(name, unit string) context.Context {
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{unit}}}
	return peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4711},
		AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}}})
}

// guardedBroker returns a broker with roles and an audit log, and the function that reads the log.
func guardedBroker(t *testing.T, table string) (*Broker, func() []audit.Record) {
	t.Helper()
	dir := t.TempDir()
	rolesFile, auditFile := filepath.Join(dir, "roles.yaml"), filepath.Join(dir, "audit")
	if err := os.WriteFile(rolesFile, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	who, err := roles.Open(rolesFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(auditFile, "broker-1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(t.Context(), Options{Name: "broker-1", Roles: who, Audit: log, Facts: func(flow string) policy.Facts {
		return policy.Facts{Flow: flow, Queue: map[string]string{"a": "root.adhoc.x", "b": "root.etl"}[flow]}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b, func() (all []audit.Record) {
		text, err := os.ReadFile(auditFile)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var r audit.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		return all
	}
}

// calls returns each call of the service for operators as a function that returns its error. A call of the protocol that is
// missing in needs fails the test.
func calls(t *testing.T, b *Broker, needs map[string]roles.Role) map[string]func(context.Context) error {
	t.Helper()
	service := reflect.ValueOf(b.Operators())
	all := map[string]func(context.Context) error{}
	for _, m := range cluster.Operators_ServiceDesc.Methods {
		if _, known := needs[m.MethodName]; !known {
			t.Errorf("which role does %s need?", m.MethodName)
		}
		method := service.MethodByName(m.MethodName)
		all[m.MethodName] = func(ctx context.Context) error {
			out := method.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.New(method.Type().In(1).Elem())})
			err, _ := out[1].Interface().(error)
			return err
		}
	}
	return all
}

// TestEachCallNeedsItsRole: a call passes exactly with its role, and a refusal names the role and is recorded.
func TestEachCallNeedsItsRole(t *testing.T) {
	needs := map[string]roles.Role{"Policy": roles.Viewer, "History": roles.Viewer, "ListNodes": roles.Viewer, "ListApplications": roles.Viewer, "Forecast": roles.Viewer,
		"SetWeight": roles.QueueAdministrator, "Apply": roles.QueueAdministrator, "KillSwitch": roles.Operator, "EndCanary": roles.Operator}
	b, records := guardedBroker(t, "operators: [alice]\nqueue_administrators: [{name: bob, queues: [root.adhoc]}]\nviewers: [carol]")
	for name, call := range calls(t, b, needs) {
		for who, has := range map[string]roles.Role{"alice": roles.Operator, "bob": roles.QueueAdministrator, "carol": roles.Viewer, "eve": roles.None} {
			err := call(certified(who, certs.Operator))
			if refused := status.Code(err) == codes.PermissionDenied; refused != (has < needs[name]) {
				t.Errorf("%s by %s: %v", name, who, err)
			} else if refused && !strings.Contains(err.Error(), needs[name].String()) {
				t.Errorf("%s by %s: the error does not name the role: %v", name, who, err)
			}
		}
		if err := call(certified("node-1", "")); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "operator's certificate") {
			t.Errorf("%s by a node: %v", name, err)
		}
	}
	refused := map[string]int{}
	for _, r := range records() {
		if r.Outcome == audit.Refused {
			refused[r.Who]++
			if r.From != "192.0.2.7" || r.By != "certificate" || r.Why == "" || r.Broker != "broker-1" {
				t.Errorf("%+v", r)
			}
		}
	}
	if want := (map[string]int{"bob": 2, "carol": 4, "eve": 9, "node-1": 9}); !reflect.DeepEqual(refused, want) {
		t.Errorf("refused: %v, want %v", refused, want)
	}
}

// TestQueueAdministrator: weights in the own queues, and only those.
func TestQueueAdministrator(t *testing.T) {
	b, records := guardedBroker(t, "operators: [alice]\nqueue_administrators: [{name: bob, queues: [root.adhoc]}]")
	bob := certified("bob", certs.Operator)
	o := operators{b: b}
	text := "rules: [{user: x, weight: 2}]\nqueues: [{queue: root.etl, weight: 3}, {queue: root.adhoc, weight: 1}%s]\n"
	apply := func(ctx context.Context, more string, percent uint32) error {
		_, err := o.Apply(ctx, &cluster.ApplyRequest{Text: fmt.Appendf(nil, text, more), CanaryPercent: percent})
		return err
	}
	if err := apply(certified("alice", certs.Operator), "", 0); err != nil {
		t.Fatal(err)
	}
	if v, err := o.SetWeight(bob, &cluster.SetWeightRequest{Application: "a", Weight: 3}); err != nil || v.GetAuthor() != "bob" {
		t.Errorf("an application in the own queue: %v, %v", v, err)
	}
	for name, want := range map[string]string{"b": "root.etl", "c": "not known"} {
		_, err := o.SetWeight(bob, &cluster.SetWeightRequest{Application: name, Weight: 3, Force: true})
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := apply(bob, ", {queue: root.adhoc.x, weight: 2}", 0); err != nil {
		t.Errorf("a queue below the own one: %v", err)
	}
	for more, want := range map[string]string{", {queue: root.etl.x, weight: 2}": "changes the queue root.etl.x", "]\ndefault: 2\n#": "the default weight", "]\nmode: off\n#": "the mode"} {
		if err := apply(bob, more, 0); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", more, err)
		}
	}
	if err := apply(bob, ", {queue: root.adhoc.y, weight: 2}", 10); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a canary: %v", err)
	}
	all := records()[2:8]
	if len(all) != 6 || all[0].Outcome != audit.Begun || all[1].Outcome != audit.Done || all[1].Version != 2 || all[0].ID != all[1].ID || all[3].Outcome != audit.Refused ||
		all[1].What != `weight of "a" set to 3, force false` || all[1].Role != "queue administrator" {
		t.Errorf("%+v", all)
	}
}

// TestQueueAdministratorWithoutWeights: where the own queue has no weight, its applications compete with those of other queues. So
// their weights are not the queue administrator's, in the policy in force or in a canary.
func TestQueueAdministratorWithoutWeights(t *testing.T) {
	b, _ := guardedBroker(t, "operators: [alice]\nqueue_administrators: [{name: bob, queues: [root.adhoc]}]")
	alice, bob, o := certified("alice", certs.Operator), certified("bob", certs.Operator), operators{b: b}
	const own, above = "queues: [{queue: root.adhoc, weight: 1}]", "queues: [{queue: root, weight: 1}]"
	apply := func(text string, percent uint32) {
		t.Helper()
		if _, err := o.Apply(alice, &cluster.ApplyRequest{Text: []byte(text), CanaryPercent: percent}); err != nil {
			t.Fatal(err)
		}
	}
	set := func(policy string, may bool) {
		t.Helper()
		_, err := o.SetWeight(bob, &cluster.SetWeightRequest{Application: "a", Weight: 1_000_000})
		if (err == nil) != may || err != nil && (status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "root.adhoc")) {
			t.Errorf("%s: %v", policy, err)
		}
	}
	set("no policy", false)
	apply(above, 0)
	set("a weight of a queue above only", false)
	apply(own, 0)
	set("a weight of the own queue", true)
	apply(above, 10)
	set("a canary without it", false)
}

// TestNoChangeWithoutAudit: a change that cannot be recorded is not made, except the one to turn the kill switch on.
func TestNoChangeWithoutAudit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(filepath.Join(dir, "audit"), "b", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(t.Context(), Options{Audit: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	o, ctx := operators{b: b}, certified("alice", certs.Operator)
	if _, err := o.Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 2")}); status.Code(err) != codes.Internal || b.version != 0 {
		t.Errorf("a change: %v, version %d", err, b.version)
	}
	if v, err := o.KillSwitch(ctx, &cluster.KillSwitchRequest{On: true}); err != nil || !v.GetOff() {
		t.Errorf("the kill switch: %v, %v", v, err)
	}
	if _, err := o.KillSwitch(ctx, &cluster.KillSwitchRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("the kill switch off again: %v", err)
	}
	if _, err := o.ListNodes(ctx, &cluster.ListNodesRequest{}); err != nil {
		t.Errorf("a question: %v", err)
	}
}

// TestExpired: a caller may do nothing more after its certificate has expired.
func TestExpired(t *testing.T) {
	b, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alice", "node-1"} {
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{map[string]string{"alice": certs.Operator}[name]}}}
		for _, left := range []time.Duration{-time.Second, time.Hour} {
			leaf.NotAfter = time.Now().Add(left)
			state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
			ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1}, AuthInfo: credentials.TLSInfo{State: state}})
			err := checkPeer(ctx, name)
			if name == "alice" {
				_, err = operators{b: b}.ListNodes(ctx, &cluster.ListNodesRequest{})
			}
			if (err == nil) != (left > 0) || err != nil && !strings.Contains(err.Error(), "has expired") {
				t.Errorf("%s with %v left: %v", name, left, err)
			}
			if err := b.checkNode(ctx); name != "alice" && (status.Code(err) == codes.PermissionDenied) != (left < 0) {
				t.Errorf("a look-up by %s with %v left: %v", name, left, err)
			}
		}
	}
}

// TestNoRoleFromOtherMachines: a broker without certificates refuses calls from other machines.
func TestNoRoleFromOtherMachines(t *testing.T) {
	b, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (operators{b: b}).Policy(callFrom("192.0.2.1"), &cluster.PolicyRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("%v", err)
	}
}
