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

// Bounds of the socket.
const (
	MaxConnections = 64
	MaxStreams     = 16384          // open at once on one connection; HDFS's own bound is 4,096 threads
	sendQueue      = 2 * MaxStreams // marks that a peer has not read yet: a change of mode sends one to each stream
	helloWait      = 5 * time.Second
	sendWait       = 5 * time.Second
	HeartbeatEvery = 250 * time.Millisecond
)

// Opener is the daemon as agents see it.
type Opener interface {
	// Register takes the data directories of a peer and gives what Open uses.
	Register(uid uint32, dirs []string) (Registration, error)
	// Heartbeat tells the daemon's mode, and whether all device loops live.
	Heartbeat() (tick uint64, mode device.Mode, alive bool)
	// Stride is the bytes between progress reports.
	Stride() uint32
}

// Registration is one peer's data directories.
type Registration interface {
	// Open opens a stream's files and starts it on their device. It may block
	// for as long as the device does.
	Open(m wire.Open, marker device.Marker) (*device.Loop, *device.Stream, error)
	Close()
}

// Server accepts agents.
type Server struct {
	Opener Opener
	Allow  func(uid uint32) bool
	Log    *slog.Logger

	Stats Stats

	mu     sync.Mutex
	agents map[*connection]Agent
}

// Agent is one connection, as it is shown to the operator.
type Agent struct {
	PID         int32 // PID and UID are the kernel's word, the rest is the peer's
	UID         uint32
	Role        wire.Role
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

func (s *Server) enter(c *connection, a Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents == nil {
		s.agents = map[*connection]Agent{}
	}
	s.agents[c] = a
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
		if s.Stats.Connections.Load() >= MaxConnections {
			s.Stats.Refused.Add(1)
			s.Log.Warn("agent refused: too many connections", "bound", MaxConnections)
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
	if !s.Allow(cred.Uid) {
		s.Stats.Refused.Add(1)
		return fmt.Errorf("user %d may not connect: add it to users in the settings", cred.Uid)
	}
	r := wire.NewReader(c)
	if err := c.SetReadDeadline(time.Now().Add(helloWait)); err != nil {
		return err
	}
	m, err := r.Next()
	if err != nil {
		s.countFrame(err)
		return fmt.Errorf("no hello: %w", err)
	}
	hello, ok := m.(wire.Hello)
	if !ok {
		s.Stats.BadFrames.Add(1)
		return fmt.Errorf("the first frame is %T, not a hello", m)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	reg, err := s.Opener.Register(cred.Uid, hello.Directories)
	if err != nil {
		s.Stats.Refused.Add(1)
		return fmt.Errorf("directories refused: %w", err)
	}
	if int32(hello.PID) != cred.Pid {
		s.Log.Warn("the agent names another process than the kernel does", "says", hello.PID, "is", cred.Pid)
	}
	s.Log.Info("agent connected", "agent", hello.Agent, "pid", cred.Pid, "uid", cred.Uid, "directories", hello.Directories)

	conn := &connection{server: s, c: c, queue: make(chan wire.Mark, sendQueue), streams: map[uint32]*opened{}}
	s.enter(conn, Agent{
		PID: cred.Pid, UID: cred.Uid, Role: hello.Role, Name: hello.Agent, Directories: hello.Directories, Since: time.Now(),
	})
	defer s.leave(conn)
	connCtx, cancel := context.WithCancel(ctx)
	var sender sync.WaitGroup
	sender.Add(1)
	go func() {
		defer sender.Done()
		defer c.Close()
		conn.sendAll(connCtx)
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

func (s *Server) countFrame(err error) {
	var bad *wire.FrameError
	if errors.As(err, &bad) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.Stats.BadFrames.Add(1)
	}
}

// opened is a stream from its OPEN frame on. Its files are opened beside the
// receiving goroutine, so that a device which does not answer holds up its own
// streams only; what the agent says meanwhile is kept.
type opened struct {
	mu     sync.Mutex
	loop   *device.Loop // nil until the files are open
	stream *device.Stream
	pos    int64 // what was said before that; negative: nothing, or nobody knows
	closed bool
}

func (o *opened) progress(pos int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.loop != nil {
		o.loop.Progress(o.stream, pos)
	} else {
		o.pos = pos
	}
}

func (o *opened) close(pos int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.loop != nil {
		o.loop.Close(o.stream, pos)
	} else {
		o.closed, o.pos = true, pos
	}
}

func (o *opened) ready(loop *device.Loop, stream *device.Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loop, o.stream = loop, stream
	if o.closed {
		loop.Close(stream, o.pos)
	} else if o.pos >= 0 {
		loop.Progress(stream, o.pos)
	}
}

// connection is one agent. streams belongs to the receiving goroutine.
type connection struct {
	server  *Server
	c       *net.UnixConn
	queue   chan wire.Mark
	streams map[uint32]*opened
	opens   sync.WaitGroup
}

// Mark queues a mark for the agent; it is called by device loops.
func (c *connection) Mark(stream uint32, position int64) {
	select {
	case c.queue <- wire.Mark{Stream: stream, Position: position}:
	default:
		// The peer does not read. Its gates open when the connection ends.
		c.server.Stats.SlowPeers.Add(1)
		c.c.Close()
	}
}

func (c *connection) receive(r *wire.Reader, reg Registration) error {
	for {
		m, err := r.Next()
		if err != nil {
			c.server.countFrame(err)
			if errors.Is(err, io.EOF) {
				return errors.New("closed by the agent")
			}
			return err
		}
		switch m := m.(type) {
		case wire.Open:
			if err := c.open(m, reg); err != nil {
				return err
			}
		case wire.Progress:
			if o, ok := c.streams[m.Stream]; ok {
				o.progress(m.Position)
			}
		case wire.Close:
			if o, ok := c.streams[m.Stream]; ok {
				delete(c.streams, m.Stream)
				o.close(m.Position)
			}
		default:
			c.server.Stats.BadFrames.Add(1)
			return fmt.Errorf("a %T is not for an agent to send", m)
		}
	}
}

func (c *connection) open(m wire.Open, reg Registration) error {
	if _, ok := c.streams[m.Stream]; ok {
		c.server.Stats.BadFrames.Add(1)
		return fmt.Errorf("stream %d is open already", m.Stream)
	}
	if len(c.streams) >= MaxStreams {
		c.Mark(m.Stream, device.Open)
		c.server.Stats.OpenErrors.Add(1)
		return nil
	}
	o := &opened{pos: -1}
	c.streams[m.Stream] = o
	c.opens.Go(func() {
		loop, stream, err := reg.Open(m, c)
		if err != nil {
			// Not governed, not held up: a file may be gone, or lie elsewhere.
			c.server.Stats.OpenErrors.Add(1)
			c.server.Log.Debug("stream not governed", "block", m.Path, "error", err)
			c.Mark(m.Stream, device.Open)
			return
		}
		o.ready(loop, stream)
	})
	return nil
}

func (c *connection) closeAll() {
	for _, o := range c.streams {
		o.close(-1)
	}
	clear(c.streams)
}

// sendAll writes the welcome, then marks and heartbeats, several in one write.
func (c *connection) sendAll(ctx context.Context) {
	opener := c.server.Opener
	_, mode, _ := opener.Heartbeat()
	buf, err := wire.Append(nil, wire.Welcome{
		Mode: wire.Mode(mode), Stride: opener.Stride(), HeartbeatMs: uint16(HeartbeatEvery.Milliseconds()),
	})
	ticker := time.NewTicker(HeartbeatEvery)
	defer ticker.Stop()
	for err == nil {
		if len(buf) > 0 {
			if err = c.c.SetWriteDeadline(time.Now().Add(sendWait)); err != nil {
				break
			}
			if _, err = c.c.Write(buf); err != nil {
				break
			}
			buf = buf[:0]
		}
		select {
		case <-ctx.Done():
			return
		case m := <-c.queue:
			buf, err = wire.Append(buf, m)
			for n := min(len(c.queue), 256); n > 0 && err == nil; n-- {
				buf, err = wire.Append(buf, <-c.queue)
			}
		case <-ticker.C:
			if tick, mode, alive := opener.Heartbeat(); alive {
				buf, err = wire.Append(buf, wire.Heartbeat{Tick: tick, Mode: wire.Mode(mode)})
			}
		}
	}
}
