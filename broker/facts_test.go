package broker

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/peer"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// TestFactsArrive: when the facts of an application change, its rights follow without a new policy
// and without polling.
func TestFactsArrive(t *testing.T) {
	var held atomic.Int64
	asked := 0
	b, err := New(t.Context(), Options{Facts: func(flow string) policy.Facts {
		asked++
		return policy.Facts{Flow: flow, User: "alice", Bandwidth: held.Load()}
	}, State: func(flow string) string { return "RUNNING, as " + flow }})
	if err != nil {
		t.Fatal(err)
	}
	b.policy = &policy.Policy{Default: 1, Rules: []policy.Rule{{Weight: 2, Bandwidth: policy.BandwidthWeight}}}
	s := bookedSession(t, b)
	sequence := uint64(0)
	weight := func(names ...*cluster.Name) float64 {
		t.Helper()
		b.matchPending() // a round
		b.mu.Lock()
		b.computeRights()
		b.mu.Unlock()
		sequence++
		a, err := b.handleReport(s, &cluster.Report{Sequence: sequence, Names: names})
		if err != nil {
			t.Fatal(err)
		}
		if len(a.GetRights()) == 0 {
			return 0
		}
		return a.GetRights()[0].GetWeight()
	}
	if w := weight(&cluster.Name{Entry: 0, Application: "a"}); w != 2 {
		t.Errorf("weight %v at first", w)
	}
	held.Store(60)
	if w := weight(); w != 0 || asked != 1 {
		t.Errorf("sent %v, %d requests for facts, although no fact has changed", w, asked)
	}
	b.FactsChanged([]string{"a", "somebody"})
	if w := weight(); w != 60 {
		t.Errorf("weight %v after the facts have changed", w)
	}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}})
	all, err := operators{b: b}.ListApplications(ctx, &cluster.ListApplicationsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if a := all.GetApplications(); len(a) != 1 || a[0].GetUser() != "alice" || a[0].GetState() != "RUNNING, as a" || a[0].GetWeight() != 60 {
		t.Errorf("operators see %v", all)
	}
}

// TestRulesAreMatchedUnlocked: reports do not wait while rules are matched, for any number of new
// applications.
func TestRulesAreMatchedUnlocked(t *testing.T) {
	asked := 0
	var b *Broker
	b, err := New(t.Context(), Options{Facts: func(flow string) policy.Facts {
		asked++
		if !b.mu.TryLock() {
			t.Fatal("a rule is matched while the broker is locked")
		}
		b.mu.Unlock()
		return policy.Facts{Flow: flow}
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.updateLeadership()
	s := bookedSession(t, b)
	r := &cluster.Report{Sequence: 1}
	const many = matchBatch + 50
	for i := range uint32(many) {
		r.Names = append(r.Names, &cluster.Name{Entry: i, Application: fmt.Sprint("a", i)})
	}
	a, err := b.handleReport(s, r)
	if err != nil || asked != matchBatch || len(a.GetRights()) != matchBatch {
		t.Fatalf("%v: %d were matched and %d sent at once, want %d", err, asked, len(a.GetRights()), matchBatch)
	}
	tell := func() (n int) {
		t.Helper()
		b.matchPending()
		b.mu.Lock()
		b.computeRights()
		b.mu.Unlock()
		r := &cluster.Report{Sequence: s.sequence + 1}
		a, err := b.handleReport(s, r)
		if err != nil {
			t.Fatal(err)
		}
		return len(a.GetRights())
	}
	if n := tell(); n != 50 || asked != many {
		t.Errorf("%d are sent in the next round, %d matched in all", n, asked)
	}
	applyText(t, b, "default: 3")
	if n := tell(); n != many || asked != 2*many {
		t.Errorf("a new policy: %d sent, %d matched in all", n, asked)
	}
	b.FactsChanged([]string{"a1", "a2", "nobody"})
	if _, known := b.grants["a1"]; !known || len(b.staleGrants) != 2 {
		t.Errorf("the old grants, which hold until the next matching, are gone; %d are stale", len(b.staleGrants))
	}
	if n := tell(); n != 0 || asked != 2*many+2 || len(b.staleGrants) != 0 {
		t.Errorf("two others: %d sent, %d matched in all, %d are stale", n, asked, len(b.staleGrants))
	}
}

// bookedSession returns the session of a node that has not sent anything yet.
func bookedSession(t *testing.T, b *Broker) *session {
	t.Helper()
	apps, err := newEntryTable(b.totals)
	if err != nil {
		t.Fatal(err)
	}
	queues, err := newEntryTable(b.queues)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{node: &cluster.Node{Name: "n"}, apps: apps, queues: queues}
	b.sessions["n"] = s
	return s
}
