package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"penstock/wire/cluster"
)

// Limits on a peer's use of the broker. Any machine that reaches its port can open connections
// and make it compute handshakes; a machine with a certificate can also open streams.
const (
	// MaxConnections is the maximum number of connections: one for each node, and 5000 for
	// operators and for nodes that open a new connection while their old one hangs.
	MaxConnections = maxNodes + 5000
	// PerAddress is the default maximum number of connections that one address may have. The
	// address may open that many connections at once, and then an eighth of that number each
	// second. An IPv6 network of 64 bits counts as one address.
	PerAddress = 64
	// PerCertificate is the default maximum number of connections that the holders of one certificate may have. A node needs
	// one, and a second one while the first one hangs; an operator's certificate may be in use on several machines.
	PerCertificate = 64
	// maxUnauthenticated is the maximum number of connections without a complete handshake. All other places are kept for
	// authenticated peers: peers without a certificate cannot take them, from however many addresses.
	maxUnauthenticated = MaxConnections - maxNodes
	// handshakeTimeout is the maximum time for the authentication of a connection. It is long
	// because all nodes connect at once after a broker's restart, and wait for each other.
	handshakeTimeout = 20 * time.Second
	// maxHandshakesWaiting is the maximum number of handshakes that wait for a processor. Further
	// connections are closed, which costs nothing, and their peers try again. In an unbounded
	// queue, peers would wait until they give up, and the work on their handshakes would be lost.
	maxHandshakesWaiting = 256
	// introductionTimeout is the maximum time in which a connection may have neither a node's
	// stream nor a call, and the maximum time from the beginning of a stream to its first report.
	introductionTimeout = 10 * time.Second
	// maxRefusals is the maximum number of refused streams and calls on one connection.
	maxRefusals = 16
	// maxAddresses is the maximum number of remembered addresses. A new address then replaces one
	// without connections.
	maxAddresses = 2 * MaxConnections
)

// connLimiter enforces the limits on connections.
type connLimiter struct {
	most              Limits
	onClose           func(reason string, from net.Addr)
	handshakeSlots    chan struct{} // a semaphore: one slot for each processor
	handshakesWaiting atomic.Int32  // handshakes that wait for a slot

	mu              sync.Mutex
	conns           map[netip.AddrPort]*conn
	unauthenticated int            // of conns
	certificates    map[string]int // authenticated connections by the certificate's subject
	peers           map[netip.Addr]*peerState
}

// Limits are those limits on connections that operators can set. 0 stands for the default.
type Limits struct {
	PerAddress     int // connections from one address
	PerCertificate int // connections with one certificate
}

// peerState is the state of one address.
type peerState struct {
	open   int
	opened *rate.Limiter // limits how fast the address opens connections
}

func newConnLimiter(most Limits, turned func(reason string, from net.Addr)) *connLimiter {
	return &connLimiter{most: most.orDefault(), certificates: map[string]int{}, onClose: turned, handshakeSlots: make(chan struct{}, runtime.GOMAXPROCS(0)),
		conns: map[netip.AddrPort]*conn{}, peers: map[netip.Addr]*peerState{}}
}

func (l Limits) orDefault() Limits {
	return Limits{cmp.Or(l.PerAddress, PerAddress), cmp.Or(l.PerCertificate, PerCertificate)}
}

func (l *connLimiter) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// admit counts a new connection and returns the empty string. If the connection exceeds a limit,
// admit does not count it, and returns the name of the limit.
func (l *connLimiter) admit(c *conn, now time.Time) (reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= MaxConnections {
		return "connections"
	}
	if !c.authenticated && l.unauthenticated >= maxUnauthenticated {
		return "unauthenticated"
	}
	at := peerKey(c.from.Addr())
	a := l.peers[at]
	if a == nil {
		if len(l.peers) >= maxAddresses && !l.forgetOne() {
			return "addresses"
		}
		a = &peerState{opened: rate.NewLimiter(rate.Limit(l.most.PerAddress)/8, l.most.PerAddress)}
		l.peers[at] = a
	}
	switch {
	case a.open >= l.most.PerAddress:
		return "address"
	case l.handshakesWaiting.Load() >= maxHandshakesWaiting:
		return "line"
	case !a.opened.AllowN(now, 1):
		return "rate"
	}
	a.open++
	l.conns[c.from] = c
	if !c.authenticated {
		l.unauthenticated++
	}
	return ""
}

// authenticate notes that a connection's handshake is complete, with a certificate of this subject. It reports whether the
// subject may have one more connection.
func (l *connLimiter) authenticate(c *conn, subject string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[c.from] != c || c.authenticated {
		return true // it has been closed
	}
	if l.certificates[subject] >= l.most.PerCertificate {
		return false
	}
	c.authenticated, c.subject, c.idle = true, subject, time.Now()
	l.unauthenticated--
	l.certificates[subject]++
	return true
}

// forgetOne makes room for an address by dropping one without connections. If the table is full, at
// least half of its addresses have no connections. l.mu is held.
func (l *connLimiter) forgetOne() bool {
	for at, a := range l.peers {
		if a.open == 0 {
			delete(l.peers, at)
			return true
		}
	}
	return false
}

func (l *connLimiter) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[c.from] != c {
		return
	}
	delete(l.conns, c.from)
	l.peers[peerKey(c.from.Addr())].open--
	switch {
	case !c.authenticated:
		l.unauthenticated--
	case l.certificates[c.subject] > 1:
		l.certificates[c.subject]--
	default:
		delete(l.certificates, c.subject)
	}
}

// peerKey returns the address under which a peer is counted. An IPv6 peer is counted by its network
// of 64 bits, since it may use all addresses of that network.
func peerKey(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// sweep closes connections that have been idle for too long, and drops each address that has no
// connection and whose token bucket is full.
func (l *connLimiter) sweep(now time.Time) {
	var late []*conn
	l.mu.Lock()
	for _, c := range l.conns {
		if c.held == 0 && !c.idle.IsZero() && now.Sub(c.idle) > introductionTimeout {
			late = append(late, c)
		}
	}
	for at, a := range l.peers {
		if a.open == 0 && a.opened.TokensAt(now) >= float64(a.opened.Burst()) {
			delete(l.peers, at)
		}
	}
	l.mu.Unlock()
	for _, c := range late {
		l.onClose("idle", c.RemoteAddr())
		c.Close()
	}
}

// connOf returns the connection of a call; nil if it was not accepted by a limited listener.
func (l *connLimiter) connOf(ctx context.Context) *conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	a, ok := p.Addr.(*net.TCPAddr)
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conns[a.AddrPort()]
}

// hold marks a connection as in use until release is called.
func (l *connLimiter) hold(c *conn) {
	if c == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.held++
}

func (l *connLimiter) release(c *conn) {
	if c == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.held--
	c.idle = time.Now()
}

// noteRefusal counts a refused stream or call, and closes the connection after too many.
func (l *connLimiter) noteRefusal(c *conn) {
	if c == nil {
		return
	}
	l.mu.Lock()
	c.refused++
	out := c.refused > maxRefusals
	l.mu.Unlock()
	if out {
		l.onClose("refusals", c.RemoteAddr())
		c.Close()
	}
}

// conn is an accepted connection.
type conn struct {
	net.Conn
	limiter *connLimiter
	from    netip.AddrPort
	idle    time.Time // since when it has had no call or stream; zero: the handshake is not complete
	held    int       // accepted calls and streams in progress
	refused int       // calls and streams that were refused
	// authenticated: the handshake is complete, or none is needed. subject is that of the certificate.
	authenticated bool
	subject       string
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.limiter.forget(c)
	return c.Conn.Close()
}

// limitedListener is a listener that enforces the limits. A connection that exceeds a limit is
// closed at once, before any work is done for it.
type limitedListener struct {
	net.Listener
	limiter *connLimiter
	plain   bool
}

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		a, ok := accepted.RemoteAddr().(*net.TCPAddr)
		if !ok {
			return accepted, nil
		}
		c := &conn{Conn: accepted, limiter: l.limiter, from: a.AddrPort()}
		now := time.Now()
		if l.plain {
			c.idle, c.authenticated = now, true
		}
		reason := l.limiter.admit(c, now)
		if reason == "" {
			return c, nil
		}
		l.limiter.onClose(reason, a)
		if t, ok := accepted.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // close at once, without TIME_WAIT
		}
		accepted.Close()
	}
}

// queuedTLS performs at most one TLS handshake per processor at a time, in the order of arrival. If
// thousands ran at once, all would finish late, after many peers had given up. A handshake whose
// peer is silent holds no slot.
type queuedTLS struct {
	credentials.TransportCredentials
	limiter *connLimiter
}

// ServerHandshake implements credentials.TransportCredentials.
func (g queuedTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	h := &handshakeConn{Conn: raw, limiter: g.limiter}
	secure, info, err := g.TransportCredentials.ServerHandshake(h)
	h.releaseSlot()
	if err != nil {
		switch {
		case h.refused:
			g.limiter.onClose("line", raw.RemoteAddr())
		case !errors.Is(err, net.ErrClosed):
			g.limiter.onClose("handshake", raw.RemoteAddr())
		}
		return nil, nil, err
	}
	if c, ok := raw.(*conn); ok && !g.limiter.authenticate(c, subjectOf(info)) {
		g.limiter.onClose("certificate", raw.RemoteAddr())
		return nil, nil, errCertificateQuota
	}
	return secure, info, nil
}

// Clone implements credentials.TransportCredentials.
func (g queuedTLS) Clone() credentials.TransportCredentials {
	return queuedTLS{g.TransportCredentials.Clone(), g.limiter}
}

// handshakeConn is a connection during its handshake. Most of the work is caused by the peer's
// first message. After that message has been read, the handshake waits for a slot. It holds the
// slot until it sends its answer or has to read more.
type handshakeConn struct {
	net.Conn
	limiter  *connLimiter
	hasSlot  bool
	refused  bool // because too many handshakes were waiting
	answered bool
}

// subjectOf returns what names the holder of a certificate.
func subjectOf(info credentials.AuthInfo) string {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 {
		return ""
	}
	leaf := t.State.PeerCertificates[0]
	return leaf.Issuer.String() + "; " + leaf.Subject.String() + "; " + strings.Join(leaf.DNSNames, ",")
}

var errCertificateQuota = errors.New("too many connections with this certificate")

var errHandshakeQueue = errors.New("too many TLS handshakes are waiting")

// Read implements net.Conn.
func (h *handshakeConn) Read(p []byte) (int, error) {
	if h.answered {
		return h.Conn.Read(p)
	}
	h.releaseSlot()
	n, err := h.Conn.Read(p)
	if err == nil {
		if h.limiter.handshakesWaiting.Add(1) > maxHandshakesWaiting {
			h.refused, err = true, errHandshakeQueue
		} else {
			h.limiter.handshakeSlots <- struct{}{}
			h.hasSlot = true
		}
		h.limiter.handshakesWaiting.Add(-1)
	}
	return n, err
}

// Write implements net.Conn.
func (h *handshakeConn) Write(p []byte) (int, error) {
	if !h.answered {
		h.answered = true
		h.releaseSlot()
	}
	return h.Conn.Write(p)
}

func (h *handshakeConn) releaseSlot() {
	if h.hasSlot {
		h.hasSlot = false
		<-h.limiter.handshakeSlots
	}
}

// connClosed counts and logs a connection that was closed because of a limit.
func (b *Broker) connClosed(reason string, from net.Addr) {
	b.metrics.connsRefused.WithLabelValues(reason).Inc()
	if left, say := b.peerLog.allow(time.Now()); say {
		b.log.Warn("connection closed", "from", from, "reason", reason, "suppressed", left)
	}
}

// LimitConnections returns a listener that enforces the limits, and the options for the gRPC server
// that uses this listener. secure is nil for plain connections.
func (b *Broker) LimitConnections(l net.Listener, secure *tls.Config, most Limits) (net.Listener, []grpc.ServerOption) {
	b.connections.most = most.orDefault()
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(cluster.MaxMessage),
		grpc.MaxHeaderListSize(8 << 10),
		grpc.MaxConcurrentStreams(16),
		grpc.ConnectionTimeout(handshakeTimeout),
		// Messages have some hundreds of bytes. Dynamic windows would cost a ping and its answer
		// for each message, and buffers would be most of a connection's memory
		// (docs/design/broker-cost.md).
		grpc.StaticStreamWindowSize(cluster.Window), grpc.StaticConnWindowSize(2 * cluster.Window),
		grpc.ReadBufferSize(2 << 10), grpc.WriteBufferSize(2 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			c := b.connections.connOf(ctx)
			b.connections.hold(c)
			defer b.connections.release(c)
			answer, err := handle(ctx, req)
			if code := status.Code(err); code == codes.PermissionDenied || code == codes.Unauthenticated {
				b.connections.noteRefusal(c)
			}
			return answer, err
		}, b.Unary),
	}
	if secure != nil {
		options = append(options, grpc.Creds(queuedTLS{credentials.NewTLS(secure), b.connections}))
	}
	return limitedListener{l, b.connections, secure == nil}, options
}
