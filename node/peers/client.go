package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"penstock/node/identity"
	"penstock/wire/cluster"
)

// Bounds of the asking side.
const (
	maxHomes = 8192 // addresses with a known answer (a node, or none); the most recently used are kept
	maxNodes = 256  // connections kept; the least recently used is closed first
	idle     = time.Minute
	// How long an answer of the broker is valid: a node, no node, no answer.
	homeAge   = 2 * time.Minute
	nobodyAge = 15 * time.Second
	errorAge  = 2 * time.Second
	// pause is the time for which a node that did not answer is not asked.
	pause = 5 * time.Second
	// maxUnanswered is the maximum number of questions that wait for a node that has not answered yet, or
	// that has been silent for longer than silence: only a few workers ask, for all nodes together.
	// Further questions wait for the node's first answer for up to firstWait.
	maxUnanswered = 2
	silence       = 250 * time.Millisecond
	firstWait     = 200 * time.Millisecond
	// Rate of log lines about nodes that do not answer: a burst, then one per interval.
	logBurst = 10
	logEvery = 10 * time.Second
)

// Options of a Client.
type Options struct {
	Self string             // this node's name
	TLS  func() *tls.Config // with this node's certificate; called for each connection
	// Where returns the broker's answer: which node lives at an address.
	Where func(ctx context.Context, address netip.Addr) (*cluster.Node, error)
	Log   *slog.Logger
}

// Client asks other nodes. It implements identity.Remote.
type Client struct {
	o Options

	say rate.Sometimes // limits log lines

	mu    sync.Mutex
	homes *simplelru.LRU[netip.Addr, home]
	nodes map[route]*node
	ended bool
}

// home is the node at an address.
type home struct {
	name string
	port uint16
	err  error // why there is no node; nil if there is one
	till time.Time
}

// route identifies a connection to a node: the node's name, and the addresses of both ends.
type route struct {
	name string
	from netip.Addr
	to   netip.AddrPort
}

// node is a connection to a node.
type node struct {
	conn      *grpc.ClientConn
	users     int           // calls in progress
	used      time.Time     // time of the last call
	heard     time.Time     // time of its last answer, or of the first of the calls in progress
	answering chan struct{} // closed while the node answers questions
	// avoidUntil is the time until which the node is not asked, because of err. logged reports whether
	// err has been logged.
	avoidUntil time.Time
	err        error
	logged     bool
}

// NewClient returns a client.
func NewClient(o Options) *Client {
	homes, _ := simplelru.NewLRU[netip.Addr, home](maxHomes, nil) // fails only for a size below 1
	return &Client{o: o, say: rate.Sometimes{First: logBurst, Interval: logEvery}, homes: homes, nodes: map[route]*node{}}
}

// Close ends all connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for r, n := range c.nodes {
		n.conn.Close()
		delete(c.nodes, r)
	}
}

// Who implements identity.Remote: it asks the node that lives at the client's address.
func (c *Client) Who(ctx context.Context, client, server netip.AddrPort, block string) (identity.Peer, error) {
	h, err := c.home(ctx, client.Addr())
	if err != nil {
		return identity.Peer{}, err
	}
	if h.name == c.o.Self { // this node has already looked
		return identity.Peer{}, identity.ErrNobody
	}
	r := route{h.name, server.Addr(), netip.AddrPortFrom(client.Addr(), h.port)}
	n, err := c.takeOrWait(ctx, r)
	if err != nil {
		return identity.Peer{}, err
	}
	owner, err := cluster.NewPeersClient(n.conn).Whose(ctx, &cluster.Connection{Local: client.String(), Remote: server.String(), Block: block})
	c.giveBack(r, n, err)
	if err != nil {
		return identity.Peer{}, fmt.Errorf("node %q does not answer: %w", h.name, err)
	}
	p, err := peerOf(h.name, owner)
	if err != nil && !errors.Is(err, identity.ErrNobody) {
		err = fmt.Errorf("node %q: %w", h.name, err)
	}
	return p, err
}

// peerOf converts an answer.
func peerOf(name string, o *cluster.Owner) (identity.Peer, error) {
	if o.GetUser() == "" {
		return identity.Peer{}, identity.ErrNobody
	}
	p := identity.Peer{Node: name, User: o.GetUser(), Application: o.GetApplication(), Outside: o.GetOutside(), Server: o.GetServer(), OnHost: o.GetOnHost(), Program: o.GetProgram(),
		Flow: o.GetFlow(), FlowUser: o.GetFlowUser()}
	if len(p.User) > cluster.MaxName {
		return identity.Peer{}, fmt.Errorf("the name of the user is too long: %d bytes", len(p.User))
	}
	if len(p.Program) > cluster.MaxName || len(p.Flow) > cluster.MaxName || len(p.FlowUser) > cluster.MaxName {
		return identity.Peer{}, fmt.Errorf("the name of the program, or of a block's flow or user is too long: %d, %d and %d bytes", len(p.Program), len(p.Flow), len(p.FlowUser))
	}
	if p.Application == "" {
		return p, nil
	}
	if !identity.IsApplication(p.Application) || p.Outside || p.OnHost || p.Server || p.Flow != "" {
		return identity.Peer{}, fmt.Errorf("contradictory answer: application %.60q, outside %v, server %v", p.Application, p.Outside || p.OnHost, p.Server)
	}
	var err error
	p.Evidence, err = identity.ParseEvidence(o.GetEvidence())
	return p, err
}

// home returns the node at an address, from a recent answer of the broker if there is one.
func (c *Client) home(ctx context.Context, address netip.Addr) (home, error) {
	now := time.Now()
	c.mu.Lock()
	h, known := c.homes.Get(address)
	c.mu.Unlock()
	if known && now.Before(h.till) {
		return h, h.err
	}
	logged := known && h.err != nil
	n, err := c.o.Where(ctx, address)
	switch status.Code(err) {
	case codes.OK:
		h, err = homeOf(n)
		h.till = now.Add(homeAge)
	case codes.NotFound, codes.InvalidArgument:
		h = home{err: err, till: now.Add(nobodyAge)}
	default:
		h = home{err: fmt.Errorf("the broker does not say who lives at %v: %w", address, err), till: now.Add(errorAge)}
	}
	if err != nil && h.err == nil {
		h.err = err
	}
	if h.err != nil && !logged {
		c.say.Do(func() {
			c.o.Log.Warn("no node can be asked about connections from this address; their claims stay unknown", "address", address, "error", h.err)
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.homes.Add(address, h)
	return h, h.err
}

func homeOf(n *cluster.Node) (home, error) {
	_, port, err := net.SplitHostPort(n.GetAddress())
	number, err2 := strconv.ParseUint(port, 10, 16)
	if n.GetName() == "" || err != nil || err2 != nil || number == 0 {
		return home{}, fmt.Errorf("node %q answers no questions: its setting broker.peers is off", n.GetName())
	}
	return home{name: n.GetName(), port: uint16(number)}, nil
}

// crowded is the error that enough questions already wait for a node.
type crowded struct {
	error
	answers <-chan struct{} // closed at the node's first answer; nil: the node has answered before
}

// takeOrWait does what take does. If enough questions already wait for a node that has not answered
// yet, it first waits a moment for that node's answer: the first connections of a job all come at
// once.
func (c *Client) takeOrWait(ctx context.Context, r route) (*node, error) {
	n, err := c.take(r)
	var full crowded
	if !errors.As(err, &full) || full.answers == nil {
		return n, err
	}
	late := time.NewTimer(firstWait)
	defer late.Stop()
	select {
	case <-full.answers:
		return c.take(r)
	case <-late.C:
	case <-ctx.Done():
	}
	return nil, err
}

// take returns a connection for one call. giveBack must be called after the call.
func (c *Client) take(r route) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	n := c.nodes[r]
	switch {
	case c.ended:
		return nil, errors.New("the daemon is stopping")
	case n != nil && now.Before(n.avoidUntil):
		return nil, fmt.Errorf("node %q did not answer a moment ago: %w", r.name, n.err)
	case n == nil:
		if len(c.nodes) >= maxNodes && !c.drop() {
			return nil, fmt.Errorf("questions to %d other nodes are in progress", maxNodes)
		}
		conn, err := c.dial(r)
		if err != nil {
			return nil, err
		}
		n = &node{conn: conn, answering: make(chan struct{})}
		c.nodes[r] = n
	case n.users == 0 && n.err != nil:
		// A connection waits before it tries again, longer each time; a new one does not wait.
		conn, err := c.dial(r)
		if err != nil {
			return nil, err
		}
		n.conn.Close()
		n.conn, n.err = conn, nil
	case n.users >= maxUnanswered && !n.answers():
		return nil, crowded{fmt.Errorf("node %q has not answered yet, and %d questions wait for it", r.name, n.users), n.answering}
	case n.users >= maxUnanswered && now.Sub(n.heard) > silence:
		return nil, crowded{error: fmt.Errorf("node %q is silent, and %d questions wait for it", r.name, n.users)}
	}
	if n.users == 0 {
		n.heard = now
	}
	n.users++
	n.used = now
	return n, nil
}

// answers reports whether the last call was answered.
func (n *node) answers() bool {
	select {
	case <-n.answering:
		return true
	default:
		return false
	}
}

// noteAnswer records an answer.
func (n *node) noteAnswer() {
	n.heard = time.Now()
	if !n.answers() {
		close(n.answering)
	}
}

// drop closes the least recently used connection. c.mu is held.
func (c *Client) drop() bool {
	var oldest route
	found := false
	for r, n := range c.nodes {
		if n.users == 0 && (!found || n.used.Before(c.nodes[oldest].used)) {
			oldest, found = r, true
		}
	}
	if found {
		c.nodes[oldest].conn.Close()
		delete(c.nodes, oldest)
	}
	return found
}

// giveBack ends a call.
func (c *Client) giveBack(r route, n *node, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.users--
	switch status.Code(err) {
	case codes.OK:
		n.logged = false
		n.noteAnswer()
		return
	case codes.Canceled:
	case codes.Unavailable, codes.DeadlineExceeded, codes.Unimplemented:
		n.avoidUntil, n.err = time.Now().Add(pause), err
		if n.answers() {
			n.answering = make(chan struct{})
		}
		c.homes.Remove(r.to.Addr()) // the node may have moved to another address
	default: // a refusal is an answer, too
		n.noteAnswer()
	}
	if !n.logged {
		n.logged = true
		c.say.Do(func() {
			c.o.Log.Warn("a node does not answer questions about its connections; their claims stay unknown", "node", r.name, "address", r.to, "error", err)
		})
	}
}

// dial makes a connection. The new connection's source is this machine's address in the connection
// that the question is about, since only that address may ask. A connection for turns has any source.
// The other side must have the node's certificate.
func (c *Client) dial(r route) (*grpc.ClientConn, error) {
	dialer := &net.Dialer{}
	if r.from.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.from, 0))
	}
	again := backoff.DefaultConfig
	again.MaxDelay = pause // for a connection that is kept while calls are in progress
	return grpc.NewClient("passthrough:///"+r.to.String(), grpc.WithTransportCredentials(cluster.Credentials(c.o.TLS, r.name)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxQuestion)), grpc.WithIdleTimeout(idle),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second}))
}
