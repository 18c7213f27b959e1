package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/e2e/internal/fixture"
	"penstock/lab/stand"
	"penstock/wire/cluster"
)

// TestFailOver: after any failure of the leader, another broker leads within one and a half
// sessions, only one leadership at a time changes policy, and nodes' shares stay the same.
func TestFailOver(t *testing.T) {
	t.Parallel() // with TestOneServer
	g := newGroup(t)
	g.leader(t)
	nodes := g.newNodes(t)
	g.follow(t, nodes)
	stop := g.operate(t)
	t.Cleanup(stop)
	leader := g.change(t)
	for _, test := range []struct {
		name string
		// do causes the leader's failure. It returns a function that undoes it when another broker
		// leads.
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
			fixture.Eventually(t, "another broker begins an epoch", func() bool {
				var now uint64
				leader, now = g.epoch(t)
				return now > epoch && leader != old
			})
			elected = time.Since(began)
			leader = g.leader(t)
			answers := time.Since(began)
			g.follow(t, nodes)
			worst, gap := deviation()
			fmt.Printf("%s: a new epoch after %.2f s, answered after %.2f s (session %v); shares moved by %.1f %% at most, no node without an answer for more than %.2f s\n",
				test.name, elected.Seconds(), answers.Seconds(), session, 100*worst, gap.Seconds())
			if most := session*3/2 + slack; elected > most {
				t.Errorf("a new epoch after %v, want %v at most", elected, most)
			}
			if worst > 0.10 {
				t.Errorf("shares moved by %.1f %%, want 10 %% at most", 100*worst)
			}
			// If the fail-over took longer than that, parts have expired, as they must. Otherwise
			// nodes have to find the new leader before parts expire.
			if gap > holds {
				if answers <= holds/2 {
					t.Errorf("a node was without an answer for %v: parts hold for %v, and a leader answers after %v", gap, holds, answers)
				}
				fmt.Printf("%s: shares were checked until a node was without an answer for %v\n", test.name, holds)
			}
			back(t)
			fixture.Eventually(t, "the old leader answers again, and names the new one", func() bool {
				_, err := g.ask(t, old)
				leader, g.last = g.epoch(t)
				return status.Code(err) == codes.FailedPrecondition && slices.Contains(g.named, address(leader)) ||
					err == nil && leader == old // the machine stood still, and the old leader has followed the new one
			})
			leader = g.change(t)
		})
		if t.Failed() {
			break
		}
	}
	if !t.Failed() {
		t.Run("ZooKeeper's leader killed", func(t *testing.T) { leader = g.zooKeepersLeader(t, nodes, leader) })
	}
	stop()
	applied := int(g.applied.Load())
	versions := g.judge(t, g.began)
	fmt.Printf("%d versions of the policy, %d of them acknowledged, in %d epochs\n", versions, applied, len(g.began))
	if versions < applied || applied == 0 {
		t.Errorf("%d versions of %d that were acknowledged", versions, applied)
	}
	t.Run("ZooKeeper away", func(t *testing.T) { g.zooKeeperAway(t, nodes, leader) })
}

func (g *group) kill(t *testing.T, leader int, _ uint64) func(*testing.T) {
	fixture.Must(t, g.daemons[leader].Kill())
	return func(t *testing.T) { g.start(t, leader) }
}

// pause stops the leader with requests in transit to it.
func (g *group) pause(t *testing.T, leader int, epoch uint64) func(*testing.T) {
	d := g.daemons[leader]
	conn := g.connect(t, leader, "asker")
	t.Cleanup(func() { conn.Close() })
	stream, err := cluster.NewNodesClient(conn).Exchange(t.Context())
	fixture.Must(t, err)
	fixture.Must(t, stream.Send(hello))
	if a, err := stream.Recv(); err != nil || a.GetEpoch() != epoch {
		t.Fatalf("%v, %v", a, err)
	}
	operator := g.connect(t, leader, "operator")
	t.Cleanup(func() { operator.Close() })
	if _, err := cluster.NewOperatorsClient(operator).Policy(t.Context(), &cluster.PolicyRequest{}); err != nil {
		t.Fatal(err)
	}
	fixture.Must(t, d.Signal(syscall.SIGSTOP))
	fixture.Eventually(t, "the leader is stopped", func() bool {
		state, err := d.State()
		return err == nil && state == "T"
	})
	fixture.Must(t, stream.Send(&cluster.Report{Sequence: 2}))
	applied := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		_, err := cluster.NewOperatorsClient(operator).Apply(ctx, &cluster.ApplyRequest{Text: []byte("default: 7\n")})
		applied <- err
	}()
	return func(t *testing.T) {
		fixture.Must(t, d.Signal(syscall.SIGCONT))
		if a, err := stream.Recv(); err == nil {
			t.Errorf("the old leader answers a node: %v", a)
		}
		select {
		case err := <-applied: // the broker's own answer: the call has no deadline
			if err == nil || status.Code(err) == codes.DeadlineExceeded {
				t.Errorf("the old leader on a change of the policy: %v", err)
			}
		case <-time.After(stand.Patience):
			t.Errorf("the old leader neither changes the policy nor refuses to within %v", stand.Patience)
		}
	}
}

// cutFromZooKeeper cuts the leader off from ZooKeeper, but not from its nodes: its messages to
// ZooKeeper are lost.
func (g *group) cutFromZooKeeper(t *testing.T, leader int, epoch uint64) func(*testing.T) {
	m := shared.Network.Machines[leader]
	neighbour := func(args ...string) error {
		args = append([]string{"neighbour"}, append(args, "dev", "eth0")...)
		if out, err := m.Command(context.Background(), "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}
	server := shared.Network.Machines[brokers].Address.String()
	fixture.Must(t, neighbour("replace", server, "lladdr", "02:00:00:00:00:01", "nud", "permanent"))
	mended := false
	mend := func() {
		if !mended {
			mended = true
			fixture.Check(t, neighbour("delete", server))
		}
	}
	t.Cleanup(mend)
	// It has stepped down by its own clock before another one leads.
	fixture.Eventually(t, "another broker begins an epoch", func() bool {
		_, now := g.epoch(t)
		return now > epoch
	})
	if now, err := g.ask(t, leader); err == nil {
		t.Errorf("the old leader answers nodes under epoch %d", now)
	}
	return func(*testing.T) { mend() }
}

func (g *group) cutFromAll(t *testing.T, leader int, _ uint64) func(*testing.T) {
	m := shared.Network.Machines[leader]
	mended := false
	mend := func() {
		if !mended {
			mended = true
			fixture.Check(t, m.Mend())
		}
	}
	t.Cleanup(mend)
	fixture.Must(t, m.Cut())
	return func(*testing.T) { mend() }
}

// zooKeepersLeader: the leader of ZooKeeper's servers is killed. After that, the policy can be
// changed again as soon as after a broker's end, by the same broker or another one.
func (g *group) zooKeepersLeader(t *testing.T, nodes []*machine, leader int) int {
	server, err := ensemble.Leader(t.Context())
	fixture.Must(t, err)
	epoch := g.last
	deviation := watchShares(nodes)
	began := time.Now()
	fixture.Must(t, server.Kill())
	next, err := ensemble.Leader(t.Context())
	fixture.Must(t, err)
	elected := time.Since(began)
	g.take(t)
	changed := time.Since(began)
	now := g.follow(t, nodes)
	worst, gap := deviation()
	goesOn := "the same broker keeps leading"
	if g.last != epoch {
		goesOn = fmt.Sprintf("broker %d led and broker %d begins a new epoch", leader, now)
	}
	fmt.Printf("ZooKeeper's leader killed: another server leads after %.2f s, policy is changed after %.2f s, %s; shares moved by %.1f %% at most, no node without an answer for more than %.2f s\n",
		elected.Seconds(), changed.Seconds(), goesOn, 100*worst, gap.Seconds())
	if next == server {
		t.Errorf("%s leads though it was killed", server.Address)
	}
	if most := session*3/2 + slack; changed > most {
		t.Errorf("policy is changed after %v, want %v at most", changed, most)
	}
	if worst > 0.10 {
		t.Errorf("shares moved by %.1f %%, want 10 %% at most", 100*worst)
	}
	fixture.Must(t, server.Start(t.Context()))
	return now
}

// zooKeeperAway: without a majority of ZooKeeper's servers no broker leads, and nodes continue.
// When the majority is back, a broker leads with the former policy.
func (g *group) zooKeeperAway(t *testing.T, nodes []*machine, leader int) {
	conn := g.connect(t, leader, "operator")
	defer conn.Close()
	v, err := cluster.NewOperatorsClient(conn).Apply(t.Context(), &cluster.ApplyRequest{Text: []byte("default: 3\n")})
	fixture.Must(t, err)
	server, err := ensemble.Leader(t.Context())
	fixture.Must(t, err)
	other := ensemble.Servers[(slices.Index(ensemble.Servers, server)+1)%servers]
	fixture.Must(t, errors.Join(server.Kill(), other.Kill()))
	began := time.Now()
	for i := range brokers {
		fixture.Eventually(t, "nobody leads", func() bool {
			_, err := g.ask(t, i)
			code := status.Code(err)
			return code == codes.Unavailable || code == codes.FailedPrecondition
		})
	}
	stepped := time.Since(began)
	fixture.Must(t, ensemble.Start(t.Context()))
	served := time.Now()
	g.leader(t)
	fmt.Printf("ZooKeeper without a majority: nobody leads after %.2f s; a leader %.2f s after it is back\n", stepped.Seconds(), time.Since(served).Seconds())
	leader = g.follow(t, nodes)
	conn = g.connect(t, leader, "operator")
	defer conn.Close()
	if now, err := cluster.NewOperatorsClient(conn).Policy(t.Context(), &cluster.PolicyRequest{}); err != nil || now.GetVersion() != v.GetVersion() || string(now.GetText()) != "default: 3\n" {
		t.Errorf("%v, %v, want version %d", now, err, v.GetVersion())
	}
}
