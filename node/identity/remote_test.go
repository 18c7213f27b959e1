package identity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/user"
	"strconv"
	"testing"
)

// answers is another node that answers at once.
type answers struct {
	peer Peer
	err  error
}

func (a answers) Who(context.Context, netip.AddrPort, netip.AddrPort) (Peer, error) {
	return a.peer, a.err
}

// Claims of a peer on another node, by what that one says, and what they are worth.
func TestRemotePeers(t *testing.T) {
	w := newWorld(t)
	whose := func(p Peer) answers { p.Node = "n2"; return answers{peer: p} }
	for _, c := range []struct {
		name           string
		flow           string
		says           answers
		state          State
		verify, strict string
		stats          [4]int64 // confirmed, refuted, undecided, unanswered
	}{
		{"its own application", appA, whose(Peer{User: "ann", Application: appA, Evidence: Cgroup}), Confirmed, appA, appA, [4]int64{1, 0, 0, 0}},
		{"another's, by cgroup", appA, whose(Peer{User: "ann", Application: appB, Evidence: Cgroup}), Refuted, appB, appB, [4]int64{0, 1, 0, 0}},
		{"another's, by session", appA, whose(Peer{User: "ann", Application: appB, Evidence: Session}), Refuted, Unattributed, Unattributed, [4]int64{0, 1, 0, 0}},
		{"a shell's forgery", appA, whose(Peer{User: "bob", Outside: true}), Refuted, Unattributed, Unattributed, [4]int64{0, 1, 0, 0}},
		{"a shell", clients, whose(Peer{User: "bob", Outside: true}), Confirmed, clients, clients, [4]int64{1, 0, 0, 0}},
		{"a container that names nobody", clients, whose(Peer{User: "ann", Application: appA, Evidence: Session}), Corrected, appA, appA, [4]int64{1, 0, 0, 0}},
		{"a DataNode", "replication", whose(Peer{User: "x", Outside: true, Server: true}), Confirmed, "replication", "replication", [4]int64{1, 0, 0, 0}},
		{"a balancer", "balancer", whose(Peer{User: "hdfs", Outside: true}), Confirmed, "balancer", "balancer", [4]int64{1, 0, 0, 0}},
		// Its number is a service's here, and somebody else's there.
		{"no balancer", "balancer", whose(Peer{UID: me, User: "bob", Outside: true}), Refuted, Unattributed, Unattributed, [4]int64{0, 1, 0, 0}},
		{"not known there", appA, whose(Peer{User: "ann"}), Unknown, appA, Unattributed, [4]int64{0, 0, 1, 0}},
		{"nobody's there", appA, answers{err: fmt.Errorf("n2: %w", ErrNobody)}, Unknown, appA, Unattributed, [4]int64{0, 0, 1, 0}},
		{"no node", appA, answers{err: errors.New("no node lives there")}, Unknown, appA, Unattributed, [4]int64{0, 0, 0, 1}},
		{"no evidence for a container", appA, whose(Peer{User: "ann", Application: appA, Evidence: Token}), Unknown, appA, Unattributed, [4]int64{0, 0, 0, 1}},
	} {
		s := w.settings()
		s.Remote, s.Services, s.ServiceUIDs = c.says, []string{"hdfs/host@REALM"}, []uint32{me}
		checker := newChecker(t, s)
		claim := remote(1)
		claim.Flow = c.flow
		v := ask(t, checker, claim)
		r := &checker.Stats.Remote
		stats := [4]int64{r.Confirmed.Load(), r.Refuted.Load(), r.Undecided.Load(), r.Unanswered.Load()}
		if v.State != c.state || stats != c.stats || Verify.Flow(c.flow, v) != c.verify || Strict.Flow(c.flow, v) != c.strict || Trust.Flow(c.flow, v) != c.flow {
			t.Errorf("%s: %+v, in verify %s, in strict %s, %v", c.name, v, Verify.Flow(c.flow, v), Strict.Flow(c.flow, v), stats)
		}
	}
}

// The user of a DataNode here is a service on other nodes too, by its name.
func TestAccountsOfServices(t *testing.T) {
	w := newWorld(t)
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := w.settings()
	s.Remote = answers{peer: Peer{Node: "n2", User: self.Username, Outside: true}}
	c := newChecker(t, s)
	claim := remote(1)
	claim.Flow = "balancer"
	if v := ask(t, c, claim); v.State != Refuted {
		t.Errorf("before: %+v", v)
	}
	c.AddServiceUID(me)
	claim.Client = remote(2).Client
	if v := ask(t, c, claim); v.State != Confirmed || v.Evidence != Account {
		t.Errorf("after: %+v", v)
	}
}

// Nodes that do not answer keep nobody waiting whose peer is here.
func TestOtherNodesDoNotHoldUpThisOne(t *testing.T) {
	w, g := newWorld(t), newGate()
	w.container("ann", contA, 100)
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	s := w.settings()
	s.Remote, s.Workers = g, 1
	c := newChecker(t, s)
	for n := range 50 {
		if v, ok := c.Check(remote(n), func(Verdict) {}); ok {
			t.Fatalf("at once: %+v", v)
		}
	}
	if v := ask(t, c, claim(appA)); v.State != Confirmed {
		t.Errorf("%+v", v)
	}
	if n := len(g.asked); n > 8 {
		t.Errorf("%d questions at once", n)
	}
}

// A client of this machine whose connection has ended is on no other node.
func TestLoopbackIsHere(t *testing.T) {
	w, g := newWorld(t), newGate()
	s := w.settings()
	s.Remote = g
	c := newChecker(t, s)
	if v := ask(t, c, Claim{Flow: appA, Client: "127.0.0.1:40000", Server: serverEnd}); v.State != Unknown || len(g.asked) > 0 {
		t.Errorf("%+v, %d asked", v, len(g.asked))
	}
}

func TestWhose(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, sockets: []int{77}})
	w.start(process{pid: 102, uid: me, sockets: []int{78}})
	w.start(process{pid: 103, uid: me, sockets: []int{79}})
	for n, inode := range []int{77, 78, 79, 0, 80} {
		w.connect(fmt.Sprintf("10.0.0.7:%d", 40000+n), serverEnd, 4294967294, inode)
	}
	c := newChecker(t, w.settings())
	server := netip.MustParseAddrPort(serverEnd)
	whose := func(n int) (Peer, error) {
		return c.Whose(t.Context(), netip.MustParseAddrPort(fmt.Sprintf("10.0.0.7:%d", 40000+n)), server)
	}
	name := userName(me)
	if p, err := whose(0); err != nil || p.Application != appA || p.Evidence != Session || p.User != name || p.Outside {
		t.Errorf("a container's: %+v, %v", p, err)
	}
	if p, err := whose(1); err != nil || p.Application != "" || !p.Outside || p.User != name {
		t.Errorf("a shell's: %+v, %v", p, err)
	}
	c.inspect.servers = func(l life) bool { return l.pid == 103 }
	if p, err := whose(2); err != nil || !p.Server {
		t.Errorf("a server's: %+v, %v", p, err)
	}
	for n, what := range map[int]string{3: "closed", 4: "held by nobody", 5: "not there"} {
		if p, err := whose(n); !errors.Is(err, ErrNobody) {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
	if p, err := c.Whose(expired(), netip.MustParseAddrPort("10.0.0.7:40000"), server); !errors.Is(err, errTime) {
		t.Errorf("out of time: %+v, %v", p, err)
	}
	// Of whom nothing can be found out, the user is known.
	w.write("", w.proc, "101/stat")
	if p, err := whose(0); err != nil || p.Application != "" || p.Outside || p.User != strconv.Itoa(4294967294) {
		t.Errorf("unreadable: %+v, %v", p, err)
	}
	if n := c.Stats.Lookups.Load(); n != 0 {
		t.Errorf("%d lookups: questions of others are no claims", n)
	}
}

func TestParseEvidence(t *testing.T) {
	for e := NoEvidence; e <= Own; e++ {
		got, err := ParseEvidence(e.String())
		if want := e >= Cgroup && e <= Environment; want != (err == nil) || want && got != e {
			t.Errorf("%v: %v, %v", e, got, err)
		}
	}
	if _, err := ParseEvidence(""); err == nil {
		t.Error("nothing")
	}
}
