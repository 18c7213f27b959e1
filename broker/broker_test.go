package broker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"penstock/broker/certs"
	"penstock/broker/store"
	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/node/coordination"
	"penstock/wire/cluster"
)

// served is a broker on loopback that runs as long as the test.
type served struct {
	*Broker
	address string
	stop    func()
}

// serve serves a broker with a policy in YAML.
func serve(t *testing.T, address, text string, options ...grpc.ServerOption) *served {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b, err := New(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	applyText(t, b, text)
	server := grpc.NewServer(options...)
	cluster.RegisterNodesServer(server, b)
	cluster.RegisterOperatorsServer(server, b.Operators())
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

// applyText puts a policy into force.
func applyText(t *testing.T, b *Broker, text string) {
	t.Helper()
	if _, err := b.write(t.Context(), 0, "test", func(v *store.Version) error { v.Text = []byte(text); return nil }); err != nil {
		t.Fatal(err)
	}
}

// machine is a node with devices that give each flow exactly its part, because these tests do not
// test the scheduler.
type machine struct {
	name  string
	flows []string

	mu      sync.Mutex
	idle    map[string]bool // idle flows
	parts   coordination.Parts
	uses    map[string]coordination.Use
	at      time.Time
	rights  map[string]coordination.Right
	client  *coordination.Client
	stopped func()
}

func (m *machine) Name() string { return "disk" }

func (m *machine) SetParts(parts coordination.Parts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work()
	m.parts = parts
}

func (*machine) SetTotals(map[string]policy.Total) {}

// work gives the flows their entitlements for the time since the last call. It divides level by
// level of the tree, with the policy's weights if no parts are in force.
func (m *machine) work() {
	now := time.Now()
	passed := now.Sub(m.at)
	m.at = now
	inside := map[string]float64{} // sum of weights of busy members of a queue, by its path; "": the root
	each := func(level func(path string, weight float64, inside string) (on bool)) {
		for _, f := range m.flows {
			if m.idle[f] {
				continue
			}
			right := m.rights[f]
			weight := max(right.Weight, 1) // 1 until the policy is known
			if p := m.parts.Flows[f]; p > 0 {
				weight = p
			}
			paths := []string{""}
			for _, l := range right.Queues {
				paths = append(paths, paths[len(paths)-1]+"/"+l.Name)
			}
			of := f
			for i := len(paths) - 1; i >= 0 && level(of, weight, paths[i]) && i > 0; i-- {
				of, weight = paths[i], float64(right.Queues[i-1].Weight)
				if p := m.parts.Queues[of]; p > 0 {
					weight = p
				}
			}
		}
	}
	counted := map[string]bool{}
	each(func(of string, weight float64, in string) bool {
		if counted[of] {
			return false
		}
		counted[of] = true
		inside[in] += weight
		return true
	})
	shares := map[string]float64{}
	var flow string
	each(func(of string, weight float64, in string) bool {
		if of[0] != '/' {
			flow, shares[of] = of, 1
		}
		shares[flow] *= weight / inside[in]
		return true
	})
	for _, f := range m.flows {
		u := m.uses[f]
		u.Flow = f
		if share := shares[f]; share > 0 {
			u.Service += time.Duration(float64(passed) * share)
			u.Wanted += passed
			u.Streams += passed // one stream, always at its mark
			u.Waited += passed
			u.Contended += time.Duration(float64(passed) * (1 - share))
		}
		m.uses[f] = u
	}
}

// rest makes a flow idle, or busy again.
func (m *machine) rest(flow string, idle bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work()
	if m.idle == nil {
		m.idle = map[string]bool{}
	}
	m.idle[flow] = idle
}

func (m *machine) Uses() ([]coordination.Use, int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work()
	var all []coordination.Use
	for _, f := range m.flows {
		all = append(all, m.uses[f])
	}
	return all, 0, true
}

// take returns the service of every flow so far.
func (m *machine) take() map[string]time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work()
	had := map[string]time.Duration{}
	for f, u := range m.uses {
		had[f] = u.Service
	}
	return had
}

func (m *machine) right(flow string) coordination.Right {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rights[flow]
}

const period = 100 * time.Millisecond

func node(t *testing.T, name string, brokers []string, flows ...string) *machine {
	t.Helper()
	return nodeEvery(t, name, brokers, period, flows...)
}

func nodeEvery(t *testing.T, name string, brokers []string, period time.Duration, flows ...string) *machine {
	t.Helper()
	m := &machine{name: name, flows: flows, uses: map[string]coordination.Use{}, at: time.Now()}
	var err error
	m.client, err = coordination.New(coordination.Options{
		Node: name, Brokers: brokers, Period: period, Devices: func() []coordination.Device { return []coordination.Device{m} },
		Rights: func(r map[string]coordination.Right) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.rights = r
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.client.Run(ctx) })
	m.stopped = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(m.stopped)
	return m
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// share returns a flow's part of the nodes' service since before.
func share(nodes []*machine, before []map[string]time.Duration, flow string) float64 {
	had, all := time.Duration(0), time.Duration(0)
	for i, n := range nodes {
		for f, d := range n.take() {
			if f == flow {
				had += d - before[i][f]
			}
			all += d - before[i][f]
		}
	}
	return had.Seconds() / all.Seconds()
}

func takeAll(nodes []*machine) (all []map[string]time.Duration) {
	for _, n := range nodes {
		all = append(all, n.take())
	}
	return all
}

// TestSharesOfTheWhole: b is served on one of three nodes and is entitled to as much of the total
// as a. When the broker returns, its totals are complete at once. Without a broker, local shares
// are in force.
func TestSharesOfTheWhole(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "rules: [{flow: c, weight: 2}]")
	brokers := []string{b.address}
	nodes := []*machine{
		node(t, "one", brokers, "a", "b"), node(t, "two", brokers, "a", "c"), node(t, "three", brokers, "a", "c"),
	}
	// The optimum: a, b and c have a level of 3/4 by weight, and b is limited to its node. So b has
	// all of its node, and a has as much elsewhere: a 0.75, b 0.75, c 1.5.
	holds := func(what string, off float64) {
		t.Helper()
		eventually(t, what, func() bool {
			before := takeAll(nodes)
			time.Sleep(3 * period)
			return math.Abs(share(nodes, before, "a")-0.25) < off && math.Abs(share(nodes, before, "c")-0.5) < off
		})
	}
	holds("shares of the whole", 0.01)
	if r := nodes[1].right("c"); r.Weight != 2 {
		t.Errorf("c's right is %+v, want a weight of 2", r)
	}
	t.Log(nodes[1].client.State())

	b.stop()
	eventually(t, "the nodes know that nobody answers", func() bool {
		for _, n := range nodes {
			if n.client.State().InForce {
				return false
			}
		}
		return true
	})
	eventually(t, "local shares", func() bool {
		before := takeAll(nodes)
		time.Sleep(period)
		return math.Abs(share(nodes[:1], before[:1], "b")-0.5) < 0.01 && math.Abs(share(nodes[1:], before[1:], "c")-2./3) < 0.01
	})

	b = serve(t, b.address, "rules: [{flow: c, weight: 2}]")
	holds("shares of the whole again", 0.01)
	applyText(t, b.Broker, "rules: [{flow: c, weight: 1}]")
	eventually(t, "the new policy holds", func() bool {
		before := takeAll(nodes)
		time.Sleep(3 * period)
		return math.Abs(share(nodes, before, "c")-1./3) < 0.01
	})
	nodes[0].stopped()
	eventually(t, "the node that is gone does not count any more", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.sessions) == 2 && b.totals.Members() == 2 && b.totals.Apps() == 2
	})
}

// dial returns a stream on which the test can send any message.
func dial(t *testing.T, address string) cluster.Nodes_ExchangeClient {
	t.Helper()
	stream, err := dialWith(t, address, insecure.NewCredentials())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func dialWith(t *testing.T, address string, creds credentials.TransportCredentials) (cluster.Nodes_ExchangeClient, error) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return cluster.NewNodesClient(conn).Exchange(t.Context())
}

// TestBadNodes: an invalid message ends its stream with a reason, and does not change the totals.
func TestBadNodes(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	hello := func(name string) *cluster.Report {
		return &cluster.Report{Sequence: 1, Node: &cluster.Node{Name: name}, Names: []*cluster.Name{{Entry: 0, Application: "a"}},
			Entries: []uint32{0}, Rates: []uint64{coord.Second / 2}, Rooms: []uint64{coord.Second}}
	}
	second := func(change func(*cluster.Report)) []*cluster.Report {
		r := &cluster.Report{Sequence: 2}
		change(r)
		return []*cluster.Report{hello("bad"), r}
	}
	long := strings.Repeat("x", cluster.MaxName+1)
	for name, test := range map[string]struct {
		reports []*cluster.Report
		code    codes.Code
		want    string
	}{
		"no name":          {[]*cluster.Report{{Sequence: 1}}, codes.InvalidArgument, "must name the node"},
		"a long name":      {[]*cluster.Report{hello(long)}, codes.InvalidArgument, "at most 256 bytes"},
		"a later report":   {[]*cluster.Report{{Sequence: 7, Node: &cluster.Node{Name: "bad"}}}, codes.InvalidArgument, "has sequence number 7, not 1"},
		"replayed":         {second(func(r *cluster.Report) { r.Sequence = 1 }), codes.InvalidArgument, "report 1 follows report 1"},
		"one left out":     {second(func(r *cluster.Report) { r.Sequence = 3 }), codes.InvalidArgument, "report 3 follows report 1"},
		"absurd service":   {second(func(r *cluster.Report) { r.Entries, r.Rates, r.Rooms = []uint32{0}, []uint64{1 << 42}, []uint64{0} }), codes.InvalidArgument, "exceed those of 256 devices"},
		"beyond all":       {second(func(r *cluster.Report) { r.Entries, r.Rates, r.Rooms = []uint32{0}, []uint64{1 << 63}, []uint64{0} }), codes.InvalidArgument, "exceed those of 256 devices"},
		"absurd room":      {second(func(r *cluster.Report) { r.Entries, r.Rates, r.Rooms = []uint32{0}, []uint64{0}, []uint64{1 << 50} }), codes.InvalidArgument, "exceed those of 256 devices"},
		"uneven lists":     {second(func(r *cluster.Report) { r.Entries = []uint32{0} }), codes.InvalidArgument, "must be of equal length"},
		"no such entry":    {second(func(r *cluster.Report) { r.Entries, r.Rates, r.Rooms = []uint32{5}, []uint64{0}, []uint64{0} }), codes.InvalidArgument, "entry 5"},
		"too many entries": {second(func(r *cluster.Report) { r.Names = []*cluster.Name{{Entry: cluster.MaxEntries, Application: "b"}} }), codes.InvalidArgument, "too many applications on one node"},
		"a long entry":     {second(func(r *cluster.Report) { r.Names = []*cluster.Name{{Entry: 1, Application: long}} }), codes.InvalidArgument, "at most 256 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			stream := dial(t, b.address)
			var err error
			for _, r := range test.reports {
				if err = stream.Send(r); err != nil {
					break
				}
				if _, err = stream.Recv(); err != nil {
					break
				}
			}
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %v: %s", err, test.code, test.want)
			}
		})
	}
	eventually(t, "nothing is left of them", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.totals.Members() == 0 && b.totals.Apps() == 0
	})
}

// TestSecondStream: a node whose old stream hangs is counted once.
func TestSecondStream(t *testing.T) {
	b := serve(t, "127.0.0.1:0", "default: 1")
	hello := &cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n"}, Names: []*cluster.Name{{Entry: 0, Application: "a"}},
		Entries: []uint32{0}, Rates: []uint64{coord.Second}, Rooms: []uint64{coord.Second}}
	var streams []cluster.Nodes_ExchangeClient
	for range 2 {
		s := dial(t, b.address)
		if err := s.Send(hello); err != nil {
			t.Fatal(err)
		}
		a, err := s.Recv()
		if err != nil || len(a.GetRates()) != 1 || a.GetRates()[0] != coord.Second {
			t.Fatalf("%v, %v", a, err)
		}
		streams = append(streams, s)
	}
	if err := streams[0].Send(&cluster.Report{Sequence: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := streams[0].Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("the first stream: %v", err)
	}
	if err := streams[1].Send(&cluster.Report{Sequence: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := streams[1].Recv(); err != nil {
		t.Errorf("the second stream: %v", err)
	}
}

// TestCertificates: only nodes with a certificate of the CA that names them are accepted.
func TestCertificates(t *testing.T) {
	ours, others := t.TempDir(), t.TempDir()
	for dir, names := range map[string][]string{ours: {"broker", "n1"}, others: {"n1"}} {
		if _, err := certs.Make(dir, names, nil); err != nil {
			t.Fatal(err)
		}
	}
	files := func(ca, dir, name string) cluster.Files {
		return cluster.Files{CA: filepath.Join(ca, "ca.pem"), Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
	}
	secure, err := files(ours, ours, "broker").Server()
	if err != nil {
		t.Fatal(err)
	}
	b := serve(t, "127.0.0.1:0", "default: 1", grpc.Creds(credentials.NewTLS(secure)))
	try := func(creds credentials.TransportCredentials, name string) error {
		stream, err := dialWith(t, b.address, creds)
		if err != nil {
			return err
		}
		if err := stream.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: name}}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	with := func(f cluster.Files) credentials.TransportCredentials {
		c, err := f.Client()
		if err != nil {
			t.Fatal(err)
		}
		return credentials.NewTLS(c)
	}
	if err := try(with(files(ours, ours, "n1")), "n1"); err != nil {
		t.Errorf("the node: %v", err)
	}
	if err := try(with(files(ours, ours, "n1")), "n2"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("under another name: %v", err)
	}
	if err := try(with(files(ours, others, "n1")), "n1"); status.Code(err) != codes.Unavailable {
		t.Errorf("with another CA's certificate: %v", err)
	}
	if err := try(with(files(others, others, "n1")), "n1"); status.Code(err) != codes.Unavailable {
		t.Errorf("a broker of another CA: %v", err)
	}
	if _, err := certs.Make(ours, nil, []string{"alice"}); err != nil {
		t.Fatal(err)
	}
	if err := try(with(files(ours, ours, "alice")), "alice"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an operator as a node: %v", err)
	}
	if err := try(insecure.NewCredentials(), "n1"); err == nil {
		t.Error("plain: heard")
	}
}
