package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"penstock/broker/certs"
	"penstock/broker/store"
	"penstock/core/arbiter"
	"penstock/wire/cluster"
)

// TestModeAndKillSwitch: the policy's mode, and the kill switch above it, reach the nodes; the kill switch stays when another
// policy is applied.
func TestModeAndKillSwitch(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	n := node(t, "one", []string{b.address}, "a")
	o := asOperator(t, b.address, insecure.NewCredentials())
	apply := func(text string) {
		t.Helper()
		if _, err := o.Apply(t.Context(), &cluster.ApplyRequest{Text: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	turn := func(on bool) {
		t.Helper()
		if v, err := o.KillSwitch(t.Context(), &cluster.KillSwitchRequest{On: on, Note: "trial"}); err != nil || v.GetOff() != on {
			t.Fatalf("%v, %v", v, err)
		}
	}
	bounded := func(want arbiter.Mode) {
		t.Helper()
		eventually(t, "the node has "+want.String(), func() bool { return n.client.State().Bound == want })
	}
	eventually(t, "an answer", func() bool { return n.client.State().Policy == 1 })
	bounded(arbiter.Enforce)
	apply("mode: observe")
	bounded(arbiter.Observe)
	turn(true)
	bounded(arbiter.Off)
	apply("mode: enforce")
	eventually(t, "version 4", func() bool { return n.client.State().Policy == 4 })
	bounded(arbiter.Off)
	turn(false)
	bounded(arbiter.Enforce)
	if v, err := o.KillSwitch(t.Context(), &cluster.KillSwitchRequest{}); err != nil || v.GetVersion() != 5 || v.GetNote() != "kill switch off: trial" {
		t.Errorf("off again: %v, %v", v, err)
	}
}

// TestCanary: exactly the nodes of the part have the new policy, until the canary is completed or taken back.
func TestCanary(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	o := asOperator(t, b.address, insecure.NewCredentials())
	inside, outside := "", ""
	for i := 0; inside == "" || outside == ""; i++ {
		if name := fmt.Sprintf("n%d", i); placeOf(name) < places/4 {
			inside = name
		} else {
			outside = name
		}
	}
	in, out := node(t, inside, []string{b.address}, "a"), node(t, outside, []string{b.address}, "a")
	limits := func(wantIn, wantOut int64, mode arbiter.Mode) {
		t.Helper()
		eventually(t, "the nodes' limits", func() bool {
			in.mu.Lock()
			defer in.mu.Unlock()
			out.mu.Lock()
			defer out.mu.Unlock()
			return in.rights["a"].Limit == wantIn && out.rights["a"].Limit == wantOut && in.client.State().Bound == mode && in.rights["a"].Weight > 0 && out.rights["a"].Weight > 0
		})
		if out.client.State().Bound != arbiter.Enforce && wantIn != wantOut {
			t.Error("a node outside has the canary's mode")
		}
	}
	limits(0, 0, arbiter.Enforce)
	begin := func(text string, percent uint32) (*cluster.PolicyVersion, error) {
		return o.Apply(t.Context(), &cluster.ApplyRequest{Text: []byte(text), CanaryPercent: percent})
	}
	trial := "mode: observe\nrules: [{flow: a, limit: 1MiB}]"
	if v, err := begin(trial, 25); err != nil || v.GetCanaryPercent() != 25 || string(v.GetText()) != "default: 1" || string(v.GetCanaryText()) != trial {
		t.Fatalf("%v, %v", v, err)
	}
	limits(1<<20, 0, arbiter.Observe)
	if in.client.State().Canary == out.client.State().Canary || !in.client.State().Canary {
		t.Error("the nodes do not know which of them has the canary")
	}
	for metric, want := range map[string]string{"penstock_broker_canary_percent": "25", "penstock_broker_kill_switch": "0"} {
		if got := count(t, b.Broker, metric); got != want {
			t.Errorf("%s is %q", metric, got)
		}
	}
	a, err := o.ListNodes(t.Context(), &cluster.ListNodesRequest{})
	if err != nil || a.GetCanaryPercent() != 25 || len(a.GetNodes()) != 2 {
		t.Fatalf("%v, %v", a, err)
	}
	for _, n := range a.GetNodes() {
		if n.GetCanary() != (n.GetNode().GetName() == inside) {
			t.Errorf("%v", n)
		}
	}
	if _, err := begin("default: 3", 0); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "canary complete") {
		t.Errorf("another policy beside the canary: %v", err)
	}
	if _, err := begin(trial, 30); err != nil {
		t.Errorf("a larger part: %v", err)
	}
	end := func(complete bool) (*cluster.PolicyVersion, error) {
		return o.EndCanary(t.Context(), &cluster.EndCanaryRequest{Complete: complete})
	}
	if v, err := end(false); err != nil || string(v.GetText()) != "default: 1" || v.GetCanaryPercent() != 0 {
		t.Errorf("taken back: %v, %v", v, err)
	}
	limits(0, 0, arbiter.Enforce)
	if _, err := begin(trial, 25); err != nil {
		t.Fatal(err)
	}
	limits(1<<20, 0, arbiter.Observe)
	if v, err := end(true); err != nil || string(v.GetText()) != trial || v.GetNote() != "canary completed" {
		t.Errorf("completed: %v, %v", v, err)
	}
	limits(1<<20, 1<<20, arbiter.Observe)
	if _, err := end(true); status.Code(err) != codes.NotFound {
		t.Errorf("without a canary: %v", err)
	}
	for text, want := range map[string]string{
		"rules: [{flow: a, total_limit: 9MiB}]": `"total_limit"`,
		"rules: [{limit: 1MiB}]":                "limits all applications",
	} {
		if _, err := begin(text, 25); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := begin(trial, 100); status.Code(err) != codes.InvalidArgument {
		t.Errorf("all nodes as a canary: %v", err)
	}
}

// TestPlaces: the part of the nodes is about the stated one, and a larger part contains a smaller one.
func TestPlaces(t *testing.T) {
	in := map[int]int{}
	const nodes = 10_000
	for i := range nodes {
		s := &session{place: placeOf(fmt.Sprintf("node-%04d.example", i))}
		before := false
		for _, percent := range []int{1, 10, 50, 99} {
			now := (&canary{percent: percent}).includes(s)
			if before && !now {
				t.Errorf("node %d is in a smaller part only", i)
			}
			if before = now; now {
				in[percent]++
			}
		}
	}
	for percent, n := range in {
		if want := nodes * percent / 100; n < want*8/10 || n > want*12/10 {
			t.Errorf("%d %%: %d of %d nodes", percent, n, nodes)
		}
	}
}

// TestLimitOfAll: a limit of all applications needs force, also in the broker's policy file.
func TestLimitOfAll(t *testing.T) {
	text := "rules: [{flow: '*', limit: 1MiB}]\n"
	b, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	o, ctx := operators{b: b}, certified("alice", certs.Operator)
	if _, err := o.Apply(ctx, &cluster.ApplyRequest{Text: []byte(text)}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "line 1: rules[0] limits all applications") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("%v", err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.ApplyFile(ctx, file); !errors.Is(err, ErrLimitsAll) || !strings.Contains(err.Error(), "--policy-force") {
		t.Errorf("the file: %v", err)
	}
	if _, err := o.Apply(ctx, &cluster.ApplyRequest{Text: []byte(text), Force: true}); err != nil {
		t.Errorf("with force: %v", err)
	}
	if err := b.ApplyFile(ctx, file); err != nil {
		t.Errorf("a file that is in force: %v", err)
	}
	b.options.LimitAll = true
	if err := os.WriteFile(file, []byte(text+"# changed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.ApplyFile(ctx, file); err != nil || b.version != 2 {
		t.Errorf("the file with force: version %d, %v", b.version, err)
	}
}

// TestFileWaitsForCanary: a changed file does not end a canary; it is applied after it.
func TestFileWaitsForCanary(t *testing.T) {
	b, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	o, ctx := operators{b: b}, certified("alice", certs.Operator)
	if _, err := o.Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 2"), CanaryPercent: 10}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("default: 3"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.ApplyFile(ctx, file); !errors.Is(err, ErrCanary) {
		t.Errorf("%v", err)
	}
	following, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.FollowFile(following, file, "") }()
	if _, err := o.EndCanary(ctx, &cluster.EndCanaryRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is in force", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.policy.Default == 3
	})
	cancel()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the follower has not ended")
	}
}

// TestCanaryIsKept: a version with a canary and the kill switch survives its encoding.
func TestCanaryIsKept(t *testing.T) {
	v := store.Version{Number: 3, Text: []byte("default: 1"), Off: true, Canary: store.Canary{Percent: 10, Text: []byte("default: 2")}, Time: time.UnixMilli(5)}
	text, err := store.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := store.Decode(text); err != nil || !sameVersion(got, v) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, wrong := range []store.Canary{{Percent: 100, Text: []byte("x")}, {Percent: 5}, {Text: []byte("x")}} {
		v.Canary = wrong
		if v.Check() == nil {
			t.Errorf("%+v", wrong)
		}
	}
}
