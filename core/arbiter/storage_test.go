package arbiter_test

import (
	"slices"
	"testing"
	"time"

	"penstock/core/arbiter"
	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/foreign"
)

// storageClients are clients on other machines, whose I/O a storage service does on the device.
type storageClients struct {
	w       *world
	size    int64
	think   time.Duration
	pause   func() time.Duration // longer pauses of each client; may be nil
	reading int64
	waits   []time.Duration
}

func (c *storageClients) next() {
	d, begin := &c.w.disk, c.w.now
	d.free = max(d.free, c.w.now) + d.seek + time.Duration(float64(c.size)/d.rate*float64(time.Second))
	d.file = nil
	c.reading++
	c.w.after(d.free-c.w.now, func() {
		c.reading--
		d.counted.Add(false, c.size)
		c.waits = append(c.waits, c.w.now-begin)
		think := c.think
		if c.pause != nil {
			think += c.pause()
		}
		c.w.after(think, c.next)
	})
}

// p99 returns the 99th percentile of the waits from the given one on.
func (c *storageClients) p99(from int) time.Duration {
	waits := slices.Sorted(slices.Values(c.waits[from:]))
	return waits[len(waits)*99/100]
}

const (
	storageRate = 100e6
	storageSeek = 8 * time.Millisecond
)

// turnTime is the device time of a turn of 1 MiB.
var turnTime = storageSeek + time.Duration(float64(mib)/storageRate*float64(time.Second))

func storageWorld(t *testing.T, share float64) *world {
	t.Helper()
	line := cost.Line{PerMiB: turnTime - storageSeek}
	lines := cost.Coefficients{Random: cost.Line{Fixed: storageSeek, PerMiB: line.PerMiB}, Sequential: line}
	w, err := newWorld(arbiter.Options{
		Config: arbiter.Config{Storage: share, Algorithm: "sfqd", FixedDepth: 4, Quantum: mib, Cost: cost.Model{Read: lines, Write: lines}, Depth: depth.Config{Read: depth.Line(lines.Random)}},
		Mode:   arbiter.Enforce,
		Policy: func(flow string) arbiter.Rule {
			if flow == "heavy" {
				return arbiter.Rule{Weight: 3, Mode: arbiter.Enforce}
			}
			return equal(flow)
		},
	}, storageRate, storageSeek)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// turns takes one turn after the other for a flow, and counts the bytes.
func (w *world) turns(flow string, bytes map[string]int64) {
	s := w.open(&stream{name: flow, file: w.newFile(mib)}, arbiter.Opening{Flow: flow, To: mib, Turn: true})
	w.drive(s, 0, mib).then = func() {
		bytes[flow] += mib
		w.after(time.Millisecond, func() { w.turns(flow, bytes) })
	}
}

func (w *world) withStorage(c *storageClients) *storageClients {
	c.w = w
	w.activity = func() arbiter.Activity {
		// Requests of flows are not in flight at that moment.
		return arbiter.Activity{Reading: c.reading, Counters: w.disk.counted}
	}
	return c
}

// A storage client that reads without pause gets its share and nearly its latency beside two applications, which
// divide the rest by their weights.
func TestStorageShare(t *testing.T) {
	const length = 60 * time.Second
	alone := storageWorld(t, 0)
	floor := alone.withStorage(&storageClients{size: 256 * kib, think: 500 * time.Microsecond})
	floor.next()
	alone.run(length)
	for _, share := range []float64{0, 0.5, 0.95} {
		w := storageWorld(t, share)
		c := w.withStorage(&storageClients{size: 256 * kib, think: 500 * time.Microsecond})
		c.next()
		bytes := map[string]int64{}
		for range 6 {
			w.turns("light", bytes)
			w.turns("heavy", bytes)
		}
		w.run(length)
		part := float64(len(c.waits)) / float64(len(floor.waits))
		flows := float64(bytes["light"]+bytes["heavy"]) / float64(mib) * turnTime.Seconds() / length.Seconds()
		t.Logf("share %v: the service has %.3f of its throughput alone and a p99 of %v (alone: %v); the flows use %.3f of the time, %d:%d",
			share, part, c.p99(0), floor.p99(0), flows, bytes["heavy"]/mib, bytes["light"]/mib)
		if share == 0 {
			if part > 0.4 {
				t.Errorf("without a share, the service keeps %.2f of its throughput: this test shows nothing", part)
			}
			continue
		}
		if part < share-0.02 {
			t.Errorf("the service has %.3f of its throughput, with a share of %v", part, share)
		}
		if most := floor.p99(0) + turnTime; c.p99(20) > most {
			t.Errorf("the p99 is %v, more than alone with one quantum (%v)", c.p99(20), most)
		}
		if flows < 0.9*(1-share) || flows > 1.2*(1-share) {
			t.Errorf("the flows use %.3f of the device, with a share of %v for the service", flows, share)
		}
		if ratio := float64(bytes["heavy"]) / float64(bytes["light"]); ratio < 2.5 || ratio > 3.5 {
			t.Errorf("the flows' bytes are %.2f:1, with weights of 3:1", ratio)
		}
	}
}

// While the service is quiet, the applications use the device as if there were no share.
func TestStorageShareIsWorkConserving(t *testing.T) {
	const length = 30 * time.Second
	run := func(share float64, clients bool) (int64, *storageClients) {
		w := storageWorld(t, share)
		c := w.withStorage(&storageClients{size: 256 * kib, think: time.Millisecond})
		if clients { // 16 requests, then a pause of 2 s
			c.pause = func() time.Duration {
				if len(c.waits)%16 == 0 {
					return 2 * time.Second
				}
				return 0
			}
			c.next()
		}
		bytes := map[string]int64{}
		for range 6 {
			w.turns("light", bytes)
		}
		w.run(length)
		return bytes["light"], c
	}
	alone, _ := run(0, false)
	if quiet, _ := run(0.95, false); float64(quiet) < 0.97*float64(alone) {
		t.Errorf("without clients, %d MiB with a share and %d MiB without", quiet/mib, alone/mib)
	}
	beside, c := run(0.95, true)
	used := float64(len(c.waits)) * 10.6e-3 / length.Seconds()
	t.Logf("%d MiB beside bursts that use %.2f of the time, %d MiB alone; the bursts' p99 is %v", beside/mib, used, alone/mib, c.p99(0))
	if float64(beside) < (1-used-0.15)*float64(alone) {
		t.Errorf("%d MiB beside bursts that use %.2f of the time; alone %d MiB", beside/mib, used, alone/mib)
	}
}

// If the counters cannot be read, nothing is held.
func TestStorageShareWithoutCounters(t *testing.T) {
	w := storageWorld(t, 0.95)
	bytes := map[string]int64{}
	for range 6 {
		w.turns("light", bytes)
	}
	w.run(10 * time.Second)
	if used := float64(bytes["light"]) / float64(mib) * turnTime.Seconds() / 10; used < 0.97 {
		t.Errorf("the flow uses %.2f of the device", used)
	}
}

// The kernel writes the bytes of turns later. They are not the service's, and do not hold requests back; further bytes
// are, and do.
func TestStorageWritesOfTurns(t *testing.T) {
	line := cost.Line{Fixed: time.Millisecond, PerMiB: 10 * time.Millisecond}
	a, err := arbiter.New(arbiter.Options{Mode: arbiter.Enforce, Policy: equal, Config: arbiter.Config{
		Storage: 0.9, Algorithm: "sfqd", FixedDepth: 2, Quantum: mib, Depth: depth.Config{Read: depth.Line(line)}}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Second
	// turn opens a turn that writes, and returns the requests that start with the kernel's counters.
	turn := func(writing, written int64) []*arbiter.Request {
		s := a.Open(now, arbiter.Opening{Flow: "a", Write: true, File: &file{w: &world{}, size: mib, space: -1}, Turn: true})
		a.Progress(now, s, mib)
		a.Close(now, s, mib)
		if !a.LookDue(now) {
			t.Fatalf("no look is due at %v", now)
		}
		a.Look(now, arbiter.Activity{Writing: writing, Counters: foreign.Counters{Bytes: [2]int64{0, written}}})
		return started(a, now)
	}
	end := func(all []*arbiter.Request) {
		now += 10 * time.Millisecond
		for _, r := range all {
			a.Done(now, r, arbiter.Result{Moved: r.Length, Latency: 10 * time.Millisecond})
		}
		now += 50 * time.Millisecond
	}
	all := turn(0, 0)
	if len(all) != 1 {
		t.Fatalf("%d requests start on a quiet device", len(all))
	}
	end(all)
	now += 100 * time.Millisecond // a look is due again
	if all = turn(1, mib/2); len(all) != 1 {
		t.Fatalf("%d requests start while the kernel writes bytes of turns", len(all))
	}
	end(all)
	now += 100 * time.Millisecond
	if all = turn(1, 10*mib); len(all) != 1 {
		t.Fatalf("%d requests start while the service's bytes are written, want one beside it", len(all))
	}
	end(all)
	if all = turn(1, 11*mib); len(all) != 0 {
		t.Errorf("%d more requests start beside the service", len(all))
	}
}

// A request that does not end delays others for a bounded time only, while the service is quiet.
func TestStorageProbesDoNotWaitForLong(t *testing.T) {
	line := cost.Line{Fixed: time.Millisecond, PerMiB: 10 * time.Millisecond}
	a, err := arbiter.New(arbiter.Options{Mode: arbiter.Enforce, Policy: equal, Config: arbiter.Config{
		Storage: 0.9, Algorithm: "sfqd", FixedDepth: 2, Quantum: mib, Depth: depth.Config{Read: depth.Line(line)}}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(now time.Duration) {
		a.Open(now, arbiter.Opening{Flow: "a", File: cold{}, To: mib, Turn: true})
	}
	now := time.Second
	open(now)
	if n := len(started(a, now)); n != 1 {
		t.Fatalf("%d requests start", n)
	}
	now += 150 * time.Millisecond // a look is due, but the first request is in flight
	open(now)
	for begin := now; ; {
		var actions []arbiter.Action
		actions, now = a.Decide(now)
		if len(actions) > 0 && actions[len(actions)-1].Kind == arbiter.Start {
			return
		}
		if now-begin > 10*time.Second {
			t.Fatal("the second request has not started")
		}
	}
}

// The kernel and the file system's client read ahead of a turn, and their reads are at the device when the turn has
// ended. Without other clients, this costs the applications little.
func TestStorageShareBesidePrefetching(t *testing.T) {
	const length = 30 * time.Second
	run := func(share float64) int64 {
		w := storageWorld(t, share)
		c := w.withStorage(&storageClients{})
		bytes := map[string]int64{}
		w.ended = func(*arbiter.Request, string, time.Duration) {
			d := &w.disk
			d.free = max(d.free, w.now) + 2*time.Millisecond
			c.reading++
			w.after(d.free-w.now, func() {
				c.reading--
				d.counted.Add(false, 256*kib)
			})
		}
		for range 6 {
			w.turns("light", bytes)
		}
		w.run(length)
		return bytes["light"]
	}
	without, with := run(0), run(0.95)
	t.Logf("%d MiB without a share, %d MiB with a share", without/mib, with/mib)
	if float64(with) < 0.85*float64(without) {
		t.Errorf("%d MiB without a share, %d MiB with a share", without/mib, with/mib)
	}
}
