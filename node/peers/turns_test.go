package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"penstock/core/depth"
	"penstock/node/device"
	"penstock/node/turns"
	"penstock/wire/cluster"
)

const mib = 1 << 20

// disk is the disk of a storage server, with one request at a time.
type disk struct {
	turns.Target
	stop func()
}

func newDisk(t *testing.T) *disk { return diskIn(t, device.Enforce) }

// diskIn returns a disk whose loop has that mode.
func diskIn(t *testing.T, mode device.Mode) *disk {
	t.Helper()
	line := depth.Line{Fixed: time.Millisecond, PerMiB: 10 * time.Millisecond}
	loop, err := device.New(device.Options{Name: "test", Mode: mode, Log: slog.New(slog.DiscardHandler),
		Config: device.Config{Algorithm: "sfqd", FixedDepth: 1, Depth: depth.Config{Read: line, Write: line}},
		Policy: func(string) device.Rule { return device.Rule{Weight: 1, Mode: device.Enforce} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); loop.Run(ctx) }()
	d := &disk{Target: turns.Target{Loop: loop, Pacer: &turns.Pacer{}, Stats: &turns.Stats{},
		Expect: func(_, _ bool, bytes int64) time.Duration { return 100 * time.Millisecond }}}
	d.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(d.stop)
	return d
}

// granted receives granted turns.
type granted chan uint32

func (g granted) Mark(id uint32, _ int64) { g <- id }

func (g granted) next(t *testing.T) uint32 {
	t.Helper()
	select {
	case id := <-g:
		return id
	case <-time.After(patience):
		t.Fatal("no turn is granted")
		return 0
	}
}

func away(t *testing.T, c *Client, addresses map[string]string) *Turns {
	t.Helper()
	a := NewTurns(c)
	a.resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
		if found, ok := addresses[name]; ok {
			return []netip.Addr{netip.MustParseAddr(found)}, nil
		}
		return nil, errors.New("no such name")
	}
	t.Cleanup(a.Close)
	return a
}

func (t *Turns) mustTake(tb *testing.T, id uint32, to device.Marker) *Away {
	tb.Helper()
	turn, err := t.Take("storage1", turns.Request{ID: id, Flow: app, Bytes: mib}, to)
	if err != nil {
		tb.Fatal(err)
	}
	return turn
}

// Tasks of one node take turns at another node's disk, one at a time.
func TestTurnsAtAnotherNode(t *testing.T) {
	files, d := authority(t, "asks", "answers"), newDisk(t)
	_, address := answering(t, answered, files("answers"), nil, func(s *Server) { s.Target = func() (turns.Target, error) { return d.Target, nil } })
	a := away(t, client(t, files("asks"), &broker{node: &cluster.Node{Name: "answers", Address: address}}), map[string]string{"storage1": answered})
	g := make(granted, 100)
	first := a.mustTake(t, 7, g)
	if id := g.next(t); id != 7 {
		t.Errorf("turn %d is granted", id)
	}
	second := a.mustTake(t, 8, g)
	select {
	case <-g:
		t.Error("two turns at once")
	case <-time.After(50 * time.Millisecond):
	}
	first.Close(mib)
	if id := g.next(t); id != 8 {
		t.Errorf("turn %d is granted", id)
	}
	second.Close(mib)
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s, ok := d.Loop.Snapshot()
		if !ok || time.Now().After(deadline) {
			t.Fatalf("not charged: %+v", s.Flows)
		}
		sum := int64(0)
		for _, f := range s.Flows {
			if f.Name == app {
				for _, k := range f.Kinds {
					sum += k.Bytes[0]
				}
			}
		}
		if sum == 2*mib {
			break
		}
	}
	if n := a.Stats.Forwarded.Load(); n != 2 {
		t.Errorf("%d forwarded", n)
	}
}

// If the loop of the other node's disk stops, its heartbeats stop. Then turns pass at once.
func TestTurnsAtASilentNode(t *testing.T) {
	files, d := authority(t, "asks", "answers"), newDisk(t)
	_, address := answering(t, answered, files("answers"), nil, func(s *Server) { s.Target = func() (turns.Target, error) { return d.Target, nil } })
	a := away(t, client(t, files("asks"), &broker{node: &cluster.Node{Name: "answers", Address: address}}), map[string]string{"storage1": answered})
	g := make(granted, 100)
	a.mustTake(t, 1, g).Close(mib)
	d.stop() // no heartbeats from now on, and marks are open
	begin := time.Now()
	for {
		turn, err := a.Take("storage1", turns.Request{ID: 2, Flow: app, Bytes: mib}, g)
		if err != nil {
			break
		}
		turn.Close(mib)
		if time.Sleep(3 * silentAfter / 2); time.Since(begin) > patience { // an answer counts as a heartbeat

			t.Fatal("a silent node is still asked")
		}
	}
}

// A name without an address, an address without a node, a node with another name, and a node without a
// storage server: turns that wait pass.
func TestTurnsAtNoNode(t *testing.T) {
	files := authority(t, "asks", "answers")
	_, address := answering(t, answered, files("answers"), nil)
	for name, b := range map[string]*broker{
		"unknown name":    {},
		"nobody":          {err: status.Error(codes.NotFound, "nobody lives there")},
		"another name":    {node: &cluster.Node{Name: "other", Address: address}},
		"this machine":    {node: &cluster.Node{Name: "asks", Address: address}},
		"without storage": {node: &cluster.Node{Name: "answers", Address: address}},
	} {
		addresses := map[string]string{"storage1": answered}
		if name == "unknown name" {
			addresses = nil
		}
		a := away(t, client(t, files("asks"), b), addresses)
		g := make(granted, 100)
		begin := time.Now()
		a.mustTake(t, 1, g)
		g.next(t)
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s: passed after %v", name, took)
		}
		if n := a.Stats.Unanswered.Load(); n != 1 {
			t.Errorf("%s: %d unanswered", name, n)
		}
		if _, err := a.Take("storage1", turns.Request{ID: 2, Flow: app, Bytes: mib}, g); err == nil {
			t.Errorf("%s: asked again at once", name)
		}
	}
}

// turnsStream opens a raw stream, as a hostile node can.
func turnsStream(t *testing.T, address string, files cluster.Files) cluster.Peers_TurnsClient {
	t.Helper()
	secure, err := files.Client()
	if err != nil {
		t.Fatal(err)
	}
	secure.ServerName = "answers"
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s, err := cluster.NewPeersClient(conn).Turns(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHostileTurns(t *testing.T) {
	files, d := authority(t, "asks", "answers"), newDisk(t)
	_, address := answering(t, answered, files("answers"), nil, func(s *Server) { s.Target = func() (turns.Target, error) { return d.Target, nil } })

	// An operator's certificate is not a node's.
	s := turnsStream(t, address, files("alice"))
	if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an operator: %v", err)
	}
	// A number twice, or 0, ends the stream.
	for _, ids := range [][]uint32{{0}, {1, 1}} {
		s := turnsStream(t, address, files("asks"))
		for _, id := range ids {
			if err := s.Send(&cluster.TurnRequest{Id: id, Bytes: mib, Application: app}); err != nil {
				t.Fatal(err)
			}
		}
		for {
			_, err := s.Recv()
			if err == nil {
				continue
			}
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v: %v", ids, err)
			}
			break
		}
	}
	// Turns of wrong sizes are refused one by one. So are those beyond the bound. Ends of unknown turns do nothing.
	s = turnsStream(t, address, files("asks"))
	send := func(m *cluster.TurnRequest) {
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for i, bytes := range []int64{0, -1, math.MinInt64, math.MaxInt64, turns.MaxBytes + 1} {
		send(&cluster.TurnRequest{Id: 1 << 20, End: true})
		send(&cluster.TurnRequest{Id: uint32(i + 1), Bytes: bytes, Application: app})
		for {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetId() == uint32(i+1) {
				if !m.GetRefused() {
					t.Errorf("a turn of %d bytes", bytes)
				}
				break
			}
		}
	}
	for id := range uint32(2 * turns.MaxTurnsOfNode) {
		send(&cluster.TurnRequest{Id: 1000 + id, Bytes: turns.MaxBytes, Application: "x", Write: id%2 == 0})
	}
	refused := 0
	for refused < turns.MaxTurnsOfNode-100 {
		m, err := s.Recv()
		if err != nil {
			t.Fatalf("after %d refusals: %v", refused, err)
		}
		if m.GetRefused() {
			refused++
		}
	}
	// Another node's turn comes although one occupies all it can.
	other := turnsStream(t, address, files("answers"))
	if err := other.Send(&cluster.TurnRequest{Id: 5, Bytes: mib, Application: app}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := other.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetId() == 5 && !m.GetRefused() {
			break
		}
	}
	// The number of streams of one node is bounded.
	var last cluster.Peers_TurnsClient
	for range maxTurnStreams + 1 {
		last = turnsStream(t, address, files("asks"))
	}
	for {
		if _, err := last.Recv(); err != nil {
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("one stream more: %v", err)
			}
			break
		}
	}
}

// openTurns is a stream of turns on which nothing arrives.
type openTurns struct {
	grpc.ServerStream
	ctx context.Context
}

func (o openTurns) Context() context.Context { return o.ctx }

func (openTurns) Send(*cluster.TurnAnswer) error { return nil }

func (o openTurns) Recv() (*cluster.TurnRequest, error) {
	<-o.ctx.Done()
	return nil, o.ctx.Err()
}

// A certificate that expires ends the stream that was opened with it.
func TestTurnsWithAnExpiredCertificate(t *testing.T) {
	d := newDisk(t)
	s := NewServer(nil, slog.New(slog.DiscardHandler))
	s.Target = func() (turns.Target, error) { return d.Target, nil }
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "asks"}, NotAfter: time.Now().Add(3 * beatEvery)}
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
	ctx, cancel := context.WithTimeout(peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 1},
		AuthInfo: credentials.TLSInfo{State: state}}), patience)
	defer cancel()
	if err := s.Turns(openTurns{ctx: ctx}); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("%v", err)
	}
	if _, _, err := caller(ctx); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a question: %v", err)
	}
}

// A node that never ends its turns has a bounded number of them, also if each passes at once.
func TestTurnsThatNeverEnd(t *testing.T) {
	files, d := authority(t, "asks", "answers"), diskIn(t, device.Off)
	_, address := answering(t, answered, files("answers"), nil, func(s *Server) { s.Target = func() (turns.Target, error) { return d.Target, nil } })
	s := turnsStream(t, address, files("asks"))
	last := uint32(0)
	// ask asks for some turns and returns the number of a granted one, and how many were granted.
	ask := func(n uint32) (id uint32, granted int) {
		t.Helper()
		for i := range n {
			if err := s.Send(&cluster.TurnRequest{Id: last + i + 1, Bytes: mib, Application: app, Write: i%2 == 0}); err != nil {
				t.Fatal(err)
			}
		}
		last += n
		for n > 0 {
			m, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetId() > 0 {
				if n--; !m.GetRefused() {
					id = m.GetId()
					granted++
				}
			}
		}
		return id, granted
	}
	one, granted := uint32(0), 0
	for range 8 {
		id, n := ask(turns.MaxTurnsOfNode / 4)
		one, granted = max(one, id), granted+n
	}
	if granted > turns.MaxTurnsOfNode || granted == 0 {
		t.Errorf("%d turns at a time", granted)
	}
	if err := s.Send(&cluster.TurnRequest{Id: one, End: true}); err != nil {
		t.Fatal(err)
	}
	if _, n := ask(1); n != 1 {
		t.Error("a turn after the end of another one is refused")
	}
}

// A task that invents names of servers causes a bounded number of lookups, and the stream that others use stays.
func TestInventedServers(t *testing.T) {
	files, d := authority(t, "asks", "answers"), newDisk(t)
	_, address := answering(t, answered, files("answers"), nil, func(s *Server) { s.Target = func() (turns.Target, error) { return d.Target, nil } })
	a := away(t, client(t, files("asks"), &broker{node: &cluster.Node{Name: "answers", Address: address}}), map[string]string{"storage1": answered})
	known := a.resolve
	var lookups atomic.Int64
	a.resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
		lookups.Add(1)
		return known(ctx, name)
	}
	g := make(granted, 10_000)
	first := a.mustTake(t, 1, g)
	g.next(t)
	for i := range 20 * maxSessions {
		_, _ = a.Take(fmt.Sprint("x", i), turns.Request{ID: uint32(i), Flow: app, Bytes: mib}, make(granted, 1))
	}
	for _, name := range []string{"", "two words", "x/y", "a\n", strings.Repeat("x", 300)} {
		if _, err := a.Take(name, turns.Request{ID: 1, Flow: app, Bytes: mib}, g); err == nil {
			t.Errorf("a server %q", name)
		}
	}
	if n := lookups.Load(); n > maxSessions+serversBurst {
		t.Errorf("%d lookups", n)
	}
	a.mu.Lock()
	n := len(a.sessions)
	a.mu.Unlock()
	if n > maxSessions {
		t.Errorf("%d servers are remembered", n)
	}
	first.Close(mib)
	second := a.mustTake(t, 2, g)
	if id := g.next(t); id != 2 {
		t.Errorf("turn %d", id)
	}
	second.Close(mib)
}

// FuzzTurnRequests: whatever a node asks for, the stream's receiver ends or continues, and each turn that
// it opens is one that may be.
func FuzzTurnRequests(f *testing.F) {
	f.Add(uint32(1), false, app, true, int64(mib), uint32(1), true)
	f.Add(uint32(0), true, "", false, int64(-1), uint32(7), false)
	f.Fuzz(func(t *testing.T, id uint32, end bool, application string, write bool, bytes int64, id2 uint32, end2 bool) {
		if flow := flowOfTask(application); flow != device.UnattributedFlow && flow != application {
			t.Errorf("flow %q", flow)
		}
		s := &session{open: map[uint32]*Away{}, turns: &Turns{}, out: make(chan *cluster.TurnRequest, 4)}
		g := make(granted, 4)
		a := &Away{session: s, id: 1, r: turns.Request{ID: 9}, to: g}
		s.open[1] = a
		s.hear(&cluster.TurnAnswer{Id: id, Refused: end})
		s.hear(&cluster.TurnAnswer{Id: id2, Refused: end2})
		if want := min(1, len(g)); len(g) != want {
			t.Errorf("granted %d times", len(g))
		}
		if (len(g) == 1) != (id == 1 || id2 == 1) {
			t.Errorf("answers %d and %d: granted %d times", id, id2, len(g))
		}
		if turns.Check(bytes) == nil && (bytes < 1 || bytes > turns.MaxBytes) {
			t.Errorf("a turn of %d bytes", bytes)
		}
	})
}
