package broker

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"penstock/broker/certs"
	"penstock/wire/cluster"
)

// bounded returns a broker with its limits on connections, on loopback.
func bounded(t *testing.T, secure *tls.Config, perAddress int) *served {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b, err := New(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener, options := b.LimitConnections(listener, secure, Limits{PerAddress: perAddress})
	server := grpc.NewServer(options...)
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
	return &served{b, address, stop}
}

// count returns one of the broker's metrics as Prometheus reads it.
func count(t *testing.T, b *Broker, metric string) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(b.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if value, ok := strings.CutPrefix(line, metric+" "); ok {
			return value
		}
	}
	return ""
}

// authority makes certificates, and returns the configurations of a broker and of clients.
func authority(t *testing.T, names ...string) (broker *tls.Config, of func(name string) credentials.TransportCredentials) {
	t.Helper()
	dir := t.TempDir()
	if _, err := certs.Make(dir, append(names, "broker"), nil); err != nil {
		t.Fatal(err)
	}
	files := func(name string) cluster.Files {
		return cluster.Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
	}
	broker, err := files("broker").Server()
	if err != nil {
		t.Fatal(err)
	}
	return broker, func(name string) credentials.TransportCredentials {
		c, err := files(name).Client()
		if err != nil {
			t.Fatal(err)
		}
		return credentials.NewTLS(c)
	}
}

// ends waits until the other side has closed a connection.
func ends(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		if n, ok := err.(net.Error); ok && n.Timeout() {
			t.Fatal("the connection is not closed within 30 s")
		}
	}
}

// TestConnectionBounds checks each limit on connections at its boundary.
func TestConnectionBounds(t *testing.T) {
	l := newConnLimiter(Limits{PerAddress: 8}, func(string, net.Addr) {})
	now := time.Now()
	port := uint16(0)
	open := func(from string) (*conn, string) {
		port++
		c := &conn{limiter: l, from: netip.AddrPortFrom(netip.MustParseAddr(from), port)}
		return c, l.admit(c, now)
	}
	expect := func(from, want string) *conn {
		t.Helper()
		c, got := open(from)
		if got != want {
			t.Fatalf("a connection from %s: %q, want %q", from, got, want)
		}
		return c
	}
	var first *conn
	for range 8 {
		first = expect("10.0.0.1", "")
	}
	expect("10.0.0.1", "address")
	expect("::ffff:10.0.0.1", "address") // the same address
	l.forget(first)
	l.forget(first) // once only
	expect("10.0.0.1", "rate")
	now = now.Add(time.Second)
	expect("10.0.0.1", "")
	expect("10.0.0.1", "address")
	for i := range 8 {
		expect(fmt.Sprintf("2001:db8::%d", i+1), "")
	}
	expect("2001:db8::ffff", "address")
	expect("2001:db8:0:1::1", "")
	if n := l.open(); n != 17 {
		t.Errorf("%d are open, want 17", n)
	}
	for i := 17; i < MaxConnections; i++ {
		l.authenticate(expect(netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}).String(), ""), fmt.Sprint(i))
	}
	expect("12.0.0.1", "connections")
}

// TestHandshakeQueue: the queue of handshakes is not longer than can be computed in time.
func TestHandshakeQueue(t *testing.T) {
	l := newConnLimiter(Limits{PerAddress: 8}, func(string, net.Addr) {})
	first := &conn{limiter: l, from: netip.MustParseAddrPort("10.0.0.1:1")}
	l.handshakesWaiting.Store(maxHandshakesWaiting)
	if r := l.admit(first, time.Now()); r != "line" {
		t.Errorf("admitted to a full queue: %q", r)
	}
	l.handshakesWaiting.Store(maxHandshakesWaiting - 1)
	if r := l.admit(first, time.Now()); r != "" {
		t.Errorf("refused (%q) with a place in the queue", r)
	}
	for range cap(l.handshakeSlots) {
		l.handshakeSlots <- struct{}{}
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() { _, _ = theirs.Write([]byte{22}) }()
	var one [1]byte
	l.handshakesWaiting.Store(maxHandshakesWaiting)
	if _, err := (&handshakeConn{Conn: ours, limiter: l}).Read(one[:]); err != errHandshakeQueue {
		t.Errorf("one more in a full queue: %v", err)
	}
	if n := l.handshakesWaiting.Load(); n != maxHandshakesWaiting {
		t.Errorf("%d are in the queue after that, want %d", n, maxHandshakesWaiting)
	}
}

// TestAddressesAreForgotten: addresses without connections are dropped.
func TestAddressesAreForgotten(t *testing.T) {
	l := newConnLimiter(Limits{PerAddress: 1}, func(string, net.Addr) {})
	now := time.Now()
	c := &conn{limiter: l, from: netip.MustParseAddrPort("10.0.0.1:1")}
	if r := l.admit(c, now); r != "" {
		t.Fatal(r)
	}
	l.sweep(now.Add(time.Hour))
	if len(l.peers) != 1 {
		t.Error("an address with a connection is forgotten")
	}
	l.forget(c)
	l.sweep(now.Add(8*time.Second - 1))
	if len(l.peers) != 1 {
		t.Error("an address without its full budget is forgotten")
	}
	l.sweep(now.Add(8 * time.Second))
	if len(l.peers) != 0 {
		t.Error("an address is not forgotten")
	}
}

// TestManyAddresses: addresses that had a connection earlier do not prevent others from connecting.
func TestManyAddresses(t *testing.T) {
	l := newConnLimiter(Limits{PerAddress: 1}, func(string, net.Addr) {})
	now := time.Now()
	at := func(a byte, i int) *conn {
		return &conn{limiter: l, from: netip.AddrPortFrom(netip.AddrFrom4([4]byte{a, byte(i >> 16), byte(i >> 8), byte(i)}), 1)}
	}
	for i := range maxAddresses {
		c := at(11, i)
		if r := l.admit(c, now); r != "" {
			t.Fatal(i, r)
		}
		if i > 0 {
			l.forget(c)
		}
	}
	for i := range 1000 {
		if r := l.admit(at(12, i), now); r != "" {
			t.Fatalf("a new one: %s", r)
		}
	}
	if len(l.peers) != maxAddresses || l.peers[at(11, 0).from.Addr()] == nil {
		t.Errorf("%d are known, or one with a connection is not", len(l.peers))
	}
}

// TestFlood: a peer opens as many connections as it can, and reopens closed ones. It does not
// prevent others from connecting.
func TestFlood(t *testing.T) {
	secure, of := authority(t, "n")
	b := bounded(t, secure, 8)
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer cancel()
	for range 4 {
		flood.Go(func() {
			var open []net.Conn
			defer func() {
				for _, c := range open {
					c.Close()
				}
			}()
			for ctx.Err() == nil {
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.address)
				if err != nil {
					continue
				}
				// The start of a TLS record, and nothing more.
				_, _ = c.Write([]byte{22, 3, 1, 2, 0})
				if open = append(open, c); len(open) > 20 {
					open[0].Close()
					open = open[1:]
				}
			}
		})
	}
	eventually(t, "connections of the flood are refused", func() bool {
		return count(t, b.Broker, `penstock_broker_connections_refused_total{reason="address"}`) != "" ||
			count(t, b.Broker, `penstock_broker_connections_refused_total{reason="rate"}`) != ""
	})
	conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(of("n")), grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, "tcp", to)
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := cluster.NewNodesClient(conn).Exchange(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Errorf("a node during a flood: %v", err)
	}
}

// TestSilentHandshakes: peers that stop in the middle of a handshake hold no slot.
func TestSilentHandshakes(t *testing.T) {
	secure, of := authority(t, "n")
	b := bounded(t, secure, 1000)
	for range 4 * runtime.GOMAXPROCS(0) {
		c, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte{22, 3, 1, 2, 0, 1}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the broker has them", func() bool { return b.connections.open() == 4*runtime.GOMAXPROCS(0) })
	s, err := dialWith(t, b.address, of("n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Error(err)
	}
}

// TestPlacesForAuthenticated: peers without a certificate leave the places of the others alone, and one certificate has a
// bounded number of connections, from however many addresses.
func TestPlacesForAuthenticated(t *testing.T) {
	l := newConnLimiter(Limits{PerCertificate: 2}, func(string, net.Addr) {})
	n := 0
	open := func() (*conn, string) {
		n++
		c := &conn{Conn: nowhere{}, limiter: l, from: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 1)}
		return c, l.admit(c, time.Now())
	}
	var last *conn
	for range maxUnauthenticated {
		c, reason := open()
		if reason != "" {
			t.Fatal(reason)
		}
		last = c
	}
	if _, reason := open(); reason != "unauthenticated" {
		t.Errorf("one more: %q", reason)
	}
	if !l.authenticate(last, "n1") {
		t.Error("the last one was not authenticated")
	}
	second, reason := open()
	if reason != "" || !l.authenticate(second, "n1") {
		t.Errorf("an authenticated one leaves its place to another: %q", reason)
	}
	third, reason := open()
	if reason != "" || l.authenticate(third, "n1") || !l.authenticate(third, "n2") {
		t.Errorf("a third connection of n1: %q", reason)
	}
	second.Close()
	if fourth, reason := open(); reason != "" || !l.authenticate(fourth, "n1") {
		t.Errorf("after one of n1 was closed: %q", reason)
	}
	for _, c := range slices.Collect(maps.Values(l.conns)) {
		c.Close()
	}
	if l.unauthenticated != 0 || len(l.certificates) != 0 {
		t.Errorf("after all were closed: %d, %v", l.unauthenticated, l.certificates)
	}
}

// nowhere is a connection that can only be closed.
type nowhere struct{ net.Conn }

func (nowhere) Close() error { return nil }

// TestCertificateQuota: a connection beyond the quota is closed after its handshake, with the reason in the metrics.
func TestCertificateQuota(t *testing.T) {
	secure, of := authority(t, "n")
	b := bounded(t, secure, 1000)
	b.connections.mu.Lock()
	b.connections.most.PerCertificate = 1
	b.connections.mu.Unlock()
	first, err := dialWith(t, b.address, of("n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Recv(); err != nil {
		t.Fatal(err)
	}
	if second, err := dialWith(t, b.address, of("n")); err == nil {
		if _, err := second.Recv(); err == nil {
			t.Error("a second connection with the certificate is served")
		}
	}
	if got := count(t, b.Broker, `penstock_broker_connections_refused_total{reason="certificate"}`); got == "" || got == "0" {
		t.Errorf("refused: %q", got)
	}
}

// TestIdleConnection: a connection without calls or streams is closed. A connection with a node's
// stream stays open until the stream ends.
func TestIdleConnection(t *testing.T) {
	b := bounded(t, nil, 10)
	s := dial(t, b.address)
	if err := s.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: "n", PeriodMs: 30_000}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	idle, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	eventually(t, "the broker has both", func() bool { return b.connections.open() == 2 })
	b.connections.mu.Lock()
	since := b.connections.conns[idle.LocalAddr().(*net.TCPAddr).AddrPort()].idle
	b.connections.mu.Unlock()
	b.connections.sweep(since.Add(introductionTimeout))
	if n := b.connections.open(); n != 2 {
		t.Fatalf("%d are open at the bound, want 2", n)
	}
	b.connections.sweep(since.Add(introductionTimeout + 1))
	ends(t, idle)
	if got := count(t, b.Broker, `penstock_broker_connections_refused_total{reason="idle"}`); got != "1" {
		t.Errorf("%q were closed as idle, want 1", got)
	}
	if err := s.Send(&cluster.Report{Sequence: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Errorf("the node during it: %v", err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its connection is idle", func() bool {
		b.connections.sweep(time.Now().Add(introductionTimeout + time.Second))
		return b.connections.open() == 0
	})
}

// TestRefusedStreams: a connection with too many refused streams is closed.
func TestRefusedStreams(t *testing.T) {
	b := bounded(t, nil, 10)
	conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	refused := func() {
		t.Helper()
		s, err := cluster.NewNodesClient(conn).Exchange(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&cluster.Report{Sequence: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err = s.Recv(); err == nil {
			t.Fatal("a stream without a name is accepted")
		}
	}
	const closed = `penstock_broker_connections_refused_total{reason="refusals"}`
	for range maxRefusals {
		refused()
	}
	if got := count(t, b.Broker, closed); got != "" {
		t.Fatalf("closed (%s) at the bound", got)
	}
	refused()
	if got := count(t, b.Broker, closed); got != "1" {
		t.Errorf("%q are closed beyond the bound, want 1", got)
	}
}

// TestStreamsOfOneConnection: the 17th stream waits until one of the others ends.
func TestStreamsOfOneConnection(t *testing.T) {
	b := bounded(t, nil, 10)
	conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	join := func(ctx context.Context, i int) (cluster.Nodes_ExchangeClient, error) {
		s, err := cluster.NewNodesClient(conn).Exchange(ctx)
		if err != nil {
			return nil, err
		}
		if err := s.Send(&cluster.Report{Sequence: 1, Node: &cluster.Node{Name: fmt.Sprint("n", i)}}); err != nil {
			return nil, err
		}
		_, err = s.Recv()
		return s, err
	}
	var streams []cluster.Nodes_ExchangeClient
	for i := range 16 {
		s, err := join(t.Context(), i)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		streams = append(streams, s)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := join(short, 16); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the 17th stream: %v", err)
	}
	if err := streams[0].CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := join(t.Context(), 16); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// TestMessageSize: a message of the maximum size is read; a larger one is refused.
func TestMessageSize(t *testing.T) {
	b := bounded(t, nil, 10)
	for size, want := range map[int]codes.Code{cluster.MaxMessage: codes.InvalidArgument, cluster.MaxMessage + 1: codes.ResourceExhausted} {
		const head = 2*4 + 2 // the node's and its version's field, each with a length of three bytes or four, and sequence
		r := &cluster.Report{Sequence: 1, Node: &cluster.Node{Version: strings.Repeat("v", size-head)}}
		if n := sizeOf(t, r); n != size {
			r.Node.Version = strings.Repeat("v", size-head-(n-size))
			if n := sizeOf(t, r); n != size {
				t.Fatalf("a message of %d bytes, want %d", n, size)
			}
		}
		r.Node.Name = ""
		s := dial(t, b.address)
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != want {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

// TestPings: a peer that sends too many pings is disconnected.
func TestPings(t *testing.T) {
	b := bounded(t, nil, 10)
	c, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil { // and empty settings
		t.Fatal(err)
	}
	for range 10 {
		if _, err := io.WriteString(c, "\x00\x00\x08\x06\x00\x00\x00\x00\x00penstock"); err != nil {
			break // it is already closed
		}
	}
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			t.Fatalf("no message about too many pings: %v", err)
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:4])>>8)
		if _, err := io.ReadFull(c, body); err != nil {
			t.Fatal(err)
		}
		if goAway := byte(7); head[3] == goAway && strings.Contains(string(body), "too_many_pings") {
			return
		}
	}
}

// TestReportRate: a node may always report at twice the announced rate, and a few times in a burst.
func TestReportRate(t *testing.T) {
	now := time.Now()
	p := newReportLimiter(time.Second)
	wait := func() time.Duration { return p.ReserveN(now, 1).DelayFrom(now) }
	for i := range reportBurst {
		if w := wait(); w > 0 {
			t.Fatalf("report %d of a burst waits %v", i+1, w)
		}
	}
	if w := wait(); w != time.Second/reportRateFactor {
		t.Errorf("the first report beyond the burst waits %v", w)
	}
	now = now.Add(time.Hour)
	for range 1000 {
		if w := wait(); w > 0 {
			t.Fatalf("at twice the rate it waits %v", w)
		}
		now = now.Add(time.Second / reportRateFactor)
	}
	for period, want := range map[time.Duration]time.Duration{0: 50 * time.Millisecond, 100 * time.Millisecond: 50 * time.Millisecond,
		30 * time.Second: 15 * time.Second, 1000 * time.Hour: 15 * time.Second} {
		if got := reportRate(period); got != rate.Every(want) {
			t.Errorf("a period of %v: %v reports a second, want %v", period, got, rate.Every(want))
		}
	}
}

// TestReportFlood: a node that reports much too often is delayed, but still gets its answers.
func TestReportFlood(t *testing.T) {
	b := bounded(t, nil, 10)
	s := dial(t, b.address)
	for i := range uint64(reportBurst + 5) {
		r := &cluster.Report{Sequence: i + 1}
		if i == 0 {
			r.Node = &cluster.Node{Name: "n", PeriodMs: 100}
		}
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(reportBurst + 5) {
		if a, err := s.Recv(); err != nil || a.GetSequence() != i+1 {
			t.Fatalf("answer %d: %v, %v", i+1, a, err)
		}
	}
	if got := count(t, b.Broker, "penstock_broker_reports_slowed_total"); got == "0" {
		t.Error("no report was slowed")
	}
	if got := count(t, b.Broker, "penstock_broker_reports_total"); got != fmt.Sprint(reportBurst+5) {
		t.Errorf("%s reports", got)
	}
}

// TestLogLimiter: peers cause a limited number of log lines per second.
func TestLogLimiter(t *testing.T) {
	q := newLogLimiter()
	now := time.Unix(1000, 0)
	for range logLinesPerSecond {
		if _, ok := q.allow(now); !ok {
			t.Fatal("a line within the bound is not written")
		}
	}
	for range 5 {
		if _, ok := q.allow(now); ok {
			t.Fatal("a line beyond the bound is written")
		}
	}
	if suppressed, ok := q.allow(now.Add(time.Second)); !ok || suppressed != 5 {
		t.Errorf("%d were not written, %v; want 5", suppressed, ok)
	}
}
