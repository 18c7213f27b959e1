package device

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// settled fails the test if the loop still counts a backlog, queued requests or requests in
// flight of any flow or of the device.
func (r *fixture) settled() {
	r.t.Helper()
	left := make(chan string)
	r.loop.call(func() { left <- r.loop.arbiter.Held() })
	if held := <-left; held != "" {
		r.t.Errorf("left on the device:\n%s", held)
	}
}

// A reader's queue moves; service so far stays with the old flow.
func TestAReaderIsReassigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		var done sync.WaitGroup
		s := r.reader("claimed", 60*mib, 0, &done)
		time.Sleep(2 * time.Second)
		r.loop.Reassign(s, "known", "")
		synctest.Wait()
		before, known := r.flowNow("claimed"), r.flowNow("known")
		if before.Streams != 0 || before.Queued != 0 || known.Streams != 1 || known.Queued == 0 {
			t.Errorf("right after: %+v, %+v", before, known)
		}
		done.Wait()
		synctest.Wait()
		after, known := r.flowNow("claimed"), r.flowNow("known")
		// Requests in flight still belong to the old flow.
		if got := after.Bytes[0] - before.Bytes[0]; got <= 0 || got > 2*r.loop.cfg.Quantum {
			t.Errorf("the old flow paid for %d bytes after it", got)
		}
		if after.Bytes[0]+known.Bytes[0] != 60*mib || after.Kinds[0].Streamed[0]+known.Kinds[0].Streamed[0] != 60*mib {
			t.Errorf("%d and %d bytes", after.Bytes[0], known.Bytes[0])
		}
		r.settled()
	})
}

func TestAReaderIsReassignedBeforeItsFirstQuantum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.FixedDepth = 1 }, nil)
		defer r.stop()
		var other, done sync.WaitGroup
		r.reader("other", 8*mib, 0, &other)
		synctest.Wait()
		s := r.reader("claimed", 8*mib, 0, &done)
		r.loop.Reassign(s, "known", "")
		done.Wait()
		other.Wait()
		synctest.Wait()
		if a, b := r.flowNow("claimed"), r.flowNow("known"); a.Bytes[0] != 0 || a.Service != 0 || b.Bytes[0] != 8*mib {
			t.Errorf("the old flow has %d bytes, the new one %d", a.Bytes[0], b.Bytes[0])
		}
		r.settled()
	})
}

// A writer's backlog moves with the writer: other writers of its old application may continue, and
// those of its new application must wait.
func TestAWriterIsReassigned(t *testing.T) {
	for _, kind := range []Kind{Persistent, Intermediate} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, nil, nil)
				defer r.stop()
				var done, other sync.WaitGroup
				s, _ := r.writerOf(kind, "claimed", 60*mib, &done)
				r.writerOf(kind, "known", 60*mib, &other)
				time.Sleep(3 * time.Second)
				a, b := r.flowNow("claimed"), r.flowNow("known")
				r.loop.Reassign(s, "known", "")
				synctest.Wait()
				after, known := r.flowNow("claimed"), r.flowNow("known")
				if after.Backlog != 0 || known.Backlog != a.Backlog+b.Backlog || after.Streams != 0 || known.Streams != 2 || after.Queued != 0 {
					t.Errorf("before %d and %d of backlog, after it %d and %d", a.Backlog, b.Backlog, after.Backlog, known.Backlog)
				}
				if after.Bytes != a.Bytes {
					t.Error("what it did so far has moved")
				}
				done.Wait()
				other.Wait()
				time.Sleep(30 * time.Second)
				after, known = r.flowNow("claimed"), r.flowNow("known")
				if after.Bytes[1]+known.Bytes[1] != 120*mib {
					t.Errorf("%d and %d bytes", after.Bytes[1], known.Bytes[1])
				}
				r.settled()
			})
		})
	}
}

// Kept files move too, and count towards the bound of their new flow.
func TestAClosedSpillIsReassigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.Lazy = 4 * mib }, nil)
		defer r.stop()
		s, f := r.openSpill("claimed", "spill")
		r.grow(s, f, 3*mib)
		r.loop.Close(s, 3*mib)
		r.loop.Reassign(s, "known", "")
		synctest.Wait()
		a, b := r.flowNow("claimed"), r.flowNow("known")
		if a.Kept != 0 || a.Backlog != 0 || b.Kept != 1 || b.Backlog != 3*mib {
			t.Errorf("%+v, %+v", a, b)
		}
		r.spill("known", "second", 3*mib)
		time.Sleep(2 * time.Second)
		if r.disk.total("spill") == 0 || r.flowNow("known").Backlog > 4*mib {
			t.Errorf("together over what may wait, and backlog %d", r.flowNow("known").Backlog)
		}
		time.Sleep(30 * time.Second)
		r.settled()
	})
}

func TestReassignedToALimitedFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		r.apply(Enforce, "known", Rule{Weight: 1, Mode: Enforce, Limit: mib})
		var done sync.WaitGroup
		a := r.reader("claimed", 60*mib, 0, &done)
		b, _ := r.writer("claimed", 60*mib, &done)
		time.Sleep(time.Second)
		r.loop.Reassign(a, "known", "")
		r.loop.Reassign(b, "known", "")
		time.Sleep(12 * time.Second) // until the whole quanta that were queued are drained
		before := r.flowNow("known").Bytes
		time.Sleep(20 * time.Second)
		after := r.flowNow("known").Bytes
		about(t, "bytes at 1 MiB/s", float64(after[0]+after[1]-before[0]-before[1]), 20*mib)
		// Back in the first flow, requests that waited for the limit are dispatched at once.
		r.loop.Reassign(a, "claimed", "")
		r.loop.Reassign(b, "claimed", "")
		begin := time.Now()
		done.Wait()
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("without the limit the rest took %v", took)
		}
		time.Sleep(5 * time.Second)
		r.settled()
	})
}

func TestReassignedToAFlowThatIsOffOrFromOneThatIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, nil, nil)
		defer r.stop()
		r.apply(Enforce, "off", Rule{Weight: 1, Mode: Off})
		r.apply(Enforce, "seen", Rule{Weight: 1, Mode: Observe})
		for i, write := range []bool{true, false} {
			g := newGate()
			f := r.disk.newFile(fmt.Sprint("x", i), 40*mib)
			s := r.loop.Open(OpenRequest{Marker: g, ID: uint32(i), Flow: "seen", Write: write, Block: f, To: 40 * mib})
			synctest.Wait()
			if g.last() != Open {
				t.Errorf("observed, at %d", g.last())
			}
			if write {
				f.write(0, 20*mib)
				r.loop.Progress(s, 20*mib) // enforced, it would wait until some MiB are drained
			}
			time.Sleep(100 * time.Millisecond)
			r.loop.Reassign(s, "held", "")
			synctest.Wait()
			if got := r.flowNow("seen").WouldWait; write && got != 100*time.Millisecond {
				t.Errorf("under its old flow it would have waited %v", got)
			}
			if g.last() == Open {
				t.Error("not held by the flow that is enforced")
			}
			r.loop.Reassign(s, "off", "")
			synctest.Wait()
			if g.last() != Open {
				t.Errorf("off, at %d", g.last())
			}
			time.Sleep(time.Second)
			r.loop.Reassign(s, "held", "") // too late: it is no longer governed
			r.loop.Close(s, 40*mib)
			time.Sleep(time.Second)
			if f.timesClosed() != 1 {
				t.Errorf("closed %d times", f.timesClosed())
			}
		}
		r.settled()
	})
}

func TestASenderIsReassigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNetwork(t, sendRate, map[string]int{"b": 1})
		defer r.stop()
		var done sync.WaitGroup
		s := r.sender("claimed", 30*mib, 0, &done)
		time.Sleep(time.Second)
		r.loop.Reassign(s.Stream, "known", "")
		done.Wait()
		synctest.Wait()
		a, b := r.flowNow("claimed"), r.flowNow("known")
		if a.Bytes[1]+b.Bytes[1] != 30*mib || a.Bytes[1] < 9*mib || a.Bytes[1] > 12*mib {
			t.Errorf("%d and %d bytes", a.Bytes[1], b.Bytes[1])
		}
		r.settled()
	})
}

// A flow without streams that still has a request at the device is not forgotten.
func TestAFlowIsKeptWhileItPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.MaxFlows = 2 }, nil)
		defer r.stop()
		s := r.loop.Open(OpenRequest{Marker: newGate(), Flow: "claimed", Block: r.disk.newFile("x", 8*mib), To: 8 * mib})
		synctest.Wait()
		r.loop.Reassign(s, UnattributedFlow, "")
		r.loop.Reassign(s, "third", "") // no room: it goes to the unattributed flow
		time.Sleep(time.Second)
		if a, b := r.flowNow("claimed"), r.flowNow(UnattributedFlow); a.Bytes[0] == 0 || b.Streams != 1 {
			t.Errorf("%+v, %+v", a, b)
		}
		r.loop.Close(s, 0)
	})
}

// A flow with a forced request is not forgotten either, although the request bypassed the queue and
// is unknown to the scheduler.
func TestAFlowIsKeptWhileItPaysForWhatWasForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, func(c *Config) { c.FixedDepth, c.MaxFlows, c.MaxWait = 1, 3, time.Second }, map[string]int{"big": 1_000_000})
		defer r.stop()
		var done sync.WaitGroup
		r.reader("big", 100*mib, 0, &done)
		time.Sleep(time.Second)
		s := r.reader("small", 8*mib, 0, &done)
		for tries := 0; r.flowNow("small").Forced == 0; tries++ {
			if time.Sleep(10 * time.Millisecond); tries > 1000 {
				t.Fatal("nothing was forced")
			}
		}
		r.loop.Reassign(s, "big", "")
		late := r.loop.Open(OpenRequest{Marker: newGate(), ID: 98, Flow: "late", Block: r.disk.newFile("y", mib), To: mib})
		time.Sleep(3 * time.Second)
		if f := r.flowNow("small"); f.Bytes[0] != firstStage+leaseFloor { // its first quantum, and the forced one
			t.Errorf("the flow paid for %d bytes", f.Bytes[0])
		}
		r.loop.Close(late, 0)
		r.apply(Off, "", Rule{})
		done.Wait()
	})
}

// Whichever streams are moved at whatever moment: in the end every byte is charged once, and
// nothing is left.
func TestReassignedAtAnyMoment(t *testing.T) {
	flows := []string{"a", "b", "limited", "observed", "off", "never seen"}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			r := newFixture(t, nil, map[string]int{"a": 5})
			defer r.stop()
			r.apply(Enforce, "limited", Rule{Weight: 2, Mode: Enforce, Limit: 3 * mib})
			r.apply(Enforce, "observed", Rule{Weight: 1, Mode: Observe})
			withOff, exact := seed%3 == 0, seed%3 == 1
			if withOff {
				r.apply(Enforce, "off", Rule{Weight: 1, Mode: Off})
			}
			var done sync.WaitGroup
			var streams []*Stream
			var files []*modelFile
			var size [2]int64
			for range 2 + random.IntN(6) {
				n := 1 + random.Int64N(20*mib)
				flow := flows[random.IntN(3)]
				if random.IntN(2) == 0 {
					streams = append(streams, r.reader(flow, n, 0, &done))
					files = append(files, streams[len(streams)-1].Block.(*modelFile))
					size[0] += n
				} else {
					s, f := r.writerOf(Kind(random.IntN(2)), flow, n, &done)
					streams, files = append(streams, s), append(files, f)
					size[1] += n
				}
			}
			for range 30 {
				time.Sleep(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
				to := flows[random.IntN(len(flows))]
				if to == "off" && random.IntN(4) > 0 || to == "observed" && exact {
					to = "a"
				}
				r.loop.Reassign(streams[random.IntN(len(streams))], to, "")
			}
			done.Wait()
			time.Sleep(time.Minute)
			r.settled()
			for _, f := range files {
				if f.timesClosed() != 1 {
					t.Errorf("seed %d: %s was closed %d times", seed, f.name, f.timesClosed())
				}
			}
			snap, _ := r.loop.Snapshot()
			var got [2]int64
			for _, f := range snap.Flows {
				got[0] += f.Bytes[0]
				got[1] += f.Bytes[1]
			}
			// A reader that was not held leaves its queue without a charge: the model's kernel
			// reads nothing ahead for it.
			if snap.Errors != 0 || !withOff && got[1] != size[1] || got[0] > size[0] || exact && got[0] != size[0] {
				t.Errorf("seed %d: paid %d, of %d; %d errors", seed, got, size, snap.Errors)
			}
		})
	}
}

// The flow of the bytes is known only when the check is finished.
func TestBytesOfAnAskedStreamWaitForTheirOwner(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("ended first: %v", early), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, nil, nil)
				defer r.stop()
				file := r.disk.newFile("block", 0)
				s := r.loop.Open(OpenRequest{Marker: newGate(), ID: 1, Flow: "claimed", Asked: true, Write: true, Block: file})
				r.grow(s, file, mib)
				if early {
					r.loop.Close(s, mib)
					time.Sleep(10 * time.Second)
				}
				synctest.Wait()
				if got := r.flowNow("claimed").Kinds[0].Streamed[1]; got != 0 {
					t.Errorf("%d bytes are counted before anything is known", got)
				}
				r.loop.Reassign(s, "known", "")
				if !early {
					r.grow(s, file, 3*mib)
					r.loop.Close(s, 3*mib)
				}
				synctest.Wait()
				want := int64(mib)
				if !early {
					want = 3 * mib
				}
				if got := r.flowNow("known").Kinds[0].Streamed[1]; got != want {
					t.Errorf("%d bytes are counted, want %d", got, want)
				}
				time.Sleep(30 * time.Second)
				r.settled()
			})
		})
	}
}
