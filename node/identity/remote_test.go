package identity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/user"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// answers is another node that answers at once.
type answers struct {
	peer Peer
	err  error
}

func (a answers) Who(context.Context, netip.AddrPort, netip.AddrPort, string) (Peer, error) {
	return a.peer, a.err
}

// The cases are claims of a peer on another node: the other node's answer, the verdict, and the
// flows.
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
		// The user's number belongs to a service here, and to another user there.
		{"no balancer", "balancer", whose(Peer{UID: me, User: "bob", Outside: true}), Refuted, Unattributed, Unattributed, [4]int64{0, 1, 0, 0}},
		// No user here or there has that name.
		{"a user without a name", "balancer", whose(Peer{User: "1000", Outside: true}), Unknown, "balancer", Unattributed, [4]int64{0, 0, 1, 0}},
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

// The user of a DataNode here counts as a service's user on other nodes too, by name.
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

// A user number without a name on this machine makes no user on another node a service.
func TestUsersWithoutAName(t *testing.T) {
	const nameless = 4294967294
	if name, named := userName(nameless); named {
		t.Fatalf("%d is %s here", nameless, name)
	}
	w := newWorld(t)
	s := w.settings()
	s.Remote = answers{peer: Peer{Node: "n2", User: strconv.Itoa(nameless), Outside: true}}
	c := newChecker(t, s)
	c.AddServiceUID(nameless)
	claim := remote(1)
	claim.Flow = "balancer"
	if v := ask(t, c, claim); v.State != Unknown || !c.uids[nameless] || len(c.accounts) != 0 {
		t.Errorf("%+v, accounts %v", v, c.accounts)
	}
}

// Another node's answer about a connection does not count for the next one from the same port.
func TestRemoteVerdictEndsWithItsConnection(t *testing.T) {
	of := Peer{Node: "n2", User: "ann", Application: appA, Evidence: Cgroup}
	shell := Peer{Node: "n2", User: "bob", Outside: true}
	for _, test := range []struct {
		first, next Peer
		want        State
	}{{of, shell, Refuted}, {shell, of, Confirmed}} {
		w := newWorld(t)
		w.start(process{pid: 500, uid: me, sockets: []int{89, 90}})
		w.connect(serverEnd, remote(1).Client, me, 90)
		s := w.settings()
		says := &answers{peer: test.first}
		s.Remote = says
		c := newChecker(t, s)
		if v, _ := c.AddServer(500, me); v.State != Confirmed {
			t.Fatalf("%+v", v)
		}
		if v := ask(t, c, remote(1)); v.State == test.want || v.State == Unknown {
			t.Errorf("%+v", v)
		}
		if _, ok := c.Check(remote(1), nil); !ok || c.Stats.Hits.Load() != 1 {
			t.Errorf("the same connection is asked about again, %v", ok)
		}
		w.link("socket:[91]", w.proc, "500/fd/4")
		w.rows = nil
		w.connect(serverEnd, remote(1).Client, me, 91)
		says.peer = test.next
		if v := ask(t, c, remote(1)); v.State != test.want {
			t.Errorf("the next process has the verdict of the one before: %+v", v)
		}
	}
}

// If the DataNode's end is not found, only the addresses identify a verdict, and it is kept for a
// short time.
func TestRemoteVerdictWithoutTheServersEnd(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 500, uid: me, sockets: []int{90}}) // not an agent
	w.connect(serverEnd, remote(1).Client, me, 90)
	synctest.Test(t, func(t *testing.T) {
		s := w.settings()
		s.Remote = answers{peer: Peer{Node: "n2", User: "ann", Application: appA, Evidence: Cgroup}}
		c := newChecker(t, s)
		for i, want := range []int64{1, 1, 2} {
			if v := ask(t, c, remote(1)); v.State != Confirmed || c.Stats.Lookups.Load() != want {
				t.Errorf("%d: %+v after %d lookups, want %d", i, v, c.Stats.Lookups.Load(), want)
			}
			time.Sleep(time.Second / 2)
		}
	})
}

// However many questions to other nodes wait, claims of clients on this machine are looked up.
func TestQuestionsHaveABoundOfTheirOwn(t *testing.T) {
	w, g := newWorld(t), newGate()
	w.container("ann", contA, 100)
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	s := w.settings()
	s.Remote, s.Asking, s.Queue = g, 1, 3
	c := newChecker(t, s)
	for n := range 4 { // one in progress, three waiting
		if v, ok := c.Check(remote(n), func(Verdict) {}); ok {
			t.Fatalf("at once: %+v", v)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			there := len(c.nodeQuestions.queue) == n && c.nodeQuestions.running == 1
			c.mu.Unlock()
			if there {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("question %d does not wait", n)
			}
		}
	}
	if v := ask(t, c, remote(4)); v.State != Unknown || !strings.Contains(v.Detail, "too many questions") || c.Stats.Overflows.Load() != 1 {
		t.Errorf("beyond the bound: %+v, %d overflows", v, c.Stats.Overflows.Load())
	}
	if v := ask(t, c, claim(appA)); v.State != Confirmed {
		t.Errorf("from here: %+v", v)
	}
}

// Nodes that do not answer delay no claim whose peer is here.
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
	name, _ := userName(me)
	if p, err := whose(0); err != nil || p.Application != appA || p.Evidence != Session || p.User != name || p.Outside {
		t.Errorf("a container's: %+v, %v", p, err)
	}
	if p, err := whose(1); err != nil || p.Application != "" || !p.Outside || p.User != name {
		t.Errorf("a shell's: %+v, %v", p, err)
	}
	c.inspect.servers = func(l life) bool { return l.pid == 103 }
	if p, err := whose(2); err != nil || !p.Server || p.PID != 103 {
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
	// If nothing else can be found, at least the user is known.
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

// A DataNode forwards a block. The claim is judged by what is verified for the block at the first DataNode: of this
// machine or of another one.
func TestForwardedBlocks(t *testing.T) {
	rules := []Rule{{Name: "hbase", User: "hbase"}}
	for _, c := range []struct {
		name, block, flow, user string
		state                   State
		is, isUser              string
	}{
		{"verified", "blk_1", appA, "", Confirmed, appA, ""},
		{"refuted there", "blk_1", Unattributed, "", Refuted, Unattributed, ""},
		{"a service", "blk_1", "service:hbase", "", Corrected, "service:hbase", ""},
		{"nothing is certain there", "blk_1", "", "", Unknown, appA, ""},
		{"no block", "", appA, "", Unknown, appA, ""},
	} {
		for _, here := range []bool{true, false} {
			w := newWorld(t)
			s := w.settings()
			s.Rules = rules
			asked := claim(appA)
			asked.Block, asked.Writing = c.block, 9
			s.Written = func(_ context.Context, pid int, block string, asker int64) (string, string) {
				if pid != 60 || block != "blk_1" || asker != 9 {
					t.Errorf("%s: %d asked about %s of %d", c.name, asker, block, pid)
				}
				return c.flow, c.user
			}
			if here {
				w.start(process{pid: 60, uid: me, sockets: []int{77}})
				w.connect(clientEnd, serverEnd, me, 77)
			} else {
				asked.Client = remote(1).Client
				s.Remote = forwarder{c.block, Peer{Node: "n2", User: "hdfs", Outside: true, Server: true, Flow: c.flow, FlowUser: c.user}}
			}
			checker := newChecker(t, s)
			if here {
				if v, _ := checker.AddServer(60, me); v.State != Confirmed {
					t.Fatalf("%+v", v)
				}
			}
			v := ask(t, checker, asked)
			if v.State != c.state || Verify.Flow(appA, v) != c.is || v.User != c.isUser {
				t.Errorf("%s, here %v: %+v", c.name, here, v)
			}
		}
	}
	// Another node names a service that has no rule here, or a flow that is no client's.
	for _, flow := range []string{"service:trino", "replication", "x"} {
		s := newWorld(t).settings()
		s.Rules, s.Remote = rules, forwarder{"blk_1", Peer{Node: "n2", User: "hdfs", Outside: true, Server: true, Flow: flow}}
		asked := remote(1)
		asked.Flow, asked.Block = clients, "blk_1"
		if v := ask(t, newChecker(t, s), asked); v.State != Confirmed || v.Flow != clients {
			t.Errorf("%s: %+v", flow, v)
		}
	}
}

// forwarder is another node that knows the flow of one block.
type forwarder struct {
	block string
	peer  Peer
}

func (f forwarder) Who(_ context.Context, _, _ netip.AddrPort, block string) (Peer, error) {
	if block != f.block {
		return Peer{}, fmt.Errorf("asked about %q", block)
	}
	if f.block == "" {
		f.peer.Flow = ""
	}
	return f.peer, nil
}
