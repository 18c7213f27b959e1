// Package ipc serves the Unix socket that agents connect to, and a loopback port for agents on JVMs
// without Unix sockets (loopback.go).
//
// Problem: the peer is a JVM full of other people's code. It may disappear, stop, send wrong frames
// or attack at any moment. Choices: permissions of the socket and the kernel's data about the peer
// (SO_PEERCRED, its cgroup) decide who may connect, not the peer's own statements. All resources
// that a peer can occupy, and all rates at which it can cause work, are limited per user and per
// container (slots.go, quota.go), and requests beyond a limit are refused, counted and logged once.
// Nothing that a peer does or fails to do may delay a device's loop: a mark goes into a box that
// holds the latest mark of each stream (marks.go), and a peer that does not read is disconnected
// (its gates then open by themselves).
package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/device"
	"penstock/node/loglimit"
	"penstock/wire"
)

// Bounds of the socket. Servers have reserved slots, since the number of tasks is not limited.
const (
	MaxConnections = 1024 // accepted connections, in all
	MaxServers     = 64   // of these, reserved for DataNodes, NodeManagers and Workers
	MaxGreetings   = 512  // in addition, connections that have not sent their hello

	MaxContainerConnections = 64 // of one container of tasks
	maxUserGreets           = 64 // of one user, connections that have not sent their hello
	maxContainerGreets      = 16 // the same, of one container

	MaxStreams     = 16384 // open at once on a server's connection; HDFS's own bound is 4,096 threads
	MaxTaskStreams = 1024  // on a task's connection
	MaxExecStreams = 4096  // on an executor's connection: each of its tasks may write a file for each of a shuffle's partitions at once

	MaxContainerStreams = 8192     // on all connections of a container of tasks
	MaxAllTaskStreams   = 65536    // on all connections of tasks and executors
	MaxTaskOpens        = 8192     // files being opened at a time for tasks and executors
	MaxTaskOpenBytes    = 16 << 20 // total bytes of the names of these files

	helloWait      = 5 * time.Second
	sendWait       = 5 * time.Second
	HeartbeatEvery = 250 * time.Millisecond
)

// Opener is the daemon's side of the socket.
type Opener interface {
	// Register registers the directories of a peer. The result opens the peer's streams.
	Register(p Peer) (Registration, error)
	// Heartbeat returns a counter that grows while the daemon is alive, and the daemon's mode.
	Heartbeat() (tick uint64, mode device.Mode)
	// Stride returns how many bytes lie between two progress reports of a process with that role.
	Stride(role wire.Role) uint32
}

// Peer is the process at the other end of a connection.
type Peer struct {
	PID   int32 // PID and UID come from the kernel
	UID   uint32
	Owner Owner      // whose quotas apply
	Hello wire.Hello // as sent by the peer
	// Disconnect ends the connection. The peer's gates open, and it connects again.
	Disconnect func()
}

// Serves reports whether processes of the role work for many applications and name one with each
// stream.
func Serves(role wire.Role) bool {
	return role == wire.RoleDataNode || role == wire.RoleNodeManager || role == wire.RoleWorker
}

// streamsOf returns how many streams a process of that role may have open.
func streamsOf(role wire.Role) int {
	switch {
	case Serves(role):
		return MaxStreams
	case role == wire.RoleExecutor:
		return MaxExecStreams
	}
	return MaxTaskStreams
}

// Stream is an open stream: a device.Stream, or a turn. Neither method waits.
type Stream interface {
	Progress(position int64)
	Close(position int64) // a negative position is not known
}

// Registration holds the directories of one peer.
type Registration interface {
	// Open opens a stream's files and starts it on their device. It may block
	// for as long as the device does.
	Open(m wire.Open, marker device.Marker) (Stream, error)
	// Devices returns the Devices of a WELCOME: the device of each directory in the hello.
	Devices() []uint8
	// Alive returns the Alive of a HEARTBEAT: which of those devices answer. It must not block.
	Alive() uint64
	// Free returns the Free of a HEARTBEAT: the devices on which small reads need not wait. It
	// must not block.
	Free() uint64
	// NoLongerFree is signalled when one of those devices stops being free.
	NoLongerFree() <-chan struct{}
	Close()
}

// Server accepts agents.
type Server struct {
	Opener Opener
	// Allow reports whether a user's processes may connect in a role. A user that may connect as
	// a server may also connect as a task.
	Allow func(uid uint32, role wire.Role) bool
	// Container returns the container of a process according to the kernel, "" if there is none.
	// It must not wait for a disk. If Container is nil, each process counts as a container of its
	// own.
	Container func(pid int32) string
	// Holder returns the process of a user that has a socket open; claimed is the number that the
	// process gives itself. It is needed for ServeLoopback only.
	Holder  func(ctx context.Context, inode uint64, uid uint32, claimed int) (pid int32, err error)
	Bounds  Bounds // zero: the bounds for a process with a million descriptors
	Log     *slog.Logger
	Limited *loglimit.Limiter // for messages that peers can cause; if nil, Serve makes one

	Stats Stats

	mu        sync.Mutex
	bounds    Bounds
	agents    map[*connection]Agent
	greetings []*greeting   // oldest first
	framesOf  *rateLimiters // limits of frames
	begun     sync.Once     // the fields below
	searches  searches

	connectMu    sync.Mutex
	connectRates rateLimiters // protected by connectMu

	streams       Quota        // of tasks and executors
	taskOpens     atomic.Int32 // files being opened for tasks and executors
	taskOpenBytes atomic.Int64 // bytes of their names

	credentials func(*net.UnixConn) (*unix.Ucred, error) // nil: from the kernel
}

// Agent is one connection in the form shown to the operator.
type Agent struct {
	PID         int32 // PID, UID and Container come from the kernel; Role, Flow, Name and Directories from the peer
	UID         uint32
	Container   string // or its process, if the kernel names no container
	Role        wire.Role
	Flow        string // of all streams of a task or an executor
	Name        string // with version
	Directories []string
	Since       time.Time
	Loopback    bool  // the connection is one of ServeLoopback
	Frames      uint8 // version of the frames
}

// Stats counts what happened on the socket.
type Stats struct {
	Connections atomic.Int64 // open now
	Accepted    atomic.Int64
	Refused     atomic.Int64 // by the check of the peer, or at a bound
	Hurried     atomic.Int64 // of these, because the peer connected too often
	Displaced   atomic.Int64 // disconnected in favour of another user or container
	AcceptFails atomic.Int64
	BadFrames   atomic.Int64
	OpenErrors  atomic.Int64
	OverBound   atomic.Int64 // of these, because of a bound
	OtherFlows  atomic.Int64 // streams of tasks that named another flow than their own; refused
	GoneFiles   atomic.Int64 // of kind intermediate, deleted before they could be opened
	SlowPeers   atomic.Int64 // disconnected because they did not read
	// Of the refused connections, those on the loopback port whose socket was not found (their
	// process has closed it, or is in another network namespace), and those whose process was not
	// found by the number in their hello.
	NoSocket, NoProcess atomic.Int64
}

// port is a listening socket of either kind.
type port interface {
	net.Listener
	SetDeadline(time.Time) error
}

// caller is what the kernel says about the peer of a new connection.
type caller struct {
	owner  Owner
	pid    int32
	socket *socket // of a connection by loopback; nil for others. owner.Container and pid are then known only after the hello
}

// Serve accepts until ctx ends, then closes every connection.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	return s.serveAt(ctx, l, func(c net.Conn) (caller, error) { return s.admit(c.(*net.UnixConn)) })
}

// begin fills in the fields that Serve and ServeLoopback share.
func (s *Server) begin() {
	s.begun.Do(func() {
		if s.bounds = s.Bounds; s.bounds == (Bounds{}) {
			s.bounds = BoundsFor(1 << 20)
		}
		if s.Limited == nil {
			s.Limited = loglimit.New(s.Log)
		}
		if s.credentials == nil {
			s.credentials = peer
		}
		s.streams.Bound, s.streams.Container = MaxAllTaskStreams, MaxContainerStreams
		s.connectRates = newRateLimiters()
		s.searches = newSearches()
	})
}

func (s *Server) serveAt(ctx context.Context, l port, admit func(net.Conn) (caller, error)) error {
	s.begin()
	var conns sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer conns.Wait()
	spare := newSpare()
	defer spare.close()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			s.Stats.AcceptFails.Add(1)
			s.Limited.Once(slog.LevelError, "accept failed", "", "error", err)
			spare.refuse(l)
			continue
		}
		who, err := admit(c)
		if err != nil {
			s.Stats.Refused.Add(1)
			s.Limited.Once(slog.LevelWarn, "agent refused", reason(who.owner.UID, err), "uid", who.owner.UID, "pid", who.pid, "reason", err)
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
			if err := s.serve(ctx, c, &who); err != nil && ctx.Err() == nil {
				s.sayGone(err, who.owner, who.pid)
			}
		}()
	}
}

// sayGone logs why a connection has ended. A refused agent tries again twice a second, so the
// refusal is logged once.
func (s *Server) sayGone(err error, owner Owner, pid int32) {
	var r *refusal
	if errors.As(err, &r) {
		s.Limited.Once(slog.LevelWarn, "agent refused", reason(owner.UID, err), "uid", owner.UID, "pid", pid, "reason", err)
		return
	}
	s.Limited.Some(connectLines, slog.LevelInfo, "agent disconnected", reason(owner.UID, err), "uid", owner.UID, "pid", pid, "reason", err)
}

// connectLines is the maximum burst of log lines about agents of one user that connect, or that
// disconnect for the same reason.
const connectLines = 20

// refusal is an error with a short name of its cause. The name is the same for every peer and
// every time.
type refusal struct {
	about string
	err   error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(about, format string, args ...any) error {
	return &refusal{about, fmt.Errorf(format, args...)}
}

// reason returns the key under which log lines about a user and an error are limited.
func reason(uid uint32, err error) string {
	about := "ended"
	var r *refusal
	if errors.As(err, &r) {
		about = r.about
	}
	return about + " of user " + strconv.FormatUint(uint64(uid), 10)
}

// admit decides, from the kernel's data about the peer, whether to accept a connection. It waits
// for nothing.
func (s *Server) admit(c *net.UnixConn) (caller, error) {
	cred, err := s.credentials(c)
	if err != nil {
		return caller{}, refuse("credentials", "peer credentials: %w", err)
	}
	who := caller{owner: Owner{UID: cred.Uid}, pid: cred.Pid}
	if err := s.mayUser(cred.Uid); err != nil {
		return who, err
	}
	who.owner = s.ownerOf(cred.Pid, cred.Uid)
	if err := s.mayOwner(who.owner); err != nil {
		return who, err
	}
	return who, s.mayAnother()
}

// mayUser returns an error if a user may not connect, or not now.
func (s *Server) mayUser(uid uint32) error {
	if !s.Allow(uid, wire.RoleTask) {
		return refuse("user", "user %d has no permission to connect: add it to users or task_users in the settings", uid)
	}
	if s.Allow(uid, wire.RoleDataNode) {
		return nil
	}
	s.connectMu.Lock()
	defer s.connectMu.Unlock()
	if !s.connectRates.user(uid, time.Now()) {
		s.Stats.Hurried.Add(1)
		return refuse("pace of user", "%w: more than %d connections a second of user %d", ErrBound, connectsOfUser, uid)
	}
	return nil
}

// mayOwner returns an error if a process or container connects too often.
func (s *Server) mayOwner(o Owner) error {
	s.connectMu.Lock()
	defer s.connectMu.Unlock()
	if !s.connectRates.owner(o, time.Now()) {
		s.Stats.Hurried.Add(1)
		return refuse("pace", "%w: more than %d connections a second of %s", ErrBound, connectsOfProcess, o.Container)
	}
	return nil
}

// mayAnother returns an error if there are too many connections.
func (s *Server) mayAnother() error {
	if bound := s.bounds.Connections + s.bounds.Greetings; s.Stats.Connections.Load() >= int64(bound) {
		return refuse("connections", "%w: %d connections", ErrBound, bound)
	}
	return nil
}

// peer returns the kernel's credentials of the process at the other end.
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

func (s *Server) serve(ctx context.Context, c net.Conn, who *caller) error {
	r := wire.NewAgentReader(c)
	hello, err := s.greet(ctx, c, r, who)
	if err != nil {
		return err
	}
	owner, pid := who.owner, who.pid
	if !s.Allow(owner.UID, hello.Role) {
		s.Stats.Refused.Add(1)
		return refuse("role", "user %d may connect as a task, but not as a server: add it to users in the settings", owner.UID)
	}
	if !Serves(hello.Role) && hello.Flow == "" {
		s.Stats.BadFrames.Add(1)
		return refuse("flow", "the hello of a task or an executor names no flow")
	}
	conn := &connection{
		server: s, c: c, version: r.Version(), role: hello.Role, flow: hello.Flow, owner: owner, rates: s.frameRates(hello.Role, owner),
		// Refused streams have marks, too.
		marks: newMarks(2*streamsOf(hello.Role), r.Version()), streams: map[uint32]*opened{},
	}
	if err := s.enter(conn, Agent{
		PID: pid, UID: owner.UID, Container: owner.Container, Role: hello.Role, Flow: hello.Flow, Name: hello.Agent,
		Directories: hello.Directories, Since: time.Now(), Loopback: who.socket != nil, Frames: r.Version(),
	}); err != nil {
		s.Stats.Refused.Add(1)
		return &refusal{"places", err}
	}
	defer s.leave(conn)
	reg, err := s.Opener.Register(Peer{PID: pid, UID: owner.UID, Owner: owner, Hello: hello, Disconnect: func() { c.Close() }})
	if err != nil {
		s.Stats.Refused.Add(1)
		return refuse("directories", "directories refused: %w", err)
	}
	if int32(hello.PID) != pid {
		s.Log.Debug("the agent and the kernel report different pids; the agent may run in a PID namespace of its own", "says", hello.PID, "is", pid)
	}
	s.Limited.Some(connectLines, slog.LevelInfo, "agent connected", reason(owner.UID, nil),
		"agent", hello.Agent, "pid", pid, "uid", owner.UID, "directories", hello.Directories, "frames", r.Version())

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
		go func() { // an open may still be waiting for its device
			conn.opens.Wait()
			reg.Close()
		}()
	}()
	return conn.receive(connCtx, r, reg)
}

// greet receives the hello. It then finds the process of a connection by loopback.
func (s *Server) greet(ctx context.Context, c net.Conn, r *wire.Reader, who *caller) (wire.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloWait)
	defer cancel()
	g := &greeting{who.owner, c}
	s.beginGreeting(g)
	defer s.endGreeting(g)
	hello, err := s.receiveHello(c, r)
	if err != nil {
		return wire.Hello{}, &refusal{"hello", err}
	}
	if who.socket != nil {
		if err := s.locate(ctx, g, who, hello); err != nil {
			return wire.Hello{}, err
		}
	}
	return hello, nil
}

func (s *Server) receiveHello(c net.Conn, r *wire.Reader) (wire.Hello, error) {
	if err := c.SetReadDeadline(time.Now().Add(helloWait)); err != nil {
		return wire.Hello{}, err
	}
	m, err := r.Next()
	if err != nil {
		s.countFrame(err)
		tellVersion(c, err)
		return wire.Hello{}, fmt.Errorf("no hello: %w", explained(err))
	}
	hello, ok := m.(wire.Hello)
	if !ok {
		s.Stats.BadFrames.Add(1)
		return wire.Hello{}, fmt.Errorf("the first frame is %T, not a hello", m)
	}
	return hello, c.SetReadDeadline(time.Time{})
}

// explained says what to do about an agent of another version.
func explained(err error) error {
	var bad *wire.FrameError
	if !errors.As(err, &bad) || !errors.Is(err, wire.ErrVersion) {
		return err
	}
	remedy := "restart its process, so that it loads the agent of this release"
	if bad.Version > wire.Version {
		remedy = "the agent is of a later release: upgrade the daemon"
	}
	return fmt.Errorf("%w (this daemon serves versions %d and %d; %s)", err, wire.Former, wire.Version, remedy)
}

func (s *Server) countFrame(err error) {
	var bad *wire.FrameError
	if errors.As(err, &bad) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.Stats.BadFrames.Add(1)
	}
}
