// Package turns schedules I/O that tasks do through a storage server on this machine.
//
// Problem: a server of a parallel file system (a brick process) reads and writes for all its clients,
// also for tasks of Hadoop and Spark on any machine. The kernel cannot tell them apart inside the
// server. So tasks ask before each large read or write, for a turn at the disk of the server that
// holds the range. A turn is a request of the application's flow, in the same arbiter as everything
// else on the disk.
//
// What is hard: the daemon does not see the I/O of a turn. The task reports the end, and may
// lie, hang or disappear. Choices: a turn occupies its place at the device until its end, or for some
// times the device time that it is expected to take, whichever is shorter. It is charged for its bytes
// at the price of a random request, or for its part of the time in which it has kept its place, whichever
// is more. In doubt it passes: if the loop does not run, if the device does not answer, and after
// patience.
//
// A task usually syncs written bytes before it ends their turn. The daemon cannot check this: without a
// sync, the bytes are only in the server's page cache when the turn ends. So the daemon starts turns for
// writes no faster than the device can write their bytes (Pacer).
package turns

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"penstock/node/device"
)

const (
	// MaxBytes is the maximum number of bytes of a turn.
	MaxBytes = 4 << 20
	// The maximum number of turns of one process, and of all processes of another node. Turns that were
	// given up and still queue are included.
	MaxTurns       = 256
	MaxTurnsOfNode = 2048
	// patience is the longest wait for a turn. It is shorter than that of a task's gate (55 s), so that
	// the pass is counted here.
	patience = 30 * time.Second
	// lookEvery is the time between two looks at the device's loop while a turn waits for it.
	lookEvery = 250 * time.Millisecond
)

// bound limits the time for which a turn keeps its place at the device. The limit is a multiple (times) of the turn's
// expected time, but at least least and at most most.
type bound struct {
	times       time.Duration
	least, most time.Duration
}

// A synced write also waits for the file system's journal and, on a replicated volume, for other servers. Both maxima are
// well below the time after which a device counts as stuck (12 s).
var (
	readBound  = bound{10, 100 * time.Millisecond, 2 * time.Second}
	writeBound = bound{20, 500 * time.Millisecond, 5 * time.Second}
)

func (b bound) hold(expected time.Duration) time.Duration {
	return min(b.most, max(b.least, b.times*expected))
}

// ErrTooMany is the error for a turn beyond the maximum number of turns of a desk.
var ErrTooMany = errors.New("too many turns at a time")

// Stats are counts since the daemon's start.
type Stats struct {
	Taken   atomic.Int64 // turns that were asked for
	Bytes   atomic.Int64 // their bytes
	Late    atomic.Int64 // passed without a turn: the device did not answer, or patience was over
	Overdue atomic.Int64 // lost their place at the device before their end was reported
}

// AwayStats count turns at the storage servers of other machines, since the daemon's start.
type AwayStats struct {
	Forwarded  atomic.Int64 // turns for which another node was asked
	Refused    atomic.Int64 // the other node does not govern them: they passed
	Unanswered atomic.Int64 // passed because the other node did not answer
}

// Target is the disk of a storage server.
type Target struct {
	Loop *device.Loop
	// Expect returns how long the device takes for that many bytes, at a random place or in order.
	Expect func(write, inOrder bool, bytes int64) time.Duration
	Pacer  *Pacer
	Stats  *Stats
}

// Pacer makes writes follow each other at the speed of the device.
type Pacer struct {
	mu   sync.Mutex
	next time.Time // when the device has done all writes so far
}

// wait returns how long a write that starts now lasts, if the device takes that long for it.
func (p *Pacer) wait(now time.Time, takes time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(takes)
	if most := now.Add(writeBound.most); p.next.After(most) {
		p.next = most
	}
	return p.next.Sub(now)
}

// Request describes a turn.
type Request struct {
	ID    uint32 // by which the asking side knows the turn
	Flow  string
	Write bool
	Bytes int64 // 1 to MaxBytes
}

// Check returns an error if no turn can have that many bytes.
func Check(bytes int64) error {
	if bytes < 1 || bytes > MaxBytes {
		return fmt.Errorf("a turn of %d bytes: use 1 to %d", bytes, MaxBytes)
	}
	return nil
}

// Desk gives turns to one connection. It implements device.Marker for their streams, so that the loop
// serves connections in turn.
type Desk struct {
	to   device.Marker
	most int // turns at a time

	mu    sync.Mutex
	turns map[uint32]*Turn // by the stream's number
	last  uint32
}

// NewDesk returns a desk for at most that many turns at a time. It reports a granted turn as the mark
// device.Open of the turn's ID.
func NewDesk(to device.Marker, most int) *Desk {
	return &Desk{to: to, most: most, turns: map[uint32]*Turn{}}
}

// Mark implements device.Marker. The marks of the arbiter follow the end of a request, which is too
// late for a turn. But an open mark means that the stream is not held.
func (d *Desk) Mark(stream uint32, position int64) {
	if position != device.Open {
		return
	}
	d.mu.Lock()
	t := d.turns[stream]
	d.mu.Unlock()
	if t != nil {
		t.grant()
	}
}

// Turn is permission for one read or write, or the wait for it.
type Turn struct {
	desk   *Desk
	target Target
	r      Request
	stream *device.Stream
	since  time.Time
	timer  *time.Timer

	kept atomic.Int64 // nanoseconds for which the asking side has kept the place at the device

	mu      sync.Mutex
	granted bool
	gone    bool          // the asking side has ended the turn
	ended   chan struct{} // closed when gone is set
}

// file is the file of a turn's stream.
type file struct {
	device.Elsewhere
	turn *Turn
	id   uint32
}

// Deleted implements device.File: nothing of a write remains if it was given up before its turn.
func (f *file) Deleted() bool {
	f.turn.mu.Lock()
	defer f.turn.mu.Unlock()
	return f.turn.gone && !f.turn.granted
}

// Kept returns for how long the asking side has kept the place at the device.
func (f *file) Kept() time.Duration { return time.Duration(f.turn.kept.Load()) }

// Close implements device.File. The stream has ended, or was never governed.
func (f *file) Close() error {
	d := f.turn.desk
	d.mu.Lock()
	delete(d.turns, f.id)
	d.mu.Unlock()
	f.turn.grant()
	return nil
}

// Take asks for a turn. It does not wait.
func (d *Desk) Take(target Target, r Request) (*Turn, error) {
	if err := Check(r.Bytes); err != nil {
		return nil, err
	}
	t := &Turn{desk: d, target: target, r: r, since: time.Now(), ended: make(chan struct{})}
	f := &file{turn: t}
	f.End, f.Write, f.Do = r.Bytes, r.Write, t.do
	d.mu.Lock()
	if len(d.turns) >= d.most {
		d.mu.Unlock()
		return nil, fmt.Errorf("%d turns: %w", d.most, ErrTooMany)
	}
	for d.last++; d.turns[d.last] != nil; d.last++ {
	}
	f.id = d.last
	d.turns[f.id] = t
	d.mu.Unlock()
	target.Stats.Taken.Add(1)
	target.Stats.Bytes.Add(r.Bytes)
	t.mu.Lock()
	t.timer = time.AfterFunc(lookEvery, t.look)
	t.mu.Unlock()
	t.stream = target.Loop.Open(device.OpenRequest{Marker: d, ID: f.id, Flow: r.Flow, Kind: device.Persistent, Write: r.Write, Turn: true, Block: f, To: r.Bytes})
	if r.Write { // all of it is to be drained
		t.stream.Progress(r.Bytes)
		t.stream.Close(r.Bytes)
	}
	return t, nil
}

// grant lets the asking side do its I/O.
func (t *Turn) grant() {
	t.mu.Lock()
	first := !t.granted && !t.gone
	t.granted = true
	t.timer.Stop()
	t.mu.Unlock()
	if first {
		t.desk.to.Mark(t.r.ID, device.Open)
	}
}

// look lets the turn pass if the loop does not serve it.
func (t *Turn) look() {
	if !t.target.Loop.Alive() || t.target.Loop.Stuck() || time.Since(t.since) > patience {
		t.mu.Lock()
		late := !t.granted && !t.gone
		t.mu.Unlock()
		if late {
			t.target.Stats.Late.Add(1)
		}
		t.grant()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.granted && !t.gone {
		t.timer.Reset(lookEvery)
	}
}

// do is the turn's time at the device.
func (t *Turn) do() {
	begin := time.Now()
	t.grant()
	b := readBound
	if t.r.Write {
		b = writeBound
	}
	late := time.NewTimer(b.hold(t.target.Expect(t.r.Write, false, t.r.Bytes)))
	defer late.Stop()
	select {
	case <-t.ended:
	case <-late.C:
		t.target.Stats.Overdue.Add(1)
	}
	t.kept.Store(int64(time.Since(begin))) // the wait for earlier writes is not the turn's doing
	if t.r.Write {
		if paced := t.target.Pacer.wait(begin, t.target.Expect(true, true, t.r.Bytes)); time.Since(begin) < paced {
			time.Sleep(paced - time.Since(begin))
		}
	}
}

// Progress implements ipc.Stream. The end of a turn is its close.
func (t *Turn) Progress(int64) {}

// Close ends the turn: the asking side has done its I/O, or gives it up.
func (t *Turn) Close(int64) {
	t.mu.Lock()
	first := !t.gone
	if t.gone = true; first {
		close(t.ended)
		t.timer.Stop()
	}
	granted := t.granted
	t.mu.Unlock()
	if !first {
		return
	}
	if !t.r.Write {
		pos := int64(0)
		if granted {
			pos = t.r.Bytes
		}
		t.stream.Close(pos)
	}
}
