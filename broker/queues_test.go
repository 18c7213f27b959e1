package broker

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// serveQueues serves a broker that knows each flow's queue.
func serveQueues(t *testing.T, address, text string, queues map[string]string) *served {
	t.Helper()
	return serveFacts(t, address, text, func(flow string) policy.Facts { return policy.Facts{Flow: flow, Queue: queues[flow]} })
}

// serveFacts serves a broker that knows the facts of each flow.
func serveFacts(t *testing.T, address, text string, facts func(flow string) policy.Facts) *served {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b, err := New(ctx, Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	applyText(t, b, text)
	server := grpc.NewServer()
	cluster.RegisterNodesServer(server, b)
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	running.Go(func() { _ = server.Serve(listener) })
	stop := sync.OnceFunc(func() {
		cancel()
		server.Stop()
		running.Wait()
	})
	t.Cleanup(stop)
	return &served{b, listener.Addr().String(), stop}
}

// sharesOf returns the flows' shares of some nodes' service.
func sharesOf(nodes []*machine, flows []string) []float64 {
	before := takeAll(nodes)
	time.Sleep(3 * period)
	after := takeAll(nodes)
	shares, all := make([]float64, len(flows)), 0.0
	for i, f := range flows {
		for n := range nodes {
			shares[i] += (after[n][f] - before[n][f]).Seconds()
		}
		all += shares[i]
	}
	for i := range shares {
		shares[i] /= all
	}
	return shares
}

func near(got, want []float64, off float64) bool {
	for i := range got {
		if math.Abs(got[i]-want[i]) > off {
			return false
		}
	}
	return true
}

// TestIdleSharesStayInTheQueue: etl has weight 3 and adhoc weight 1. One of the two applications in
// etl is idle. The other one has three quarters at once, with and without a broker.
func TestIdleSharesStayInTheQueue(t *testing.T) {
	const text = "queues: [{queue: etl, weight: 3}, {queue: adhoc, weight: 1}]"
	flows, in := []string{"a", "b", "c"}, map[string]string{"a": "etl", "b": "etl", "c": "adhoc"}
	b := serveQueues(t, "127.0.0.1:0", text, in)
	var nodes []*machine
	for _, name := range []string{"one", "two"} {
		nodes = append(nodes, node(t, name, []string{b.address}, flows...))
	}
	parted := func() bool {
		for _, n := range nodes {
			n.mu.Lock()
			parted := len(n.parts.Flows) == len(flows) && len(n.parts.Queues) == 2
			n.mu.Unlock()
			if !parted {
				return false
			}
		}
		return true
	}
	holds := func(what string, want ...float64) {
		t.Helper()
		var got []float64
		for deadline := time.Now().Add(30 * time.Second); ; {
			if got = sharesOf(nodes, flows); near(got, want, 0.01) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %.3f, want %.3f", what, got, want)
			}
		}
	}
	eventually(t, "parts of flows and queues", parted)
	holds("all at work", 0.375, 0.375, 0.25)
	for _, n := range nodes {
		n.rest("b", true)
	}
	if got := sharesOf(nodes, flows); !near(got, []float64{0.75, 0, 0.25}, 0.01) {
		t.Errorf("at once: %.3f", got)
	}
	holds("one is idle", 0.75, 0, 0.25)

	b.stop()
	eventually(t, "the nodes know that no broker answers", func() bool {
		return !nodes[0].client.State().InForce && !nodes[1].client.State().InForce
	})
	holds("one is idle, without a broker", 0.75, 0, 0.25)
	for _, n := range nodes {
		n.rest("b", false)
	}
	holds("all at work, without a broker", 0.375, 0.375, 0.25)

	serveQueues(t, b.address, text, in)
	eventually(t, "parts again", parted)
	holds("all at work again", 0.375, 0.375, 0.25)
}

// TestQueuesAreSharesOfTheWhole: etl is on one of two nodes, and is entitled to as much of the
// total as adhoc, as far as that node allows. In adhoc, x and y are entitled to the same service,
// although x is on the same node as etl.
func TestQueuesAreSharesOfTheWhole(t *testing.T) {
	flows := []string{"e", "x", "y"}
	b := serveQueues(t, "127.0.0.1:0", "queues: [{queue: etl, weight: 1}, {queue: adhoc, weight: 1}, {queue: adhoc.x, weight: 1}]",
		map[string]string{"e": "etl", "x": "adhoc.x", "y": "adhoc"})
	nodes := []*machine{node(t, "one", []string{b.address}, "e", "x"), node(t, "two", []string{b.address}, "x", "y")}
	var got []float64
	for deadline := time.Now().Add(30 * time.Second); !near(got, []float64{0.5, 0.25, 0.25}, 0.01) || got == nil; got = sharesOf(nodes, flows) {
		if time.Now().After(deadline) {
			t.Fatalf("%.3f", got)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, want := range map[string]float64{"etl": 1, "adhoc": 1, "adhoc.x": 0.5} {
		if total, ok := b.queues.Of(name); !ok || math.Abs(float64(total.Rate)/1e9-want) > 0.05 {
			t.Errorf("queue %s has %v, want %v devices", name, total, want)
		}
	}
}

// TestQueueBounds checks the limits on names and numbers of queues at their boundaries.
func TestQueueBounds(t *testing.T) {
	numbers := func(n int, each uint64) (all []uint64) {
		for range n {
			all = append(all, each)
		}
		return all
	}
	entries := func(n int) (all []uint32) {
		for i := range n {
			all = append(all, uint32(i))
		}
		return all
	}
	names := func(n int) (all []*cluster.QueueName) {
		for i := range n {
			all = append(all, &cluster.QueueName{Entry: uint32(i), Queue: strings.Repeat("q", i+1)[:min(i+1, cluster.MaxQueue-8)] + fmt.Sprint(i)})
		}
		return all
	}
	long := strings.Repeat("q", cluster.MaxQueue)
	queues := func(n int, rate uint64) *cluster.Queues {
		return &cluster.Queues{Names: names(n), Entries: entries(n), Rates: numbers(n, rate), Rooms: numbers(n, 0), Had: numbers(n, 0), Weights: numbers(n, 0)}
	}
	for name, test := range map[string]struct {
		queues *cluster.Queues
		good   bool
	}{
		"the longest name":    {&cluster.Queues{Names: []*cluster.QueueName{{Queue: long}}}, true},
		"too long a name":     {&cluster.Queues{Names: []*cluster.QueueName{{Queue: long + "q"}}}, false},
		"no text":             {&cluster.Queues{Names: []*cluster.QueueName{{Queue: "\xff"}}}, false},
		"twice":               {&cluster.Queues{Names: []*cluster.QueueName{{Entry: 0, Queue: "q"}, {Entry: 1, Queue: "q"}}}, false},
		"the last entry":      {&cluster.Queues{Names: []*cluster.QueueName{{Entry: cluster.MaxQueues - 1, Queue: "q"}}}, true},
		"an entry too many":   {&cluster.Queues{Names: []*cluster.QueueName{{Entry: cluster.MaxQueues, Queue: "q"}}}, false},
		"all queues":          {queues(cluster.MaxQueues, 1), true},
		"all that it serves":  {queues(policy.MaxWay, coord.MaxRate), true},
		"in a level too many": {queues(policy.MaxWay+1, coord.MaxRate), false},
		"a number too few":    {&cluster.Queues{Names: names(1), Entries: entries(1), Rates: numbers(1, 1), Rooms: numbers(1, 1), Had: numbers(1, 1)}, false},
		"one that nobody has": {&cluster.Queues{Entries: entries(1), Rates: numbers(1, 1), Rooms: numbers(1, 1), Had: numbers(1, 1), Weights: numbers(1, 1)}, false},
		"a number too large":  {&cluster.Queues{Names: names(1), Entries: entries(1), Rates: numbers(1, 1), Rooms: numbers(1, 1), Had: numbers(1, 1<<63), Weights: numbers(1, 1)}, false},
	} {
		b, err := New(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := bookedSession(t, b)
		a, err := b.handleReport(s, &cluster.Report{Sequence: 1, Queues: test.queues})
		if (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(test.queues.GetEntries()); err == nil && len(a.GetQueues().GetHad()) != n {
			t.Errorf("%s: %d totals of %d queues", name, len(a.GetQueues().GetHad()), n)
		}
		b.leave(s)
		if b.queues.Apps() != 0 {
			t.Errorf("%s: something is left", name)
		}
	}
}

// TestWeightsAmongAll checks the weights for nodes that do not divide service at every level.
func TestWeightsAmongAll(t *testing.T) {
	for levels, want := range map[bool]float64{false: 1, true: 0} {
		b, err := New(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := bookedSession(t, b)
		s.node.Levels = levels
		a, err := b.handleReport(s, &cluster.Report{Sequence: 1, Names: []*cluster.Name{{Application: "a"}}})
		if err != nil || len(a.GetRights()) != 1 {
			t.Fatalf("%v, %v", a, err)
		}
		if r := a.GetRights()[0]; r.GetWeight() != want || r.GetOwn() != 1 {
			t.Errorf("levels %v: %v", levels, r)
		}
	}
}
