// Package peers is how nodes ask each other whose a connection is.
//
// Problem: a DataNode's client is often a process of another machine, and what its claim
// could be held against is there: cgroups, sessions and directories of its containers. What is
// hard is that the one who is asked must not become a way to spy on others, nor to load a machine,
// and that the one who asks must not believe the wrong one. Choices: both sides have certificates
// of the cluster's authority. The answer is about connections with the asking machine only: the
// question comes from the very address that the connection goes to. And it goes to the very
// address that the connection comes from, to a node of the name that the broker knows there; so a
// node that states another's address gains nothing, as nobody reaches it there. Nothing is waited for
// by I/O: identity asks with workers of its own, and without an answer the claim is as
// unknown as it was. docs/design/identity.md has the bounds.
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
	"penstock/wire/cluster"
)

// Bounds of the side that answers.
const (
	perSecond   = 100 // questions of one node, after a burst
	burst       = 200
	maxCallers  = 4096 // nodes whose rate is known; past it all counts begin at 0
	atOnce      = 2    // lookups
	maxWaiting  = 64   // questions that wait for one, of all callers
	maxOfOne    = 8    // questions of one caller that wait; one of his is looked up at a time
	waitMost    = time.Second
	maxQuestion = 4 << 10 // bytes
	maxIdle     = 2 * time.Minute
	maxConns    = 4096
)

// Server answers other nodes.
type Server struct {
	cluster.UnimplementedPeersServer
	Answered atomic.Int64
	Refused  atomic.Int64 // questions that are not the caller's to ask, or too many

	whose   func(ctx context.Context, local, remote netip.AddrPort) (identity.Peer, error)
	log     *slog.Logger
	lookups chan struct{}
	waiting atomic.Int64
	refusal sync.Once

	mu      sync.Mutex
	callers map[string]*asker
}

// asker is a node that asks, by its certificate's name.
type asker struct {
	*rate.Limiter
	waiting atomic.Int64
	turn    chan struct{} // holds one while a question of his is looked up, or is next
}

// NewServer returns a server; whose is identity.Checker's.
func NewServer(whose func(ctx context.Context, local, remote netip.AddrPort) (identity.Peer, error), log *slog.Logger) *Server {
	return &Server{whose: whose, log: log, lookups: make(chan struct{}, atOnce), callers: map[string]*asker{}}
}

// Serve answers on a listener until ctx ends. secure must ask for certificates.
func (s *Server) Serve(ctx context.Context, l net.Listener, secure *tls.Config) error {
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(secure)), grpc.MaxRecvMsgSize(maxQuestion),
		grpc.MaxConcurrentStreams(maxWaiting), grpc.ConnectionTimeout(5*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle, Time: 30 * time.Second, Timeout: 5 * time.Second}))
	cluster.RegisterPeersServer(server, s)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	err := server.Serve(Bounded(l, maxConns))
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
		s.refusal.Do(func() { s.log.Warn("a question of another node is refused (said once)", "error", err) })
	}
	return nil, err
}

func (s *Server) answer(ctx context.Context, c *cluster.Connection) (*cluster.Owner, error) {
	local, err1 := parseEnd(c.GetLocal())
	remote, err2 := parseEnd(c.GetRemote())
	if err := errors.Join(err1, err2); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	name, from, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	if from != remote.Addr() {
		return nil, status.Errorf(codes.PermissionDenied, "%.64q asks from %v about a connection with %v: it may ask about its own", name, from, remote.Addr())
	}
	who := s.asker(name)
	if !who.Allow() {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d questions a second", perSecond)
	}
	done, err := s.turn(ctx, who)
	if err != nil {
		return nil, err
	}
	defer done()
	p, err := s.whose(ctx, local, remote)
	switch {
	case errors.Is(err, identity.ErrNobody):
		return &cluster.Owner{}, nil
	case ctx.Err() != nil: // the one who asks has given up, or is about to
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	o := &cluster.Owner{Application: p.Application, User: p.User, Outside: p.Outside, Server: p.Server}
	if p.Application != "" {
		o.Evidence = p.Evidence.String()
	}
	return o, nil
}

// turn waits until a lookup may begin. Each caller has one at a time, and one that waits among
// the others': whoever asks much waits for himself.
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

// wait waits for a place, with at most so many others.
func wait(ctx context.Context, places chan<- struct{}, waiting *atomic.Int64, most int64) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	defer waiting.Add(-1)
	if waiting.Add(1) > most {
		return status.Errorf(codes.ResourceExhausted, "%d questions wait", most)
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

// caller is who asks: the first name in its certificate, which is no operator's, and its address.
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
	for _, name := range cluster.MachinesOf(info.State) {
		if name != "" {
			return name, at.AddrPort().Addr().Unmap().WithZone(""), nil
		}
	}
	return "", netip.Addr{}, status.Error(codes.PermissionDenied, "the certificate is no machine's")
}

// parseEnd reads an end of a connection, ip:port.
func parseEnd(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Port() == 0 {
		return netip.AddrPort{}, errors.New("an end of a connection is ip:port")
	}
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port()), nil
}
