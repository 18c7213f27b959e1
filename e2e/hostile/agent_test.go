package hostile

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"penstock/wire"
)

// agent is one connection to the daemon, as an agent has it. The caller flushes sent frames. A
// goroutine receives frames until the connection ends.
type agent struct {
	conn    *net.UnixConn
	out     *bufio.Writer
	buf     []byte
	welcome wire.Welcome

	mu      sync.Mutex
	changed chan struct{} // closed at the next mark or heartbeat
	marks   map[uint32]int64
	beats   int
	last    time.Time      // of the last heartbeat
	gap     time.Duration  // the longest time between two heartbeats
	alive   uint64         // devices that are alive, by the last heartbeat
	dead    map[uint64]int // heartbeats, by the bits of devices that were clear
	ended   bool
	onMark  func(wire.Mark) // called by the receiving goroutine; may be nil
}

const greeting = 10 * time.Second

// connect sends HELLO and waits for WELCOME.
func connect(socket string, h wire.Hello) (*agent, error) { return connectWith(socket, h, nil) }

func connectWith(socket string, h wire.Hello, onMark func(wire.Mark)) (*agent, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	a := &agent{conn: c.(*net.UnixConn), out: bufio.NewWriterSize(c, 64*kib), marks: map[uint32]int64{}, dead: map[uint64]int{}, changed: make(chan struct{}), onMark: onMark}
	h.PID, h.Agent = uint32(os.Getpid()), "a program of the tests"
	if err = c.SetReadDeadline(time.Now().Add(greeting)); err == nil {
		if err = a.say(h); err == nil {
			err = a.out.Flush()
		}
	}
	in := wire.NewReader(c)
	var m wire.Message
	if err == nil {
		m, err = in.Next()
	}
	if err == nil {
		var ok bool
		if a.welcome, ok = m.(wire.Welcome); !ok {
			err = fmt.Errorf("the daemon greets with %T", m)
		}
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	a.last = time.Now()
	go a.take(in)
	return a, nil
}

func (a *agent) say(messages ...wire.Message) error {
	for _, m := range messages {
		var err error
		if a.buf, err = wire.Append(a.buf[:0], m); err != nil {
			return err
		}
		if _, err = a.out.Write(a.buf); err != nil {
			return err
		}
	}
	return nil
}

// tell sends frames and flushes.
func (a *agent) tell(messages ...wire.Message) error {
	if err := a.say(messages...); err != nil {
		return err
	}
	return a.out.Flush()
}

func (a *agent) take(in *wire.Reader) {
	for {
		m, err := in.Next()
		a.mu.Lock()
		switch m := m.(type) {
		case wire.Mark:
			a.marks[m.Stream] = m.Position
		case wire.Heartbeat:
			now := time.Now()
			a.gap = max(a.gap, now.Sub(a.last))
			a.last, a.alive = now, m.Alive
			if bits := ^m.Alive & (1<<(1+len(a.welcome.Devices)) - 1); bits != 0 {
				a.dead[bits]++
			}
			a.beats++
		}
		a.ended = err != nil
		close(a.changed)
		a.changed = make(chan struct{})
		a.mu.Unlock()
		if mark, ok := m.(wire.Mark); ok && a.onMark != nil {
			a.onMark(mark)
		}
		if err != nil {
			return
		}
	}
}

// silence is the time without a heartbeat after which an agent opens its gates.
const silence = time.Second

// await returns how far a stream may go. It waits for a mark above pos, at most for the given time.
// Without heartbeats, it opens the gate.
func (a *agent) await(stream uint32, pos int64, within time.Duration) (mark int64, opened bool) {
	deadline := time.Now().Add(within)
	for {
		a.mu.Lock()
		mark, ok := a.marks[stream]
		changed, silent, ended := a.changed, time.Since(a.last) > silence, a.ended
		a.mu.Unlock()
		switch {
		case ok && mark > pos:
			return mark, false
		case ended || silent:
			return math.MaxInt64, true
		case time.Now().After(deadline):
			return mark, false
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// seen calls what with the marks.
func (a *agent) seen(what func(marks map[uint32]int64)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	what(a.marks)
}

func (a *agent) close() { a.conn.Close() }
