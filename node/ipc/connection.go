package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"penstock/node/device"
	"penstock/wire"
)

// opened is a stream whose OPEN frame has arrived. Its files are opened in another goroutine than
// the one that receives frames, so that a device that does not answer delays only its own streams.
// Frames that arrive before the files are open are kept.
type opened struct {
	mu     sync.Mutex
	stream Stream // nil until the files are open
	pos    int64  // last position reported before the files are open; negative: none, or unknown
	closed bool

	release func() // releases the stream's slot; called twice: when the stream is closed, and when its opening has ended
}

func (o *opened) progress(pos int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stream != nil {
		o.stream.Progress(pos)
	} else {
		o.pos = pos
	}
}

func (o *opened) close(pos int64) {
	defer o.release()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stream != nil {
		o.stream.Close(pos)
	} else {
		o.closed, o.pos = true, pos
	}
}

func (o *opened) ready(stream Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stream = stream
	if o.closed {
		stream.Close(o.pos)
	} else if o.pos >= 0 {
		stream.Progress(o.pos)
	}
}

// connection is the connection of one agent. streams and paid belong to the receiving goroutine.
type connection struct {
	server  *Server
	c       net.Conn
	version uint8 // of the frames
	role    wire.Role
	flow    string
	owner   Owner
	rates   []*rate.Limiter // limits of its frames
	paid    int             // frames that are accepted before the next request to rates
	marks   *marks          // marks that have not been sent yet
	streams map[uint32]*opened
	opens   sync.WaitGroup
	opening atomic.Int32 // streams being opened
}

// Mark queues a mark for the agent. Device loops call it.
func (c *connection) Mark(stream uint32, position int64) {
	if !c.marks.put(stream, position) {
		// The peer does not read. Its gates open when the connection ends.
		c.server.Stats.SlowPeers.Add(1)
		c.c.Close()
	}
}

// write writes frames. It counts a peer that does not read them in time.
func (c *connection) write(frames []byte) error {
	_, err := c.c.Write(frames)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.server.Stats.SlowPeers.Add(1)
	}
	return err
}

func (c *connection) receive(ctx context.Context, r *wire.Reader, reg Registration) error {
	for {
		m, err := r.Next()
		if err != nil {
			c.server.countFrame(err)
			if errors.Is(err, io.EOF) {
				return errors.New("closed by the agent")
			}
			return err
		}
		cost := 1
		if _, opens := m.(wire.Open); opens {
			cost = openFrames
		}
		if err := c.pay(ctx, cost); err != nil {
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
			return fmt.Errorf("unexpected %T frame: only the daemon sends it", m)
		}
	}
}

func (c *connection) open(m wire.Open, reg Registration) error {
	if _, ok := c.streams[m.Stream]; ok {
		c.server.Stats.BadFrames.Add(1)
		return fmt.Errorf("stream %d is already open", m.Stream)
	}
	if !Serves(c.role) && m.Flow != c.flow {
		c.server.Stats.OtherFlows.Add(1)
		c.Mark(m.Stream, device.Open)
		return nil
	}
	release := c.beginOpen(m)
	if release == nil {
		c.server.Stats.OverBound.Add(1)
		c.ungoverned(m, fmt.Errorf("%w: streams of the peer, of its container, or of all tasks", ErrBound))
		return nil
	}
	o := &opened{pos: -1, release: release}
	c.streams[m.Stream] = o
	c.opens.Go(func() {
		defer release()
		defer c.endOpen(m)
		stream, err := reg.Open(m, c)
		if err != nil {
			if errors.Is(err, ErrBound) {
				c.server.Stats.OverBound.Add(1)
			}
			c.ungoverned(m, err)
			return
		}
		o.ready(stream)
	})
	return nil
}

// ungoverned opens the gate of a stream that cannot be governed, for example because its file is
// deleted or not in a registered directory.
func (c *connection) ungoverned(m wire.Open, err error) {
	if m.Kind == wire.Intermediate && errors.Is(err, fs.ErrNotExist) {
		c.server.Stats.GoneFiles.Add(1)
	} else {
		c.server.Stats.OpenErrors.Add(1)
		c.server.Limited.Once(slog.LevelWarn, "stream not governed", reason(c.owner.UID, &refusal{causeOf(err), err}),
			"uid", c.owner.UID, "path", m.Path, "error", err)
	}
	c.Mark(m.Stream, device.Open)
}

// causeOf names the kind of an error.
func causeOf(err error) string {
	for _, kind := range []error{ErrBound, fs.ErrNotExist, fs.ErrPermission} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "other"
}

// beginOpen takes a slot for another stream; it returns nil if no slot is free. A stream may be
// closed while its opening still waits for the device. So release must be called once when the
// stream is closed and once when its opening has ended. The second call frees the slot.
func (c *connection) beginOpen(m wire.Open) (release func()) {
	s, bound := c.server, streamsOf(c.role)
	if len(c.streams) >= bound || int(c.opening.Load()) >= bound {
		return nil
	}
	if Serves(c.role) {
		c.opening.Add(1)
		return func() {}
	}
	bytes := nameBytes(m)
	if s.taskOpenBytes.Add(bytes) > MaxTaskOpenBytes {
		s.taskOpenBytes.Add(-bytes)
		return nil
	}
	if s.taskOpens.Add(1) > MaxTaskOpens || !s.streams.Take(c.owner) {
		s.taskOpens.Add(-1)
		s.taskOpenBytes.Add(-bytes)
		return nil
	}
	c.opening.Add(1)
	var calls atomic.Int32
	return func() {
		if calls.Add(1) == 2 {
			s.streams.Give(c.owner)
		}
	}
}

func nameBytes(m wire.Open) int64 {
	return int64(len(m.Flow) + len(m.Path) + len(m.Meta) + len(m.Client) + len(m.Server) + len(m.User))
}

func (c *connection) endOpen(m wire.Open) {
	c.opening.Add(-1)
	if !Serves(c.role) {
		c.server.taskOpens.Add(-1)
		c.server.taskOpenBytes.Add(-nameBytes(m))
	}
}

func (c *connection) closeAll() {
	for _, o := range c.streams {
		o.close(-1)
	}
	clear(c.streams)
}

// tellVersion sends a WELCOME to an agent of another version. The agent refuses the WELCOME, and
// can report that the versions differ. The WELCOME contains nothing of the daemon's state.
func tellVersion(c net.Conn, refused error) {
	if !errors.Is(refused, wire.ErrVersion) {
		return
	}
	b, err := wire.Append(nil, wire.Welcome{Mode: wire.ModeOff, Stride: 1, HeartbeatMs: uint16(HeartbeatEvery.Milliseconds())})
	if err == nil && c.SetWriteDeadline(time.Now().Add(sendWait)) == nil {
		c.Write(b) // the agent may be gone, and nothing depends on it
	}
}

// heartbeat appends a heartbeat.
func (c *connection) heartbeat(buf []byte, reg Registration) ([]byte, error) {
	tick, mode := c.server.Opener.Heartbeat()
	return wire.AppendTo(buf, wire.Heartbeat{Tick: tick, Mode: wire.Mode(mode), Alive: reg.Alive(), Free: reg.Free()}, c.version)
}

// sendAll writes the welcome, then marks and heartbeats, several in one write.
func (c *connection) sendAll(ctx context.Context, reg Registration) {
	opener := c.server.Opener
	_, mode := opener.Heartbeat()
	buf, err := wire.AppendTo(nil, wire.Welcome{
		Mode: wire.Mode(mode), Stride: opener.Stride(c.role), HeartbeatMs: uint16(HeartbeatEvery.Milliseconds()), Devices: reg.Devices(),
	}, c.version)
	ticker := time.NewTicker(HeartbeatEvery)
	defer ticker.Stop()
	for err == nil {
		if len(buf) > 0 {
			if err = c.c.SetWriteDeadline(time.Now().Add(sendWait)); err != nil {
				break
			}
			if err = c.write(buf); err != nil {
				break
			}
			buf = buf[:0]
		}
		select {
		case <-ctx.Done():
			return
		case <-c.marks.news:
			buf, err = c.marks.append(buf)
		case <-reg.NoLongerFree():
			buf, err = c.heartbeat(buf, reg)
		case <-ticker.C:
			buf, err = c.heartbeat(buf, reg)
		}
	}
}
