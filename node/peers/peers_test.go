package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"penstock/broker/certs"
	"penstock/node/identity"
	"penstock/wire/cluster"
)

// These addresses stand for two machines on one loopback device: the DataNode's and the client's.
const (
	asking   = "127.0.0.2"
	answered = "127.0.0.3"

	patience = 20 * time.Second // bounds every wait for an event
	app      = "application_1700000000000_0001"
)

// authority makes certificates for names, and returns their files.
func authority(t *testing.T, names ...string) func(name string) cluster.Files {
	t.Helper()
	dir := t.TempDir()
	if _, err := certs.Make(dir, names, []string{"alice"}); err != nil {
		t.Fatal(err)
	}
	return func(name string) cluster.Files {
		return cluster.Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
	}
}

type whose func(ctx context.Context, local, remote netip.AddrPort) (identity.Peer, error)

// answering runs a node at an address, until the test ends.
func answering(t *testing.T, at string, files cluster.Files, w whose, change ...func(*Server)) (*Server, string) {
	t.Helper()
	secure, err := files.Server()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", at+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(w, slog.New(slog.DiscardHandler))
	for _, c := range change {
		c(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ctx, l, secure); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	return s, l.Addr().String()
}

// broker returns the node at each address, as set by the test.
type broker struct {
	asked atomic.Int64
	mu    sync.Mutex
	node  *cluster.Node
	err   error
}

func (b *broker) Where(context.Context, netip.Addr) (*cluster.Node, error) {
	b.asked.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.node, b.err
}

func (b *broker) set(n *cluster.Node, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.node, b.err = n, err
}

func client(t *testing.T, files cluster.Files, b *broker) *Client {
	t.Helper()
	secure, err := files.Clients()
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(Options{Self: "asks", TLS: secure, Where: b.Where, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.Close)
	return c
}

func ends(port int) (client, server netip.AddrPort) {
	return netip.AddrPortFrom(netip.MustParseAddr(answered), uint16(port)), netip.AddrPortFrom(netip.MustParseAddr(asking), 9866)
}

func who(t *testing.T, c *Client, port int) (identity.Peer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	from, to := ends(port)
	return c.Who(ctx, from, to, "blk_7")
}

// TestARealConnection: this process has the connection, in no container.
func TestARealConnection(t *testing.T) {
	files := authority(t, "asks", "answers")
	checker := identity.New(identity.Settings{Mode: identity.Verify, LocalDirs: []string{t.TempDir()}, Budget: patience})
	t.Cleanup(checker.Close)
	s, address := answering(t, answered, files("answers"), checker.Whose)
	c := client(t, files("asks"), &broker{node: &cluster.Node{Name: "answers", Address: address}})

	l, err := net.Listen("tcp", asking+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(answered)}}).Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	from, to := own.LocalAddr().(*net.TCPAddr).AddrPort(), l.Addr().(*net.TCPAddr).AddrPort()
	p, err := c.Who(t.Context(), from, to, "")
	me, err2 := user.Current()
	if err != nil || err2 != nil || p.Node != "answers" || p.User != me.Username || p.Application != "" {
		t.Errorf("%+v, %v", p, err)
	}
	own.Close()
	accepted.Close()
	if p, err := c.Who(t.Context(), from, to, ""); !errors.Is(err, identity.ErrNobody) {
		t.Errorf("closed: %+v, %v", p, err)
	}
	if n := s.Answered.Load(); n != 2 {
		t.Errorf("%d answered", n)
	}
}

// TestWhatIsAnswered: each kind of answer arrives as the node sent it.
func TestWhatIsAnswered(t *testing.T) {
	files := authority(t, "asks", "answers")
	var say identity.Peer
	var fail error
	_, address := answering(t, answered, files("answers"), func(_ context.Context, local, remote netip.AddrPort) (identity.Peer, error) {
		if from, to := ends(40000); local != from || remote != to {
			return identity.Peer{}, fmt.Errorf("asked about %v and %v", local, remote)
		}
		return say, fail
	}, func(s *Server) {
		s.Written = func(_ context.Context, pid int, block string) (flow, user string) {
			if pid != say.PID || block != "blk_7" {
				return "", fmt.Sprintf("asked about %d and %s", pid, block)
			}
			return say.Flow, say.FlowUser
		}
	})
	c := client(t, files("asks"), &broker{node: &cluster.Node{Name: "answers", Address: address}})
	for _, want := range []identity.Peer{
		{User: "ann", Application: app, Evidence: identity.Cgroup},
		{User: "ann", Application: app, Evidence: identity.Environment},
		{User: "bob", Outside: true},
		{User: "hbase", Outside: true, OnHost: true, Program: "org.apache.hadoop.hbase.regionserver.HRegionServer"},
		{User: "hdfs", Outside: true, Server: true},
		{User: "hdfs", Outside: true, Server: true, Flow: "clients", FlowUser: "ann"},
		{User: "1234"},
	} {
		say = want
		say.PID, say.UID, say.Container = 7, 8, "container_1700000000000_0001_01_000001" // which are not sent
		want.Node = "answers"
		if got, err := who(t, c, 40000); err != nil || got != want {
			t.Errorf("%+v, %v: want %+v", got, err, want)
		}
	}
	for what, peer := range map[string]identity.Peer{
		"an application that is none":         {User: "ann", Application: "clients", Evidence: identity.Cgroup},
		"a container's evidence that is none": {User: "ann", Application: app, Evidence: identity.Token},
		"in a container and in none":          {User: "ann", Application: app, Evidence: identity.Cgroup, Outside: true},
		"in a container and on the host":      {User: "ann", Application: app, Evidence: identity.Cgroup, OnHost: true},
		"a server in a container":             {User: "ann", Application: app, Evidence: identity.Cgroup, Server: true},
		"a container that forwards a block":   {User: "ann", Application: app, Evidence: identity.Cgroup, Flow: app},
		"a flow's name that is too long":      {User: "hdfs", Server: true, Flow: strings.Repeat("f", cluster.MaxName+1)},
		"a program's name that is too long":   {User: "ann", Outside: true, Program: strings.Repeat("p", cluster.MaxName+1)},
		"a user's name that is too long":      {User: strings.Repeat("u", cluster.MaxName+1)},
	} {
		say = peer
		if got, err := who(t, c, 40000); err == nil || errors.Is(err, identity.ErrNobody) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	say, fail = identity.Peer{}, identity.ErrNobody
	if got, err := who(t, c, 40000); !errors.Is(err, identity.ErrNobody) {
		t.Errorf("nobody: %+v, %v", got, err)
	}
}

// whoseOf sends a question to a node directly.
func whoseOf(t *testing.T, address, from string, files cluster.Files, name string, c *cluster.Connection) error {
	t.Helper()
	secure, err := files.Client()
	if err != nil {
		t.Fatal(err)
	}
	secure.ServerName = name
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(secure)),
		grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", a) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = cluster.NewPeersClient(conn).Whose(ctx, c)
	return err
}

// A verdict on a forwarded block may need an answer of the very node that asks. While questions wait for it, others
// are answered, and a bounded number waits.
func TestVerdictsDelayNoLookup(t *testing.T) {
	files := authority(t, "asks", "answers")
	const first = 40000 // of clients; from the next port on, DataNodes
	begun, verdict := make(chan struct{}, 100), make(chan struct{})
	_, address := answering(t, answered, files("answers"), func(_ context.Context, local, _ netip.AddrPort) (identity.Peer, error) {
		return identity.Peer{PID: int(local.Port()), User: "ann", Outside: true, Server: local.Port() > first}, nil
	}, func(s *Server) {
		s.Written = func(ctx context.Context, pid int, _ string) (flow, user string) {
			begun <- struct{}{}
			select {
			case <-verdict:
				return app, "ann"
			case <-time.After(patience):
				t.Error("the test has not ended in time")
			}
			return "", ""
		}
	})
	ask := func(port int) (*cluster.Owner, error) {
		secure, err := files("asks").Client()
		if err != nil {
			return nil, err
		}
		secure.ServerName = "answers"
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(asking)}}
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(secure)),
			grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", a) }))
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		from, to := ends(port)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return cluster.NewPeersClient(conn).Whose(ctx, &cluster.Connection{Local: from.String(), Remote: to.String(), Block: "blk_7"})
	}
	flows := make(chan string, maxOfOne)
	for i := range maxOfOne {
		go func() {
			o, err := ask(first + 1 + i)
			if err != nil {
				t.Error(err)
			}
			flows <- o.GetFlow()
		}()
	}
	for range maxOfOne {
		select {
		case <-begun:
		case <-time.After(patience):
			t.Fatal("questions about blocks wait for each other")
		}
	}
	if o, err := ask(first); err != nil || o.GetUser() != "ann" {
		t.Errorf("a client's connection: %v, %v", o, err)
	}
	if o, err := ask(first + 100); err != nil || !o.GetServer() || o.GetFlow() != "" {
		t.Errorf("one block too many: %v, %v", o, err)
	}
	close(verdict)
	for range maxOfOne {
		if flow := <-flows; flow != app {
			t.Errorf("flow %q", flow)
		}
	}
}

// TestNobodySpies: a node gets answers only about its own connections, and a caller that is not a
// node gets none.
func TestNobodySpies(t *testing.T) {
	files, others := authority(t, "asks", "answers"), authority(t, "asks", "answers")
	looked := 0
	s, address := answering(t, answered, files("answers"), func(context.Context, netip.AddrPort, netip.AddrPort) (identity.Peer, error) {
		looked++
		return identity.Peer{User: "ann"}, nil
	})
	own := &cluster.Connection{Local: answered + ":40000", Remote: asking + ":9866"}
	if err := whoseOf(t, address, asking, files("asks"), "answers", own); err != nil || looked != 1 {
		t.Fatal(err)
	}
	for what, got := range map[string]codes.Code{
		"another's connection": status.Code(whoseOf(t, address, asking, files("asks"), "answers",
			&cluster.Connection{Local: answered + ":40000", Remote: "127.0.0.9:9866"})),
		"from elsewhere":      status.Code(whoseOf(t, address, "127.0.0.9", files("asks"), "answers", own)),
		"a connection within": status.Code(whoseOf(t, address, asking, files("asks"), "answers", &cluster.Connection{Local: asking + ":1", Remote: answered + ":2"})),
	} {
		if got != codes.PermissionDenied {
			t.Errorf("%s: %v", what, got)
		}
	}
	if err := whoseOf(t, address, asking, files("alice"), "answers", own); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an operator: %v", err)
	}
	if err := whoseOf(t, address, asking, others("asks"), "answers", own); status.Code(err) != codes.Unavailable {
		t.Errorf("another authority's certificate: %v", err)
	}
	for _, c := range []*cluster.Connection{{}, {Local: answered, Remote: asking}, {Local: answered + ":0", Remote: asking + ":1"},
		{Local: "host:1", Remote: asking + ":1"}, {Local: answered + ":65536", Remote: asking + ":1"}} {
		if err := whoseOf(t, address, asking, files("asks"), "answers", c); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", c, err)
		}
	}
	if err := whoseOf(t, address, asking, files("asks"), "answers", &cluster.Connection{Local: strings.Repeat("1", maxQuestion+1), Remote: asking + ":1"}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a long question: %v", err)
	}
	if looked != 1 || s.Answered.Load() != 1 || s.Refused.Load() != 9 {
		t.Errorf("%d lookups, %d answered, %d refused", looked, s.Answered.Load(), s.Refused.Load())
	}
}

// TestTheWrongNode: the node at the address has another name than in the broker's answer, or a
// certificate of another authority.
func TestTheWrongNode(t *testing.T) {
	files, others := authority(t, "asks", "answers", "liar"), authority(t, "answers")
	yes := func(context.Context, netip.AddrPort, netip.AddrPort) (identity.Peer, error) {
		return identity.Peer{User: "ann", Application: app, Evidence: identity.Cgroup}, nil
	}
	for what, f := range map[string]cluster.Files{"another node": files("liar"), "another authority": others("answers")} {
		s, address := answering(t, answered, f, yes)
		c := client(t, files("asks"), &broker{node: &cluster.Node{Name: "answers", Address: address}})
		if p, err := who(t, c, 40000); status.Code(err) != codes.Unavailable || s.Answered.Load() != 0 {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
	// The address that a node states does not matter: the question goes to the address of the
	// connection.
	s, address := answering(t, "127.0.0.9", files("liar"), yes)
	c := client(t, files("asks"), &broker{node: &cluster.Node{Name: "liar", Address: address}})
	if p, err := who(t, c, 40000); err == nil || s.Answered.Load() != 0 {
		t.Errorf("a node that is elsewhere: %+v, %v", p, err)
	}
}

// TestTheBrokersWord: the client keeps the broker's answer for a while, even if the answer is that
// there is no node.
func TestTheBrokersWord(t *testing.T) {
	files := authority(t, "asks", "answers")
	_, address := answering(t, answered, files("answers"), func(context.Context, netip.AddrPort, netip.AddrPort) (identity.Peer, error) {
		return identity.Peer{User: "ann"}, nil
	})
	b := &broker{err: status.Error(codes.NotFound, "nobody lives there")}
	c := client(t, files("asks"), b)
	again := func() { // as if the answer had expired
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, a := range c.homes.Keys() {
			h, _ := c.homes.Peek(a)
			h.till = time.Time{}
			c.homes.Add(a, h)
		}
	}
	fails := func(want string) {
		t.Helper()
		for range 2 {
			if p, err := who(t, c, 40000); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v, %v: want %q", p, err, want)
			}
		}
	}
	fails("nobody lives there")
	again()
	b.set(nil, errors.New("it is away"))
	fails("the broker does not say")
	for _, address := range []string{"", "0.0.0.0", "x:0", "x:65536", "x:y"} {
		again()
		b.set(&cluster.Node{Name: "answers", Address: address}, nil)
		fails("answers no questions")
	}
	again()
	b.set(&cluster.Node{Name: "asks", Address: address}, nil)
	if _, err := who(t, c, 40000); !errors.Is(err, identity.ErrNobody) {
		t.Errorf("it lives here: %v", err)
	}
	again()
	b.set(&cluster.Node{Name: "answers", Address: address}, nil)
	for range 5 {
		if p, err := who(t, c, 40000); err != nil || p.User != "ann" {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if n := b.asked.Load(); n != 9 {
		t.Errorf("the broker was asked %d times", n)
	}
}

// TestANodeThatDoesNotAnswer: after a node has not answered, the client does not ask it for a
// while, and asks the broker again where the node is.
func TestANodeThatDoesNotAnswer(t *testing.T) {
	files := authority(t, "asks", "answers")
	hang := make(chan struct{})
	var asked atomic.Int64
	_, address := answering(t, answered, files("answers"), func(ctx context.Context, _, _ netip.AddrPort) (identity.Peer, error) {
		asked.Add(1)
		select {
		case <-hang:
			return identity.Peer{User: "ann"}, nil
		case <-ctx.Done():
			return identity.Peer{}, ctx.Err()
		}
	})
	b := &broker{node: &cluster.Node{Name: "answers", Address: address}}
	c := client(t, files("asks"), b)
	from, to := ends(40000)
	short, cancel := context.WithCancel(t.Context())
	go func() { // once the question has arrived
		for asked.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := c.Who(short, from, to, ""); status.Code(err) != codes.Canceled {
		t.Errorf("given up: %v", err)
	}
	quick, cancel2 := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel2()
	if _, err := c.Who(quick, from, to, ""); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("out of time: %v", err)
	}
	if _, err := who(t, c, 40000); err == nil || !strings.Contains(err.Error(), "a moment ago") || b.asked.Load() != 2 {
		t.Errorf("%v; the broker was asked %d times", err, b.asked.Load())
	}
	close(hang)
	c.mu.Lock()
	for _, n := range c.nodes { // as if the pause had ended
		n.avoidUntil = time.Time{}
	}
	c.mu.Unlock()
	if p, err := who(t, c, 40000); err != nil || p.User != "ann" {
		t.Errorf("when it answers: %+v, %v", p, err)
	}
}

// TestANodeThatComesBack: the client asks a node again once the pause is over, however often the
// node did not answer before.
func TestANodeThatComesBack(t *testing.T) {
	files := authority(t, "asks", "answers")
	l, err := net.Listen("tcp", answered+":0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c := client(t, files("asks"), &broker{node: &cluster.Node{Name: "answers", Address: address}})
	passed := func() { // as if the pause had ended
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, n := range c.nodes {
			n.avoidUntil = time.Time{}
		}
	}
	for range 3 {
		if _, err := who(t, c, 40000); status.Code(err) != codes.Unavailable {
			t.Fatalf("there is nobody: %v", err)
		}
		passed()
	}
	secure, err := files("answers").Server()
	if err != nil {
		t.Fatal(err)
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	s := NewServer(func(context.Context, netip.AddrPort, netip.AddrPort) (identity.Peer, error) {
		return identity.Peer{User: "ann"}, nil
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ctx, l, secure) })
	defer serving.Wait()
	defer cancel()
	if p, err := who(t, c, 40000); err != nil || p.User != "ann" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestFewWaitInVain: few questions wait for a node that has not answered yet, or is silent now;
// there is no such limit while it answers.
func TestFewWaitInVain(t *testing.T) {
	c := client(t, authority(t, "asks")("asks"), &broker{})
	to := netip.MustParseAddrPort("127.0.0.3:1")
	w := route{"n", to.Addr(), to}
	take := func() *node {
		t.Helper()
		n, err := c.takeOrWait(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := take()
	take()
	began := time.Now()
	if _, err := c.takeOrWait(t.Context(), w); err == nil || !strings.Contains(err.Error(), "not answered yet") || time.Since(began) < firstWait {
		t.Errorf("a third one: %v after %v", err, time.Since(began))
	}
	third := make(chan error, 1)
	go func() {
		_, err := c.takeOrWait(t.Context(), w)
		third <- err
	}()
	c.giveBack(w, n, nil)
	if err := <-third; err != nil {
		t.Errorf("after the first answer: %v", err)
	}
	take()
	if n.users != 3 {
		t.Errorf("%d wait", n.users)
	}
	c.mu.Lock()
	n.heard = n.heard.Add(-silence) // as if no answer had arrived since
	c.mu.Unlock()
	if _, err := c.takeOrWait(t.Context(), w); err == nil || !strings.Contains(err.Error(), "silent") {
		t.Errorf("when it is silent: %v", err)
	}
	c.giveBack(w, n, nil)
	take()
	c.giveBack(w, n, status.Error(codes.DeadlineExceeded, "silent"))
	if _, err := c.takeOrWait(t.Context(), w); err == nil || !strings.Contains(err.Error(), "a moment ago") {
		t.Errorf("when it has not answered: %v", err)
	}
}

func TestQuestionsHaveARate(t *testing.T) {
	files := authority(t, "asks", "other", "answers")
	s, address := answering(t, answered, files("answers"), func(context.Context, netip.AddrPort, netip.AddrPort) (identity.Peer, error) {
		return identity.Peer{User: "ann"}, nil
	})
	now := time.Now()
	for range burst {
		if !s.asker("asks").AllowN(now, 1) {
			t.Fatal("the burst is shorter")
		}
	}
	if s.asker("asks").AllowN(now, 1) {
		t.Error("more than the burst")
	}
	s.asker("asks").AllowN(now.Add(time.Hour), burst) // no question is allowed for a while
	own := &cluster.Connection{Local: answered + ":40000", Remote: asking + ":9866"}
	if err := whoseOf(t, address, asking, files("asks"), "answers", own); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("beyond it: %v", err)
	}
	if err := whoseOf(t, address, asking, files("other"), "answers", own); err != nil {
		t.Errorf("another node: %v", err)
	}
	for i := range 2*maxCallers + 10 {
		s.asker(fmt.Sprint(i))
	}
	if n := len(s.callers); n > maxCallers {
		t.Errorf("%d callers are known", n)
	}
}

// fill makes n callers wait for a turn without success, until giveUp.
func fill(t *testing.T, s *Server, waiting *atomic.Int64, n int, who func(i int) *asker) (giveUp func()) {
	t.Helper()
	wait, cancel := context.WithCancel(t.Context())
	sent := make(chan error, n)
	for i := range n {
		go func() {
			_, err := s.turn(wait, who(i))
			sent <- err
		}()
	}
	for deadline := time.Now().Add(patience); waiting.Load() < int64(n); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait", waiting.Load())
		}
		if len(sent) > 0 {
			t.Fatalf("one does not wait: %v", <-sent)
		}
	}
	return func() {
		cancel()
		for range n {
			if err := <-sent; status.Code(err) != codes.ResourceExhausted {
				t.Errorf("in vain: %v", err)
			}
		}
	}
}

func named(s *Server, what string) func(i int) *asker {
	return func(i int) *asker { return s.asker(fmt.Sprint(what, i)) }
}

// TestLookupsAtOnce: some questions wait, and the others are refused.
func TestLookupsAtOnce(t *testing.T) {
	s := NewServer(nil, slog.New(slog.DiscardHandler))
	var turns []func()
	for i := range atOnce {
		done, err := s.turn(t.Context(), named(s, "first")(i))
		if err != nil {
			t.Fatal(err)
		}
		turns = append(turns, done)
	}
	giveUp := fill(t, s, &s.waiting, maxWaiting, named(s, "next"))
	if _, err := s.turn(t.Context(), s.asker("last")); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "wait") {
		t.Errorf("beyond the bound: %v", err)
	}
	giveUp()
	turns[0]()
	if _, err := s.turn(t.Context(), s.asker("last")); err != nil {
		t.Errorf("when there is room: %v", err)
	}
}

// TestOneCallerLeavesRoom: however many questions one node has, the others are answered.
func TestOneCallerLeavesRoom(t *testing.T) {
	s := NewServer(nil, slog.New(slog.DiscardHandler))
	greedy := s.asker("greedy")
	done, err := s.turn(t.Context(), greedy)
	if err != nil {
		t.Fatal(err)
	}
	giveUp := fill(t, s, &greedy.waiting, maxOfOne, func(int) *asker { return greedy })
	if _, err := s.turn(t.Context(), greedy); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "8 questions wait") {
		t.Errorf("beyond its bound: %v", err)
	}
	for range 3 {
		other, err := s.turn(t.Context(), s.asker("other"))
		if err != nil {
			t.Fatalf("another: %v", err)
		}
		other()
	}
	giveUp()
	done()
	if done, err = s.turn(t.Context(), greedy); err != nil {
		t.Errorf("when there is room: %v", err)
	}
	done()
}

func TestBoundsOfTheAsker(t *testing.T) {
	files := authority(t, "asks")
	b := &broker{err: status.Error(codes.NotFound, "nobody")}
	c := client(t, files("asks"), b)
	for i := range maxHomes + 10 {
		if _, err := c.home(t.Context(), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})); err == nil {
			t.Fatal("somebody lives there")
		}
	}
	if n := c.homes.Len(); n != maxHomes {
		t.Errorf("%d addresses are known", n)
	}
	to := netip.MustParseAddrPort("127.0.0.3:1")
	at := func(i int) route { return route{fmt.Sprint("n", i), to.Addr(), to} }
	var first *node
	for i := range maxNodes {
		n, err := c.take(at(i))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = n
		}
	}
	if _, err := c.take(at(maxNodes)); err == nil {
		t.Error("one more while all are in use")
	}
	c.giveBack(at(0), first, nil)
	if _, err := c.take(at(maxNodes)); err != nil || len(c.nodes) != maxNodes || c.nodes[at(0)] != nil {
		t.Errorf("%v, %d connections: want the one that is not in use to go", err, len(c.nodes))
	}
	c.Close()
	if _, err := c.take(at(1)); err == nil {
		t.Error("after the end")
	}
}

// TestASilentNodeIsLoggedOnce: a node is logged again only if it has answered in between.
func TestASilentNodeIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	c := NewClient(Options{Log: slog.New(slog.NewTextHandler(&out, nil))})
	n, w := &node{answering: make(chan struct{})}, route{name: "n"}
	down := status.Error(codes.Unavailable, "down")
	for i, err := range []error{down, down, nil, down, down} {
		n.users++
		c.giveBack(w, n, err)
		if lines, want := strings.Count(out.String(), "does not answer questions"), []int{1, 1, 1, 2, 2}[i]; lines != want {
			t.Errorf("%d lines after %d answers, want %d", lines, i+1, want)
		}
	}
}

// TestAnAddressOfNobodyIsLoggedOnce: after a burst, such addresses are logged rarely.
func TestAnAddressOfNobodyIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	b := &broker{err: status.Error(codes.NotFound, "nobody lives there")}
	c := NewClient(Options{Log: slog.New(slog.NewTextHandler(&out, nil)), Where: b.Where})
	for range 2 {
		for i := range 3 * logBurst {
			if _, err := c.home(t.Context(), netip.AddrFrom4([4]byte{10, 0, 0, byte(i / 2)})); err == nil {
				t.Fatal("somebody lives there")
			}
		}
	}
	if lines := strings.Count(out.String(), "no node can be asked"); lines < logBurst || lines >= 3*logBurst/2 {
		t.Errorf("%d lines about %d addresses", lines, 3*logBurst/2)
	}
}

// FuzzAnswers: the result of any answer of a node is consistent.
func FuzzAnswers(f *testing.F) {
	f.Add(app, "ann", "cgroup", "", false, false, false)
	f.Add("", "ann", "", "impalad", true, true, true)
	f.Add("app-20240101000000-0001", "u", "directory", "", false, true, false)
	f.Add("clients", "", "token", "x", true, false, false)
	f.Fuzz(func(t *testing.T, application, user, evidence, program string, outside, onHost, server bool) {
		p, err := peerOf("n", &cluster.Owner{Application: application, User: user, Evidence: evidence, Program: program, Outside: outside, OnHost: onHost, Server: server})
		switch {
		case err != nil:
		case p.User == "" || p.Node != "n" || len(p.Program) > cluster.MaxName:
			t.Errorf("%+v", p)
		case (p.Application == "") != (p.Evidence == identity.NoEvidence), p.Evidence > identity.Environment,
			p.Application != "" && (p.Outside || p.OnHost || p.Server || !identity.IsApplication(p.Application)):
			t.Errorf("%+v", p)
		}
	})
}

// FuzzEnds: in every question, an accepted end is an address and a port.
func FuzzEnds(f *testing.F) {
	f.Add("10.0.0.1:1")
	f.Add("[::ffff:10.0.0.1]:65535")
	f.Add("[fe80::1%eth0]:1")
	f.Add("host:1")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseEnd(text)
		if err == nil && (!a.IsValid() || a.Port() == 0 || a.Addr().Is4In6() || a.Addr().Zone() != "") {
			t.Errorf("%q: %v", text, a)
		}
	})
}
