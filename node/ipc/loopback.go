package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"penstock/node/monitor/connections"
	"penstock/wire"
)

// A JVM before Java 16 has no Unix sockets. Its agent connects to a port of the loopback address, and
// the kernel's data about the peer are found in another way than by SO_PEERCRED:
//
//   - Before a byte is read, socket diagnosis of exactly this connection gives the user of the peer's
//     socket, and its inode. The user's permission and bounds apply from then on.
//   - The hello contains the number of the agent's process. It is not believed: the daemon looks
//     whether that process belongs to the same user and has the socket open (Server.Holder). Then it
//     asks the kernel again, so the inode belonged to this connection all the time.
//
// All users of the machine can connect to the port, whatever the permissions of the Unix socket are.
// A connection of a user without permission costs one accept and one question to the kernel.

// socket is the peer's end of a connection by loopback.
type socket struct {
	local, remote netip.AddrPort
	connections.Endpoint
}

// ServeLoopback accepts agents at a port of the loopback address until ctx ends, then closes every
// connection. It may run beside Serve.
func (s *Server) ServeLoopback(ctx context.Context, l *net.TCPListener) error {
	return s.serveAt(ctx, l, s.admitLoopback)
}

// admitLoopback decides, from the kernel's data about the peer's socket, whether to accept a
// connection. It waits for nothing.
func (s *Server) admitLoopback(c net.Conn) (caller, error) {
	peer, err := socketOf(c)
	if err != nil {
		s.Stats.NoSocket.Add(1)
		if errors.Is(err, connections.ErrNoEndpoint) {
			err = fmt.Errorf("%w: it is closed, or in a network namespace of its own", err)
		}
		return caller{}, refuse("socket", "the peer's socket: %w", err)
	}
	who := caller{owner: Owner{UID: peer.UID}, socket: &peer}
	if err := s.mayUser(peer.UID); err != nil {
		return who, err
	}
	return who, s.mayAnother()
}

// socketOf finds the peer's socket of an accepted connection.
func socketOf(c net.Conn) (socket, error) {
	remote, ok1 := c.LocalAddr().(*net.TCPAddr)
	local, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return socket{}, fmt.Errorf("the connection is not one of TCP: %T", c)
	}
	s := socket{local: plainAddress(local), remote: plainAddress(remote)}
	if !s.local.Addr().IsLoopback() || !s.remote.Addr().IsLoopback() {
		return socket{}, fmt.Errorf("%v to %v is not a connection by loopback", s.local, s.remote)
	}
	var err error
	s.Endpoint, err = connections.Find(s.local, s.remote)
	return s, err
}

func plainAddress(a *net.TCPAddr) netip.AddrPort {
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// locate finds the process of a connection by loopback, and its container.
func (s *Server) locate(ctx context.Context, g *greeting, who *caller, hello wire.Hello) (err error) {
	defer func() {
		if err != nil {
			s.Stats.Refused.Add(1)
		}
	}()
	end, err := s.searches.begin(ctx, who.owner.UID)
	if err != nil {
		s.Stats.NoProcess.Add(1)
		return refuse("search", "%w: the process was not looked for within %v: others of user %d were", ErrBound, helloWait, who.owner.UID)
	}
	defer end()
	if !s.isGreeting(g) {
		return net.ErrClosed // a newer connection has taken its place
	}
	ctx, cancel := context.WithTimeout(ctx, searchWait)
	defer cancel()
	pid, err := s.Holder(ctx, who.socket.Inode, who.socket.UID, int(min(hello.PID, 1<<30)))
	if err != nil {
		s.Stats.NoProcess.Add(1)
		return refuse("process", "%w", err)
	}
	if again, err := connections.Find(who.socket.local, who.socket.remote); err != nil || again != who.socket.Endpoint {
		s.Stats.NoSocket.Add(1)
		return refuse("socket", "the peer closed the connection while its process was being looked for")
	}
	who.pid, who.owner = pid, s.ownerOf(pid, who.socket.UID)
	return s.mayOwner(who.owner)
}

func (s *Server) isGreeting(g *greeting) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.greetings, g)
}

// Bounds of searches for processes.
const (
	searchWait    = 200 * time.Millisecond // for one search
	searchesAtAll = 2                      // at a time, of all users
	searchRest    = 4                      // a user's next search waits for so many times the duration of the last one
)

// searches lets each user have one search at a time, and rest after it. So the searches of a user take
// at most a fifth of a CPU's time, whatever numbers its processes send.
type searches struct {
	mu    sync.Mutex
	users map[uint32]*turn
	all   chan struct{}
}

// turn is the turn of one user.
type turn struct {
	taken chan struct{} // full while the user searches or rests
	users int           // searches that wait, run or rest; 0: the turn is forgotten
}

func newSearches() searches {
	return searches{users: map[uint32]*turn{}, all: make(chan struct{}, searchesAtAll)}
}

// begin waits for the user's turn. end must be called when the search has ended.
func (s *searches) begin(ctx context.Context, uid uint32) (end func(), err error) {
	s.mu.Lock()
	t := s.users[uid]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		s.users[uid] = t
	}
	t.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.users, uid)
		}
	}
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		<-t.taken
		leave()
		return nil, ctx.Err()
	}
	began := time.Now()
	return func() {
		<-s.all
		time.AfterFunc(searchRest*time.Since(began), func() {
			<-t.taken
			leave()
		})
	}, nil
}
