// Package ipc serves the Unix socket that agents connect to.
//
// Problem: the peer is a JVM full of other people's code, and it may be gone,
// stopped or wrong at any moment. Choices: who may connect is decided by the
// socket's permissions and by the kernel's word on the peer (SO_PEERCRED), not
// by what it says; every number of things that a peer can make us hold has a
// bound; and nothing that a peer does or leaves undone may hold up a device's
// loop, so marks go out through a bounded queue and a peer that does not read
// it is disconnected (its gates then open by themselves).
package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/device"
	"penstock/wire"
)

// Bounds of the socket. Places for servers are kept free: tasks come in any number.
const (
	MaxConnections = 1024  // in all, accepted
	MaxGreetings   = 512   // besides, that have not said who they are
	maxUserGreets  = 64    // of them, from one user
	MaxServers     = 64    // of them, from DataNodes and NodeManagers
	MaxStreams     = 16384 // open at once on a server's connection; HDFS's own bound is 4,096 threads
	MaxTaskStreams = 1024  // on a task's
	MaxExecStreams = 4096  // on an executor's: each of its tasks may write a file for each of a shuffle's partitions at once
	MaxTaskOpens   = 8192  // files being opened for all of those together
	helloWait      = 5 * time.Second
	sendWait       = 5 * time.Second
	HeartbeatEvery = 250 * time.Millisecond
)

// Opener is the daemon as agents see it.
type Opener interface {
	// Register takes the directories of a peer and gives what Open uses.
	Register(p Peer) (Registration, error)
	// Heartbeat returns a sign of the daemon's life, and its mode.
	Heartbeat() (tick uint64, mode device.Mode)
	// Stride is the bytes between progress reports of a process of that role.
	Stride(role wire.Role) uint32
}

// Peer is who is at the other end of a connection.
type Peer struct {
	PID   int32 // PID and UID are the kernel's word
	UID   uint32
	Hello wire.Hello // the peer's own
	// Disconnect ends the connection. The peer's gates open, and it connects anew.
	Disconnect func()
}

// Serves tells whether the role is one that works for many applications and names
// one with each stream.
func Serves(role wire.Role) bool { return role == wire.RoleDataNode || role == wire.RoleNodeManager }

// streamsOf is how many streams a process of that role may have open.
func streamsOf(role wire.Role) int {
	switch {
	case Serves(role):
		return MaxStreams
	case role == wire.RoleExecutor:
		return MaxExecStreams
	}
	return MaxTaskStreams
}

// Registration is one peer's directories.
type Registration interface {
	// Open opens a stream's files and starts it on their device. It may block
	// for as long as the device does.
	Open(m wire.Open, marker device.Marker) (*device.Loop, *device.Stream, error)
	// Devices returns a WELCOME's Devices: what each directory of the hello lies on.
	Devices() []uint8
	// Alive returns a HEARTBEAT's Alive: which of those devices live. It must not block.
	Alive() uint64
	Close()
}

// Server accepts agents.
type Server struct {
	Opener Opener
	// Allow tells whether a user's processes may connect in a role. Who may as a
	// server may as a task.
	Allow func(uid uint32, role wire.Role) bool
	Log   *slog.Logger

	Stats Stats

	mu     sync.Mutex
	agents map[*connection]Agent
	greets map[uint32]int // by user: connections without a hello yet

	taskOpens atomic.Int32 // files being opened for tasks and executors
}

// Agent is one connection, as it is shown to the operator.
type Agent struct {
	PID         int32 // PID and UID are the kernel's word, the rest is the peer's
	UID         uint32
	Role        wire.Role
	Flow        string // that all of a task's or an executor's streams belong to
	Name        string // and version
	Directories []string
	Since       time.Time
}

// Agents are those that are connected and accepted, oldest first; at most
// MaxConnections of them.
func (s *Server) Agents() []Agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.agents), func(a, b Agent) int { return a.Since.Compare(b.Since) })
}

// enter takes a connection among those that are accepted, if its role has a place.
func (s *Server) enter(c *connection, a Agent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents == nil {
		s.agents = map[*connection]Agent{}
	}
	bound, same := MaxConnections-MaxServers, 0
	if Serves(a.Role) {
		bound = MaxServers
	}
	for _, other := range s.agents {
		if Serves(other.Role) == Serves(a.Role) {
			same++
		}
	}
	if same >= bound {
		return fmt.Errorf("%d connections of its kind already", bound)
	}
	s.agents[c] = a
	return nil
}

func (s *Server) leave(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.agents, c)
}

// Stats counts what happened on the socket.
type Stats struct {
	Connections atomic.Int64 // open now
	Accepted    atomic.Int64
	Refused     atomic.Int64 // by peer check or bound
	BadFrames   atomic.Int64
	OpenErrors  atomic.Int64
	OtherFlows  atomic.Int64 // streams refused, of tasks that name a flow which is not theirs
	GoneFiles   atomic.Int64 // of kind intermediate, deleted before they could be opened
	SlowPeers   atomic.Int64 // disconnected because they did not read
}

// Listen makes the socket. A socket that a dead daemon left is replaced; one
// that still answers is not.
func Listen(path string, mode os.FileMode, gid int) (*net.UnixListener, error) {
	if len(path) > 107 {
		return nil, fmt.Errorf("socket %s: a Unix socket's path has at most 107 bytes", path)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("socket %s: another daemon answers there: stop it first", path)
	} else if st, err := os.Lstat(path); err == nil {
		if st.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("socket %s: there is something else at that path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// Nobody may connect between bind and chmod.
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, err
	}
	if gid >= 0 {
		err = os.Chown(path, -1, gid)
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Serve accepts until ctx ends, then closes every connection.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	var conns sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer conns.Wait()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			s.Log.Warn("accept failed", "error", err) // out of descriptors: wait for some
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		if s.Stats.Connections.Load() >= MaxConnections+MaxGreetings {
			s.Stats.Refused.Add(1)
			s.Log.Warn("agent refused: too many connections", "bound", MaxConnections+MaxGreetings)
			c.Close()
			continue
		}
		s.Stats.Connections.Add(1)
		s.Stats.Accepted.Add(1)
		conns.Add(1)
		go func() {
			defer conns.Done()
			defer s.Stats.Connections.Add(-1)
			defer c.Close()
			stopConn := context.AfterFunc(ctx, func() { c.Close() })
			defer stopConn()
			if err := s.serve(ctx, c); err != nil && ctx.Err() == nil {
				s.Log.Info("agent disconnected", "reason", err)
			}
		}()
	}
}

// peer asks the kernel who is at the other end.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

func (s *Server) serve(ctx context.Context, c *net.UnixConn) error {
	cred, err := peer(c)
	if err != nil {
		return fmt.Errorf("peer credentials: %w", err)
	}
	if !s.Allow(cred.Uid, wire.RoleTask) {
		s.Stats.Refused.Add(1)
		return fmt.Errorf("user %d may not connect: add it to users or task_users in the settings", cred.Uid)
	}
	r := wire.NewReader(c)
	hello, err := s.greet(c, r, cred.Uid)
	if err != nil {
		return err
	}
	if !s.Allow(cred.Uid, hello.Role) {
		s.Stats.Refused.Add(1)
		return fmt.Errorf("user %d may connect for tasks, not for a server: add it to users in the settings", cred.Uid)
	}
	if !Serves(hello.Role) && hello.Flow == "" {
		s.Stats.BadFrames.Add(1)
		return errors.New("the hello of a task or an executor names no flow")
	}
	conn := &connection{
		server: s, c: c, role: hello.Role, flow: hello.Flow,
		// A change of mode sends a mark to each stream.
		queue: make(chan wire.Mark, 2*streamsOf(hello.Role)), streams: map[uint32]*opened{},
	}
	if err := s.enter(conn, Agent{
		PID: cred.Pid, UID: cred.Uid, Role: hello.Role, Flow: hello.Flow, Name: hello.Agent, Directories: hello.Directories, Since: time.Now(),
	}); err != nil {
		s.Stats.Refused.Add(1)
		return err
	}
	defer s.leave(conn)
	reg, err := s.Opener.Register(Peer{PID: cred.Pid, UID: cred.Uid, Hello: hello, Disconnect: func() { c.Close() }})
	if err != nil {
		s.Stats.Refused.Add(1)
		return fmt.Errorf("directories refused: %w", err)
	}
	if int32(hello.PID) != cred.Pid {
		s.Log.Debug("the agent names another process than the kernel does, as in a PID namespace of its own", "says", hello.PID, "is", cred.Pid)
	}
	s.Log.Info("agent connected", "agent", hello.Agent, "pid", cred.Pid, "uid", cred.Uid, "directories", hello.Directories)

	connCtx, cancel := context.WithCancel(ctx)
	var sender sync.WaitGroup
	sender.Add(1)
	go func() {
		defer sender.Done()
		defer c.Close()
		conn.sendAll(connCtx, reg)
	}()
	defer sender.Wait()
	defer cancel()
	defer func() {
		conn.closeAll()
		go func() { // an open may still wait for its device
			conn.opens.Wait()
			reg.Close()
		}()
	}()
	return conn.receive(r, reg)
}

// greet takes the hello, which a peer may keep back for a while: no user may have so
// many connections waiting that others find no place.
func (s *Server) greet(c *net.UnixConn, r *wire.Reader, uid uint32) (wire.Hello, error) {
	s.mu.Lock()
	if s.greets == nil {
		s.greets = map[uint32]int{}
	}
	if s.greets[uid] >= maxUserGreets {
		s.mu.Unlock()
		s.Stats.Refused.Add(1)
		return wire.Hello{}, fmt.Errorf("user %d has %d connections that have not said a hello", uid, maxUserGreets)
	}
	s.greets[uid]++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.greets[uid]--; s.greets[uid] == 0 {
			delete(s.greets, uid)
		}
	}()
	if err := c.SetReadDeadline(time.Now().Add(helloWait)); err != nil {
		return wire.Hello{}, err
	}
	m, err := r.Next()
	if err != nil {
		s.countFrame(err)
		tellVersion(c, err)
		return wire.Hello{}, fmt.Errorf("no hello: %w", err)
	}
	hello, ok := m.(wire.Hello)
	if !ok {
		s.Stats.BadFrames.Add(1)
		return wire.Hello{}, fmt.Errorf("the first frame is %T, not a hello", m)
	}
	return hello, c.SetReadDeadline(time.Time{})
}

func (s *Server) countFrame(err error) {
	var bad *wire.FrameError
	if errors.As(err, &bad) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.Stats.BadFrames.Add(1)
	}
}
