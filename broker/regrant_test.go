package broker

import (
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/peer"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// TestFactsArrive: an application whose facts are others than before has what the policy
// gives for them, without a new policy and without asking on every round.
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
	b.policy = &policy.Policy{Default: 1, Rules: []policy.Rule{{Weight: 2, Bandwidth: true}}}
	m, err := b.totals.Join()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{node: &cluster.Node{Name: "n"}, member: m, named: map[string]int{}}
	b.sessions["n"] = s
	sequence := uint64(0)
	weight := func(names ...*cluster.Name) float64 {
		t.Helper()
		b.mu.Lock()
		b.settle() // a round
		b.mu.Unlock()
		sequence++
		a, err := b.take(s, &cluster.Report{Sequence: sequence, Names: names})
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
		t.Errorf("told %v, asked %d times, though nobody said that anything has changed", w, asked)
	}
	b.Regrant([]string{"a", "somebody"})
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
