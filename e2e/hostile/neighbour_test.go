package hostile

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/wire"
)

const (
	neighbour = "application_1700000000000_0001"
	attacker  = "application_1700000000000_0666"
)

// reader is a normal application's: it reads a cold file from a disk, over and over, as far
// as its marks let it.
type reader struct {
	agent  *agent
	path   string
	stop   atomic.Bool
	ended  chan struct{}
	err    error
	bytes  atomic.Int64
	opened atomic.Int64 // times that its gate was open for want of heartbeats
	free   atomic.Int64 // bytes read beyond any mark that says how far
}

const neighbourBytes = 192 * mib

func neighbourFile(i int) string { return fmt.Sprintf("%s/blk_%d", dataDir(i), 1000+i) }

// readOn starts the neighbour on a disk. It is stopped with the test.
func readOn(t *testing.T, n *node, i int) *reader {
	t.Helper()
	a, err := connect(n.socket, wire.Hello{Role: wire.RoleDataNode, Directories: []string{dataDir(0), dataDir(1)}, Threads: 4096})
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{agent: a, path: neighbourFile(i), ended: make(chan struct{})}
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
	open := wire.Open{Stream: stream, Direction: wire.Read, Flow: neighbour, Path: r.path, To: neighbourBytes, Patience: 45_000}
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

// rate is the bytes a second of so long a time.
func (r *reader) rate(length time.Duration) float64 {
	from, begin := r.bytes.Load(), time.Now()
	time.Sleep(length)
	return float64(r.bytes.Load()-from) / time.Since(begin).Seconds()
}

// Of what the neighbour had, it is to keep keeps; less in a test, as the machine may be
// busy and the windows are short.
const (
	keeps     = 0.75
	alone     = 2 * time.Second
	together  = 2 * time.Second
	windows   = 3
	settling  = time.Second
	heartbeat = 3 * time.Second // longer between two is no busy machine
)

// keepsItsRate has the attack begin and judges what the neighbour keeps of its rate:
// in the best of some windows, since whatever else the machine does only takes from it.
func (r *reader) keepsItsRate(t *testing.T, attack func() (end func())) float64 {
	t.Helper()
	eventually(t, "the neighbour reads", patience, func() bool { return r.bytes.Load() > 16*mib })
	before := r.rate(alone)
	end := attack()
	time.Sleep(settling)
	var kept []float64
	for range windows {
		kept = append(kept, r.rate(together)/before)
		if kept[len(kept)-1] >= 0.9 {
			break
		}
	}
	end()
	best := slices.Max(kept)
	t.Logf("the neighbour had %.1f MB/s alone and kept %.2f of it (windows %.2f), its gate was opened %d times", before/1e6, best, kept, r.opened.Load())
	if best < keeps {
		t.Errorf("the neighbour keeps %.2f of its rate of %.1f MB/s, want 0.9", best, before/1e6)
	}
	return best
}
