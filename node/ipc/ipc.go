// Package ipc serves the Unix socket that agents connect to.
//
// Problem: the peer is a JVM full of other people's code, and it may be gone, stopped, wrong
// or hostile at any moment. Choices: who may connect is decided by the socket's permissions
// and by the kernel's word on the peer (SO_PEERCRED, its cgroup), not by what it says; every
// number of things that a peer can make us hold, and every rate at which it makes us work,
// has a bound by user and by container (slots.go, quota.go), and past it a refusal that is
// counted and said once; and nothing that a peer does or leaves undone may hold up a device's
// loop, so a mark goes into a box that holds the latest one of each stream (marks.go), and a
// peer that does not read is disconnected (its gates then open by themselves).
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

// Bounds of the socket. Slots for servers are kept free: tasks come in any number.
const (
	MaxConnections = 1024 // in all, accepted
	MaxServers     = 64   // of them, from DataNodes and NodeManagers
	MaxGreetings   = 512  // besides, that have not said who they are

	MaxContainerConnections = 64 // from one container of tasks
	maxUserGreets           = 64 // that have not said who they are, from one user
	maxContainerGreets      = 16 // and from one container

	MaxStreams     = 16384 // open at once on a server's connection; HDFS's own bound is 4,096 threads
	MaxTaskStreams = 1024  // on a task's
	MaxExecStreams = 4096  // on an executor's: each of its tasks may write a file for each of a shuffle's partitions at once

	MaxContainerStreams = 8192     // on all connections of a container of tasks
	MaxAllTaskStreams   = 65536    // on all connections of tasks and executors
	MaxTaskOpens        = 8192     // files being opened for all of those together
	MaxTaskOpenBytes    = 16 << 20 // and the bytes of their names

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
	Owner Owner      // whose quotas it uses
	Hello wire.Hello // the peer's own
	// Disconnect ends the connection. The peer's gates open, and it connects again.
	Disconnect func()
}

// Serves reports whether the role is one that works for many applications and names
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
	// Allow reports whether a user's processes may connect in a role. Who may as a
	// server may as a task.
	Allow func(uid uint32, role wire.Role) bool
	// Container names the container of a process by the kernel's word, "" where there is
	// none; it must not wait for a disk. It may be nil: each process is one of its own.
	Container func(pid int32) string
	Bounds    Bounds // zero: as for a process of a million descriptors
	Log       *slog.Logger
	Limited   *loglimit.Limiter // for what peers provoke; made by Serve where it is nil

	Stats Stats

	mu        sync.Mutex
	bounds    Bounds
	agents    map[*connection]Agent
	greetings []*greeting   // oldest first
	framesOf  *rateLimiters // rates of frames

	streams       Quota        // of tasks and executors
	taskOpens     atomic.Int32 // files being opened for tasks and executors
	taskOpenBytes atomic.Int64 // of their names

	credentials func(*net.UnixConn) (*unix.Ucred, error) // nil: the kernel's
}

// Agent is one connection, as it is shown to the operator.
type Agent struct {
	PID         int32 // PID and UID are the kernel's word, the rest is the peer's
	UID         uint32
	Container   string // or its process, where the kernel names no container
	Role        wire.Role
	Flow        string // that all of a task's or an executor's streams belong to
	Name        string // and version
	Directories []string
	Since       time.Time
}

// Stats counts what happened on the socket.
type Stats struct {
	Connections atomic.Int64 // open now
	Accepted    atomic.Int64
	Refused     atomic.Int64 // by peer check or bound
	Hurried     atomic.Int64 // of them, because they came too often
	Displaced   atomic.Int64 // disconnected for another user's or container's sake
	AcceptFails atomic.Int64
	BadFrames   atomic.Int64
	OpenErrors  atomic.Int64
	OverBound   atomic.Int64 // of them, by a bound
	OtherFlows  atomic.Int64 // streams refused, of tasks that name a flow which is not theirs
	GoneFiles   atomic.Int64 // of kind intermediate, deleted before they could be opened
	SlowPeers   atomic.Int64 // disconnected because they did not read
}

// Serve accepts until ctx ends, then closes every connection.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
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
	var conns sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer conns.Wait()
	spare := newSpare()
	defer spare.close()
	connectRates := newRateLimiters()
	for {
		c, err := l.AcceptUnix()
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
		owner, pid, err := s.admit(c, connectRates)
		if err != nil {
			s.Stats.Refused.Add(1)
			s.Limited.Once(slog.LevelWarn, "agent refused", reason(owner.UID, err), "uid", owner.UID, "pid", pid, "reason", err)
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
			if err := s.serve(ctx, c, owner, pid); err != nil && ctx.Err() == nil {
				s.sayGone(err, owner, pid)
			}
		}()
	}
}

// sayGone logs why a connection has ended. One that was refused is tried again twice a second,
// so that is said once.
func (s *Server) sayGone(err error, owner Owner, pid int32) {
	var r *refusal
	if errors.As(err, &r) {
		s.Limited.Once(slog.LevelWarn, "agent refused", reason(owner.UID, err), "uid", owner.UID, "pid", pid, "reason", err)
		return
	}
	s.Limited.Some(connectLines, slog.LevelInfo, "agent disconnected", reason(owner.UID, err), "uid", owner.UID, "pid", pid, "reason", err)
}

// connectLines is how many lines there may be in a while about agents of one user that
// come, or go for one reason.
const connectLines = 20

// refusal is an error with a short name for what it is about, which is the same for every
// peer and every time.
type refusal struct {
	about string
	err   error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(about, format string, args ...any) error {
	return &refusal{about, fmt.Errorf(format, args...)}
}

// reason is what lines of the log about a user and an error are counted by.
func reason(uid uint32, err error) string {
	about := "ended"
	var r *refusal
	if errors.As(err, &r) {
		about = r.about
	}
	return about + " of user " + strconv.FormatUint(uint64(uid), 10)
}

// admit decides by the kernel's word whether a connection is listened to at all, without
// waiting for anything.
func (s *Server) admit(c *net.UnixConn, connectRates rateLimiters) (Owner, int32, error) {
	cred, err := s.credentials(c)
	if err != nil {
		return Owner{}, 0, refuse("credentials", "peer credentials: %w", err)
	}
	owner := Owner{UID: cred.Uid}
	if !s.Allow(cred.Uid, wire.RoleTask) {
		return owner, cred.Pid, refuse("user", "user %d may not connect: add it to users or task_users in the settings", cred.Uid)
	}
	now := time.Now()
	serves := s.Allow(cred.Uid, wire.RoleDataNode)
	if !serves && !connectRates.user(cred.Uid, now) {
		s.Stats.Hurried.Add(1)
		return owner, cred.Pid, refuse("pace of user", "%w: more than %d connections a second of user %d", ErrBound, connectsOfUser, cred.Uid)
	}
	owner = s.ownerOf(cred.Pid, cred.Uid)
	if !connectRates.owner(owner, now) {
		s.Stats.Hurried.Add(1)
		return owner, cred.Pid, refuse("pace", "%w: more than %d connections a second of %s", ErrBound, connectsOfProcess, owner.Container)
	}
	if bound := s.bounds.Connections + s.bounds.Greetings; s.Stats.Connections.Load() >= int64(bound) {
		return owner, cred.Pid, refuse("connections", "%w: %d connections", ErrBound, bound)
	}
	return owner, cred.Pid, nil
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

func (s *Server) serve(ctx context.Context, c *net.UnixConn, owner Owner, pid int32) error {
	r := wire.NewReader(c)
	hello, err := s.greet(c, r, owner)
	if err != nil {
		return &refusal{"hello", err}
	}
	if !s.Allow(owner.UID, hello.Role) {
		s.Stats.Refused.Add(1)
		return refuse("role", "user %d may connect for tasks, not for a server: add it to users in the settings", owner.UID)
	}
	if !Serves(hello.Role) && hello.Flow == "" {
		s.Stats.BadFrames.Add(1)
		return refuse("flow", "the hello of a task or an executor names no flow")
	}
	conn := &connection{
		server: s, c: c, role: hello.Role, flow: hello.Flow, owner: owner, rates: s.frameRates(hello.Role, owner),
		// A stream that was refused has a mark, too.
		marks: newMarks(2 * streamsOf(hello.Role)), streams: map[uint32]*opened{},
	}
	if err := s.enter(conn, Agent{
		PID: pid, UID: owner.UID, Container: owner.Container, Role: hello.Role, Flow: hello.Flow, Name: hello.Agent,
		Directories: hello.Directories, Since: time.Now(),
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
		s.Log.Debug("the agent names another process than the kernel does, as in a PID namespace of its own", "says", hello.PID, "is", pid)
	}
	s.Limited.Some(connectLines, slog.LevelInfo, "agent connected", reason(owner.UID, nil),
		"agent", hello.Agent, "pid", pid, "uid", owner.UID, "directories", hello.Directories)

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
	return conn.receive(connCtx, r, reg)
}

// greet takes the hello.
func (s *Server) greet(c *net.UnixConn, r *wire.Reader, owner Owner) (wire.Hello, error) {
	g := &greeting{owner, c}
	s.beginGreeting(g)
	defer s.endGreeting(g)
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
