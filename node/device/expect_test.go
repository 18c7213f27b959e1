package device

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ponder reads 64 KiB of a file, pauses, and reads from the next file, until stop. It returns the
// number of reads.
func (r *fixture) ponder(flow string, think time.Duration, stop <-chan struct{}) (reads int) {
	for {
		select {
		case <-stop:
			return reads
		default:
		}
		r.nextID++
		const size = 64 << 10
		g, f := newGate(), r.disk.newFile(fmt.Sprintf("%s/%d", flow, r.nextID), size)
		s := r.loop.Open(OpenRequest{Marker: g, ID: r.nextID, Flow: flow, Block: f, To: size})
		g.wait(size)
		r.loop.Progress(s, size)
		r.loop.Close(s, size)
		reads++
		time.Sleep(think)
	}
}

// contend runs ponder in one flow while a second flow reads all the time. It returns the number of
// reads of the first flow and the bytes of the second.
func contend(t *testing.T, algorithm string, weight int, think time.Duration) (reads int, other float64) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) {
			c.Algorithm, c.Depth.Start, c.Depth.Max = algorithm, 2, 2
			c.FixedDepth = 2
		}, map[string]int{"ponders": weight, "reads": 1})
		defer r.stop()
		var done, pondering sync.WaitGroup
		r.reader("reads", 2000*mib, 0, &done)
		r.reader("reads", 2000*mib, 0, &done)
		time.Sleep(2 * time.Second)
		stop := make(chan struct{})
		before := r.flowNow("reads")
		pondering.Go(func() { reads = r.ponder("ponders", think, stop) })
		time.Sleep(20 * time.Second)
		close(stop)
		if snap, _ := r.loop.Snapshot(); snap.Errors > 0 {
			t.Errorf("%d errors", snap.Errors)
		}
		other = float64(r.flowNow("reads").Bytes[0] - before.Bytes[0])
		pondering.Wait()
		r.apply(Off, "", Rule{})
		done.Wait()
	})
	return reads, other
}

func TestTheDeviceWaitsForAHeavyFlowThatThinks(t *testing.T) {
	const think = 5 * time.Millisecond
	never, _ := contend(t, "sfqd", 100, think)
	waits, other := contend(t, "sfqd2", 100, think)
	t.Logf("reads in 20 s: %d where the device never idles, %d where it waits; the other then reads %.1f MB/s", never, waits, other/20e6)
	if waits < 4*never {
		t.Errorf("%d reads where the device waits, %d where it does not", waits, never)
	}
	if other < 1*mib {
		t.Errorf("the other read %.0f bytes", other)
	}
}

// The waits for a flow are charged to it: at 2:1 it has no more than two thirds of the device's
// time, waits included.
func TestAWaitIsPaidFor(t *testing.T) {
	for _, think := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond} {
		reads, other := contend(t, "sfqd2", 2, think)
		share := other / (20 * 12e6)
		t.Logf("at 2:1, thinking for %v: %d reads, the other got %.2f of the device", think, reads, share)
		if share < 0.28 {
			t.Errorf("at 2:1, thinking for %v: the other got %.2f of the device", think, share)
		}
	}
}

// The device does not wait for a flow that pauses for longer, or whose weight is not larger.
func TestNobodyWaitsInVain(t *testing.T) {
	for name, c := range map[string]struct {
		weight int
		think  time.Duration
	}{"thinks long": {100, 60 * time.Millisecond}, "no heavier": {1, 5 * time.Millisecond}} {
		_, without := contend(t, "sfqd", c.weight, c.think)
		_, with := contend(t, "sfqd2", c.weight, c.think)
		if with < 0.9*without {
			t.Errorf("%s: the other read %.1f MB/s, and %.1f with a fixed depth", name, with/20e6, without/20e6)
		}
	}
}
