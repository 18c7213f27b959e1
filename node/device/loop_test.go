package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/core/depth"
)

const mib = 1 << 20

// fixture is a loop on a model disk of 12 MB/s with 10 ms seeks.
type fixture struct {
	t      *testing.T
	loop   *Loop
	disk   *modelDisk
	nextID uint32
	stop   func()

	policy map[string]Rule // replaced as a whole, since the loop reads it
	log    strings.Builder // to be read after stop
}

func newFixture(t *testing.T, change func(*Config), weights map[string]int) *fixture {
	t.Helper()
	perMiB := mib * time.Second / 12e6
	line := depth.Line{Fixed: 20 * time.Millisecond, PerMiB: 2 * perMiB}
	c := Config{Algorithm: "sfqd", FixedDepth: 2, Depth: depth.Config{Read: line, Write: line}}
	if change != nil {
		change(&c)
	}
	r := &fixture{t: t, disk: newModelDisk(12e6, 10*time.Millisecond), policy: map[string]Rule{}}
	for name, w := range weights {
		r.policy[name] = Rule{Weight: w, Mode: Enforce}
	}
	loop, err := New(Options{Name: "model", Config: c, Mode: Enforce, Policy: policyOf(r.policy), Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Counters: func() (Counters, bool) { return r.disk.counters() }})
	if err != nil {
		t.Fatal(err)
	}
	r.loop = loop
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); loop.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	return r
}

func policyOf(rules map[string]Rule) Policy {
	return func(flow string) Rule {
		if rule, ok := rules[flow]; ok {
			return rule
		}
		return Rule{Weight: 1, Mode: Enforce}
	}
}

// apply sets the daemon's mode and, if a flow is named, that flow's rule.
func (r *fixture) apply(mode Mode, flow string, rule Rule) {
	rules := maps.Clone(r.policy)
	if flow != "" {
		rules[flow] = rule
	}
	r.policy = rules
	r.loop.Apply(mode, policyOf(rules))
}

// gate is the agent's side: it keeps the last mark and lets a client wait.
type gate struct {
	mu    sync.Mutex
	marks []int64
	cond  *sync.Cond
}

func newGate() *gate {
	g := &gate{}
	g.cond = sync.NewCond(&g.mu)
	return g
}

func (g *gate) Mark(_ uint32, pos int64) {
	g.mu.Lock()
	g.marks = append(g.marks, pos)
	g.mu.Unlock()
	g.cond.Broadcast()
}

func (g *gate) last() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.marks) == 0 {
		return -1
	}
	return g.marks[len(g.marks)-1]
}

func (g *gate) wait(pos int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.marks) == 0 || g.marks[len(g.marks)-1] < pos {
		g.cond.Wait()
	}
}

// reader reads a cold file of that size in packets, at most at rate bytes per second (0: without
// a limit), and returns its stream.
func (r *fixture) reader(flow string, size, rate int64, done *sync.WaitGroup) *Stream {
	r.nextID++
	g := newGate()
	f := r.disk.newFile(fmt.Sprintf("%s/%d", flow, r.nextID), size)
	s := r.loop.Open(OpenRequest{Marker: g, ID: r.nextID, Flow: flow, Block: f, To: size})
	done.Go(func() {
		stride := int64(r.loop.cfg.Stride())
		for pos := int64(0); pos < size; {
			n := min(leaseFloor, size-pos)
			if pos+n > g.last() {
				r.loop.Progress(s, pos) // an agent reports before it waits
			}
			g.wait(pos + n)
			if rate > 0 {
				time.Sleep(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
			}
			pos += n
			if pos/stride != (pos-n)/stride {
				r.loop.Progress(s, pos)
			}
		}
		r.loop.Close(s, size)
	})
	return s
}

// writer writes a file of that size as fast as its leases allow.
func (r *fixture) writer(flow string, size int64, done *sync.WaitGroup) (*Stream, *modelFile) {
	return r.writerOf(Persistent, flow, size, done)
}

func (r *fixture) writerOf(kind Kind, flow string, size int64, done *sync.WaitGroup) (*Stream, *modelFile) {
	r.nextID++
	g := newGate()
	f := r.disk.newFile(fmt.Sprintf("%s/%d", flow, r.nextID), 0)
	s := r.loop.Open(OpenRequest{Marker: g, ID: r.nextID, Flow: flow, Kind: kind, Write: true, Block: f})
	done.Go(func() {
		stride := int64(r.loop.cfg.Stride())
		for pos := int64(0); pos < size; {
			if pos >= g.last() {
				r.loop.Progress(s, pos) // an agent reports before it waits
				g.wait(pos + 1)
			}
			n := min(leaseFloor, size-pos)
			f.write(pos, n)
			pos += n
			if pos/stride != (pos-n)/stride {
				r.loop.Progress(s, pos)
			}
		}
		r.loop.Close(s, size)
	})
	return s, f
}

func (r *fixture) flowNow(name string) FlowSnapshot {
	synctest.Wait() // until the loop has processed the reports
	r.t.Helper()
	snap, ok := r.loop.Snapshot()
	if !ok {
		r.t.Fatal("the loop has ended")
	}
	for _, f := range snap.Flows {
		if f.Name == name {
			return f
		}
	}
	return FlowSnapshot{}
}

func TestWritersShareByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, map[string]int{"a": 3, "b": 1})
		defer r.stop()
		var done sync.WaitGroup
		for range 2 {
			r.writer("a", 400*mib, &done)
			r.writer("b", 400*mib, &done)
		}
		time.Sleep(5 * time.Second) // after the start
		a0, b0 := r.flowNow("a").Bytes[1], r.flowNow("b").Bytes[1]
		time.Sleep(20 * time.Second)
		a, b := r.flowNow("a").Bytes[1]-a0, r.flowNow("b").Bytes[1]-b0
		if ratio := float64(a) / float64(b); ratio < 2.7 || ratio > 3.3 {
			t.Errorf("writers at 3:1 got %d and %d bytes, ratio %.2f", a, b, ratio)
		}
		if got := float64(a+b) / 20; got < 0.9*12e6 {
			t.Errorf("the device served %.1f MB/s of 12", got/1e6)
		}
		done.Wait()
	})
}

func TestReadersShareByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, map[string]int{"a": 3, "b": 1})
		defer r.stop()
		var done sync.WaitGroup
		r.reader("a", 300*mib, 0, &done)
		r.reader("b", 300*mib, 0, &done)
		time.Sleep(25 * time.Second)
		a, b := r.flowNow("a").Bytes[0], r.flowNow("b").Bytes[0]
		if ratio := float64(a) / float64(b); ratio < 2.6 || ratio > 3.4 {
			t.Errorf("readers at 3:1 got %d and %d bytes, ratio %.2f", a, b, ratio)
		}
		done.Wait()
	})
}

func TestProtectedReaderIsWholeBesideGreedyWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, map[string]int{"protected": 32, "greedy": 1})
		defer r.stop()
		var done, reading sync.WaitGroup
		r.writer("greedy", 200*mib, &done)
		r.writer("greedy", 200*mib, &done)
		time.Sleep(2 * time.Second)
		begin := time.Now()
		r.reader("protected", 60*mib, 6e6, &reading)
		reading.Wait()
		alone := float64(60*mib) / 6e6
		if took := time.Since(begin).Seconds(); took > 1.1*alone {
			t.Errorf("a protected reader of 6 MB/s took %.2f s, alone %.2f s", took, alone)
		}
		done.Wait()
	})
}

func TestResidentRangesAreNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		g := newGate()
		f := r.disk.newFile("warm", 16*mib)
		f.fill(0, 16*mib)
		s := r.loop.Open(OpenRequest{Marker: g, Flow: "a", Block: f, To: 16 * mib})
		synctest.Wait()
		if got := g.last(); got != Open {
			t.Errorf("mark of a resident block is %d, want open", got)
		}
		r.loop.Close(s, 16*mib)
		if f := r.flowNow("a"); f.Bytes[0] != 0 || f.Service != 0 || f.Resident != 16*mib {
			t.Errorf("resident block: charged %d bytes, %v; resident %d", f.Bytes[0], f.Service, f.Resident)
		}
	})
}

func TestHalfResidentBlockIsChargedByHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		var done sync.WaitGroup
		s := r.reader("a", 16*mib, 0, &done)
		s.Block.(*modelFile).fill(4*mib, 8*mib)
		done.Wait()
		synctest.Wait()
		if f := r.flowNow("a"); f.Bytes[0] != 8*mib {
			t.Errorf("charged %d MiB of a block that was half resident", f.Bytes[0]/mib)
		}
	})
}

func TestReaderIsStagedOnlyAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		g := newGate()
		f := r.disk.newFile("stalled", 128*mib)
		s := r.loop.Open(OpenRequest{Marker: g, Flow: "a", Block: f, To: 128 * mib})
		time.Sleep(time.Minute) // a client that opens and then stalls
		snap, _ := r.loop.Snapshot()
		if got := r.disk.total("stalled"); got > int64(r.loop.cfg.Ahead+2)*r.loop.cfg.Quantum {
			t.Errorf("%d bytes staged for a reader that reads nothing", got)
		}
		if snap.Outstanding != 0 {
			t.Errorf("a stalled reader holds %d slots", snap.Outstanding)
		}
		r.loop.Close(s, 0)
		synctest.Wait()
		if f.timesClosed() != 1 {
			t.Errorf("the block file was closed %d times", f.timesClosed())
		}
	})
}

func TestCancelledReadLeavesNoDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.FixedDepth = 1 }, nil)
		defer r.stop()
		f := r.disk.newFile("x", 128*mib)
		var streams []*Stream
		for i := range 50 {
			streams = append(streams, r.loop.Open(OpenRequest{Marker: newGate(), ID: uint32(i), Flow: "hedged", Block: r.disk.newFile(fmt.Sprint(i), 8*mib), To: 8 * mib}))
		}
		_ = f
		synctest.Wait()
		for _, s := range streams {
			r.loop.Close(s, 0)
		}
		time.Sleep(time.Second)
		got := r.flowNow("hedged")
		if got.Queued != 0 || got.Requests > 2 {
			t.Errorf("after the cancellation: %d queued, %d served", got.Queued, got.Requests)
		}
	})
}

func TestBacklogIsBounded(t *testing.T) {
	for _, dirty := range []int64{8 * mib, 48 * mib} { // a small room, and a larger one that the device drains within 8 s
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, func(c *Config) { c.Dirty = dirty }, nil)
			defer r.stop()
			var done sync.WaitGroup
			writers := 16
			var most int64
			for range writers {
				r.writer("a", 6*mib, &done)
			}
			for range 100 {
				time.Sleep(50 * time.Millisecond)
				most = max(most, r.flowNow("a").Backlog)
			}
			if bound := dirty + int64(writers)*leaseBytes; most > bound || most < dirty {
				t.Errorf("backlog reached %d of %d, bound and leases are %d", most, dirty, bound)
			}
			done.Wait()
			time.Sleep(10 * time.Second)
			if f := r.flowNow("a"); f.Backlog != 0 || f.Bytes[1] != int64(writers)*6*mib {
				t.Errorf("after the end: backlog %d, drained %d", f.Backlog, f.Bytes[1])
			}
		})
	}
}

// Each flow has room for the bytes that its share of the disk drains in 8 s: the light flow for
// few, the flow with eight times its weight for a burst.
func TestABurstHasTheRoomThatItsShareDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty = 256 * mib }, map[string]int{"light": 1, "heavy": 8})
		defer r.stop()
		var done sync.WaitGroup
		r.writer("light", 400*mib, &done)
		r.writer("heavy", 400*mib, &done)
		time.Sleep(15 * time.Second)
		light, heavy := r.flowNow("light").Backlog, r.flowNow("heavy").Backlog
		if light > 12_000_000*8/9+2*leaseBytes {
			t.Errorf("the light one has a backlog of %d", light)
		}
		if heavy < 60*mib || heavy > 84*mib { // eight ninths of 12 MB/s, for 8 s
			t.Errorf("the heavy one has a backlog of %d", heavy)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// A heavy flow that writes a line from time to time takes no room from flows that write much.
func TestALogTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty = 96 * mib }, map[string]int{"log": 8, "busy": 8, "light": 1})
		defer r.stop()
		var done sync.WaitGroup
		line := r.disk.newFile("log", 0)
		s := r.loop.Open(OpenRequest{Marker: newGate(), Flow: "log", Write: true, Block: line})
		r.writer("light", 400*mib, &done)
		r.writer("busy", 800*mib, &done)
		for i := range int64(30) {
			line.write(i*4096, 4096)
			r.loop.Progress(s, (i+1)*4096)
			time.Sleep(time.Second)
		}
		if got := r.flowNow("busy").Backlog; got < 60*mib {
			t.Errorf("next to a log of the same weight a flow has %d MiB of 96 to write in", got/mib)
		}
		r.apply(Off, "", Rule{})
		r.loop.Close(s, 30*4096)
		done.Wait()
	})
}

func TestManyWritersWithPartialQuantaKeepGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// 64 writers with less than a quantum each fill the bound with parts that would never be
		// drained if only whole quanta were written.
		r := newFixture(t, nil, nil)
		defer r.stop()
		var done sync.WaitGroup
		for range 64 {
			r.writer("a", mib+mib/2, &done)
		}
		begin := time.Now()
		done.Wait()
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("96 MiB at 12 MB/s took the writers %v", took)
		}
	})
}

func TestDeletedFileIsNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		f := r.disk.newFile("gone", 0)
		s := r.loop.Open(OpenRequest{Marker: newGate(), Flow: "a", Write: true, Block: f})
		f.write(0, mib)
		f.deleted = true
		r.loop.Close(s, mib)
		time.Sleep(time.Second)
		if got := r.flowNow("a"); got.Bytes[1] != 0 || got.Service != 0 || got.Backlog != 0 {
			t.Errorf("a deleted file was charged: %+v", got)
		}
	})
}

func TestWhatTheKernelWroteIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		f := r.disk.newFile("hsync", 0)
		s := r.loop.Open(OpenRequest{Marker: newGate(), Flow: "a", Write: true, Block: f})
		f.write(0, 4*mib)
		f.clean(0, 4*mib) // hsync
		r.loop.Close(s, 4*mib)
		synctest.Wait()
		if got := r.flowNow("a"); got.Bytes[1] != 4*mib || got.Behind != 4*mib || r.disk.total("hsync") != 0 {
			t.Errorf("charged %d, unscheduled %d", got.Bytes[1], got.Behind)
		}
	})
}

func TestTailAndChecksumsAreDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		f, meta := r.disk.newFile("blk", 0), r.disk.newFile("blk.meta", 0)
		s := r.loop.Open(OpenRequest{Marker: newGate(), Flow: "a", Write: true, Block: f, Meta: meta})
		f.write(0, 3*mib+17)
		meta.write(0, 24583)
		r.loop.Close(s, 3*mib+17)
		time.Sleep(2 * time.Second)
		if a, b := r.disk.total("blk"), r.disk.total("blk.meta"); a != 3*mib+17 || b != 24583 {
			t.Errorf("drained %d and %d bytes", a, b)
		}
		if f.timesClosed() != 1 || meta.timesClosed() != 1 {
			t.Errorf("closed %d and %d times", f.timesClosed(), meta.timesClosed())
		}
	})
}

func TestSlowWriterIsDrainedByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		f := r.disk.newFile("slow", 0)
		s := r.loop.Open(OpenRequest{Marker: newGate(), Flow: "a", Write: true, Block: f})
		f.write(0, 100_000)
		r.loop.Progress(s, 100_000)
		time.Sleep(4 * time.Second)
		if got := r.disk.total("slow"); got != 0 {
			t.Errorf("%d bytes drained before their age", got)
		}
		time.Sleep(2 * time.Second)
		if got := r.disk.total("slow"); got != 100_000/pageBytes*pageBytes {
			t.Errorf("drained %d bytes, want the whole pages of 100,000", got)
		}
		r.loop.Close(s, 100_000)
		time.Sleep(time.Second)
		if got := r.disk.total("slow"); got != 100_000 {
			t.Errorf("drained %d bytes in all", got)
		}
	})
}

func TestObserveHoldsNobodyAndTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty = 8 * mib }, nil)
		defer r.stop()
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Observe})
		var done sync.WaitGroup
		begin := time.Now()
		r.writer("a", 60*mib, &done)
		done.Wait()
		if took := time.Since(begin); took != 0 {
			t.Errorf("observed writer took %v of virtual time", took)
		}
		time.Sleep(10 * time.Second)
		got := r.flowNow("a")
		if got.Bytes[1] != 60*mib {
			t.Errorf("observed writer: %d bytes accounted", got.Bytes[1])
		}
		// The write was done at once. In enforce mode, it would have waited until its backlog of 60
		// MiB was below 8 MiB, at 12 MB/s less the seeks.
		if got.WouldWait < 4*time.Second || got.WouldWait > 8*time.Second {
			t.Errorf("observed writer would have waited %v", got.WouldWait)
		}
	})
}

// A writer that has filled the page cache while it was alone does not have to wait for the whole
// difference when a heavy flow arrives.
func TestABoundSinksSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty = 256 * mib }, map[string]int{"light": 1, "heavy": 32})
		defer r.stop()
		var done sync.WaitGroup
		r.writer("light", 400*mib, &done)
		time.Sleep(10 * time.Second)
		before := r.flowNow("light")
		if before.Backlog < 80*mib {
			t.Fatalf("alone it has a backlog of %d", before.Backlog)
		}
		r.writer("heavy", 2000*mib, &done)
		time.Sleep(time.Minute)
		after := r.flowNow("light")
		if after.Forced != before.Forced {
			t.Errorf("it was let through %d times after the longest wait", after.Forced-before.Forced)
		}
		if after.Backlog > before.Backlog-5*mib {
			t.Errorf("its backlog was %d and is %d", before.Backlog, after.Backlog)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// Reads of an application do not wait until all its writes are drained.
func TestReadsPassTheFlowsOwnBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty = 256 * mib }, nil)
		defer r.stop()
		var writing, reading sync.WaitGroup
		r.writer("a", 800*mib, &writing)
		time.Sleep(15 * time.Second)
		if got := r.flowNow("a").Backlog; got < 60*mib {
			t.Fatalf("a backlog of %d", got)
		}
		begin := time.Now()
		r.reader("a", 16*mib, 0, &reading)
		reading.Wait()
		// In turn with as much of the backlog, they take 2.7 s and the seeks; after all of it, over 6 s.
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("16 MiB took %v during a backlog of the same application", took)
		}
		r.apply(Off, "", Rule{})
		writing.Wait()
	})
}

// A closed reader may leave a resident range that follows a quantum that was never dispatched.
func TestReaderThatEndsBeforeItsTurnIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.FixedDepth = 1 }, nil)
		defer r.stop()
		var done sync.WaitGroup
		r.reader("b", 64*mib, 0, &done) // has the device
		synctest.Wait()
		f := r.disk.newFile("x", 8*mib)
		f.fill(firstStage, 8*mib)
		s := r.loop.Open(OpenRequest{Marker: newGate(), Flow: "a", Block: f, To: 8 * mib})
		synctest.Wait()
		r.loop.Close(s, 0)
		if got := r.flowNow("a"); got.Streams != 0 || got.Queued != 0 {
			t.Errorf("after its end: %d streams, %d requests queued", got.Streams, got.Queued)
		}
		done.Wait()
	})
}

func TestObservedReaderThatTheKernelServesIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Observe})
		f := r.disk.newFile("x", 64*mib)
		f.fill(0, 16*mib)
		g := newGate()
		s := r.loop.Open(OpenRequest{Marker: g, Flow: "a", Block: f, To: 64 * mib})
		synctest.Wait()
		if g.last() != Open {
			t.Errorf("an observed reader is held at %d", g.last())
		}
		f.fill(0, 64*mib) // the kernel's own readahead was faster
		r.loop.Progress(s, 64*mib)
		r.loop.Close(s, 64*mib)
		time.Sleep(time.Second)
		got := r.flowNow("a")
		if got.Bytes[0] != 48*mib {
			t.Errorf("charged %d MiB of the 48 that were not resident at open", got.Bytes[0]/mib)
		}
	})
}

func TestModeAndWeightsChangeLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, map[string]int{"a": 1, "b": 1})
		defer r.stop()
		var done sync.WaitGroup
		r.writer("a", 600*mib, &done)
		r.writer("b", 600*mib, &done)
		time.Sleep(5 * time.Second)
		r.apply(Enforce, "a", Rule{Weight: 4, Mode: Enforce})
		time.Sleep(4 * time.Second)
		a0, b0 := r.flowNow("a").Bytes[1], r.flowNow("b").Bytes[1]
		time.Sleep(20 * time.Second)
		ratio := float64(r.flowNow("a").Bytes[1]-a0) / float64(r.flowNow("b").Bytes[1]-b0)
		if ratio < 3.5 || ratio > 4.5 {
			t.Errorf("after the change to 4:1 the ratio is %.2f", ratio)
		}
		begin := time.Now()
		r.apply(Off, "", Rule{})
		done.Wait()
		if time.Since(begin) != 0 {
			t.Errorf("switched off, writers were held for %v", time.Since(begin))
		}
		time.Sleep(5 * time.Second) // for the requests in flight
		if snap, _ := r.loop.Snapshot(); snap.Backlog != 0 {
			t.Errorf("switched off: backlog %d", snap.Backlog)
		}
	})
}

func TestLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.MaxWait = 2 * time.Second }, map[string]int{"big": 1_000_000, "small": 1})
		defer r.stop()
		var big, small sync.WaitGroup
		r.reader("big", 600*mib, 0, &big)
		time.Sleep(time.Second)
		begin := time.Now()
		r.reader("small", 2*mib, 0, &small) // the first quantum is served at once, the rest in packets
		small.Wait()
		if took := time.Since(begin); took < 4*time.Second || took > 60*time.Second {
			t.Errorf("a reader of the smallest share took %v for 28 packets, bound 2 s each", took)
		}
		if got := r.flowNow("small"); got.Forced == 0 || got.Service == 0 {
			t.Errorf("the forced quantum was not counted and charged: %+v", got)
		}
		r.apply(Off, "", Rule{})
		big.Wait()
	})
}

func TestDeviceThatDoesNotAnswerLetsStreamsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		r.disk.hang = make(chan struct{})
		g := newGate()
		s := r.loop.Open(OpenRequest{Marker: g, Flow: "a", Block: r.disk.newFile("x", 64*mib), To: 64 * mib})
		time.Sleep(20 * time.Second)
		if g.last() != Open {
			t.Errorf("mark %d on a device that hangs", g.last())
		}
		close(r.disk.hang)
		r.disk.mu.Lock()
		r.disk.hang = nil
		r.disk.mu.Unlock()
		time.Sleep(5 * time.Second)
		if g.last() == Open {
			t.Error("the device answers again, but the mark stays open")
		}
		r.loop.Close(s, 0)
	})
}

func TestReadErrorLetsTheStreamThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		f := r.disk.newFile("bad", 64*mib)
		f.fail = errors.New("input/output error")
		g := newGate()
		s := r.loop.Open(OpenRequest{Marker: g, Flow: "a", Block: f, To: 64 * mib})
		time.Sleep(time.Second)
		if g.last() != Open {
			t.Errorf("mark %d after a read error", g.last())
		}
		if got := r.flowNow("a"); got.Bytes != [2]int64{} || got.Requests != 0 {
			t.Errorf("the account has %v bytes in %d requests that the device did not do", got.Bytes, got.Requests)
		}
		r.loop.Close(s, 0)
	})
}

func TestFlowBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.MaxFlows = 4 }, nil)
		defer r.stop()
		for i := range 10 {
			f := r.disk.newFile(fmt.Sprint(i), 0)
			f.write(0, 4096)
			s := r.loop.Open(OpenRequest{Marker: newGate(), ID: uint32(i), Flow: fmt.Sprintf("f%d", i), Write: true, Block: f})
			r.loop.Close(s, 4096)
		}
		time.Sleep(2 * time.Second)
		snap, _ := r.loop.Snapshot()
		if len(snap.Flows) != 4 {
			t.Errorf("%d flows, bound 4", len(snap.Flows))
		}
		if got := r.flowNow(UnattributedFlow).Bytes[1]; got != 7*4096 {
			t.Errorf("the unattributed flow has %d bytes, want those of 7 applications", got)
		}
		// The flows have no streams left: a new flow replaces one of them.
		f := r.disk.newFile("late", 0)
		f.write(0, 4096)
		s := r.loop.Open(OpenRequest{Marker: newGate(), ID: 99, Flow: "late", Write: true, Block: f})
		r.loop.Close(s, 4096)
		time.Sleep(2 * time.Second)
		if got := r.flowNow("late").Bytes[1]; got != 4096 {
			t.Errorf("a flow that came when all others were idle has %d bytes of its own", got)
		}
		time.Sleep(2 * idleFlowAge)
		if snap, _ = r.loop.Snapshot(); len(snap.Flows) != 1 {
			t.Errorf("%d flows left after they were idle for long", len(snap.Flows))
		}
	})
}

func TestEndOpensEveryMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		g := newGate()
		f := r.disk.newFile("x", 64*mib)
		r.loop.Open(OpenRequest{Marker: g, Flow: "a", Block: f, To: 64 * mib})
		time.Sleep(time.Second)
		r.stop()
		synctest.Wait()
		if g.last() != Open || f.timesClosed() != 1 {
			t.Errorf("after the end: mark %d, closed %d times", g.last(), f.timesClosed())
		}
		late := newGate()
		r.loop.Open(OpenRequest{Marker: late, Flow: "a", Block: r.disk.newFile("y", mib), To: mib})
		if late.last() != Open {
			t.Error("a stream opened after the end is held")
		}
	})
}

func TestDepthFollowsLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Algorithm = "sfqd2" }, nil)
		defer r.stop()
		var done sync.WaitGroup
		for range 4 {
			r.writer("a", 150*mib, &done)
		}
		time.Sleep(40 * time.Second)
		snap, _ := r.loop.Snapshot()
		// The reference is the latency of two requests in flight.
		if snap.Depth < 1 || snap.Depth > 4 {
			t.Errorf("depth %d on a disk whose reference latency is that of 2", snap.Depth)
		}
		if c := snap.Control; 2*(c.AtMin+c.AtMax) > c.Periods {
			t.Errorf("%d of %d periods at a bound", c.AtMin+c.AtMax, c.Periods)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

func TestFirstMarkComesWithTheChecksums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		g := newGate()
		meta := r.disk.newFile("x.meta", mib)
		s := r.loop.Open(OpenRequest{
			Marker: g, Flow: "a", Block: r.disk.newFile("x", 128*mib), Meta: meta, From: 64 * mib, To: 65 * mib,
		})
		time.Sleep(5 * time.Millisecond)
		if g.last() != -1 {
			t.Errorf("mark %d before the checksums can be there", g.last())
		}
		time.Sleep(time.Minute)
		if g.last() != Open {
			t.Errorf("mark %d at the end", g.last())
		}
		// 1/128 of the meta file belongs to 1 MiB of the block.
		if got := r.disk.total("x.meta"); got > 3*pageBytes {
			t.Errorf("%d bytes of checksums staged for 1 MiB", got)
		}
		r.loop.Close(s, 65*mib)
	})
}

func TestKillSwitchWhileARequestIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		f := r.disk.newFile("x", 0)
		g := newGate()
		f.write(0, 8*mib)
		s := r.loop.Open(OpenRequest{Marker: g, Flow: "a", Write: true, Block: f})
		for pos := int64(mib); pos <= 8*mib; pos += mib {
			r.loop.Progress(s, pos)
		}
		time.Sleep(50 * time.Millisecond) // the first quanta are at the device
		r.apply(Off, "", Rule{})
		r.apply(Off, "", Rule{}) // the weights are reloaded meanwhile
		r.apply(Enforce, "", Rule{})
		time.Sleep(10 * time.Second)
		if g.last() != Open {
			t.Errorf("a stream that is not governed any more stands at %d", g.last())
		}
		if snap, _ := r.loop.Snapshot(); snap.Backlog != 0 || r.flowNow("a").Backlog != 0 {
			t.Errorf("backlog %d, of the flow %d, after all was taken back", snap.Backlog, r.flowNow("a").Backlog)
		}
	})
}

func TestStuckEndsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		var done sync.WaitGroup
		r.disk.hang = make(chan struct{})
		r.writer("a", 100*mib, &done)
		time.Sleep(14 * time.Second)
		if snap, _ := r.loop.Snapshot(); !snap.Stuck {
			t.Error("a device that does not answer is not called stuck")
		}
		close(r.disk.hang)
		r.disk.mu.Lock()
		r.disk.hang = nil
		r.disk.mu.Unlock()
		time.Sleep(2 * time.Second)
		snap, _ := r.loop.Snapshot()
		if snap.Stuck || snap.Outstanding == 0 {
			t.Errorf("answering again: stuck %v with %d requests in flight", snap.Stuck, snap.Outstanding)
		}
		done.Wait()
	})
}

func TestAbsurdClaimIsHeldAgainstTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		f := r.disk.newFile("x", 0)
		f.write(0, 4*mib)
		s := r.loop.Open(OpenRequest{Marker: newGate(), Flow: "a", Write: true, Block: f})
		r.loop.Progress(s, 1<<62)
		r.loop.Close(s, 1<<62)
		time.Sleep(5 * time.Second)
		if got := r.flowNow("a"); got.Bytes[1] != 4*mib || got.Backlog != 0 {
			t.Errorf("drained %d bytes, backlog %d, of a file of 4 MiB", got.Bytes[1], got.Backlog)
		}
	})
}
