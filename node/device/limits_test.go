package device

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// within fails the test unless the disk served the flow at the wanted rate in bytes per second,
// within 2 %, between two moments.
func (r *fixture) within(what string, flow string, from, to time.Time, want float64) {
	r.t.Helper()
	rate := float64(r.disk.between(from, to)[flow].bytes) / to.Sub(from).Seconds()
	if math.Abs(rate/want-1) > 0.02 {
		r.t.Errorf("%s: %s got %.3f MB/s of %.3f", what, flow, rate/1e6, want/1e6)
	}
}

func TestALimitIsKeptAndReached(t *testing.T) {
	for name, start := range map[string]func(r *fixture, done *sync.WaitGroup){
		"reader":  func(r *fixture, done *sync.WaitGroup) { r.reader("a", 100*mib, 0, done) },
		"writer":  func(r *fixture, done *sync.WaitGroup) { r.writer("a", 100*mib, done) },
		"spills":  func(r *fixture, done *sync.WaitGroup) { r.writerOf(Intermediate, "a", 100*mib, done) },
		"writers": func(r *fixture, done *sync.WaitGroup) { r.writer("a", 50*mib, done); r.writer("a", 50*mib, done) },
		"both":    func(r *fixture, done *sync.WaitGroup) { r.reader("a", 50*mib, 0, done); r.writer("a", 50*mib, done) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 2 * mib
				r := newFixture(t, nil, nil)
				defer r.stop()
				r.apply(Enforce, "a", Rule{Weight: 1, Mode: Enforce, Limit: limit})
				var done sync.WaitGroup
				begin := time.Now()
				start(r, &done)
				time.Sleep(2 * time.Second)
				from := time.Now()
				time.Sleep(10 * time.Second)
				if got := r.flowNow("a").Backlog; got > 2*limit+2*leaseBytes {
					t.Errorf("a backlog of %d, which takes the limit %.1f s to drain", got, float64(got)/limit)
				}
				r.within("alone", "a", from, from.Add(10*time.Second), limit)
				// Other flows change nothing, whatever the limited flow's share is. A request may
				// be late by one request of another flow, so the window is longer.
				r.reader("b", 150*mib, 0, &done)
				r.writer("c", 150*mib, &done)
				time.Sleep(22 * time.Second)
				r.within("beside others", "a", from.Add(12*time.Second), from.Add(32*time.Second), limit)
				done.Wait()
				if took := time.Since(begin).Seconds(); took < 0.98*(100-8)*mib/limit {
					t.Errorf("100 MiB at 2 MiB/s took %.1f s", took)
				}
				if f := r.flowNow("a"); f.LimitWaits == 0 || f.Forced != 0 {
					t.Errorf("%d requests waited for the limit, %d were forced", f.LimitWaits, f.Forced)
				}
			})
		})
	}
}

func TestALimitHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, map[string]int{"b": 1})
		defer r.stop()
		// The weight alone would give the flow nearly the whole disk, but its limit applies.
		r.apply(Enforce, "a", Rule{Weight: 1000, Mode: Enforce, Limit: mib})
		var done sync.WaitGroup
		r.reader("a", 60*mib, 0, &done)
		r.writer("b", 400*mib, &done)
		time.Sleep(2 * time.Second)
		from := time.Now()
		time.Sleep(20 * time.Second)
		r.within("limited", "a", from, from.Add(20*time.Second), mib)
		// The limited flow has ten requests per second, each with a seek there and back: 20 seeks
		// of 10 ms.
		busy := serviceOf(r.disk.between(from, from.Add(20*time.Second))["a"]) + serviceOf(r.disk.between(from, from.Add(20*time.Second))["b"])
		if busy < 0.99*20e9 {
			t.Errorf("the disk was busy for %v of 20 s", time.Duration(busy))
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// A limit above the share has no effect.
func TestALimitThatIsNotReachedLeavesTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, map[string]int{"b": 1})
		defer r.stop()
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Enforce, Limit: 9e6})
		var done sync.WaitGroup
		r.writer("a", 200*mib, &done)
		r.writer("b", 200*mib, &done)
		time.Sleep(3 * time.Second)
		a0, b0 := r.flowNow("a"), r.flowNow("b")
		time.Sleep(20 * time.Second)
		// The ratio compares service: the limited flow's requests are smaller and pay for more
		// seeks.
		ratio := float64(r.flowNow("a").Service-a0.Service) / float64(r.flowNow("b").Service-b0.Service)
		if ratio < 0.95 || ratio > 1.05 {
			t.Errorf("at 1:1 the limited one got %.3f of the other", ratio)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

func TestALimitChangesLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty = 8 * mib }, nil)
		defer r.stop()
		var done sync.WaitGroup
		r.writer("a", 1200*mib, &done)
		for _, limit := range []int64{0, mib, 4 * mib, 2 * mib, 0} {
			r.apply(Enforce, "a", Rule{Weight: 1, Mode: Enforce, Limit: limit})
			time.Sleep(10 * time.Second) // until the backlog that was queued in larger quanta is drained
			from := time.Now()
			time.Sleep(20 * time.Second)
			want := float64(limit)
			if limit == 0 {
				want = 12e6
			}
			r.within("after the change", "a", from, from.Add(20*time.Second), want)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// A limit that is set while the flow has room for seconds of the whole device takes effect at once:
// the writer waits until its backlog is below the bound of the limit.
func TestALimitTakesTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty = 256 * mib }, nil)
		defer r.stop()
		var done sync.WaitGroup
		r.writer("a", 800*mib, &done)
		time.Sleep(15 * time.Second)
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Enforce, Limit: mib})
		time.Sleep(time.Second)
		streamed := func() int64 { return r.flowNow("a").Kinds[0].Streamed[1] }
		before := streamed()
		time.Sleep(30 * time.Second)
		if more := streamed() - before; more > mib {
			t.Errorf("it wrote %d bytes more while its backlog was %d", more, r.flowNow("a").Backlog)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// Bytes that the kernel wrote by itself are paid off first, but the debt is bounded.
func TestALimitKeepsItsDebt(t *testing.T) {
	for _, c := range []struct {
		behind int64
		want   time.Duration
	}{{5 * mib, 5 * time.Second}, {60 * mib, limitDebt}} {
		synctest.Test(t, func(t *testing.T) {
			// The reader was not held, and its file was not resident. The bytes of a tenth of a
			// second were served in their turn.
			r := newFixture(t, func(c *Config) { c.Quantum, c.Ahead = 256<<10, 1 }, nil)
			defer r.stop()
			r.apply(Enforce, "a", Rule{Weight: 1, Mode: Enforce, Limit: mib})
			cold := r.disk.newFile("a/cold", c.behind)
			s := r.loop.Open(OpenRequest{Marker: newGate(), ID: 98, Flow: "a", Block: cold, To: c.behind})
			synctest.Wait()
			cold.fill(0, c.behind)
			r.loop.Progress(s, c.behind)
			r.loop.Close(s, c.behind)
			synctest.Wait()
			begin := time.Now()
			var done sync.WaitGroup
			r.reader("a", 64<<10, 0, &done)
			done.Wait()
			if took := time.Since(begin); took < c.want-500*time.Millisecond || took > c.want+500*time.Millisecond {
				t.Errorf("after %d MiB at 1 MiB/s that went by themselves the next one took %v, want %v", c.behind/mib, took, c.want)
			}
		})
	}
}

// Bytes that the device does not move are not limited.
func TestALimitIsOnTheDeviceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Enforce, Limit: mib})
		warm := r.disk.newFile("a/warm", 64*mib)
		warm.fill(0, 64*mib)
		g := newGate()
		s := r.loop.Open(OpenRequest{Marker: g, ID: 99, Flow: "a", Block: warm, To: 64 * mib})
		synctest.Wait()
		r.loop.Progress(s, 64*mib)
		r.loop.Close(s, 64*mib)
		gone := r.disk.newFile("a/gone", 0)
		gone.write(0, 8*mib)
		s = r.loop.Open(OpenRequest{Marker: newGate(), ID: 98, Flow: "a", Write: true, Block: gone})
		gone.remove()
		for pos := int64(mib); pos <= 8*mib; pos += mib {
			r.loop.Progress(s, pos)
		}
		r.loop.Close(s, 8*mib)
		time.Sleep(time.Second)
		if f := r.flowNow("a"); f.Backlog != 0 || f.Bytes != [2]int64{} {
			t.Errorf("a deleted file of 8 MiB at 1 MiB/s: after 1 s backlog %d, moved %d", f.Backlog, f.Bytes)
		}
	})
}

// Requests of a stream that ends before their turn are not charged.
func TestALimitIsNotChargedForWhatWasCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.FixedDepth = 1 }, nil)
		defer r.stop()
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Enforce, Limit: mib})
		var done sync.WaitGroup
		r.reader("b", 64<<10, 0, &done) // has the device
		synctest.Wait()
		s := r.loop.Open(OpenRequest{Marker: newGate(), ID: 99, Flow: "a", Block: r.disk.newFile("a/x", mib), To: mib})
		synctest.Wait()
		r.loop.Close(s, 0)
		begin := time.Now()
		r.reader("a", 64<<10, 0, &done)
		done.Wait()
		if took := time.Since(begin); took > 50*time.Millisecond { // two requests of 64 KiB, with seeks
			t.Errorf("the next one took %v", took)
		}
	})
}

// A stream that waits for its limit for longer than MaxWait passes, and the debt remains.
func TestALimitHoldsNoStreamBeyondTheLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.MaxWait = 2 * time.Second }, nil)
		defer r.stop()
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Enforce, Limit: MinLimit})
		var done sync.WaitGroup
		begin := time.Now()
		for range 8 {
			r.reader("a", 256<<10, 0, &done) // 4 quanta at 64 KiB/s
		}
		done.Wait()
		took, f := time.Since(begin), r.flowNow("a")
		if f.Forced == 0 || took > 4*2500*time.Millisecond {
			t.Errorf("2 MiB at 64 KiB/s took %v, %d requests forced", took, f.Forced)
		}
		begin = time.Now()
		r.reader("a", 64<<10, 0, &done)
		done.Wait()
		if took := time.Since(begin); took < 2*time.Second {
			t.Errorf("after it, deep in debt, one more took %v only", took)
		}
	})
}
