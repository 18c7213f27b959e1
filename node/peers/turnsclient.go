package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"penstock/node/device"
	"penstock/node/turns"
	"penstock/wire/cluster"
)

// This file asks other nodes for turns at their storage servers. Each server that tasks of this machine
// use has one stream. If the other node is silent, all turns pass.

const (
	maxSessions = 256 // servers with a stream or a known error
	// Tasks choose the names of servers. Each new name costs a lookup, so their rate is bounded for all
	// tasks together.
	serversPerSecond = 20
	serversBurst     = maxSessions
	// silentAfter is the longest time without a message from the other node, as for agents. After it, turns
	// that wait pass, and all further ones pass for turnPause.
	silentAfter = time.Second
	turnPause   = 10 * time.Second
	sessionIdle = time.Minute // a stream without turns is closed after this time
	lookUpMost  = 500 * time.Millisecond
)

var errIdle = errors.New("no turns for a while")

// Turns asks other nodes for turns.
type Turns struct {
	Stats turns.AwayStats

	client *Client
	ctx    context.Context
	stop   context.CancelFunc
	// resolve returns the addresses of a server's name.
	resolve func(ctx context.Context, name string) ([]netip.Addr, error)

	mu       sync.Mutex
	sessions map[string]*session
	pace     *rate.Limiter // of new sessions
}

// NewTurns returns a Turns that finds nodes and authenticates them as the client does.
func NewTurns(c *Client) *Turns {
	t := &Turns{client: c, resolve: func(ctx context.Context, name string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	}}
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.sessions, t.pace = map[string]*session{}, rate.NewLimiter(serversPerSecond, serversBurst)
	return t
}

// Close ends all streams.
func (t *Turns) Close() { t.stop() }

// session is the stream to one server.
type session struct {
	server string
	turns  *Turns
	ctx    context.Context
	cancel context.CancelCauseFunc
	out    chan *cluster.TurnRequest

	mu    sync.Mutex
	open  map[uint32]*Away
	last  uint32
	heard time.Time // when the other node last sent anything
	used  time.Time // when a turn last began or ended
	until time.Time // set when the stream has ended: turns pass until then, because of err
	err   error
}

// Away is a turn at another node's storage server.
type Away struct {
	session *session
	id      uint32
	r       turns.Request
	to      device.Marker

	granted, gone bool // protected by the session's mu
}

// Take asks for a turn at the server of that name. It does not wait: a turn that is granted is reported
// as the mark device.Open.
func (t *Turns) Take(server string, r turns.Request, to device.Marker) (*Away, error) {
	if err := turns.Check(r.Bytes); err != nil {
		return nil, err
	}
	s, isNew, err := t.session(server)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if isNew {
		go s.run() // s.mu is held, so the stream cannot end before its first turn is counted
	}
	switch {
	case s.err != nil:
		return nil, s.failure()
	case len(s.open) >= turns.MaxTurnsOfNode:
		return nil, fmt.Errorf("%d turns at %.64q: %w", turns.MaxTurnsOfNode, server, turns.ErrTooMany)
	}
	for s.last++; s.last == 0 || s.open[s.last] != nil; s.last++ {
	}
	a := &Away{session: s, id: s.last, r: r, to: to}
	if !s.send(&cluster.TurnRequest{Id: a.id, Application: r.Flow, Write: r.Write, Bytes: r.Bytes}) {
		return nil, fmt.Errorf("the node of %.64q does not read its messages", server)
	}
	s.open[a.id] = a
	s.used = time.Now()
	t.Stats.Forwarded.Add(1)
	return a, nil
}

// session returns the stream to a server. If there is none, session makes one, which the caller must run.
func (t *Turns) session(server string) (s *session, isNew bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[server]; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err == nil {
			return s, false, nil
		}
		if time.Now().Before(s.until) {
			return nil, false, s.failure()
		}
	}
	if err := t.ctx.Err(); err != nil {
		return nil, false, errors.New("the daemon is stopping")
	}
	if !isName(server) {
		return nil, false, fmt.Errorf("%.64q is not the name of a storage server", server)
	}
	if !t.pace.Allow() || !t.makeRoom() {
		return nil, false, fmt.Errorf("too many storage servers: %w", turns.ErrTooMany)
	}
	now := time.Now()
	s = &session{server: server, turns: t, out: make(chan *cluster.TurnRequest, 2*turns.MaxTurnsOfNode), open: map[uint32]*Away{}, heard: now, used: now}
	s.ctx, s.cancel = context.WithCancelCause(t.ctx)
	t.sessions[server] = s
	return s, true, nil
}

// makeRoom makes room for another session. It forgets one that has failed or has no turns, and reports
// false if there is none. t.mu is held.
func (t *Turns) makeRoom() bool {
	if len(t.sessions) < maxSessions {
		return true
	}
	for server, s := range t.sessions {
		s.mu.Lock()
		unused := s.err != nil || len(s.open) == 0 && time.Since(s.used) > silentAfter
		s.mu.Unlock()
		if unused {
			s.cancel(errIdle)
			delete(t.sessions, server)
			return true
		}
	}
	return false
}

// isName reports whether a server can have the name. It may be an address.
func isName(server string) bool {
	if len(server) == 0 || len(server) > 253 {
		return false
	}
	for _, c := range []byte(server) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' || c == ':') {
			return false
		}
	}
	return true
}

// failure returns why the stream has ended. s.mu is held.
func (s *session) failure() error {
	return fmt.Errorf("no turns at the storage server %.64q: %w", s.server, s.err)
}

// send queues a message. It reports whether there was room; if not, the stream ends. s.mu is held.
func (s *session) send(m *cluster.TurnRequest) bool {
	select {
	case s.out <- m:
		return true
	default:
		s.cancel(errors.New("the other node does not read its messages"))
		return false
	}
}

// run serves the stream until it ends.
func (s *session) run() {
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.watch()
	}()
	err := s.talk()
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause
	}
	s.cancel(err)
	<-watched
	s.end(err)
}

// watch ends a stream whose other node is silent, or that is not needed.
func (s *session) watch() {
	ticker := time.NewTicker(silentAfter / 10)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-ticker.C:
			s.mu.Lock()
			silent, idle := now.Sub(s.heard) > silentAfter, len(s.open) == 0 && now.Sub(s.used) > sessionIdle
			s.mu.Unlock()
			switch {
			case silent:
				s.cancel(fmt.Errorf("its node has been silent for %v", silentAfter))
			case idle:
				s.cancel(errIdle)
			}
		}
	}
}

// talk finds the node, and exchanges messages with it.
func (s *session) talk() error {
	r, err := s.find()
	if err != nil {
		return err
	}
	conn, err := s.turns.client.dial(r)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := cluster.NewPeersClient(conn).Turns(s.ctx)
	if err != nil {
		return err
	}
	received := make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			s.hear(m)
		}
	}()
	for {
		select {
		case m := <-s.out:
			if err := stream.Send(m); err != nil {
				return <-received // it has the reason
			}
		case err := <-received:
			return err
		}
	}
}

// find returns the way to the server's node, as the broker knows it.
func (s *session) find() (route, error) {
	ctx, cancel := context.WithTimeout(s.ctx, lookUpMost)
	defer cancel()
	var addresses []netip.Addr
	if a, err := netip.ParseAddr(s.server); err == nil {
		addresses = []netip.Addr{a}
	} else if addresses, err = s.turns.resolve(ctx, s.server); err != nil {
		return route{}, err
	}
	err := errors.New("its name has no address")
	for _, a := range addresses[:min(len(addresses), 4)] {
		a = a.Unmap()
		var h home
		if h, err = s.turns.client.home(ctx, a); err != nil {
			continue
		}
		if h.name == s.turns.client.o.Self {
			return route{}, errors.New("it is this machine under another name: add the name to storage.names in the settings")
		}
		return route{name: h.name, to: netip.AddrPortFrom(a, h.port)}, nil
	}
	return route{}, err
}

// hear records a message of the other node.
func (s *session) hear(m *cluster.TurnAnswer) {
	s.mu.Lock()
	s.heard = time.Now()
	a := s.open[m.GetId()]
	if a != nil && m.GetRefused() {
		s.turns.Stats.Refused.Add(1)
	}
	s.mu.Unlock()
	if a != nil {
		a.grant()
	}
}

// end lets all turns pass.
func (s *session) end(err error) {
	s.mu.Lock()
	s.err, s.until = err, time.Now()
	if err != nil && !errors.Is(err, errIdle) {
		s.until = s.until.Add(turnPause)
	}
	left := s.open
	s.open = map[uint32]*Away{}
	waited := 0
	for _, a := range left {
		if !a.granted && !a.gone {
			waited++
		}
	}
	s.mu.Unlock()
	s.turns.Stats.Unanswered.Add(int64(waited))
	for _, a := range left {
		a.grant()
	}
	if s.turns.ctx.Err() == nil && !errors.Is(err, errIdle) {
		s.turns.client.say.Do(func() {
			s.turns.client.o.Log.Warn("no turns at a storage server: reads and writes there go ahead", "server", s.server, slog.Any("error", err), "again_in", turnPause)
		})
	}
}

// grant lets the task do its I/O, once.
func (a *Away) grant() {
	a.session.mu.Lock()
	first := !a.granted && !a.gone
	a.granted = true
	a.session.mu.Unlock()
	if first {
		a.to.Mark(a.r.ID, device.Open)
	}
}

// Progress implements ipc.Stream.
func (a *Away) Progress(int64) {}

// Close implements ipc.Stream: the task has done its I/O, or gives it up.
func (a *Away) Close(int64) {
	s := a.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.gone {
		return
	}
	a.gone = true
	if s.open[a.id] == a {
		delete(s.open, a.id)
		s.used = time.Now()
		s.send(&cluster.TurnRequest{Id: a.id, End: true})
	}
}
