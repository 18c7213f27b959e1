package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"runtime"
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

// What a peer may take of the broker. Whoever reaches its port can open connections and
// have it work out handshakes; whoever has a certificate can also open streams.
const (
	// MaxConnections is the greatest number of connections: all nodes, each of which may have a
	// new one while the old one hangs, and who else asks.
	MaxConnections = maxNodes + 5000
	// PerAddress is how many connections one address may have, an IPv6 network of 64 bits
	// counting as one, where nothing else is said. As many may be opened at once, and after
	// that an eighth of them a second.
	PerAddress = 64
	// handshake is how long a connection may take to be authenticated. All nodes come at once
	// when a broker has been started, and wait for each other.
	handshakeTimeout = 20 * time.Second
	// lineMost is how many may wait for their handshake to be worked on. Who came when the line is
	// full is sent away, which costs nothing, and comes again; in a line without an end everybody
	// would wait until it is too late, and all the work would be for nothing.
	maxHandshakesWaiting = 256
	// introduction is how long a connection may be without a node's stream or a call, and a
	// stream without a report.
	introductionTimeout = 10 * time.Second
	// strikes is how many streams of a connection may be refused, and calls that are not its
	// peer's to make.
	maxRefusals = 16
	// maxAddresses bounds what is known of addresses; those without connections go first.
	maxAddresses = 2 * MaxConnections
)

// limiter holds the broker's connections to their bounds.
type connLimiter struct {
	perAddress        int
	onClose           func(reason string, from net.Addr)
	handshakeSlots    chan struct{} // has room for as many handshakes as may be worked on at once
	handshakesWaiting atomic.Int32  // how many wait for that

	mu    sync.Mutex
	conns map[netip.AddrPort]*conn
	peers map[netip.Addr]*peerState
}

// address is what one peer has open, and may open now.
type peerState struct {
	open   int
	opened *rate.Limiter // connections, those that were closed again included
}

func newConnLimiter(perAddress int, turned func(reason string, from net.Addr)) *connLimiter {
	return &connLimiter{perAddress: perAddress, onClose: turned, handshakeSlots: make(chan struct{}, runtime.GOMAXPROCS(0)),
		conns: map[netip.AddrPort]*conn{}, peers: map[netip.Addr]*peerState{}}
}

func (l *connLimiter) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// admit counts a connection, or says by which bound it is refused.
func (l *connLimiter) admit(c *conn, now time.Time) (reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= MaxConnections {
		return "connections"
	}
	at := peerKey(c.from.Addr())
	a := l.peers[at]
	if a == nil {
		if len(l.peers) >= maxAddresses && !l.forgetOne() {
			return "addresses"
		}
		a = &peerState{opened: rate.NewLimiter(rate.Limit(l.perAddress)/8, l.perAddress)}
		l.peers[at] = a
	}
	switch {
	case a.open >= l.perAddress:
		return "address"
	case l.handshakesWaiting.Load() >= maxHandshakesWaiting:
		return "line"
	case !a.opened.AllowN(now, 1):
		return "rate"
	}
	a.open++
	l.conns[c.from] = c
	return ""
}

// forgetOne makes room for an address at the cost of one without connections, which are at
// least half of them when there is no room. l.mu is held.
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
}

// network is what counts as one peer: who has one address of IPv6 has 2^64.
func peerKey(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// sweep closes who has said nothing good for too long, and forgets addresses that are full.
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

// of is the connection that a call came by; nil if it was not accepted here.
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

// hold says that a connection's peer is at something good, until release.
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

// strike counts a refused stream against its connection, and ends that when there are too many.
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
	idle    time.Time // since when nothing good is under way; zero: the handshake is
	held    int       // good calls and streams under way
	refused int       // calls and streams
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.limiter.forget(c)
	return c.Conn.Close()
}

// limited is a listener whose connections are held to the bounds. One that is over them is
// closed at once, before anything is worked out for it.
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
			c.idle = now
		}
		reason := l.limiter.admit(c, now)
		if reason == "" {
			return c, nil
		}
		l.limiter.onClose(reason, a)
		if t, ok := accepted.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // nothing is kept of it
		}
		accepted.Close()
	}
}

// gated is TLS of which only as many handshakes are worked on at once as there are processors,
// in the order in which peers began: with thousands at once, all would end late instead, when
// many have given up. A peer that says nothing holds no place.
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
	if c, ok := raw.(*conn); ok {
		g.limiter.mu.Lock()
		c.idle = time.Now()
		g.limiter.mu.Unlock()
	}
	return secure, info, nil
}

// Clone implements credentials.TransportCredentials.
func (g queuedTLS) Clone() credentials.TransportCredentials {
	return queuedTLS{g.TransportCredentials.Clone(), g.limiter}
}

// hello is a connection at its handshake: the work on what its peer says first, which is most
// of it, waits for a place, and has it until the answer goes out or more must be read.
type handshakeConn struct {
	net.Conn
	limiter  *connLimiter
	hasSlot  bool // a place
	refused  bool // the line was
	answered bool
}

var errHandshakeQueue = errors.New("too many handshakes are waited for")

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

// turn counts a connection that a bound closes.
func (b *Broker) connClosed(reason string, from net.Addr) {
	b.metrics.connsRefused.WithLabelValues(reason).Inc()
	if left, say := b.peerLog.allow(time.Now()); say {
		b.log.Warn("a connection is closed", "from", from, "reason", reason, "unsaid", left)
	}
}

// Bound holds a listener to the bounds, perAddress being how many connections one address may
// have, and returns the options of a server on it. secure is nil for plain connections.
func (b *Broker) LimitConnections(l net.Listener, secure *tls.Config, perAddress int) (net.Listener, []grpc.ServerOption) {
	b.connections.perAddress = perAddress
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(cluster.MaxMessage),
		grpc.MaxHeaderListSize(8 << 10),
		grpc.MaxConcurrentStreams(16),
		grpc.ConnectionTimeout(handshakeTimeout),
		// Messages are some hundreds of bytes. Windows that grow cost a ping and its answer a
		// message, and buffers are most of a connection's memory (docs/design/broker-cost.md).
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
