package hostile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/e2e/internal/fixture"
	"penstock/wire"
)

const (
	neighbour = "application_1700000000000_0001"
	attacker  = "application_1700000000000_0666"
)

// reader is a reader of a normal application, the neighbour. It reads a cold file from a disk
// repeatedly, as far as its marks allow.
type reader struct {
	node   *node
	window time.Duration // length of a measurement of its rate
	agent  *agent
	path   string
	stop   atomic.Bool
	ended  chan struct{}
	err    error
	bytes  atomic.Int64
	opened atomic.Int64 // how often its gate was open because there were no heartbeats
	free   atomic.Int64 // bytes read while the mark was Unlimited
}

const neighbourBytes = 64 * mib

func neighbourFile(i int) string { return fmt.Sprintf("%s/blk_%d", dataDir(i), 1000+i) }

// readOn starts the neighbour on a disk. It is stopped with the test.
func readOn(t *testing.T, n *node, i int) *reader {
	t.Helper()
	a, err := connect(n.socket, wire.Hello{Role: wire.RoleDataNode, Directories: []string{dataDir(0), dataDir(1)}, Threads: 4096})
	fixture.Must(t, err)
	r := &reader{node: n, window: window, agent: a, path: neighbourFile(i), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		for stream := uint32(1); r.err == nil && !r.stop.Load(); stream++ {
			r.err = r.pass(stream)
		}
	}()
	t.Cleanup(func() {
		r.stop.Store(true)
		<-r.ended
		a.close()
		if r.err != nil {
			t.Error("the neighbour: ", r.err)
		}
	})
	return r
}

// pass reads the file once.
func (r *reader) pass(stream uint32) error {
	f, err := os.Open(r.path)
	if err != nil {
		return err
	}
	defer f.Close()
	open := wire.Open{Stream: stream, Direction: wire.Read, Flow: neighbour, Path: r.path, To: neighbourBytes, Patience: 45_000, Refusable: true}
	if err := r.agent.tell(open); err != nil {
		return err
	}
	chunk := make([]byte, 256*kib)
	pos, told, dropped := int64(0), int64(0), int64(0)
	for pos < neighbourBytes && !r.stop.Load() {
		mark, opened := r.agent.await(stream, pos, 100*time.Millisecond)
		if mark <= pos {
			continue
		}
		if mark == wire.Refused {
			return errors.New("it was refused")
		}
		if opened {
			r.opened.Add(1)
		}
		n := min(int64(len(chunk)), neighbourBytes-pos, mark-pos)
		got, err := f.ReadAt(chunk[:n], pos)
		if err != nil {
			return err
		}
		if mark == wire.Unlimited {
			r.free.Add(int64(got))
		}
		pos += int64(got)
		r.bytes.Add(int64(got))
		if pos-told >= int64(r.agent.welcome.Stride) {
			told = pos
			if err := r.agent.tell(wire.Progress{Stream: stream, Position: pos}); err != nil {
				return err
			}
		}
		if pos-dropped >= 4*mib {
			if err := unix.Fadvise(int(f.Fd()), dropped, pos-dropped, unix.FADV_DONTNEED); err != nil {
				return err
			}
			dropped = pos
		}
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	return r.agent.tell(wire.Close{Stream: stream, Position: pos})
}

// rate measures the reader's rate over a time, in bytes per second.
func (r *reader) rate(length time.Duration) float64 {
	from, begin := r.bytes.Load(), time.Now()
	time.Sleep(length)
	return float64(r.bytes.Load()-from) / time.Since(begin).Seconds()
}

// The neighbour must keep the part keeps of its rate. That is less than 1, because the machine may
// be busy and the windows are short.
const (
	keeps    = 0.75
	window   = 1500 * time.Millisecond
	windows  = 3
	settling = 500 * time.Millisecond
)

// keepsItsRate starts the attack and judges which part of its rate the neighbour keeps, in the best
// of some windows. A small part can also be caused by the machine, which the attackers and others
// keep busy. So the rate is measured twice more: during the attack with the kill switch on, which
// opens all gates, and after the attack. The smallest of these rates is the one that the neighbour
// could keep.
func (r *reader) keepsItsRate(t *testing.T, attack func() (end func())) {
	t.Helper()
	fixture.EventuallyWithin(t, "the neighbour reads", patience, func() bool { return r.bytes.Load() > 16*mib })
	had := r.rate(r.window)
	end := attack()
	time.Sleep(settling)
	var rates []float64
	for range windows {
		rates = append(rates, r.rate(r.window))
		if rates[len(rates)-1] >= 0.9*had {
			break
		}
	}
	opened, best := r.opened.Load(), slices.Max(rates)
	if best < keeps*had {
		native := r.natively(t)
		end()
		time.Sleep(settling)
		after := r.rate(r.window)
		t.Logf("the neighbour has %.1f MB/s of %.1f; with all gates open beside the attack it has %.1f, after it %.1f", best/1e6, had/1e6, native/1e6, after/1e6)
		had = min(had, native, after)
	} else {
		end()
	}
	t.Logf("the neighbour had %.1f MB/s alone and kept %.2f of it (windows %.1f MB/s); it read %d times through a gate that was open for lack of heartbeats",
		had/1e6, best/had, inMB(rates), opened)
	if best < keeps*had {
		t.Errorf("the neighbour keeps %.2f of its rate of %.1f MB/s, want at least 0.75", best/had, had/1e6)
	}
}

// natively returns the rate with the kill switch on.
func (r *reader) natively(t *testing.T) float64 {
	t.Helper()
	off := r.node.socket + ".off"
	fixture.Must(t, os.WriteFile(off, nil, 0o600))
	defer func() {
		fixture.Check(t, os.Remove(off))
		time.Sleep(settling)
	}()
	fixture.EventuallyWithin(t, "the kill switch is on", patience, func() bool { return r.node.metric(t, "mode") == 0 })
	time.Sleep(settling)
	return r.rate(r.window)
}

func inMB(rates []float64) (mb []float64) {
	for _, r := range rates {
		mb = append(mb, r/1e6)
	}
	return mb
}
