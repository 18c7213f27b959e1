package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"penstock/node/device"
	"penstock/wire"
)

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
	role    wire.Role
	flow    string
	queue   chan wire.Mark // that the peer has not read yet
	streams map[uint32]*opened
	opens   sync.WaitGroup
	opening atomic.Int32 // of them
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
	if !Serves(c.role) && m.Flow != c.flow {
		c.server.Stats.OtherFlows.Add(1)
		c.Mark(m.Stream, device.Open)
		return nil
	}
	if !c.beginOpen() {
		c.server.Stats.OpenErrors.Add(1)
		c.Mark(m.Stream, device.Open)
		return nil
	}
	o := &opened{pos: -1}
	c.streams[m.Stream] = o
	c.opens.Go(func() {
		defer c.endOpen()
		loop, stream, err := reg.Open(m, c)
		if err != nil {
			// Not governed, not held up: a file may be gone, or lie elsewhere.
			if m.Kind == wire.Intermediate && errors.Is(err, fs.ErrNotExist) {
				c.server.Stats.GoneFiles.Add(1)
			} else {
				c.server.Stats.OpenErrors.Add(1)
			}
			c.server.Log.Debug("stream not governed", "block", m.Path, "error", err)
			c.Mark(m.Stream, device.Open)
			return
		}
		o.ready(loop, stream)
	})
	return nil
}

// beginOpen tells whether one stream more is within the bounds. One may be closed
// while its device keeps the open waiting, so both are counted.
func (c *connection) beginOpen() bool {
	bound := streamsOf(c.role)
	if len(c.streams) >= bound || int(c.opening.Load()) >= bound {
		return false
	}
	if all := &c.server.taskOpens; !Serves(c.role) && all.Add(1) > MaxTaskOpens {
		all.Add(-1)
		return false
	}
	c.opening.Add(1)
	return true
}

func (c *connection) endOpen() {
	c.opening.Add(-1)
	if !Serves(c.role) {
		c.server.taskOpens.Add(-1)
	}
}

func (c *connection) closeAll() {
	for _, o := range c.streams {
		o.close(-1)
	}
	clear(c.streams)
}

// tellVersion sends a WELCOME to an agent of another version, which the agent refuses:
// so it can say what is wrong. It has no part of the daemon's state in it.
func tellVersion(c *net.UnixConn, refused error) {
	if !errors.Is(refused, wire.ErrVersion) {
		return
	}
	b, err := wire.Append(nil, wire.Welcome{Mode: wire.ModeOff, Stride: 1, HeartbeatMs: uint16(HeartbeatEvery.Milliseconds())})
	if err == nil && c.SetWriteDeadline(time.Now().Add(sendWait)) == nil {
		c.Write(b) // the agent may be gone, and nothing depends on it
	}
}

// sendAll writes the welcome, then marks and heartbeats, several in one write.
func (c *connection) sendAll(ctx context.Context, reg Registration) {
	opener := c.server.Opener
	_, mode := opener.Heartbeat()
	buf, err := wire.Append(nil, wire.Welcome{
		Mode: wire.Mode(mode), Stride: opener.Stride(c.role), HeartbeatMs: uint16(HeartbeatEvery.Milliseconds()), Devices: reg.Devices(),
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
			tick, mode := opener.Heartbeat()
			buf, err = wire.Append(buf, wire.Heartbeat{Tick: tick, Mode: wire.Mode(mode), Alive: reg.Alive()})
		}
	}
}
