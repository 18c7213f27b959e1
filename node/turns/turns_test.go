package turns

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"penstock/core/depth"
	"penstock/lab/poll"
	"penstock/node/device"
)

const mib = 1 << 20

// asker is the asking side of a desk.
type asker struct {
	mu     sync.Mutex
	passed map[uint32]time.Time
	news   chan uint32
}

func (a *asker) Mark(id uint32, position int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if position != device.Open || !a.passed[id].IsZero() {
		panic("a turn is granted once, by an open mark")
	}
	a.passed[id] = time.Now()
	a.news <- id
}

func (a *asker) has(id uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.passed[id].IsZero()
}

// next waits for the next granted turn.
func (a *asker) next(t *testing.T) uint32 {
	t.Helper()
	select {
	case id := <-a.news:
		return id
	case <-time.After(time.Minute):
		t.Fatal("no turn is granted")
		return 0
	}
}

func newDesk(t *testing.T, config device.Config, running bool) (*Desk, *asker, Target, func() device.Snapshot) {
	t.Helper()
	line := depth.Line{Fixed: time.Millisecond, PerMiB: 10 * time.Millisecond}
	config.Depth = depth.Config{Read: line, Write: line}
	config.Algorithm = "sfqd"
	loop, err := device.New(device.Options{Name: "test", Mode: device.Enforce, Log: slog.New(slog.DiscardHandler), Config: config,
		Policy: func(string) device.Rule { return device.Rule{Weight: 1, Mode: device.Enforce} }})
	if err != nil {
		t.Fatal(err)
	}
	if running {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); loop.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
	}
	a := &asker{passed: map[uint32]time.Time{}, news: make(chan uint32, 1000)}
	target := Target{Loop: loop, Pacer: &Pacer{}, Stats: &Stats{}, Expect: func(_, _ bool, bytes int64) time.Duration { return 10 * time.Millisecond }}
	return NewDesk(a, MaxTurns), a, target, func() device.Snapshot {
		s, ok := loop.Snapshot()
		if !ok {
			t.Fatal("the loop has ended")
		}
		return s
	}
}

func (d *Desk) take(t *testing.T, target Target, id uint32, flow string, write bool) *Turn {
	t.Helper()
	turn, err := d.Take(target, Request{ID: id, Flow: flow, Write: write, Bytes: mib})
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll.Until(ctx, time.Millisecond, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func bytesOf(s device.Snapshot, flow string) (read, written int64) {
	for _, f := range s.Flows {
		if f.Name == flow {
			for _, k := range f.Kinds {
				read += k.Bytes[0]
				written += k.Bytes[1]
			}
		}
	}
	return read, written
}

// With a depth of 1, the next turn is granted when the one before has ended, and both are charged.
func TestTurnsFollowEachOther(t *testing.T) {
	for _, write := range []bool{false, true} {
		desk, asker, target, snapshot := newDesk(t, device.Config{FixedDepth: 1}, true)
		target.Expect = func(bool, bool, int64) time.Duration { return 150 * time.Millisecond }
		first := desk.take(t, target, 1, "a", write)
		asker.next(t)
		second := desk.take(t, target, 2, "b", write)
		time.Sleep(20 * time.Millisecond)
		if asker.has(2) {
			t.Error("two turns at once, with a depth of 1")
		}
		first.Close(mib)
		if id := asker.next(t); id != 2 {
			t.Errorf("turn %d is granted", id)
		}
		second.Close(mib)
		until(t, "both to be charged", func() bool {
			s := snapshot()
			ra, wa := bytesOf(s, "a")
			rb, wb := bytesOf(s, "b")
			if write {
				ra, rb = wa, wb
			}
			return ra == mib && rb == mib
		})
		if n := target.Stats.Overdue.Load() + target.Stats.Late.Load(); n != 0 {
			t.Errorf("%d are overdue or late", n)
		}
	}
}

// A turn that keeps its place at the device is charged for it. Its flow takes no more than its share from others, however
// few its bytes are.
func TestTurnsThatAreHeld(t *testing.T) {
	desk, asker, target, _ := newDesk(t, device.Config{FixedDepth: 2}, true)
	target.Expect = func(bool, bool, int64) time.Duration { return time.Millisecond }
	const first, limit = 1_000_000, 20 // the first honest turn's number, and the number of turns that are held
	held := NewDesk(asker, first)
	hold := func(id uint32) {
		if _, err := held.Take(target, Request{ID: id, Flow: "hostile", Bytes: 1}); err != nil {
			t.Fatal(err)
		}
	}
	turns, next := map[uint32]*Turn{}, uint32(first)
	take := func() {
		turns[next] = desk.take(t, target, next, "honest", false)
		next++
	}
	for id := range uint32(8) {
		hold(id + 1)
		take()
	}
	for n := uint32(0); n < limit; {
		if id := asker.next(t); id < first {
			n++
			hold(n + 8)
		} else {
			turns[id].Close(mib)
			delete(turns, id)
			take()
		}
	}
	if honest := int(next) - first - len(turns); honest < 2*limit {
		t.Errorf("%d turns beside %d that were held for %v each", honest, limit, readBound.least)
	}
}

// A write that waits for earlier writes is charged for its bytes, and not for the wait.
func TestAWaitForEarlierWritesIsFree(t *testing.T) {
	desk, asker, target, snapshot := newDesk(t, device.Config{FixedDepth: 1}, true)
	target.Expect = func(_, inOrder bool, _ int64) time.Duration {
		if inOrder {
			return time.Second
		}
		return time.Minute // it may be held for long
	}
	turn := desk.take(t, target, 1, "a", true)
	asker.next(t)
	turn.Close(mib)
	until(t, "it to be charged", func() bool { _, written := bytesOf(snapshot(), "a"); return written == mib })
	for _, f := range snapshot().Flows {
		if f.Name == "a" && f.Service > 500*time.Millisecond {
			t.Errorf("charged for %v", f.Service)
		}
	}
}

// A turn whose end is never reported loses its place.
func TestTurnWithoutEnd(t *testing.T) {
	desk, asker, target, _ := newDesk(t, device.Config{FixedDepth: 1}, true)
	desk.take(t, target, 1, "a", false)
	asker.next(t)
	begin := time.Now()
	desk.take(t, target, 2, "b", false)
	asker.next(t)
	if took := time.Since(begin); took < readBound.least/2 || took > 10*time.Second {
		t.Errorf("the next turn after %v", took)
	}
	if target.Stats.Overdue.Load() == 0 {
		t.Error("it is not counted")
	}
}

// Turns that are given up before they are granted cost nothing, and hold nobody back.
func TestTurnsThatAreGivenUp(t *testing.T) {
	for _, write := range []bool{false, true} {
		desk, asker, target, snapshot := newDesk(t, device.Config{FixedDepth: 1}, true)
		target.Expect = func(bool, bool, int64) time.Duration { return 150 * time.Millisecond }
		first := desk.take(t, target, 1, "a", write)
		asker.next(t)
		for id := range uint32(50) {
			desk.take(t, target, 100+id, "b", write).Close(-1)
		}
		last := desk.take(t, target, 2, "c", write)
		first.Close(mib)
		if id := asker.next(t); id != 2 {
			t.Errorf("turn %d is granted", id)
		}
		last.Close(mib)
		until(t, "all to be forgotten", func() bool {
			desk.mu.Lock()
			defer desk.mu.Unlock()
			return len(desk.turns) == 0
		})
		if r, w := bytesOf(snapshot(), "b"); r+w != 0 {
			t.Errorf("%d bytes charged, writing %v", r+w, write)
		}
	}
}

// A loop that does not run holds no turn.
func TestTurnWithoutALoop(t *testing.T) {
	desk, asker, target, _ := newDesk(t, device.Config{}, false)
	desk.take(t, target, 1, "a", false)
	asker.next(t)
	if target.Stats.Late.Load() != 1 {
		t.Error("it is not counted")
	}
}

// One connection has a bounded number of turns, of bounded size.
func TestBoundsOfADesk(t *testing.T) {
	desk, _, target, _ := newDesk(t, device.Config{FixedDepth: 1}, true)
	for _, bytes := range []int64{-1, 0, MaxBytes + 1, 1 << 60} {
		if _, err := desk.Take(target, Request{Bytes: bytes}); err == nil {
			t.Errorf("a turn of %d bytes", bytes)
		}
	}
	refused := 0
	var all []*Turn
	for id := range uint32(2 * MaxTurns) {
		turn, err := desk.Take(target, Request{ID: id, Flow: "a", Bytes: mib})
		if err != nil {
			if !errors.Is(err, ErrTooMany) {
				t.Fatal(err)
			}
			refused++
			continue
		}
		all = append(all, turn)
	}
	if refused == 0 || len(all) < MaxTurns {
		t.Errorf("%d taken, %d refused", len(all), refused)
	}
	for _, turn := range all {
		turn.Close(-1)
		turn.Close(-1) // counts once
	}
}

// Writes follow each other at the speed of the device, although each ends at once.
func TestWritesArePaced(t *testing.T) {
	p := &Pacer{}
	now := time.Now()
	for i := range 5 {
		if got, want := p.wait(now, 10*time.Millisecond), time.Duration(i+1)*10*time.Millisecond; got != want {
			t.Errorf("write %d waits for %v, want %v", i, got, want)
		}
	}
	if got := p.wait(now.Add(time.Second), 10*time.Millisecond); got != 10*time.Millisecond {
		t.Errorf("after a pause: %v", got)
	}
	for range 1000 {
		p.wait(now, time.Hour)
	}
	if got := p.wait(now, time.Hour); got > writeBound.most+time.Second {
		t.Errorf("the wait is not bounded: %v", got)
	}
}
