package device

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const sendRate = 10 * mib // bytes per second

// newNetwork returns a fixture with a network device; rate 0: unknown.
func newNetwork(t *testing.T, rate int64, weights map[string]int) *fixture {
	return newFixture(t, func(c *Config) { *c = Config{Network: true, Rate: rate} }, weights)
}

// sending is a stream to a peer that receives rate bytes per second (0: all at once).
type sending struct {
	*Stream
	gate *gate
	sent atomic.Int64
	stop atomic.Bool
}

func (r *fixture) sender(flow string, size, rate int64, done *sync.WaitGroup) *sending {
	r.nextID++
	g := newGate()
	s := &sending{gate: g}
	s.Stream = r.loop.Open(OpenRequest{Marker: g, ID: r.nextID, Flow: flow, Kind: Network, Write: true, To: size})
	done.Go(func() {
		stride := int64(r.loop.cfg.Stride())
		pos := int64(0)
		for pos < size && !s.stop.Load() {
			if pos >= g.last() {
				r.loop.Progress(s.Stream, pos)
				g.wait(pos + 1)
			}
			n := min(16<<10, size-pos, g.last()-pos)
			if rate > 0 {
				time.Sleep(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
			}
			pos += n
			s.sent.Store(pos)
			if pos/stride != (pos-n)/stride {
				r.loop.Progress(s.Stream, pos)
			}
		}
		r.loop.Close(s.Stream, pos)
	})
	return s
}

func about(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got/want-1) > 0.02 {
		t.Errorf("%s: %.4g, want %.4g", what, got, want)
	}
}

func TestSendingIsPacedToTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, sendRate, nil)
		defer r.stop()
		var done sync.WaitGroup
		begin := time.Now()
		for range 4 {
			r.sender("a", 25*mib, 0, &done)
		}
		// At any time, at most the credit and a quantum of each stream are sent early.
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			sent := r.flowNow("a").Kinds[0].Streamed[1]
			if most := int64(time.Since(begin).Seconds()*sendRate) + 5*networkQuantum; sent > most {
				t.Fatalf("after %v %d bytes were sent, of %d", time.Since(begin), sent, most)
			}
		}
		done.Wait()
		about(t, "seconds", time.Since(begin).Seconds(), 10)
		synctest.Wait()
		f := r.flowNow("a")
		if f.Bytes != [2]int64{0, 100 * mib} || f.Behind != 0 || f.Streams != 0 || f.Queued != 0 || f.Backlog != 0 {
			t.Errorf("%+v", f)
		}
		about(t, "service", f.Service.Seconds(), 10)
	})
}

func TestSendersShareByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, sendRate, map[string]int{"a": 3, "b": 1})
		defer r.stop()
		var done sync.WaitGroup
		a := r.sender("a", 200*mib, 0, &done)
		b := []*sending{r.sender("b", 200*mib, 0, &done), r.sender("b", 200*mib, 0, &done)}
		time.Sleep(10 * time.Second)
		about(t, "a", float64(a.sent.Load()), 75*mib)
		about(t, "b", float64(b[0].sent.Load()+b[1].sent.Load()), 25*mib)
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// A limited application gets its limit; another application's sending is not affected.
func TestALimitedSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, sendRate, nil)
		defer r.stop()
		r.apply(Enforce, "a", Rule{Weight: 1000, Mode: Enforce, Limit: 2 * mib})
		var done sync.WaitGroup
		a := []*sending{r.sender("a", 200*mib, 0, &done), r.sender("a", 200*mib, 0, &done)}
		b := r.sender("b", 200*mib, 6*mib, &done)
		time.Sleep(10 * time.Second)
		about(t, "limited", float64(a[0].sent.Load()+a[1].sent.Load()), 20*mib)
		about(t, "the other, which wants 6 MiB/s", float64(b.sent.Load()), 60*mib)
		if f := r.flowNow("b"); f.Forced != 0 || r.flowNow("a").LimitWaits == 0 {
			t.Errorf("%+v", f)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// Receivers that accept nothing do not occupy slots for long, however many there are.
func TestSlowReceiversHoldNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, sendRate, nil)
		defer r.stop()
		var done sync.WaitGroup
		var stalled []*sending
		for range 50 {
			stalled = append(stalled, r.sender("slow", 10*mib, 100, &done)) // 100 bytes per second
		}
		time.Sleep(10 * time.Second)
		if snap, _ := r.loop.Snapshot(); snap.Outstanding != 0 || snap.Stuck {
			t.Errorf("%d slots are held, stuck %v", snap.Outstanding, snap.Stuck)
		}
		if f := r.flowNow("slow"); f.Queued != 0 {
			t.Errorf("%d requests of streams that do not move are queued", f.Queued)
		}
		begin := time.Now()
		var quick sync.WaitGroup
		r.sender("quick", 50*mib, 0, &quick)
		quick.Wait()
		about(t, "seconds of 50 MiB at 10 MiB/s", time.Since(begin).Seconds(), 5)
		for _, s := range stalled {
			s.stop.Store(true)
		}
		done.Wait()
		synctest.Wait()
		if f := r.flowNow("slow"); f.Streams != 0 || f.Bytes[1] != f.Kinds[0].Streamed[1] {
			t.Errorf("sent %d, charged %d", f.Kinds[0].Streamed[1], f.Bytes[1])
		}
	})
}

// Unused permission to send returns to the device and to the limit.
func TestWhatIsNotSentGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, sendRate, nil)
		defer r.stop()
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Enforce, Limit: 5 * mib})
		for i := range 4 {
			s := r.loop.Open(OpenRequest{Marker: newGate(), ID: uint32(i), Flow: "a", Kind: Network, Write: true, To: mib})
			synctest.Wait()
			r.loop.Close(s, 1000)
		}
		synctest.Wait()
		if f := r.flowNow("a"); f.Bytes[1] != 4*1000 || f.Queued != 0 || f.Streams != 0 {
			t.Errorf("%+v", f)
		}
		var done sync.WaitGroup
		begin := time.Now()
		r.sender("a", 50*mib, 0, &done)
		done.Wait()
		about(t, "seconds", time.Since(begin).Seconds(), 10)
	})
}

func TestWithoutARateAllIsSentAndAccountedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, 0, nil)
		defer r.stop()
		g := newGate()
		s := r.loop.Open(OpenRequest{Marker: g, Flow: "a", Kind: Network, Write: true, To: 10 * mib})
		synctest.Wait()
		if g.last() != Open {
			t.Errorf("mark %d", g.last())
		}
		r.loop.Progress(s, mib)
		r.loop.Progress(s, mib)
		r.loop.Progress(s, 0)
		r.loop.Close(s, 3*mib)
		f := r.flowNow("a")
		if f.Bytes != [2]int64{0, 3 * mib} || f.Streams != 0 || f.Behind != 0 {
			t.Errorf("%+v", f)
		}
	})
}

func TestObservedSendersAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, sendRate, nil)
		defer r.stop()
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Observe})
		g := newGate()
		s := r.loop.Open(OpenRequest{Marker: g, ID: 90, Flow: "a", Kind: Network, Write: true, To: 40 * mib})
		synctest.Wait()
		if g.last() != Open {
			t.Errorf("mark %d", g.last())
		}
		for pos := int64(mib); pos <= 40*mib; pos += mib {
			r.loop.Progress(s, pos)
		}
		synctest.Wait()
		if f := r.flowNow("a"); f.Bytes[1] != 40*mib || f.Behind < 38*mib || f.Queued != 0 {
			t.Errorf("%+v", f)
		}
		// The debt that other flows wait for is bounded.
		var done sync.WaitGroup
		begin := time.Now()
		r.sender("b", mib, 0, &done)
		done.Wait()
		if took := time.Since(begin); took < paceDebt || took > 2*paceDebt {
			t.Errorf("after what went by itself the next MiB took %v", took)
		}
		time.Sleep(2 * time.Second) // no passed bytes are left to be dispatched
		if snap, _ := r.loop.Snapshot(); snap.Outstanding != 0 || r.flowNow("a").Queued != 0 {
			t.Errorf("%d outstanding, %d waiting", snap.Outstanding, r.flowNow("a").Queued)
		}
		r.loop.Close(s, 40*mib)
	})
}

func TestSenderWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, sendRate, nil)
		defer r.stop()
		g := newGate()
		s := r.loop.Open(OpenRequest{Marker: g, Flow: "a", Kind: Network, Write: true})
		time.Sleep(time.Second)
		if got := g.last(); got != networkAhead*networkQuantum {
			t.Errorf("mark %d of one that has sent nothing", got)
		}
		r.loop.Close(s, 70_000)
		if f := r.flowNow("a"); f.Bytes[1] != 70_000 || f.Streams != 0 {
			t.Errorf("%+v", f)
		}
		empty := newGate()
		s = r.loop.Open(OpenRequest{Marker: empty, Flow: "a", Kind: Network, Write: true, From: 5, To: 5})
		synctest.Wait()
		if empty.last() != Open {
			t.Errorf("mark %d of an empty range", empty.last())
		}
		r.loop.Close(s, 5)
	})
}

func TestSenderOfTheSmallestShareIsLetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { *c = Config{Network: true, Rate: sendRate, MaxWait: 2 * time.Second} }, map[string]int{"big": 1_000_000})
		defer r.stop()
		var big, small sync.WaitGroup
		for range 3 {
			r.sender("big", 1000*mib, 0, &big)
		}
		time.Sleep(time.Second)
		begin := time.Now()
		r.sender("small", 512<<10, 0, &small)
		small.Wait()
		f := r.flowNow("small")
		if took := time.Since(begin); f.Forced == 0 || took > 20*time.Second {
			t.Errorf("took %v, %d forced", took, f.Forced)
		}
		r.apply(Off, "", Rule{})
		big.Wait()
	})
}

func TestNetworkSwitchedOffAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, sendRate, nil)
		var done sync.WaitGroup
		a := r.sender("a", 50*mib, 1*mib, &done)
		b := r.sender("b", 50*mib, 1*mib, &done)
		time.Sleep(time.Second)
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Off})
		synctest.Wait()
		if a.gate.last() != Open || b.gate.last() == Open {
			t.Errorf("a, switched off, may go to %d, b to %d", a.gate.last(), b.gate.last())
		}
		if f := r.flowNow("a"); f.Streams != 0 || f.Queued != 0 {
			t.Errorf("%+v", f)
		}
		r.stop()
		if b.gate.last() != Open {
			t.Errorf("after the end b may go to %d", b.gate.last())
		}
		done.Wait()
	})
}

// A stream of a kind that does not fit its device passes.
func TestStreamsOfAnotherDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, n := newFixture(t, nil, nil), newNetwork(t, sendRate, nil)
		defer r.stop()
		defer n.stop()
		g, f := newGate(), r.disk.newFile("x", mib)
		s := r.loop.Open(OpenRequest{Marker: g, Flow: "a", Kind: Network, Write: true, To: mib})
		r.loop.Progress(s, 1)
		r.loop.Close(s, 1)
		h := newGate()
		s = n.loop.Open(OpenRequest{Marker: h, Flow: "a", Block: f, To: mib})
		n.loop.Reassign(s, "b", "")
		n.loop.Close(s, 1)
		synctest.Wait()
		if g.last() != Open || h.last() != Open || f.timesClosed() != 1 {
			t.Errorf("marks %d and %d, closed %d times", g.last(), h.last(), f.timesClosed())
		}
	})
}
