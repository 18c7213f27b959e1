package broker

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/broker/leadership"
	"penstock/wire/cluster"
)

// office is a leadership that the test sets.
type office struct {
	mu      sync.Mutex
	state   leadership.State
	changes chan struct{}
	asked   atomic.Int64 // number of connections to the broker
}

// counted counts the connections of a listener.
type counted struct {
	net.Listener
	n *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return conn, err
}

func (o *office) State() leadership.State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

func (o *office) Changes() <-chan struct{} { return o.changes }

func (o *office) set(s leadership.State) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state = s
	select {
	case o.changes <- struct{}{}:
	default:
	}
}

// several returns brokers of one cluster, each with an office.
func several(t *testing.T, n int) (all []*office, addresses []string) {
	t.Helper()
	all, addresses, _ = severalBrokers(t, n)
	return all, addresses
}

func severalBrokers(t *testing.T, n int) (all []*office, addresses []string, brokers []*Broker) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := &office{changes: make(chan struct{}, 1)}
		b, err := New(t.Context(), Options{Leadership: o})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		server := grpc.NewServer(grpc.UnaryInterceptor(b.Unary))
		cluster.RegisterNodesServer(server, b)
		cluster.RegisterOperatorsServer(server, b.Operators())
		var running sync.WaitGroup
		running.Go(func() { b.Run(ctx) })
		running.Go(func() { _ = server.Serve(counted{l, &o.asked}) })
		t.Cleanup(func() {
			cancel()
			server.Stop()
			running.Wait()
		})
		all, addresses, brokers = append(all, o), append(addresses, l.Addr().String()), append(brokers, b)
	}
	return all, addresses, brokers
}

// TestNotLeading: a broker that does not lead answers neither nodes nor operators. It names the
// leader.
func TestNotLeading(t *testing.T) {
	offices, addresses := several(t, 1)
	conn, err := grpc.NewClient(addresses[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, test := range []struct {
		state leadership.State
		code  codes.Code
	}{
		{leadership.State{}, codes.Unavailable},
		{leadership.State{Leader: "broker-2:9717", Epoch: 4}, codes.FailedPrecondition},
	} {
		offices[0].set(test.state)
		stream := dial(t, addresses[0])
		if err := stream.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n"}}); err != nil {
			t.Fatal(err)
		}
		_, err := stream.Recv()
		var trailer metadata.MD
		_, unary := cluster.NewOperatorsClient(conn).Policy(t.Context(), &cluster.PolicyRequest{}, grpc.Trailer(&trailer))
		for what, got := range map[string]struct {
			err     error
			trailer metadata.MD
		}{"a stream": {err, stream.Trailer()}, "a call": {unary, trailer}} {
			if status.Code(got.err) != test.code || !strings.Contains(got.err.Error(), test.state.Leader) ||
				!slices.Equal(got.trailer.Get(cluster.LeaderKey), []string{test.state.Leader}) {
				t.Errorf("%s with %+v: %v, %v", what, test.state, got.err, got.trailer)
			}
		}
	}
}

// TestStepsDown: a stream ends with the first report after the end of its leadership, even if the
// broker leads again by then. The new leadership has no state of the old one's nodes.
func TestStepsDown(t *testing.T) {
	offices, addresses, brokers := severalBrokers(t, 1)
	open := func(epoch uint64) cluster.Nodes_ExchangeClient {
		t.Helper()
		stream := dial(t, addresses[0])
		if err := stream.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n"}}); err != nil {
			t.Fatal(err)
		}
		a, err := stream.Recv()
		if err != nil || a.GetEpoch() != epoch || !a.GetSettling() {
			t.Fatalf("%v, %v, want epoch %d and to settle", a, err, epoch)
		}
		return stream
	}
	for epoch := uint64(1); epoch < 6; epoch += 2 {
		offices[0].set(leadership.State{Leading: true, Epoch: epoch})
		stream := open(epoch)
		if epoch == 3 {
			offices[0].set(leadership.State{Leading: true, Leader: "here:1", Epoch: epoch + 1})
		} else {
			offices[0].set(leadership.State{Leader: "other:1", Epoch: epoch + 1})
		}
		if epoch == 3 { // the node's session is gone
			brokers[0].updateLeadership()
		}
		if err := stream.Send(&cluster.Report{Sequence: 2}); err != nil {
			t.Fatal(err)
		}
		if a, err := stream.Recv(); err == nil {
			t.Errorf("epoch %d is over, and answers %v", epoch, a)
		} else if named := stream.Trailer().Get(cluster.LeaderKey); epoch != 3 && !slices.Equal(named, []string{"other:1"}) {
			t.Errorf("the leader is %v, by %v", named, err)
		} else if epoch == 3 && (!slices.Equal(named, []string{"here:1"}) || status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "leadership epoch changed; open a new stream")) {
			t.Errorf("it leads again: %v, %v", named, err)
		}
	}
	if got := count(t, brokers[0], `penstock_broker_streams_refused_total{reason="replaced"}`); got != "" {
		t.Errorf("%s are counted as replaced", got)
	}
}

// TestNodeFollows: a node finds the leader among several brokers, follows a change, and ignores
// answers of an older epoch.
func TestNodeFollows(t *testing.T) {
	offices, addresses := several(t, 3)
	lead := func(leader int, epoch uint64) {
		for i, o := range offices {
			o.set(leadership.State{Leading: i == leader, Leader: addresses[leader], Epoch: epoch})
		}
	}
	lead(2, 7)
	m := node(t, "n", addresses, "a")
	with := func(broker int, epoch uint64) func() bool {
		return func() bool {
			s := m.client.State()
			return s.Broker == addresses[broker] && s.Epoch == epoch && s.InForce
		}
	}
	eventually(t, "the node reports to the leader", with(2, 7))
	lead(0, 9)
	eventually(t, "the node follows the leadership", with(0, 9))

	// As in a partition: all three brokers claim to lead, two in past epochs and one in the present
	// one.
	offices[0].set(leadership.State{Leading: true, Epoch: 8})
	offices[2].set(leadership.State{Leading: true, Epoch: 7})
	offices[1].set(leadership.State{})
	eventually(t, "answers of older epochs are refused", func() bool { return m.client.State().Refused >= 2 })
	if s := m.client.State(); s.Epoch != 9 {
		t.Errorf("%+v", s)
	}
	offices[1].set(leadership.State{Leading: true, Epoch: 10})
	eventually(t, "the node reports to the present leader", with(1, 10))
}

// TestBrokenStream: if a node's stream breaks, the node returns to the broker that led. It does not
// try another broker first, which would only name the leader.
func TestBrokenStream(t *testing.T) {
	offices, addresses := several(t, 2)
	offices[0].set(leadership.State{Leading: true, Epoch: 7})
	offices[1].set(leadership.State{Leader: addresses[0], Epoch: 7})
	asked := offices[1].asked.Load()
	m := node(t, "n", addresses, "a")
	eventually(t, "the node reports to the leader", func() bool { return m.client.State().InForce })
	for range 3 {
		other := dial(t, addresses[0]) // replaces the node's stream
		if err := other.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Recv(); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		eventually(t, "the node is back", func() bool {
			s := m.client.State()
			return s.Broker == addresses[0] && s.Answered.After(back) && time.Since(back) > 6*time.Second/5
		})
	}
	if n := offices[1].asked.Load() - asked; n > 0 {
		t.Errorf("the other broker was asked %d times", n)
	}
}
