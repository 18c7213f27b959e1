package operate

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/wire/cluster"
)

// desk is a broker's service for operators. Its calls return the error of answer, which may be the
// refusal of a broker that does not lead.
type desk struct {
	cluster.UnimplementedOperatorsServer
	address string
	server  *grpc.Server
	calls   atomic.Int32
	answer  func(ctx context.Context) error
	nodes   func() *cluster.ListNodesAnswer
}

func open(t *testing.T, answer func(context.Context) error) *desk {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{address: l.Addr().String(), server: grpc.NewServer(), answer: answer}
	cluster.RegisterOperatorsServer(d.server, d)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.server.Serve(l)
	}()
	t.Cleanup(func() {
		d.server.Stop()
		<-done
	})
	return d
}

func (d *desk) asked(ctx context.Context) (*cluster.PolicyVersion, error) {
	d.calls.Add(1)
	return &cluster.PolicyVersion{Version: 7, Author: d.address}, d.answer(ctx)
}

func (d *desk) Policy(ctx context.Context, _ *cluster.PolicyRequest) (*cluster.PolicyVersion, error) {
	return d.asked(ctx)
}

func (d *desk) Apply(ctx context.Context, _ *cluster.ApplyRequest) (*cluster.PolicyVersion, error) {
	return d.asked(ctx)
}

func (d *desk) SetWeight(ctx context.Context, _ *cluster.SetWeightRequest) (*cluster.PolicyVersion, error) {
	return d.asked(ctx)
}

func (d *desk) ListNodes(context.Context, *cluster.ListNodesRequest) (*cluster.ListNodesAnswer, error) {
	return d.nodes(), nil
}

func leads(context.Context) error { return nil }

// follows returns the refusal of a broker that does not lead. leader may be empty.
func follows(leader string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := grpc.SetTrailer(ctx, metadata.Pairs(cluster.LeaderKey, leader)); err != nil {
			return err
		}
		if leader == "" {
			return status.Error(codes.Unavailable, "this broker does not lead, and does not know who does")
		}
		return status.Errorf(codes.FailedPrecondition, "this broker does not lead; the leader is %s", leader)
	}
}

func says(code codes.Code) func(context.Context) error {
	return func(context.Context) error { return status.Error(code, "something happened") }
}

func client(t *testing.T, addresses ...string) *Client {
	t.Helper()
	c, err := New(addresses, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// nobody returns an address that refuses connections.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// operations are a query and both kinds of change.
var operations = map[string]func(context.Context, *Client) (*cluster.PolicyVersion, error){
	"policy": func(ctx context.Context, c *Client) (*cluster.PolicyVersion, error) { return c.Policy(ctx, 0) },
	"apply": func(ctx context.Context, c *Client) (*cluster.PolicyVersion, error) {
		return c.Apply(ctx, &cluster.ApplyRequest{})
	},
	"weight": func(ctx context.Context, c *Client) (*cluster.PolicyVersion, error) {
		return c.SetWeight(ctx, "a", 1, false)
	},
}

// TestOnce: after a failure a query goes to the next broker, and a change only if it was certainly
// not made.
func TestOnce(t *testing.T) {
	cut := func(d *desk) func(context.Context) error {
		return func(ctx context.Context) error {
			go d.server.Stop()
			<-ctx.Done()
			return ctx.Err()
		}
	}
	for what, test := range map[string]struct {
		first func(*desk) func(context.Context) error // nil: the connection is refused
		again bool                                    // a change is sent to another broker
	}{
		"down":                       {nil, true},
		"it does not lead":           {func(*desk) func(context.Context) error { return follows("other:1") }, true},
		"it knows of no leader":      {func(*desk) func(context.Context) error { return follows("") }, true},
		"its store says who leads":   {func(*desk) func(context.Context) error { return says(codes.FailedPrecondition) }, true},
		"unavailable":                {func(*desk) func(context.Context) error { return says(codes.Unavailable) }, false},
		"its store has not answered": {func(*desk) func(context.Context) error { return says(codes.DeadlineExceeded) }, false},
		"it ends meanwhile":          {cut, false},
	} {
		for operation, do := range operations {
			t.Run(what+"/"+operation, func(t *testing.T) {
				t.Parallel()
				second := open(t, leads)
				address := nobody(t)
				var first *desk
				if test.first != nil {
					first = open(t, nil)
					first.answer = test.first(first)
					address = first.address
				}
				v, err := do(t.Context(), client(t, address, second.address))
				if again := test.again || operation == "policy"; again {
					if err != nil || v.GetAuthor() != second.address {
						t.Errorf("%v, %v", v, err)
					}
				} else if !errors.Is(err, ErrUnsure) || !strings.Contains(err.Error(), "policy history") || !strings.Contains(err.Error(), address) || second.calls.Load() != 0 {
					t.Errorf("%v, %d calls at the second", err, second.calls.Load())
				}
				if first != nil && first.calls.Load() != 1 {
					t.Errorf("%d calls at the first", first.calls.Load())
				}
			})
		}
	}
}

// TestUnsureOnEnd: when a change is cancelled, the error says that it may have been made.
func TestUnsureOnEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := open(t, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if _, err := client(t, d.address).Apply(ctx, &cluster.ApplyRequest{}); !errors.Is(err, ErrUnsure) {
		t.Errorf("%v", err)
	}
	if _, err := client(t, d.address).Apply(ctx, &cluster.ApplyRequest{}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnsure) {
		t.Errorf("ended before: %v", err)
	}
}

// TestLeaderNext: the broker that is named as the leader is tried next.
func TestLeaderNext(t *testing.T) {
	for operation, do := range operations {
		leader, between := open(t, leads), open(t, says(codes.Unavailable))
		first := open(t, follows(leader.address))
		v, err := do(t.Context(), client(t, first.address, between.address, leader.address))
		if err != nil || v.GetAuthor() != leader.address || between.calls.Load() != 0 {
			t.Errorf("%s: %v, %v, %d calls at the one between", operation, v, err, between.calls.Load())
		}
	}
}

// TestNobodyLeads: the error names the leader, if known, and what to do.
func TestNobodyLeads(t *testing.T) {
	down := nobody(t)
	for _, test := range []struct {
		first, second func(context.Context) error
		want          []string
	}{
		{follows("broker-3:9717"), follows("broker-3:9717"), []string{"the leader broker-3:9717 is not among the given brokers: add it to --broker", "this broker does not lead; the leader is broker-3:9717"}},
		{follows("broker-3:9717"), follows(""), []string{"the leader broker-3:9717 is not among"}},
		{follows(down), follows(down), []string{"no leading broker answers", "try again", "this broker does not lead; the leader is " + down}},
		{follows(""), follows(""), []string{"no leading broker answers", "does not know who does"}},
		{says(codes.FailedPrecondition), says(codes.FailedPrecondition), []string{"no broker answers: ", down + ": connection refused", "--broker HOST:PORT"}},
	} {
		addresses := []string{open(t, test.first).address, open(t, test.second).address, down}
		for operation, do := range operations {
			_, err := do(t.Context(), client(t, addresses...))
			if err == nil || slices.ContainsFunc(test.want, func(w string) bool { return !strings.Contains(err.Error(), w) }) {
				t.Errorf("%s: %v, want %q", operation, err, test.want)
			}
		}
	}
}

// TestAwaitSettling: a version does not count as live while nodes may be missing.
func TestAwaitSettling(t *testing.T) {
	d := open(t, leads)
	var asked atomic.Int32
	d.nodes = func() *cluster.ListNodesAnswer {
		a := &cluster.ListNodesAnswer{Nodes: []*cluster.NodeState{{Policy: 7}}, Settling: true}
		if asked.Add(1) > 3 {
			a.Nodes, a.Settling = append(a.Nodes, &cluster.NodeState{Policy: 7}), false
		}
		return a
	}
	c := client(t, d.address)
	version := &cluster.PolicyVersion{Version: 7}
	if a, err := c.Await(t.Context(), version, time.Minute); len(a.GetNodes()) != 2 || err != nil {
		t.Errorf("%v, %v", a, err)
	}
	off := &cluster.PolicyVersion{Version: 7, Off: true}
	if _, err := c.Await(t.Context(), off, time.Millisecond); !errors.Is(err, ErrNotLive) || !strings.Contains(err.Error(), "2 of 2 do not have it") {
		t.Errorf("nodes that still govern: %v", err)
	}
	asked.Store(-1000)
	if _, err := c.Await(t.Context(), version, time.Millisecond); !errors.Is(err, ErrNotLive) || !strings.Contains(err.Error(), "began to lead a moment ago") {
		t.Errorf("%v", err)
	}
}
