package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/loglimit"
)

const (
	clientEnd = "127.0.0.1:40000"
	serverEnd = "127.0.0.1:50010"
)

func claim(flow string) Claim { return Claim{Flow: flow, Client: clientEnd, Server: serverEnd} }

// ask waits for the verdict.
func ask(t testing.TB, c *Checker, claim Claim) Verdict {
	t.Helper()
	answer := make(chan Verdict, 1)
	if v, ok := c.Check(claim, func(v Verdict) { answer <- v }); ok {
		return v
	}
	select {
	case v := <-answer:
		return v
	case <-time.After(time.Minute):
		t.Fatal("no answer")
		return Verdict{}
	}
}

func newChecker(t testing.TB, s Settings) *Checker {
	c := New(s)
	t.Cleanup(c.Close)
	return c
}

func TestCheckByTheSocket(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, sockets: []int{1, 77}})
	w.connect("127.0.0.1:39999", serverEnd, me, 76)
	w.connect(clientEnd, serverEnd, me, 77)
	w.connect(serverEnd, clientEnd, me, 78)
	c := newChecker(t, w.settings())
	if v := ask(t, c, claim(appA)); v.State != Confirmed || v.Evidence != Session {
		t.Errorf("%+v", v)
	}
	if v := ask(t, c, claim(appB)); v.State != Refuted || v.Flow != appA {
		t.Errorf("%+v", v)
	}
	if v := ask(t, c, claim("clients")); v.State != Corrected || v.Flow != appA {
		t.Errorf("%+v", v)
	}
	// The verdict is cached: the second time, it is known at once, without a lookup.
	n := c.Stats.Lookups.Load()
	if v, ok := c.Check(claim(appA), nil); !ok || v.State != Confirmed || c.Stats.Lookups.Load() != n || c.Stats.Hits.Load() != 1 {
		t.Errorf("%+v, %v, %d lookups after %d", v, ok, c.Stats.Lookups.Load(), n)
	}
	// Later, another process has the same address.
	w.end(101)
	w.start(process{pid: 102, uid: me, sockets: []int{0, 90}})
	w.rows = nil
	w.connect(clientEnd, serverEnd, me, 90)
	if v := ask(t, c, claim(appA)); v.State != Refuted || v.Flow != "clients" {
		t.Errorf("the verdict outlived its connection: %+v", v)
	}
	counted := map[State]int64{}
	c.Stats.Verdicts(func(s State, _ Evidence, n int64) { counted[s] += n })
	if counted[Confirmed] != 2 || counted[Refuted] != 2 || counted[Corrected] != 1 {
		t.Errorf("%v", counted)
	}
}

func TestSocketOfSeveralProcesses(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.container("bob", contB, 200)
	w.start(process{pid: 50, uid: me, sockets: []int{77}})
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	c := newChecker(t, w.settings())
	if v := ask(t, c, claim(appA)); v.State != Confirmed {
		t.Errorf("%+v", v)
	}
	if v := ask(t, c, claim(appB)); v.State != Refuted || v.Flow != appA {
		t.Errorf("%+v", v)
	}
	if v := ask(t, c, claim("clients")); v.State != Corrected || v.Flow != appA {
		t.Errorf("%+v", v)
	}
}

// A JVM's sockets are IPv6 ones, with IPv4 addresses mapped into them.
func TestMappedAddresses(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 101, uid: me, sockets: []int{77}})
	w.write(strings.ReplaceAll(row6, " 4711 ", " 77 ")+"\n", w.proc, "net/tcp6")
	c := newChecker(t, w.settings())
	local, remote, ok := "", "", false
	if s, good := parseSocket([]byte(row6)); good {
		local, remote, ok = s.local.String(), s.remote.String(), true
	}
	for _, mapped := range []string{"", "::ffff:"} {
		if v := ask(t, c, Claim{Flow: "clients", Client: mapped + local, Server: mapped + remote}); !ok || v.State != Confirmed {
			t.Errorf("%s%s: %+v", mapped, local, v)
		}
	}
}

// The process closes the connection while its container is looked up.
func TestConnectionThatEnds(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 101, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	c := newChecker(t, w.settings())
	c.inspect.servers = func(life) bool { w.link("/dev/null", w.proc, "101/fd/3"); return false }
	if v := ask(t, c, claim("clients")); v.State != Unknown || v.Detail != ErrNobody.Error() {
		t.Errorf("%+v", v)
	}
}

// Another process gets the pid of the client's process before the lookup ends.
func TestPidThatIsUsedAgain(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 101, uid: me, age: time.Hour})
	c := newChecker(t, w.settings())
	c.inspect.servers = func(life) bool { w.start(process{pid: 101, uid: me}); return false }
	if v := c.Process(101, me, "clients"); v.State != Refuted || v.Detail != errGone.Error() {
		t.Errorf("%+v", v)
	}
	c.inspect.servers = nil
	stat, err := os.ReadFile(w.proc + "/101/stat")
	if err != nil {
		t.Fatal(err)
	}
	w.write(strings.Replace(string(stat), ") S ", ") Z ", 1), w.proc, "101/stat")
	if v := c.Process(101, me, "clients"); v.State != Refuted {
		t.Errorf("a zombie: %+v", v)
	}
}

// One user opened the socket, and a process of another user holds it.
func TestSocketOfAnotherUser(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 101, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me+1, 77)
	c := newChecker(t, w.settings())
	if v := ask(t, c, claim(appA)); v.State != Refuted || v.Evidence != Outside {
		t.Errorf("%+v", v)
	}
}

func TestWhatCannotBeFound(t *testing.T) {
	w := newWorld(t)
	w.connect("127.0.0.1:40001", serverEnd, me, 0)
	w.connect("127.0.0.1:40002", serverEnd, me, 5)
	c := newChecker(t, w.settings())
	for client, why := range map[string]string{
		"127.0.0.1:40000": errElsewhere.Error(), "127.0.0.1:40001": errClosed.Error(), "127.0.0.1:40002": ErrNobody.Error(),
		"nonsense": "no port", "": "no port",
	} {
		if v := ask(t, c, Claim{Flow: appA, Client: client, Server: serverEnd}); v.State != Unknown || !strings.Contains(v.Detail, why) {
			t.Errorf("%q: %+v", client, v)
		}
	}
}

func TestServers(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 60, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	c := newChecker(t, w.settings())
	if v := ask(t, c, claim("replication")); v.State != Refuted || v.Flow != "clients" {
		t.Errorf("an ordinary process: %+v", v)
	}
	if v, remove := c.AddServer(100, me); v.State != Refuted || v.Flow != appA {
		t.Errorf("a task as a server: %+v", v)
	} else {
		remove()
	}
	if v, _ := c.AddServer(60, me+1); v.State != Refuted {
		t.Errorf("another user: %+v", v)
	}
	v, remove := c.AddServer(60, me)
	if v.State != Confirmed {
		t.Errorf("%+v", v)
	}
	if v := ask(t, c, claim("balancer")); v.State != Confirmed || v.Evidence != Server {
		t.Errorf("%+v", v)
	}
	remove()
	if v := ask(t, c, claim("reconstruction")); v.State != Refuted {
		t.Errorf("after it left: %+v", v)
	}
	c.AddServiceUID(me)
	if v := ask(t, c, claim("scanner")); v.State != Confirmed || v.Evidence != Account {
		t.Errorf("%+v", v)
	}
	for i := range maxServers {
		w.start(process{pid: 1000 + i, uid: me})
		if v, _ := c.AddServer(int32(1000+i), me); v.State != Confirmed {
			t.Fatalf("server %d: %+v", i, v)
		}
	}
	if v, _ := c.AddServer(60, me); v.State != Unknown {
		t.Errorf("beyond the bound: %+v", v)
	}
}

func TestProcess(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	c := newChecker(t, w.settings())
	for _, x := range []struct {
		pid   int32
		uid   uint32
		flow  string
		state State
	}{
		{100, me, appA, Confirmed}, {100, me, appB, Refuted}, {100, me, "clients", Corrected}, {100, me, "replication", Refuted},
		{100, me, "x1", Refuted}, {100, me, appA + "x", Refuted},
		// The process that connected has ended, or another one has its pid.
		{100, me + 1, appA, Refuted}, {999, me, appA, Refuted},
		{0, me, appA, Unknown}, // the process is in a namespace that cannot be seen
	} {
		if v := c.Process(x.pid, x.uid, x.flow); v.State != x.state {
			t.Errorf("pid %d, user %d, %s: %+v", x.pid, x.uid, x.flow, v)
		}
	}
	s := w.settings()
	s.Mode = Trust
	c = newChecker(t, s)
	if v := c.Process(100, me, appB); v != (Verdict{}) {
		t.Errorf("trust asks: %+v", v)
	}
}

func TestTrustAsksNothing(t *testing.T) {
	w := newWorld(t)
	w.connect(clientEnd, serverEnd, me, 77)
	s := w.settings()
	s.Mode = Trust
	c := newChecker(t, s)
	v, ok := c.Check(claim(appA), func(Verdict) { t.Error("called") })
	if !ok || c.Mode().Flow(appA, v) != appA || c.Stats.Lookups.Load() != 0 {
		t.Errorf("%+v, %v", v, ok)
	}
}

func TestWithoutAConnection(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	c := newChecker(t, w.settings())
	for _, flow := range []string{"scanner", "replication"} {
		if v, ok := c.Check(Claim{Flow: flow, Own: true}, nil); !ok || v.State != Confirmed || v.Evidence != Own {
			t.Errorf("%s: %+v, %v", flow, v, ok)
		}
	}
	// An unknown client, as with a domain socket, does not mean that there is no client.
	for _, flow := range []string{"scanner", "replication", "balancer", "reconstruction", "clients", appA} {
		v, ok := c.Check(Claim{Flow: flow}, nil)
		if !ok || v.State != Unknown || Strict.Flow(flow, v) != Unattributed || Verify.Flow(flow, v) != flow {
			t.Errorf("%s: %+v, %v", flow, v, ok)
		}
	}
	// A token still names the user.
	tokens := w.settings()
	tokens.Services = []string{"hdfs/host@REALM"}
	for user, state := range map[string]State{"hdfs": Confirmed, "ann": Refuted} {
		if v, ok := newChecker(t, tokens).Check(Claim{Flow: "replication", User: user}, nil); !ok || v.State != state || v.Evidence != Token {
			t.Errorf("%s: %+v, %v", user, v, ok)
		}
	}
	if v, ok := c.Check(Claim{Flow: appA, Own: true}, nil); !ok || v.State != Unknown {
		t.Errorf("no DataNode is an application: %+v, %v", v, ok)
	}
	if v := ask(t, c, Claim{Flow: appA, User: "ann"}); v.State != Confirmed || v.Evidence != Token {
		t.Errorf("%+v", v)
	}
	if v := ask(t, c, Claim{Flow: appA, User: "bob/host@REALM"}); v.State != Refuted {
		t.Errorf("%+v", v)
	}
}

// Missing rights are logged once, for processes and for records.
func TestMissingRightsAreSaidOnce(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 101, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	root := filepath.Dir(w.proc)
	for dir, mode := range map[string]os.FileMode{
		filepath.Dir(root): 0o755, root: 0o755, w.proc + "/101/fd": 0, w.local + "/nmPrivate": 0,
	} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	}
	var text bytes.Buffer
	s := w.settings()
	s.Log = slog.New(slog.NewTextHandler(&text, nil))
	c := newChecker(t, s)
	said := func() (processes, records int) {
		return strings.Count(text.String(), "CAP_SYS_PTRACE"), strings.Count(text.String(), "NodeManager's records")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Root may read everything: from here on, this thread has the user nobody. It ends with
		// the goroutine.
		runtime.LockOSThread()
		_ = unix.Setfsuid(65534)
		for range 3 {
			if v, _, _ := c.find(t.Context(), claim(appA)); v.State != Unknown || !strings.Contains(v.Detail, "CAP_DAC_READ_SEARCH") {
				t.Errorf("%+v", v)
			}
			if p, r := said(); p != 1 || r != 0 {
				t.Errorf("%d lines on processes, %d on records:\n%s", p, r, text.String())
			}
		}
		for range 3 { // the records are read by goroutines of their own
			var left atomic.Int64
			left.Store(1)
			c.records.denied(list(w.local, &left).err)
		}
		if p, r := said(); p != 1 || r != 1 {
			t.Errorf("%d lines on processes, %d on records:\n%s", p, r, text.String())
		}
	}()
	<-done
}

// gate is the daemon of another node, which answers when the test allows it.
type gate struct {
	asked  chan string
	answer chan Peer
}

func newGate() *gate { return &gate{make(chan string, 100), make(chan Peer)} }

func (g *gate) Who(ctx context.Context, client, _ netip.AddrPort, _ string) (Peer, error) {
	g.asked <- client.String()
	select {
	case p, ok := <-g.answer:
		if !ok {
			return Peer{}, errors.New("no answer")
		}
		return p, nil
	case <-ctx.Done():
		return Peer{}, errTime
	}
}

func remote(n int) Claim {
	return Claim{Flow: appA, Client: fmt.Sprintf("10.0.0.7:%d", 40000+n), Server: serverEnd}
}

func TestOtherNodesAreNotBelievedEverything(t *testing.T) {
	w := newWorld(t)
	for peer, state := range map[Peer]State{
		{Application: appA, Evidence: Session}:      Confirmed,
		{Application: appB, Evidence: Session}:      Refuted,
		{Application: appA, Evidence: Environment}:  Unknown,
		{Application: appA}:                         Unknown,
		{Application: appA, Evidence: Token}:        Unknown,
		{Application: appB, Evidence: Evidence(99)}: Unknown,
		{Outside: true}:                             Refuted,
		{}:                                          Unknown,
	} {
		g := &gate{make(chan string, 1), make(chan Peer, 1)}
		g.answer <- peer
		s := w.settings()
		s.Remote = g
		if v := ask(t, newChecker(t, s), remote(1)); v.State != state {
			t.Errorf("%+v: %+v", peer, v)
		}
	}
}

func TestOneLookupForAConnection(t *testing.T) {
	w, g := newWorld(t), newGate()
	s := w.settings()
	s.Remote = g
	s.Waiters = 5
	c := newChecker(t, s)
	var answers sync.WaitGroup
	answers.Add(5)
	for range 5 {
		if v, ok := c.Check(remote(1), func(v Verdict) {
			if v.State != Confirmed {
				t.Errorf("%+v", v)
			}
			answers.Done()
		}); ok {
			t.Fatalf("at once: %+v", v)
		}
	}
	if v, ok := c.Check(remote(1), func(Verdict) { t.Error("called") }); !ok || v.State != Unknown || c.Stats.Overflows.Load() != 1 {
		t.Errorf("beyond the bound: %+v, %v", v, ok)
	}
	g.answer <- Peer{Application: appA, Evidence: Cgroup}
	answers.Wait()
	if n := c.Stats.Lookups.Load(); n != 1 || len(g.asked) != 1 {
		t.Errorf("%d lookups, %d questions", n, len(g.asked))
	}
}

func TestQueueBound(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := w.settings()
		s.Remote, s.Asking, s.Queue = g, 2, 3
		c := newChecker(t, s)
		verdicts := make(chan Verdict, 10)
		for n := range 5 {
			if v, ok := c.Check(remote(n), func(v Verdict) { verdicts <- v }); ok {
				t.Fatalf("%d: %+v", n, v)
			}
			synctest.Wait()
			if len(g.asked) != min(n+1, 2) {
				t.Errorf("%d lookups at once of %d", len(g.asked), n+1)
			}
		}
		if v := ask(t, c, remote(5)); v.State != Unknown || c.Stats.Overflows.Load() != 1 || c.Stats.Lookups.Load() != 6 {
			t.Errorf("beyond the bound: %+v, %d lookups", v, c.Stats.Lookups.Load())
		}
		close(g.answer)
		for range 5 {
			<-verdicts
		}
		// A claim that found no room is looked up when it is made again.
		if v := ask(t, c, remote(5)); v.State != Unknown || c.Stats.Lookups.Load() != 7 {
			t.Errorf("%+v, %d lookups", v, c.Stats.Lookups.Load())
		}
	})
	s := w.settings()
	s.Queue = 3
	c := newChecker(t, s)
	c.localLookups.running = c.localLookups.workers // as if all were busy
	for n := range 4 {
		if v, ok := c.Check(remote(n), func(Verdict) {}); ok != (n == 3) || ok && (v.State != Unknown || c.Stats.Overflows.Load() != 1) {
			t.Errorf("lookup %d here: %+v, %v", n, v, ok)
		}
	}
}

func TestCacheBound(t *testing.T) {
	w, g := newWorld(t), newGate()
	close(g.answer)
	s := w.settings()
	s.Remote, s.Cache = g, 3
	c := newChecker(t, s)
	look := func(n int) (cached bool) {
		before := c.Stats.Lookups.Load()
		ask(t, c, remote(n))
		return c.Stats.Lookups.Load() == before
	}
	for n := range 3 {
		look(n)
	}
	if !look(0) || look(3) { // 1 is the least recently used
		t.Error("three do not fit, or a fourth is there already")
	}
	if !look(0) || !look(2) || !look(3) || look(1) {
		t.Error("the wrong one went")
	}
	if c.cache.Len() != 3 {
		t.Errorf("%d kept", c.cache.Len())
	}
}

func TestHintsBound(t *testing.T) {
	c := newChecker(t, newWorld(t).settings())
	for pid := 1; pid <= maxHints+1; pid++ {
		c.noteRecent(hint{pid, map[bool]string{true: appA, false: appB}[pid == 7]})
	}
	c.noteRecent(hint{50, appB})
	if h := c.recentPeers("clients"); len(h) != maxHints || h[0] != 50 || h[1] != maxHints+1 || h[maxHints-1] != 2 {
		t.Errorf("%d: %v", len(h), h)
	}
	if h := c.recentPeers(appA); len(h) != maxHints || h[0] != 7 || h[1] != 50 {
		t.Errorf("%d: %v", len(h), h)
	}
}

// The descriptor is far from the end, where a hint does not look.
func TestManyDescriptors(t *testing.T) {
	w := newWorld(t)
	many := make([]int, 300)
	many[0], many[299] = 77, 78
	w.start(process{pid: 101, uid: me, sockets: many})
	w.connect(clientEnd, serverEnd, me, 78)
	w.connect("127.0.0.1:40001", serverEnd, me, 77)
	c := newChecker(t, w.settings())
	for range 2 {
		if v := ask(t, c, claim("clients")); v.State != Confirmed {
			t.Errorf("%+v", v)
		}
	}
	if v := ask(t, c, Claim{Flow: "clients", Client: "127.0.0.1:40001", Server: serverEnd}); v.State != Confirmed {
		t.Errorf("%+v", v)
	}
}

// A forger whose process was found is responsible, even if there was no time to check whether
// other processes have the connection too.
func TestForgerIsFoundBeforeTheTimeIsOver(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 101, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	c := newChecker(t, w.settings())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for pid := range 20 { // older processes, which are examined later
		w.start(process{pid: 2 + pid, uid: me})
	}
	c.inspect.servers = func(life) bool { cancel(); return false } // called once the process was found
	if v, _, _ := c.find(ctx, claim(appA)); v.State != Refuted {
		t.Errorf("%+v", v)
	}
}

func TestAges(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, sockets: []int{77}})
	w.connect(clientEnd, serverEnd, me, 77)
	synctest.Test(t, func(t *testing.T) {
		c := newChecker(t, w.settings())
		lookups := func(want int64, what string) {
			t.Helper()
			if got := c.Stats.Lookups.Load(); got != want {
				t.Errorf("%s: %d lookups, want %d", what, got, want)
			}
		}
		// Virtual time begins long before the records were written. That does not matter here: the
		// test checks only how long verdicts are kept.
		token, elsewhere := Claim{Flow: appA, User: "ann"}, remote(1)
		for range 2 {
			ask(t, c, claim(appA))
			ask(t, c, token)
			ask(t, c, elsewhere)
		}
		lookups(3, "at once")
		time.Sleep(unknownAge)
		ask(t, c, elsewhere)
		lookups(4, "unknown")
		time.Sleep(otherAge - unknownAge - time.Nanosecond)
		ask(t, c, token)
		lookups(4, "by token, before its age")
		time.Sleep(time.Nanosecond)
		ask(t, c, token)
		lookups(5, "by token")
		time.Sleep(socketAge - otherAge - time.Nanosecond)
		ask(t, c, claim(appA))
		lookups(5, "by socket, before its age")
		time.Sleep(time.Nanosecond)
		ask(t, c, claim(appA))
		lookups(6, "by socket")
	})
}

func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestBudget(t *testing.T) {
	w, g := newWorld(t), newGate()
	synctest.Test(t, func(t *testing.T) {
		s := w.settings()
		s.Remote, s.Patience = &gate{make(chan string, 1), make(chan Peer)}, time.Second
		c := newChecker(t, s)
		began := time.Now()
		if v := ask(t, c, remote(1)); v.State != Unknown || time.Since(began) != time.Second || c.Stats.Remote.Unanswered.Load() != 1 {
			t.Errorf("%+v after %v, %d unanswered", v, time.Since(began), c.Stats.Remote.Unanswered.Load())
		}
	})
	// A search through many processes stops when the context ends.
	for pid := range 50 {
		w.start(process{pid: pid + 10, uid: me})
	}
	w.connect(clientEnd, serverEnd, me, 77)
	s := w.settings()
	s.Budget, s.Remote = time.Nanosecond, g
	c := newChecker(t, s)
	for flow, prepare := range map[string]func(){appA: func() {}, appB: func() { c.noteRecent(hint{10, appA}) }} {
		prepare()
		if v := ask(t, c, claim(flow)); v.State != Unknown || !strings.Contains(v.Detail, errTime.Error()) {
			t.Errorf("%+v", v)
		}
	}
	if _, _, err := c.holders(expired(), socket{uid: me, inode: 77}, appA, time.Now()); !errors.Is(err, errTime) {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	w, g := newWorld(t), newGate()
	s := w.settings()
	s.Remote, s.Asking = g, 1
	c := New(s)
	verdicts := make(chan Verdict, 2)
	for n := range 2 {
		c.Check(remote(n), func(v Verdict) { verdicts <- v })
	}
	<-g.asked
	c.Close()
	for range 2 {
		if v := <-verdicts; v.State != Unknown {
			t.Errorf("%+v", v)
		}
	}
	if v, ok := c.Check(remote(2), nil); !ok || v.State != Unknown {
		t.Errorf("after the end: %+v, %v", v, ok)
	}
	c.Close()
}

func TestRefutationsAreLoggedNowAndThen(t *testing.T) {
	w := newWorld(t)
	w.start(process{pid: 10, uid: me, environ: "PASSWORD=hunter2\x00", command: []string{"java", "-Dsecret=hunter3"}})
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := w.settings()
		s.Log = slog.New(slog.NewTextHandler(&out, nil))
		c := newChecker(t, s)
		lines := func() int { return strings.Count(out.String(), "claim refuted") }
		for range logBurst {
			c.Process(10, me, appA)
		}
		if n := lines(); n != logBurst {
			t.Errorf("%d lines for %d", n, logBurst)
		}
		for range 5 {
			c.Process(10, me, appA)
		}
		if n := lines(); n != logBurst {
			t.Errorf("%d lines beyond the burst", n)
		}
		time.Sleep(loglimit.Every)
		for range 3 {
			c.Process(10, me, appA)
		}
		if n := lines(); n != logBurst+3 || !strings.Contains(out.String(), "not_logged_before=5") {
			t.Errorf("%d lines after a while:\n%s", n, out.String())
		}
		time.Sleep(100 * loglimit.Every)
		for range 2 * logBurst {
			c.Process(10, me, appA)
		}
		if n := lines(); n != 2*logBurst+3 {
			t.Errorf("%d lines after a long while", n)
		}
		if strings.Contains(out.String(), "hunter") {
			t.Errorf("a secret is in the log:\n%s", out.String())
		}
	})
}

// Many streams of many connections at once; the race detector and the limits judge.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.container("ann", contA, 100)
	w.start(process{pid: 101, parent: 100, session: 100, uid: me, sockets: []int{70, 71, 72, 73}})
	for n := range 4 {
		w.connect(fmt.Sprintf("127.0.0.1:%d", 40000+n), serverEnd, me, 70+n)
	}
	s := w.settings()
	s.Cache, s.Waiters = 2, 1000
	c := newChecker(t, s)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for n := range 4 {
				v := ask(t, c, Claim{Flow: appA, Client: fmt.Sprintf("127.0.0.1:%d", 40000+(n+i)%4), Server: serverEnd})
				if v.State != Confirmed {
					t.Errorf("%+v", v)
				}
			}
		})
	}
	all.Wait()
	if _, err := os.Stat(w.proc); err != nil {
		t.Error(err)
	}
}
