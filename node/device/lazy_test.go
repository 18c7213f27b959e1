package device

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// spill opens a task's file, writes it without pauses, and closes it.
func (r *fixture) spill(flow, name string, size int64) *modelFile {
	r.t.Helper()
	s, f := r.openSpill(flow, name)
	r.grow(s, f, size)
	r.loop.Close(s, size)
	synctest.Wait()
	return f
}

func (r *fixture) openSpill(flow, name string) (*Stream, *modelFile) {
	r.nextID++
	f := r.disk.newFile(name, 0)
	return r.loop.Open(OpenRequest{Marker: newGate(), ID: r.nextID, Flow: flow, Kind: Intermediate, Write: true, Block: f}), f
}

// grow continues to write up to a size, reporting each MiB.
func (r *fixture) grow(s *Stream, f *modelFile, to int64) {
	from, _ := f.Size()
	f.write(from, to-from)
	for pos := from; pos < to; {
		pos = min(to, pos+mib)
		r.loop.Progress(s, pos)
	}
}

func TestAShortLivedFileNeverReachesTheDisk(t *testing.T) {
	for name, deleteFirst := range map[string]bool{"deleted after its close": false, "deleted before it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, nil, nil)
				defer r.stop()
				s, f := r.openSpill("a", "spill")
				r.grow(s, f, 3*mib) // less than half of the bound
				if deleteFirst {
					f.remove()
				}
				r.loop.Close(s, 3*mib)
				time.Sleep(5 * time.Second)
				if !deleteFirst {
					if got := r.flowNow("a"); got.Kept != 1 || got.Backlog != 3*mib || got.Streams != 0 || f.timesClosed() != 0 {
						t.Errorf("kept %d, backlog %d, %d streams, closed %d times", got.Kept, got.Backlog, got.Streams, f.timesClosed())
					}
					f.remove()
				}
				time.Sleep(2 * time.Second)
				got := r.flowNow("a")
				if r.disk.total("spill") != 0 || got.Backlog != 0 || got.Kept != 0 || got.Service != 0 {
					t.Errorf("%d bytes drained, charged %v, backlog %d", r.disk.total("spill"), got.Service, got.Backlog)
				}
				if got.Dropped != 1 || got.DroppedBytes != 3*mib || f.timesClosed() != 1 {
					t.Errorf("dropped %d files of %d bytes, closed %d times", got.Dropped, got.DroppedBytes, f.timesClosed())
				}
				if snap, _ := r.loop.Snapshot(); snap.Backlog != 0 {
					t.Errorf("the device's backlog is %d", snap.Backlog)
				}
			})
		})
	}
}

// There are ten files of 1 MiB, and 4 MiB may wait: the six oldest files are drained.
func TestOnlyAsMuchIsDrainedAsTheBoundAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Lazy = 4 * mib }, nil)
		defer r.stop()
		for i := range 10 {
			r.spill("a", fmt.Sprint("spill", i), mib)
			time.Sleep(time.Millisecond)
			if i < 4 && r.flowNow("a").Queued != 0 {
				t.Fatalf("something is queued after %d MiB", i+1)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var drained []string
		for _, s := range r.disk.log {
			drained = append(drained, s.name)
		}
		if want := []string{"spill0", "spill1", "spill2", "spill3", "spill4", "spill5"}; !slices.Equal(drained, want) {
			t.Errorf("drained %v, want %v", drained, want)
		}
		if got := r.flowNow("a"); got.Backlog != 4*mib || got.Kept != 4 {
			t.Errorf("backlog %d, %d kept", got.Backlog, got.Kept)
		}
	})
}

// Other flows with waiting files lower the bound, which takes effect without any further write.
func TestTheBoundSinksWithOtherWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		for i := range 4 {
			r.spill("a", fmt.Sprint("spill", i), mib)
		}
		for i := range 15 {
			r.spill(fmt.Sprint("other", i), fmt.Sprint("other", i), 4096)
		}
		time.Sleep(5 * time.Second)
		if got := r.flowNow("a"); got.Backlog != 4*mib { // the other flows do not use their part
			t.Errorf("backlog %d next to 15 flows with hardly any", got.Backlog)
		}
		for i := range 15 {
			r.spill(fmt.Sprint("other", i), fmt.Sprint("more", i), 3*mib/4)
		}
		time.Sleep(5 * time.Second)
		if got := r.flowNow("a"); got.Backlog != mib { // 16 MiB divided by 16
			t.Errorf("backlog %d next to 15 flows", got.Backlog)
		}
		r.loop.SetRoom(1, 1, 0)
		time.Sleep(5 * time.Second)
		if got := r.flowNow("a"); got.Backlog > leaseFloor {
			t.Errorf("backlog %d where next to nothing may wait", got.Backlog)
		}
	})
}

// Waiting files do not count as backlog. A single task writes, without a wait, all bytes that may
// wait plus the bound on its backlog, less one lease.
func TestWhatMayWaitHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Lazy = 64 * mib }, nil)
		defer r.stop()
		var done sync.WaitGroup
		begin := time.Now()
		r.writerOf(Intermediate, "a", 69*mib, &done)
		done.Wait()
		if took := time.Since(begin); took > 10*time.Millisecond { // the disk drains nothing in that time
			t.Errorf("69 MiB took %v, where 64 MiB may wait", took)
		}
		if got := r.flowNow("a"); got.Backlog < 61*mib {
			t.Errorf("backlog %d", got.Backlog)
		}
	})
}

// If other flows are active, a flow has no more bytes waiting than its share drains before the
// kernel would write them out, however much may wait on the device.
func TestALightFlowDrainsBeforeTheKernelWould(t *testing.T) {
	const kernel = 30 * time.Second
	for name, c := range map[string]struct{ weight, least, most int64 }{
		"light": {weight: 1, least: 0, most: 18 * mib}, // a ninth of 12 MB/s, for 12 s
		"heavy": {weight: 32, least: 55 * mib, most: 80 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, func(c *Config) { c.Lazy = 512 * mib }, map[string]int{"reads": 8, "spills": int(c.weight)})
				defer r.stop()
				var done sync.WaitGroup
				r.busy(&done)
				s, f := r.openSpill("spills", "spill")
				r.grow(s, f, 80*mib)
				wrote := time.Now()
				time.Sleep(10 * time.Second)
				waits := r.lazyNow("spills")
				if waits > c.most || waits < c.least {
					t.Errorf("%d MiB wait after 10 s, want %d to %d", waits/mib, c.least/mib, c.most/mib)
				}
				// The younger waiting bytes may wait for the rest of the kernel's time.
				time.Sleep(kernel - time.Since(wrote))
				if left := r.lazyNow("spills"); left > 0 {
					t.Errorf("%d MiB wait after %v", left/mib, kernel)
				}
				r.apply(Off, "", Rule{})
				done.Wait()
			})
		})
	}
}

// Waiting files may also use the part of a flow's backlog bound that its other writers do not use.
// Both together stay within the two bounds.
func TestSpillsWaitInWhatTheBacklogLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty, c.Lazy = 72*mib, 16*mib }, map[string]int{"reads": 8, "a": 32})
		defer r.stop()
		var done sync.WaitGroup
		r.busy(&done)
		s, f := r.openSpill("a", "spill")
		r.grow(s, f, 60*mib)
		time.Sleep(5 * time.Second)
		if waits := r.lazyNow("a"); waits < 55*mib {
			t.Errorf("%d MiB of 60 wait, where 80 may", waits/mib)
		}
		r.writer("a", 200*mib, &done)
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			if got := r.flowNow("a").Backlog; got > (72+16)*mib+2*leaseBytes {
				t.Fatalf("backlog %d MiB", got/mib)
			}
			if waits := r.lazyNow("a"); waits < 55*mib { // the block file must go to the disk, but the spill keeps waiting
				t.Fatalf("%d MiB of 60 wait while a block file is written", waits/mib)
			}
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// busy makes the flow "reads" use the disk until the daemon is off, for long enough that the loop
// knows the disk's rate.
func (r *fixture) busy(done *sync.WaitGroup) {
	r.reader("reads", 1<<30, 0, done)
	r.reader("reads", 1<<30, 0, done)
	time.Sleep(2 * time.Second)
}

// lazyNow returns the bytes of a flow that wait without being queued.
func (r *fixture) lazyNow(flow string) (bytes int64) {
	return r.flowNow(flow).Lazy
}

func TestALazyFileIsDrainedByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		closed := r.spill("a", "closed", mib+17)
		s, f := r.openSpill("a", "open")
		r.grow(s, f, mib+17)
		time.Sleep(21 * time.Second)
		if a, b := r.disk.total("closed"), r.disk.total("open"); a != 0 || b != 0 {
			t.Errorf("drained %d and %d bytes before their age", a, b)
		}
		time.Sleep(2 * time.Second)
		if a, b := r.disk.total("closed"), r.disk.total("open"); a != mib+17 || b != mib {
			t.Errorf("drained %d and %d bytes at their age", a, b)
		}
		if closed.timesClosed() != 1 || f.timesClosed() != 0 {
			t.Error("drained: the closed file is released, the open one is not")
		}
		r.loop.Close(s, mib+17)
		time.Sleep(30 * time.Second)
		if got := r.flowNow("a"); got.Backlog != 0 || r.disk.total("open") != mib+17 || f.timesClosed() != 1 {
			t.Errorf("backlog %d at the end", got.Backlog)
		}
	})
}

// If more files are kept than the bound allows, the oldest one is drained; at the bound, no file is
// drained.
func TestKeptFilesAreBounded(t *testing.T) {
	for _, c := range []struct{ perFlow, files, drained int }{
		{4, 4, 0}, {4, 6, 2},
		{65536, maxKept, 0}, {65536, maxKept + 1, 1}, // of the whole device
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, func(c2 *Config) { c2.LazyFiles, c2.Backlog, c2.Dirty = c.perFlow, 64*mib, 64*mib }, nil)
			defer r.stop()
			for i := range c.files {
				r.spill("a", fmt.Sprint("spill", i), 4096)
				time.Sleep(time.Microsecond)
			}
			time.Sleep(2 * time.Second)
			for i := range c.files {
				if got := r.disk.total(fmt.Sprint("spill", i)) > 0; got != (i < c.drained) {
					t.Fatalf("%d files of %d to be kept: number %d drained: %v", c.files, c.perFlow, i, got)
				}
			}
			if got := r.flowNow("a"); got.Kept != c.files-c.drained {
				t.Errorf("%d kept", got.Kept)
			}
		})
	}
}

// At the device's own bound the oldest file of all flows is drained.
func TestTheOldestOfAllKeptFilesGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.LazyFiles, c.Backlog, c.Dirty = 65536, 64*mib, 64*mib }, nil)
		defer r.stop()
		for i := range maxKept + 1 {
			r.spill([]string{"a", "b"}[i/maxKept], fmt.Sprint("spill", i), 4096)
			time.Sleep(time.Microsecond)
		}
		time.Sleep(2 * time.Second)
		if first, last := r.disk.total("spill0"), r.disk.total(fmt.Sprint("spill", maxKept)); first == 0 || last > 0 {
			t.Errorf("drained %d bytes of the oldest and %d of another flow's youngest", first, last)
		}
	})
}

// A task that writes without end gets the same service as a DataNode's writer, and waits at its
// bound.
func TestGreedySpillsShareByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, map[string]int{"a": 3, "b": 1})
		defer r.stop()
		var done sync.WaitGroup
		r.writerOf(Intermediate, "a", 400*mib, &done)
		r.writerOf(Intermediate, "a", 400*mib, &done)
		r.writer("b", 400*mib, &done)
		time.Sleep(5 * time.Second)
		from := time.Now()
		for range 40 {
			time.Sleep(500 * time.Millisecond)
			if got := r.flowNow("a").Backlog; got > r.loop.cfg.Dirty+r.loop.cfg.Lazy+2*leaseBytes {
				t.Fatalf("backlog %d", got)
			}
		}
		got := r.disk.between(from, time.Now())
		if ratio := bytesOf(got["a"]) / bytesOf(got["b"]); ratio < 2.7 || ratio > 3.3 {
			t.Errorf("at 3:1 the ratio is %.2f", ratio)
		}
		if got := bytesOf(got["a"]) + bytesOf(got["b"]); got < 0.9*20*12e6 {
			t.Errorf("%.1f MB/s of 12", got/20e6)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// A file that is deleted during a write can still be written, and none of its bytes count.
func TestAFileThatIsDeletedWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		begin := time.Now()
		s, f := r.openSpill("a", "gone")
		r.grow(s, f, 2*mib)
		f.remove()
		time.Sleep(2 * time.Second)
		r.grow(s, f, 50*mib)
		r.loop.Close(s, 50*mib)
		synctest.Wait()
		if got := r.flowNow("a"); r.disk.total("gone") != 0 || got.Dropped != 1 || f.timesClosed() != 1 || got.Backlog != 0 {
			t.Errorf("%d bytes drained; %+v", r.disk.total("gone"), got)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// When a file is deleted, its queued requests leave the queue.
func TestAFileThatIsDeletedWhileItIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, map[string]int{"big": 1_000_000})
		defer r.stop()
		var done sync.WaitGroup
		r.reader("big", 200*mib, 0, &done)
		time.Sleep(time.Second)
		f := r.spill("a", "spill", 8*mib)
		time.Sleep(time.Second)
		if got := r.flowNow("a"); got.Queued == 0 {
			t.Fatal("nothing is queued")
		}
		before := r.disk.total("spill")
		f.remove()
		time.Sleep(2 * time.Second)
		got := r.flowNow("a")
		if got.Queued != 0 || got.Backlog != 0 || f.timesClosed() != 1 || r.disk.total("spill") > before+r.loop.cfg.Quantum {
			t.Errorf("%d queued, backlog %d, closed %d times", got.Queued, got.Backlog, f.timesClosed())
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// Bytes that the kernel wrote out by itself are charged when their turn comes.
func TestALazyFileThatTheKernelWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		f := r.spill("a", "spill", 2*mib)
		f.clean(0, 2*mib)
		time.Sleep(30 * time.Second)
		if got := r.flowNow("a"); got.Bytes[1] != 2*mib || got.Behind != 2*mib || got.Dropped != 0 || f.timesClosed() != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// A sync wrote half of a file that was deleted later: that half is charged to the flow.
func TestADeletedFileThatASyncHalfWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		f := r.spill("a", "spill", 3*mib)
		f.clean(0, 3*mib/2)
		f.remove()
		time.Sleep(2 * time.Second)
		got := r.flowNow("a")
		if got.Behind != 3*mib/2 || got.DroppedBytes != 3*mib/2 || got.Service == 0 || r.disk.total("spill") != 0 {
			t.Errorf("behind %d, dropped %d, charged %v, drained %d", got.Behind, got.DroppedBytes, got.Service, r.disk.total("spill"))
		}
	})
}

func TestKillSwitchAndEndLetKeptFilesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		a, b := r.spill("a", "a", mib), r.spill("b", "b", mib)
		r.apply(Enforce, "a", Rule{Weight: 1, Mode: Off})
		synctest.Wait()
		if got := r.flowNow("a"); got.Kept != 0 || got.Backlog != 0 || a.timesClosed() != 1 {
			t.Errorf("switched off: %+v", got)
		}
		if snap, _ := r.loop.Snapshot(); snap.Backlog != mib {
			t.Errorf("backlog %d, of the other flow 1 MiB", snap.Backlog)
		}
		r.stop()
		synctest.Wait()
		if b.timesClosed() != 1 {
			t.Errorf("after the end: closed %d times", b.timesClosed())
		}
	})
}

// Each kind has an account of its own, and the flow's account is their sum.
func TestKindsAreAccountedForApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		var done sync.WaitGroup
		r.reader("a", 4*mib, 0, &done)
		r.writer("a", 3*mib, &done)
		r.writerOf(Intermediate, "a", 2*mib, &done)
		f := r.disk.newFile("a/merge", 6*mib)
		f.fill(0, 3*mib)
		s := r.loop.Open(OpenRequest{Marker: newGate(), ID: 77, Flow: "a", Kind: Intermediate, Block: f, To: 6 * mib})
		time.Sleep(30 * time.Second)
		r.loop.Close(s, 6*mib)
		done.Wait()
		got := r.flowNow("a")
		if len(got.Kinds) != 2 {
			t.Fatalf("%+v", got.Kinds)
		}
		p, i := got.Kinds[0], got.Kinds[1]
		if p.Kind != Persistent || p.Streamed != [2]int64{4 * mib, 3 * mib} || p.Bytes != p.Streamed || p.Service <= 0 {
			t.Errorf("persistent: %+v", p)
		}
		if i.Kind != Intermediate || i.Streamed != [2]int64{6 * mib, 2 * mib} || i.Bytes != [2]int64{3 * mib, 2 * mib} || i.Service <= 0 {
			t.Errorf("intermediate: %+v", i)
		}
		if got.Bytes != [2]int64{7 * mib, 5 * mib} || got.Service != p.Service+i.Service {
			t.Errorf("in all: %+v", got)
		}
	})
}

// The measured rate of a device is kept while it is idle.
func TestTheRateIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		rate := func() (rate float64) {
			snap, _ := r.loop.Snapshot()
			return snap.Rate
		}
		if got := rate(); got != 0 {
			t.Errorf("%.0f B/s before anything was done", got)
		}
		var done sync.WaitGroup
		r.reader("a", 60*mib, 0, &done)
		done.Wait()
		time.Sleep(3 * time.Hour)
		if got := rate(); got < 10e6 || got > 13e6 {
			t.Errorf("%.1f MB/s of 12 after hours", got/1e6)
		}
	})
}

// If more bytes wait than can be drained after the usual age, the oldest are drained earlier. So
// the kernel writes nothing out by itself.
func TestMuchIsDrainedEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty, c.Lazy = 512*mib, 512*mib }, map[string]int{"reads": 10, "spills": 40})
		defer r.stop()
		var done sync.WaitGroup
		r.busy(&done)
		s, f := r.openSpill("spills", "spill")
		r.grow(s, f, 150*mib) // 9.6 MB/s drain it in 16 s
		wrote := time.Now()
		time.Sleep(17 * time.Second)
		early := r.lazyNow("spills")
		time.Sleep(4 * time.Second)
		later := r.lazyNow("spills")
		time.Sleep(kernelAge - time.Since(wrote))
		if early < 145*mib || later > 135*mib || r.disk.total("spill") < 140*mib {
			t.Errorf("%d MiB wait after 17 s, %d after 21, and %d were drained after %v", early/mib, later/mib, r.disk.total("spill")/mib, kernelAge)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// A share that is small for a moment does not cause a drain of waiting files.
func TestAMomentsContentionDrainsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Lazy = 512 * mib }, map[string]int{"shell": 1000, "reads": 1, "spills": 10})
		defer r.stop()
		var done sync.WaitGroup
		r.busy(&done)
		s, f := r.openSpill("spills", "spill")
		r.grow(s, f, 100*mib)
		time.Sleep(8 * time.Second)
		waited := r.lazyNow("spills")
		r.reader("shell", 4*mib, 0, &done)
		time.Sleep(time.Second)
		if waits := r.lazyNow("spills"); waited < 80*mib || waits < waited-12*mib {
			t.Errorf("%d MiB of %d wait after a moment's contention", waits/mib, waited/mib)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// Two spilling flows divide the room for backlogs, so that files of each may wait in a half of it.
func TestTwoThatSpillShareTheRoomForBacklogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty, c.Lazy = 64*mib, 64*mib }, map[string]int{"reads": 1, "a": 10, "b": 10})
		defer r.stop()
		var done sync.WaitGroup
		r.busy(&done)
		for range 30 {
			r.spill("a", "a", 5*mib)
			r.spill("b", "b", 5*mib)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second) // until the room of the first flow, which grew while the other wrote nothing, has shrunk
		a, b := r.lazyNow("a"), r.lazyNow("b")
		if a+b > (64+64+16)*mib || a < 40*mib || b < 40*mib {
			t.Errorf("%d and %d MiB wait where there is room for 128", a/mib, b/mib)
		}
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// Writers with backlogs of less than a quantum each do not displace the spills.
func TestManySmallWritersLeaveTheSpills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Dirty, c.Lazy, c.FlushAge = 16*mib, 64*mib, time.Minute }, nil)
		defer r.stop()
		spill := r.spill("a", "spill", 64*mib)
		var files []*modelFile
		for i := range 32 {
			r.nextID++
			f := r.disk.newFile(fmt.Sprint("block", i), 0)
			s := r.loop.Open(OpenRequest{Marker: newGate(), ID: r.nextID, Flow: "a", Write: true, Block: f})
			r.grow(s, f, mib/2)
			files = append(files, f)
		}
		time.Sleep(3 * time.Second)
		if drained := r.disk.total("spill"); drained > 16*mib {
			t.Errorf("%d MiB of the spill were drained", drained/mib)
		}
		blocks := int64(0)
		for i := range files {
			blocks += r.disk.total(fmt.Sprint("block", i))
		}
		if blocks == 0 || spill.timesClosed() != 0 {
			t.Errorf("%d bytes of block files were drained, the spill closed %d times", blocks, spill.timesClosed())
		}
	})
}
