package failover

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"penstock/broker/certs"
	"penstock/broker/zkclient"
	"penstock/core/policy"
	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/stand"
	"penstock/node/coordination"
	"penstock/wire/cluster"
)

const (
	port = 9717
	// period is the nodes' period. The brokers' time to complete a new leader's totals is designed
	// for it. holds is how long parts stay in force without an answer, with several brokers.
	period = time.Second
	holds  = 8 * period
	// slack is how much longer a fail-over may take than one and a half sessions, since this
	// machine may be slow.
	slack = 5 * time.Second
)

// group is a group of brokers with one folder of ZooKeeper.
type group struct {
	folder   string
	certs    string
	daemons  [brokers]*daemon.Daemon
	client   *zkclient.Client // the test's own
	last     uint64           // epoch seen
	settling bool             // whether the broker of the last call of ask is settling
	named    []string         // leaders that the broker of the last call of ask has named
	began    map[uint64]int64 // transactions in which epochs began, by epoch

	conns   [brokers]*grpc.ClientConn // used by ask only
	applied atomic.Int64              // policies that were acknowledged
	changes int                       // leaderships that tests waited for
}

func address(broker int) string {
	return netip.AddrPortFrom(shared.Network.Machines[broker].Address, port).String()
}

func (g *group) files(name string) cluster.Files {
	return cluster.Files{CA: filepath.Join(g.certs, "ca.pem"), Cert: filepath.Join(g.certs, name+".pem"), Key: filepath.Join(g.certs, name+".key")}
}

func newGroup(t *testing.T) *group {
	t.Helper()
	g := &group{folder: folder(), certs: t.TempDir(), began: map[uint64]int64{}}
	names := []string{"node-0", "node-1", "node-2", "asker"}
	for i := range brokers {
		names = append(names, shared.Network.Machines[i].Address.String())
	}
	if _, err := certs.Make(g.certs, names, []string{"operator"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i, d := range g.daemons {
			g.hangUp(i)
			if d == nil {
				continue
			}
			if err := d.Stop(); err != nil { // which continues a stopped broker
				t.Error(err)
			}
		}
	})
	for i := range brokers {
		g.start(t, i)
	}
	g.client = dial(t, g.folder, "")
	return g
}

func (g *group) start(t *testing.T, i int) {
	t.Helper()
	files := g.files(shared.Network.Machines[i].Address.String())
	var err error
	g.daemons[i], err = shared.Stand.StartDaemon(t.Context(), daemon.Options{
		Base: strings.TrimPrefix(g.folder, "/") + fmt.Sprintf("-broker-%d", i), LogLevel: "debug", By: at(shared.Network.Machines[i]),
		Broker: []string{"--listen", address(i), "--ca", files.CA, "--cert", files.Cert, "--key", files.Key,
			"--zookeeper", ensemble.Addresses() + g.folder, "--zookeeper-open", "--session", session.String(), "--advertise", address(i), "--name", fmt.Sprintf("broker-%d", i),
			"--connections-per-address", "10000"}, // all nodes, and the test, have the same address here
	})
	fixture.Must(t, err)
}

// epoch returns the broker that began the last epoch, according to ZooKeeper.
func (g *group) epoch(t *testing.T) (leader int, epoch uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stand.Patience)
	defer cancel()
	var n zkclient.Node
	fixture.Eventually(t, "ZooKeeper says who leads", func() (ok bool) {
		var err error
		n, err = g.client.GetLatest(ctx, g.client.Path("epoch"))
		return err == nil // otherwise the server has stopped, and the next request goes to another server
	})
	var r struct {
		Epoch   uint64
		Address string
	}
	if len(n.Data) > 0 {
		fixture.Must(t, json.Unmarshal(n.Data, &r))
	}
	g.began[r.Epoch] = n.ModifiedZxid
	for i := range brokers {
		if r.Address == address(i) {
			return i, r.Epoch
		}
	}
	return -1, r.Epoch
}

// leader waits until a broker answers as the leader of an epoch after the last one seen.
func (g *group) leader(t *testing.T) (leader int) {
	t.Helper()
	last := g.last
	fixture.Eventually(t, fmt.Sprintf("a broker answers as the leader of an epoch after %d", last), func() bool {
		leader, g.last = g.epoch(t)
		if leader < 0 || g.last <= last {
			return false
		}
		epoch, err := g.ask(t, leader)
		return err == nil && epoch == g.last
	})
	return leader
}

// connect opens a connection to a broker, from the nodes' address.
func (g *group) connect(t *testing.T, broker int, as string) *grpc.ClientConn {
	t.Helper()
	secure, err := g.files(as).Client()
	fixture.Must(t, err)
	conn, err := grpc.NewClient(address(broker), grpc.WithTransportCredentials(credentials.NewTLS(secure)),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}}))
	fixture.Must(t, err)
	return conn
}

// ask reports to a broker once, as a node without applications, and returns the epoch of the
// answer. It keeps its connection, because the tests call ask hundreds of times a second from the
// nodes' address, and a broker bounds the connections of an address.
func (g *group) ask(t *testing.T, broker int) (epoch uint64, err error) {
	t.Helper()
	if g.conns[broker] == nil {
		g.conns[broker] = g.connect(t, broker, "asker")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	defer func() {
		if status.Code(err) == codes.DeadlineExceeded { // the broker may have ended
			g.hangUp(broker)
		}
	}()
	s, err := cluster.NewNodesClient(g.conns[broker]).Exchange(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.Send(hello); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	a, err := s.Recv()
	if err != nil {
		g.named = s.Trailer().Get(cluster.LeaderKey)
	}
	g.settling = a.GetSettling()
	return a.GetEpoch(), err
}

// hangUp closes ask's connection to a broker.
func (g *group) hangUp(broker int) {
	if g.conns[broker] != nil {
		g.conns[broker].Close()
		g.conns[broker] = nil
	}
}

var hello = &cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "asker", PeriodMs: 1000}}

// machine is a node with a device that gives each flow exactly its part.
type machine struct {
	client *coordination.Client
	flows  []string

	mu    sync.Mutex
	at    time.Time
	parts map[string]float64
	uses  map[string]coordination.Use
}

func (m *machine) Name() string { return "disk" }

func (m *machine) SetParts(parts coordination.Parts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work()
	m.parts = parts.Flows
}

func (*machine) SetTotals(map[string]policy.Total) {}

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

// work divides the time since the last call among the flows by their parts.
func (m *machine) work() {
	passed := time.Since(m.at)
	m.at = m.at.Add(passed)
	for _, f := range m.flows {
		u := m.uses[f]
		u.Flow = f
		u.Service += time.Duration(float64(passed) * m.share(f))
		u.Wanted += passed
		m.uses[f] = u
	}
}

// share returns a flow's part of this node, 0 to 1.
func (m *machine) share(flow string) float64 {
	sum, own := 0.0, 0.0
	for _, f := range m.flows {
		p := m.parts[f]
		if p <= 0 {
			p = 1
		}
		sum += p
		if f == flow {
			own = p
		}
	}
	return own / sum
}

// shares returns each flow's part of the service of all nodes, as in force now.
func shares(nodes []*machine) map[string]float64 {
	all := map[string]float64{}
	for _, m := range nodes {
		m.mu.Lock()
		for _, f := range m.flows {
			all[f] += m.share(f) / float64(len(nodes))
		}
		m.mu.Unlock()
	}
	return all
}

// due has the entitlements in the cluster of newNodes. All weights are equal, and b has only one
// node. So b gets all of its node, and a gets its service elsewhere.
var due = map[string]float64{"a": 1. / 3, "b": 1. / 3, "c": 1. / 3}

func (g *group) newNodes(t *testing.T) []*machine {
	t.Helper()
	var addresses []string
	for i := range brokers {
		addresses = append(addresses, address(i))
	}
	var all []*machine
	for i, flows := range [][]string{{"a", "b"}, {"a", "c"}, {"a", "c"}} {
		m := &machine{flows: flows, uses: map[string]coordination.Use{}, at: time.Now()}
		name := fmt.Sprintf("node-%d", i)
		var err error
		m.client, err = coordination.New(coordination.Options{Node: name, Brokers: addresses, Period: period,
			TLS:     func() (*tls.Config, error) { return g.files(name).Client() },
			Devices: func() []coordination.Device { return []coordination.Device{m} },
			Rights:  func(map[string]coordination.Right) {}, Log: log.With("node", name)})
		fixture.Must(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { m.client.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			running.Wait()
		})
		all = append(all, m)
	}
	return all
}

// follow waits until the leader's totals are complete, all nodes have them in force, and the shares
// are right. It returns the leader. If the machine stood still for longer than a session, the
// leader may be another broker than before.
func (g *group) follow(t *testing.T, nodes []*machine) (leader int) {
	t.Helper()
	fixture.Eventually(t, "the leader's totals are complete", func() bool {
		if leader, g.last = g.epoch(t); leader < 0 {
			return false
		}
		epoch, err := g.ask(t, leader)
		return err == nil && epoch == g.last && !g.settling
	})
	epoch, settled := g.last, time.Now()
	fixture.Eventually(t, fmt.Sprintf("all nodes use epoch %d, with the right shares", epoch), func() bool {
		for _, m := range nodes {
			if s := m.client.State(); s.Epoch < epoch || !s.InForce || s.Answered.Sub(settled) < 2*period {
				return false
			}
		}
		for f, part := range shares(nodes) {
			if math.Abs(part-due[f]) > 0.02 {
				return false
			}
		}
		return true
	})
	return leader
}

// take waits until a broker has accepted a policy that was sent after the call of take.
func (g *group) take(t *testing.T) {
	t.Helper()
	// Each broker may already have been sent a policy before.
	enough := g.applied.Load() + brokers + 1
	fixture.Eventually(t, "a policy is accepted", func() bool { return g.applied.Load() >= enough })
}

// change is take for the first policy of a new leadership. It returns the leader.
func (g *group) change(t *testing.T) (leader int) {
	t.Helper()
	g.take(t)
	g.changes++
	fixture.Eventually(t, "a broker leads", func() bool {
		leader, g.last = g.epoch(t)
		return leader >= 0
	})
	return leader
}

// watchShares checks the shares every few milliseconds until stop is called. stop returns the
// largest relative deviation from the initial shares, and the longest time that a node was without
// an answer. If that time exceeds the validity of parts, shares are local and are not checked any
// more.
func watchShares(nodes []*machine) (stop func() (worst float64, gap time.Duration)) {
	before, worst, gap := shares(nodes), 0.0, time.Duration(0)
	last := make([]time.Time, len(nodes))
	// Read before the shares: if a gap has moved the shares, it is seen in the same round at the
	// latest.
	answered := func() (all []time.Time) {
		for _, m := range nodes {
			all = append(all, m.client.State().Answered)
		}
		return all
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			heard, now := answered(), shares(nodes)
			for i, at := range heard {
				gap = max(gap, time.Since(at))
				if !last[i].IsZero() {
					gap = max(gap, at.Sub(last[i]))
				}
			}
			last = heard
			if gap <= holds {
				for f, part := range now {
					worst = max(worst, math.Abs(part-before[f])/before[f])
				}
			}
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	})
	return func() (float64, time.Duration) {
		close(done)
		watching.Wait()
		return worst, gap
	}
}

// operate applies policies at all brokers, ten per second each, until stop is called. So each
// fail-over happens during such writes.
func (g *group) operate(t *testing.T) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var operating sync.WaitGroup
	for i := range brokers {
		conn := g.connect(t, i, "operator")
		operating.Go(func() {
			defer conn.Close()
			for n := 0; ; n++ {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				text := fmt.Sprintf("default: 1\n# %d by way of broker %d\n", n, i)
				if _, err := cluster.NewOperatorsClient(conn).Apply(ctx, &cluster.ApplyRequest{Text: []byte(text)}); err == nil {
					g.applied.Add(1)
				}
				cancel()
				select {
				case <-done:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		operating.Wait()
	})
}

// judge reads all versions of the policy in ZooKeeper, with the transactions that wrote them. It
// compares these transactions with the ones in which epochs began.
func (g *group) judge(t *testing.T, began map[uint64]int64) (versions int) {
	t.Helper()
	conn, _, err := zk.Connect(strings.Split(ensemble.Addresses(), ","), session, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	fixture.Must(t, err)
	defer conn.Close()
	names, _, err := conn.Children(g.folder + "/versions")
	fixture.Must(t, err)
	slices.Sort(names)
	last, lastWritten, epochs := uint64(0), int64(0), map[uint64]bool{}
	for i, name := range names {
		data, stat, err := conn.Get(g.folder + "/versions/" + name)
		fixture.Must(t, err)
		var epoch uint64
		if _, err := fmt.Sscanf(string(data), "penstock-epoch %d ", &epoch); err != nil {
			t.Fatalf("version %s: %v", name, err)
		}
		if number, err := strconv.Atoi(name); err != nil || number != i+1 {
			t.Errorf("version %s is number %d in order", name, i+1)
		}
		if epoch < last || stat.Czxid <= lastWritten || stat.Mzxid != stat.Czxid {
			t.Errorf("version %s of epoch %d, transaction %x, after epoch %d, transaction %x", name, epoch, stat.Czxid, last, lastWritten)
		}
		last, lastWritten, epochs[epoch] = epoch, stat.Czxid, true
		for other, at := range began {
			if other > epoch && at <= stat.Czxid {
				t.Errorf("version %s was written by epoch %d after epoch %d had begun", name, epoch, other)
			}
		}
	}
	if len(epochs) < g.changes {
		t.Errorf("the policy was changed in %d epochs, and the test waited for %d", len(epochs), g.changes)
	}
	return len(names)
}

type silent struct{}

func (silent) Printf(string, ...any) {}
