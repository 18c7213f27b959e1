// Package peers lets nodes ask each other which application a connection belongs to.
//
// Problem: a DataNode's client is often a process of another machine, and the evidence for its
// claim is there: cgroups, sessions and directories of its containers. The difficulty is security.
// The node that answers must not become a way to spy on others or to load a machine, and the node
// that asks must not believe the wrong node. Choices: both sides have certificates of the cluster's
// authority. An answer covers only connections with the asking machine: the question must come from
// the address at the other end of the connection. The asking node sends the question to the
// client's address, and only to a node whose certificate has the name that the broker knows for
// that address. So a node gains nothing by claiming another node's address, since no question
// reaches the claiming node. I/O never waits for an answer: identity asks with workers of its own,
// and without an answer the claim stays unknown. docs/design/identity.md has the bounds.
package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
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

	"penstock/node/identity"
	"penstock/node/turns"
	"penstock/wire/cluster"
	"penstock/wire/web"
)

// Bounds of the answering side.
const (
	perSecond   = 100 // questions of one node, after a burst
	burst       = 200
	maxCallers  = 4096 // nodes with a known rate; beyond this number, all rates are forgotten
	atOnce      = 2    // lookups
	maxWaiting  = 64   // questions that wait for a lookup, of all callers
	maxOfOne    = 8    // waiting questions of one caller; one at a time is looked up
	waitMost    = time.Second
	verdictMost = 500 * time.Millisecond // for the verdict on the writer of a block that is forwarded
	maxQuestion = 4 << 10                // bytes
	maxIdle     = 2 * time.Minute
	maxConns    = 4096
)

// Server answers other nodes.
type Server struct {
	cluster.UnimplementedPeersServer
	Answered atomic.Int64
	Refused  atomic.Int64 // questions refused because the caller has no right to ask them, or asks too many

	// Target returns the disk of this machine's storage server. It is nil if there is none. It must be set
	// before Serve is called.
	Target func() (turns.Target, error)

	// Written returns the flow and the user of the block that a DataNode of this machine writes, once they are
	// verified; "" if they are not, or not before ctx ends. nil: they are not known. It must be set before Serve
	// is called.
	Written func(ctx context.Context, pid int, block string) (flow, user string)

	turnStreams turnStreams

	whose   func(ctx context.Context, local, remote netip.AddrPort) (identity.Peer, error)
	log     *slog.Logger
	lookups chan struct{}
	waiting atomic.Int64
	refusal sync.Once

	mu      sync.Mutex
	callers map[string]*asker
}

// asker is a node that asks, identified by its certificate's name.
type asker struct {
	*rate.Limiter
	waiting atomic.Int64
	turn    chan struct{} // holds one element while a question of this node is being looked up or waits for a free lookup
	blocks  atomic.Int64  // answered questions that wait for the verdict on a block's writer
}

// NewServer returns a server; whose is the method Whose of identity.Checker.
func NewServer(whose func(ctx context.Context, local, remote netip.AddrPort) (identity.Peer, error), log *slog.Logger) *Server {
	return &Server{whose: whose, log: log, lookups: make(chan struct{}, atOnce), callers: map[string]*asker{}}
}

// Serve answers on a listener until ctx ends. secure must require client certificates.
func (s *Server) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(secure)), grpc.MaxRecvMsgSize(maxQuestion),
		grpc.MaxConcurrentStreams(maxWaiting), grpc.ConnectionTimeout(5*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle, Time: 30 * time.Second, Timeout: 5 * time.Second}))
	cluster.RegisterPeersServer(server, s)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	err := server.Serve(web.Bounded(l, maxConns))
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Whose implements cluster.PeersServer.
func (s *Server) Whose(ctx context.Context, c *cluster.Connection) (*cluster.Owner, error) {
	owner, err := s.answer(ctx, c)
	if err == nil {
		s.Answered.Add(1)
		return owner, nil
	}
	s.Refused.Add(1)
	if status.Code(err) == codes.PermissionDenied {
		s.refusal.Do(func() { s.log.Warn("a question of another node is refused (logged once)", "error", err) })
	}
	return nil, err
}

func (s *Server) answer(ctx context.Context, c *cluster.Connection) (*cluster.Owner, error) {
	local, err1 := parseEnd(c.GetLocal())
	remote, err2 := parseEnd(c.GetRemote())
	if len(c.GetBlock()) > cluster.MaxName {
		return nil, status.Error(codes.InvalidArgument, "the block's name is too long")
	}
	if err := errors.Join(err1, err2); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	name, from, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	if from != remote.Addr() {
		return nil, status.Errorf(codes.PermissionDenied, "%.64q asks from %v about a connection with %v: it may ask only about its own connections", name, from, remote.Addr())
	}
	who := s.asker(name)
	if !who.Allow() {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d questions a second", perSecond)
	}
	done, err := s.turn(ctx, who)
	if err != nil {
		return nil, err
	}
	p, err := s.whose(ctx, local, remote)
	done() // a verdict may need an answer of the caller's node
	if err == nil && p.Server {
		p.Flow, p.FlowUser = s.flowOf(ctx, who, p.PID, c.GetBlock())
	}
	switch {
	case errors.Is(err, identity.ErrNobody):
		return &cluster.Owner{}, nil
	case ctx.Err() != nil: // the caller has given up, or is about to
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	o := &cluster.Owner{Application: p.Application, User: p.User, Outside: p.Outside, Server: p.Server, OnHost: p.OnHost, Program: p.Program, Flow: p.Flow, FlowUser: p.FlowUser}
	if p.Application != "" {
		o.Evidence = p.Evidence.String()
	}
	return o, nil
}

// flowOf returns the verified flow and user of a block that a DataNode forwards; "" if they are not known, or if too
// many questions of the caller wait for such a verdict.
func (s *Server) flowOf(ctx context.Context, who *asker, pid int, block string) (flow, user string) {
	if block == "" || s.Written == nil {
		return "", ""
	}
	defer who.blocks.Add(-1)
	if who.blocks.Add(1) > maxOfOne {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(ctx, verdictMost)
	defer cancel()
	return s.Written(ctx, pid, block)
}

// turn waits until a lookup may begin. At any time, only one question of each caller is looked up
// or competes with the questions of other callers. So a caller with many questions delays only
// itself.
func (s *Server) turn(ctx context.Context, who *asker) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, waitMost)
	defer cancel()
	if err := wait(ctx, who.turn, &who.waiting, maxOfOne); err != nil {
		return nil, err
	}
	if err := wait(ctx, s.lookups, &s.waiting, maxWaiting); err != nil {
		<-who.turn
		return nil, err
	}
	return func() { <-s.lookups; <-who.turn }, nil
}

// wait waits for a place. At most most callers may wait at a time.
func wait(ctx context.Context, places chan<- struct{}, waiting *atomic.Int64, most int64) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	defer waiting.Add(-1)
	if waiting.Add(1) > most {
		return status.Errorf(codes.ResourceExhausted, "%d questions wait already", most)
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.Error(codes.ResourceExhausted, "other lookups take too long")
	}
}

func (s *Server) asker(name string) *asker {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.callers[name]
	if a == nil {
		if len(s.callers) >= maxCallers {
			clear(s.callers)
		}
		a = &asker{Limiter: rate.NewLimiter(perSecond, burst), turn: make(chan struct{}, 1)}
		s.callers[name] = a
	}
	return a
}

// caller returns the name and the address of the calling node. The name is the first machine name
// in the node's certificate; an operator's certificate has no machine name.
func caller(ctx context.Context) (name string, from netip.Addr, err error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", netip.Addr{}, status.Error(codes.PermissionDenied, "a call without a peer")
	}
	info, secure := p.AuthInfo.(credentials.TLSInfo)
	at, tcp := p.Addr.(*net.TCPAddr)
	if !secure || !tcp {
		return "", netip.Addr{}, status.Error(codes.PermissionDenied, "a call without a certificate")
	}
	if cluster.Expired(info.State) {
		return "", netip.Addr{}, status.Error(codes.PermissionDenied, "the certificate has expired; connect again with a new one")
	}
	for _, name := range cluster.MachinesOf(info.State) {
		if name != "" {
			return name, at.AddrPort().Addr().Unmap().WithZone(""), nil
		}
	}
	return "", netip.Addr{}, status.Error(codes.PermissionDenied, "the certificate does not belong to a machine")
}

// parseEnd reads an end of a connection, ip:port.
func parseEnd(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return netip.AddrPort{}, errors.New("an end of a connection is ip:port")
	}
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port()), nil
}
