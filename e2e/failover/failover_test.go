package failover

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/wire/cluster"
)

// TestFailOver: whatever happens to the leader, another broker leads within one and a half
// sessions, policy is changed by one leadership at a time, and nodes' shares stay.
func TestFailOver(t *testing.T) {
	g := newGroup(t)
	leader := g.leader(t)
	nodes := g.newNodes(t)
	g.follow(t, nodes, leader)
	stop := g.operate(t)
	for _, test := range []struct {
		name string
		// do does it to the leader and returns what puts things back, once another one leads.
		do func(t *testing.T, leader int, epoch uint64) (back func(t *testing.T))
	}{
		{"killed", g.kill}, {"stopped", g.pause}, {"cut off from ZooKeeper", g.cutFromZooKeeper}, {"cut off from all", g.cutFromAll},
	} {
		t.Run(test.name, func(t *testing.T) {
			old, epoch := leader, g.last
			deviation := watchShares(nodes)
			began := time.Now()
			back := test.do(t, old, epoch)
			var elected time.Duration
			eventually(t, "another broker begins an epoch", func() bool {
				var now uint64
				leader, now = g.epoch(t)
				return now > epoch && leader != old
			})
			elected = time.Since(began)
			leader = g.leader(t)
			answers := time.Since(began)
			g.follow(t, nodes, leader)
			worst := deviation()
			fmt.Printf("%s: a new epoch after %.2f s, answered after %.2f s (session %v); shares moved by %.1f %% at most\n",
				test.name, elected.Seconds(), answers.Seconds(), session, 100*worst)
			if most := session*3/2 + slack; elected > most {
				t.Errorf("a new epoch after %v, want %v at most", elected, most)
			}
			if worst > 0.10 {
				t.Errorf("shares moved by %.1f %%, want 10 %% at most", 100*worst)
			}
			back(t)
			eventually(t, "the old leader is there again, and names the new one", func() bool {
				_, err := g.ask(t, old)
				return status.Code(err) == codes.FailedPrecondition && slices.Contains(g.named, address(leader))
			})
		})
		if t.Failed() {
			break
		}
	}
	applied := stop()
	versions := g.judge(t, g.began)
	fmt.Printf("%d versions of the policy, %d of them acknowledged, in %d epochs\n", versions, applied, len(g.began))
	if versions < applied || applied == 0 {
		t.Errorf("%d versions of %d that were acknowledged", versions, applied)
	}
	t.Run("ZooKeeper away", func(t *testing.T) { g.zooKeeperAway(t, nodes, leader) })
}

func (g *group) kill(t *testing.T, leader int, _ uint64) func(*testing.T) {
	if err := g.daemons[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T) { g.start(t, leader) }
}

// pause stops the leader with questions on their way to it.
func (g *group) pause(t *testing.T, leader int, epoch uint64) func(*testing.T) {
	d := g.daemons[leader]
	conn := g.connect(t, leader, "asker")
	t.Cleanup(func() { conn.Close() })
	stream, err := cluster.NewNodesClient(conn).Exchange(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(hello); err != nil {
		t.Fatal(err)
	}
	if a, err := stream.Recv(); err != nil || a.GetEpoch() != epoch {
		t.Fatalf("%v, %v", a, err)
	}
	operator := g.connect(t, leader, "operator")
	t.Cleanup(func() { operator.Close() })
	if _, err := cluster.NewOperatorsClient(operator).Policy(t.Context(), &cluster.PolicyRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leader is stopped", func() bool {
		state, err := d.State()
		return err == nil && state == "T"
	})
	if err := stream.Send(&cluster.Report{Sequence: 2}); err != nil {
		t.Fatal(err)
	}
	applied := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := cluster.NewOperatorsClient(operator).Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 7\n")})
		applied <- err
	}()
	return func(t *testing.T) {
		if err := d.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if a, err := stream.Recv(); err == nil {
			t.Errorf("the old leader answers a node: %v", a)
		}
		if err := <-applied; err == nil {
			t.Error("the old leader has changed the policy")
		}
	}
}

// cutFromZooKeeper leaves the leader with its nodes: what it sends to ZooKeeper goes to
// nobody.
func (g *group) cutFromZooKeeper(t *testing.T, leader int, epoch uint64) func(*testing.T) {
	m := bed.network.Machines[leader]
	neighbour := func(args ...string) error {
		args = append([]string{"neighbour"}, append(args, "dev", "eth0")...)
		if out, err := m.Command(context.Background(), "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}
	server := bed.network.Machines[brokers].Address.String()
	if err := neighbour("replace", server, "lladdr", "02:00:00:00:00:01", "nud", "permanent"); err != nil {
		t.Fatal(err)
	}
	mended := false
	mend := func() {
		if !mended {
			mended = true
			if err := neighbour("delete", server); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(mend)
	// It has stepped down by its own clock before another one leads.
	eventually(t, "another broker begins an epoch", func() bool {
		_, now := g.epoch(t)
		return now > epoch
	})
	if now, err := g.ask(t, leader); err == nil {
		t.Errorf("the old leader answers nodes under epoch %d", now)
	}
	return func(*testing.T) { mend() }
}

func (g *group) cutFromAll(t *testing.T, leader int, _ uint64) func(*testing.T) {
	m := bed.network.Machines[leader]
	mended := false
	mend := func() {
		if !mended {
			mended = true
			if err := m.Mend(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(mend)
	if err := m.Cut(); err != nil {
		t.Fatal(err)
	}
	return func(*testing.T) { mend() }
}

// zooKeeperAway: without ZooKeeper nobody leads, and nodes go on; when it is back, a broker
// leads with what was there.
func (g *group) zooKeeperAway(t *testing.T, nodes []*machine, leader int) {
	conn := g.connect(t, leader, "operator")
	defer conn.Close()
	v, err := cluster.NewOperatorsClient(conn).Apply(t.Context(), &cluster.ApplyRequest{Text: []byte("default: 3\n")})
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.zookeeper.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range brokers {
		eventually(t, "nobody leads", func() bool {
			_, err := g.ask(t, i)
			code := status.Code(err)
			return code == codes.Unavailable || code == codes.FailedPrecondition
		})
	}
	stepped := time.Since(began)
	if err := bed.zookeeper.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	served := time.Now()
	leader = g.leader(t)
	fmt.Printf("ZooKeeper killed: nobody leads after %.2f s; a leader %.2f s after it is back\n", stepped.Seconds(), time.Since(served).Seconds())
	g.follow(t, nodes, leader)
	conn = g.connect(t, leader, "operator")
	defer conn.Close()
	if now, err := cluster.NewOperatorsClient(conn).Policy(t.Context(), &cluster.PolicyRequest{}); err != nil || now.GetVersion() != v.GetVersion() || string(now.GetText()) != "default: 3\n" {
		t.Errorf("%v, %v, want version %d", now, err, v.GetVersion())
	}
}
