package cost_test

import (
	"math"
	"testing"
	"time"

	"penstock/core/cost"

	"pgregory.net/rapid"
)

// device serves requests one after the other in virtual time. Each takes its predicted cost times a
// factor that the test sets.
type device struct {
	tracker *cost.Tracker
	model   cost.Model
	now     time.Duration
	factor  [2]float64 // by direction
	queue   []job      // in flight, the first in service
}

type job struct {
	write     bool
	predicted time.Duration
}

func newDevice(cfg cost.TrackerConfig) *device {
	return &device{tracker: cost.NewTracker(cfg), model: hdd, factor: [2]float64{1, 1}}
}

func (d *device) start(write bool, bytes int64) {
	j := job{write, d.model.Of(write, false, bytes)}
	d.tracker.Start(d.now, j.predicted, 1)
	d.queue = append(d.queue, j)
}

// finish completes the first request in flight and returns the verdict. Until then, it looks at the
// tracker every second.
func (d *device) finish(extra time.Duration) cost.Verdict {
	j := d.queue[0]
	d.queue = d.queue[1:]
	i := 0
	if j.write {
		i = 1
	}
	end := d.now + time.Duration(float64(j.predicted)*d.factor[i]) + extra
	for d.now+time.Second < end {
		d.now += time.Second
		d.tracker.Look(d.now)
	}
	d.now = end
	d.tracker.End(d.now, j.write, j.predicted, 1, j.predicted)
	return d.tracker.Look(d.now)
}

// run keeps as many requests in flight as depth says, for the time length or until stop returns
// true.
func (d *device) run(length time.Duration, depth int, bytes int64, write func() bool, stop func(cost.Verdict) bool) {
	for end := d.now + length; d.now < end; {
		for len(d.queue) < depth {
			d.start(write(), bytes)
		}
		if stop(d.finish(0)) {
			return
		}
	}
}

func never(cost.Verdict) bool           { return false }
func slow(v cost.Verdict) bool          { return v.Slow }
func healthy(v cost.Verdict) bool       { return !v.Slow }
func always(w bool) func() bool         { return func() bool { return w } }
func near(got, want, part float64) bool { return math.Abs(got/want-1) <= part }

func quanta(t *rapid.T) int64 { return 64 << 10 << rapid.IntRange(0, 6).Draw(t, "quantum, as a power") }

func TestTenTimesSlowerIsNoticed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDevice(cost.TrackerConfig{Learn: rapid.Bool().Draw(t, "learn")})
		depth, bytes := rapid.IntRange(1, 12).Draw(t, "depth"), min(quanta(t), 2<<20)
		write := rapid.Bool().Draw(t, "write")
		before := rapid.Float64Range(0.5, 1.6).Draw(t, "factor before")
		d.factor = [2]float64{before, before}
		d.run(time.Duration(rapid.IntRange(20_000, 40_000).Draw(t, "ms before"))*time.Millisecond, depth, bytes, always(write), func(v cost.Verdict) bool {
			if v.Slow {
				t.Fatal("an unchanged device is called slow")
			}
			return false
		})
		changed := d.now
		d.factor = [2]float64{10 * before, 10 * before}
		d.run(time.Minute, depth, bytes, always(write), slow)
		if took := d.now - changed; took > 10*time.Second {
			t.Fatalf("the slowdown by ten was noticed after %v", took)
		}
		d.run(20*time.Second, depth, bytes, always(write), never)
		if v := d.tracker.Look(d.now); !v.Slow || !near(v.Factor, 10, 0.3) {
			t.Fatalf("some time later the verdict is %+v", v)
		}
		if got := d.tracker.Scale(write); !near(got, 10*before, 0.3) {
			t.Fatalf("scale %.2f of a device that takes %.2f times the model's cost", got, 10*before)
		}
		changed = d.now
		d.factor = [2]float64{before, before}
		d.run(time.Minute, depth, bytes, always(write), healthy)
		if took := d.now - changed; took > 10*time.Second {
			t.Fatalf("the recovery was noticed after %v", took)
		}
	})
}

func TestOneStallIsNoVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDevice(cost.TrackerConfig{Learn: rapid.Bool().Draw(t, "learn")})
		depth, bytes := rapid.IntRange(1, 12).Draw(t, "depth"), quanta(t)
		for range rapid.IntRange(1, 4).Draw(t, "stalls") {
			d.run(10*time.Second, depth, bytes, always(false), never)
			for len(d.queue) < depth {
				d.start(false, bytes)
			}
			stall := time.Duration(rapid.IntRange(1, 7000).Draw(t, "stall in ms")) * time.Millisecond
			if v := d.finish(stall); v.Slow {
				t.Fatalf("a stall of %v makes the device slow", stall)
			}
			d.run(5*time.Second, depth, bytes, always(false), func(v cost.Verdict) bool {
				if v.Slow {
					t.Fatalf("a stall of %v makes the device slow", stall)
				}
				return false
			})
		}
		if got := d.tracker.Scale(false); !near(got, 1, 0.15) {
			t.Fatalf("stalls moved the scale to %.2f", got)
		}
	})
}

func TestStallsThatLastAreNoticed(t *testing.T) {
	d := newDevice(cost.TrackerConfig{})
	d.run(5*time.Second, 2, 2<<20, always(false), never)
	before := d.now
	d.start(false, 2<<20)
	for !d.tracker.Look(d.now).Slow {
		if d.now += 100 * time.Millisecond; d.now-before > 10*time.Second {
			t.Fatal("a device that does nothing for 10 s is not called slow")
		}
	}
	if took := d.now - before; took < 7*time.Second {
		t.Errorf("a stall of %v is called slowness", took)
	}
}

func TestIdleTimeIsNotSlowness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDevice(cost.TrackerConfig{Learn: rapid.Bool().Draw(t, "learn")})
		for range rapid.IntRange(10, 200).Draw(t, "bursts") {
			d.now += time.Duration(rapid.IntRange(0, 30_000).Draw(t, "idle ms")) * time.Millisecond
			if v := d.tracker.Look(d.now); v.Slow {
				t.Fatalf("an idle device is called slow: %+v", v)
			}
			d.start(rapid.Bool().Draw(t, "write"), quanta(t))
			if v := d.finish(0); v.Slow {
				t.Fatalf("a device with bursts of load is called slow: %+v", v)
			}
		}
		if got := d.tracker.Scale(false); !near(got, 1, 0.02) {
			t.Fatalf("scale %.3f", got)
		}
	})
}

func TestScaleFollowsTheDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDevice(cost.TrackerConfig{})
		f := rapid.Float64Range(0.6, 1.8).Draw(t, "factor")
		d.factor = [2]float64{f, f}
		i, every := 0, rapid.IntRange(1, 5).Draw(t, "a write every so many")
		even := func() bool { i++; return i%every == 0 }
		d.run(2*time.Minute, rapid.IntRange(1, 8).Draw(t, "depth"), quanta(t), even, never)
		for _, write := range []bool{false, true} {
			if got := d.tracker.Scale(write); !near(got, f, 0.07) {
				t.Fatalf("scale of writes=%v is %.3f, the device takes %.3f", write, got, f)
			}
		}
	})
}

// TestDirectionsAreToldApart checks that a varying mixture reveals an error of one direction.
func TestDirectionsAreToldApart(t *testing.T) {
	d := newDevice(cost.TrackerConfig{})
	d.factor = [2]float64{0.8, 1.25}
	for range 60 {
		d.run(5*time.Second, 2, 512<<10, always(false), never)
		d.run(5*time.Second, 2, 512<<10, always(true), never)
	}
	if r, w := d.tracker.Scale(false), d.tracker.Scale(true); !near(r, 0.8, 0.1) || !near(w, 1.25, 0.1) {
		t.Errorf("scales of reads and writes: %.3f and %.3f, want 0.8 and 1.25", r, w)
	}
}

func TestUnprofiledDeviceIsLearnt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDevice(cost.TrackerConfig{Learn: true})
		f := math.Exp(rapid.Float64Range(math.Log(1/50.0), math.Log(50)).Draw(t, "ln of the factor"))
		d.factor = [2]float64{f, f}
		d.start(false, 1<<20)
		d.finish(5 * time.Second) // a stall at the start
		d.run(time.Minute+time.Duration(10*f*float64(time.Second)), 2, 1<<20, always(false), func(v cost.Verdict) bool {
			if v.Slow {
				t.Fatal("a device that was never faster is called slow")
			}
			return false
		})
		if got := d.tracker.Scale(false); !near(got, f, 0.1) {
			t.Fatalf("scale %.3f of a device that takes %.3f times the model's cost", got, f)
		}
	})
}

// TestParallelDevice uses a device that works on several requests at a time. One request does not
// keep it busy.
func TestParallelDevice(t *testing.T) {
	const occupancy, alone = 2 * time.Millisecond, 16 * time.Millisecond // of a request of one byte
	line := func(d time.Duration) cost.Line { return cost.Line{Fixed: d} }
	m := cost.Model{Read: cost.Coefficients{Random: line(occupancy), Sequential: line(occupancy), Alone: line(alone)}}
	part := m.Part(false, 1)
	if part != 1./8 || m.Part(true, 1) != 1 {
		t.Fatalf("parts %v and %v", part, m.Part(true, 1))
	}
	for depth := 1; depth <= 16; depth *= 2 {
		tracker := cost.NewTracker(cost.TrackerConfig{})
		took := alone * time.Duration(max(depth, 8)) / 8
		for round := range 2000 {
			now := time.Duration(round) * took
			for range depth {
				tracker.Start(now, occupancy, part)
			}
			for range depth {
				tracker.End(now+took, false, occupancy, part, occupancy)
			}
			if tracker.Look(now + took).Slow {
				t.Fatalf("slow at depth %d", depth)
			}
		}
		if got := tracker.Scale(false); !near(got, 1, 0.05) {
			t.Errorf("scale %.3f at depth %d", got, depth)
		}
	}
}

// TestPart checks that one request counts as the whole device if the profile's two lines are nearly
// equal.
func TestPart(t *testing.T) {
	line := func(ms float64) cost.Line { return cost.Line{Fixed: time.Duration(ms * 1e6)} }
	for alone, want := range map[float64]float64{0: 1, 10: 1, 11.1: 1, 11.2: 10 / 11.2, 20: 0.5} {
		m := cost.Model{Read: cost.Coefficients{Random: line(10), Alone: line(alone)}}
		if got := m.Part(false, 1); !near(got, want, 1e-9) {
			t.Errorf("%v ms alone: %v of the device, want %v", alone, got, want)
		}
	}
}

func TestLoadOfOthersIsNotSlowness(t *testing.T) {
	d := newDevice(cost.TrackerConfig{})
	d.run(5*time.Second, 1, 1<<20, always(false), never)
	for range 50 { // foreign I/O gets nine tenths of the device
		d.start(false, 1<<20)
		d.tracker.Others(9 * hdd.Of(false, false, 1<<20))
		if v := d.finish(9 * hdd.Of(false, false, 1<<20)); v.Slow {
			t.Fatal("a device with foreign I/O is called slow")
		}
	}
	if got := d.tracker.Scale(false); !near(got, 1, 0.01) {
		t.Errorf("foreign I/O moved the scale to %.3f", got)
	}
}

// TestSlicesBetweenCallsOfOthers reports foreign I/O once a second, while slices are shorter.
// Slices between the calls must not count the time of foreign I/O as an error of the model.
func TestSlicesBetweenCallsOfOthers(t *testing.T) {
	d := newDevice(cost.TrackerConfig{})
	d.run(5*time.Second, 1, 1<<20, always(false), never)
	heard, theirs := d.now, time.Duration(0)
	for range 500 { // foreign I/O gets half of the device
		d.start(false, 2<<20)
		foreign := hdd.Of(false, false, 2<<20)
		theirs += foreign
		d.finish(foreign)
		if d.now-heard >= time.Second {
			d.tracker.Others(theirs)
			heard, theirs = d.now, 0
		}
	}
	if got := d.tracker.Scale(false); !near(got, 1, 0.05) {
		t.Errorf("foreign I/O moved the scale to %.3f", got)
	}
}

// TestOthersWhileIdle checks that foreign work during the caller's idle time explains no later
// delay: a device that hangs afterwards is called slow without extra delay.
func TestOthersWhileIdle(t *testing.T) {
	for _, learn := range []bool{false, true} {
		d := newDevice(cost.TrackerConfig{Learn: learn})
		for range 100 { // a request of 0.1 s every two seconds
			d.start(false, 1<<20)
			d.finish(0)
			d.now += 2 * time.Second
			d.tracker.Look(d.now)
			d.tracker.Others(2 * time.Second)
		}
		// The tracker spreads foreign time evenly, so half of the busy time seems foreign.
		if got := d.tracker.Scale(false); got < 0.45 || got > 1.05 {
			t.Errorf("learn %v: foreign I/O moved the scale to %.3f", learn, got)
		}
		before := d.now
		d.start(false, 1<<20)
		for !d.tracker.Look(d.now).Slow {
			if d.now += 100 * time.Millisecond; d.now-before > 10*time.Second {
				t.Fatalf("learn %v: a device that does nothing for 10 s is not called slow", learn)
			}
		}
	}
}

// TestTrackerStaysWithinBounds reports arbitrary values in any order. All results must stay within
// their bounds.
func TestTrackerStaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tracker := cost.NewTracker(cost.TrackerConfig{Learn: rapid.Bool().Draw(t, "learn")})
		part := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1))
		any := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 1e12), rapid.Int64Range(0, 1e9))
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			now, a, b := time.Duration(any.Draw(t, "now")), time.Duration(any.Draw(t, "a")), time.Duration(any.Draw(t, "b"))
			switch rapid.IntRange(0, 3).Draw(t, "call") {
			case 0:
				tracker.Start(now, a, part.Draw(t, "part"))
			case 1:
				tracker.End(now, rapid.Bool().Draw(t, "write"), a, part.Draw(t, "part"), b)
			case 2:
				tracker.Others(a)
			case 3:
				v := tracker.Look(now)
				if !(v.Factor >= 1 && v.Factor <= 1000) || !v.Slow && v.Factor != 1 {
					t.Fatalf("verdict %+v", v)
				}
			}
			for _, w := range []bool{false, true} {
				if s := tracker.Scale(w); !(s >= 1e-3 && s <= 1e6) {
					t.Fatalf("scale %v", s)
				}
				if f := tracker.Tilt(w); !(f >= 0.7 && f <= 1.45) {
					t.Fatalf("tilt %v", f)
				}
				if c := cost.Scaled(a, tracker.Scale(w)); c < 0 || c > cost.Max {
					t.Fatalf("cost %v scaled to %v", a, c)
				}
			}
		}
	})
}

func TestTrackerAllocatesNothing(t *testing.T) {
	d := newDevice(cost.TrackerConfig{Learn: true})
	var now time.Duration
	if n := testing.AllocsPerRun(1000, func() {
		now += 100 * time.Millisecond
		c := hdd.Of(false, true, 1<<20)
		d.tracker.Start(now, c, 0.5)
		d.tracker.Others(time.Millisecond)
		d.tracker.End(now+c, false, c, 0.5, cost.Scaled(c, d.tracker.Scale(false)))
		d.tracker.Look(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestElevatorIsNoTilt models an elevator. While it passes over writes, the device does part of
// their work and no write completes; that must not look as if reads cost more. The device has a
// constant number of requests in flight, reads and writes. It prefers reads, and serves both in
// pieces.
func TestElevatorIsNoTilt(t *testing.T) {
	const piece, batch = 128 << 10, 16 // batch of reads before a piece of a write
	for depth := 2; depth <= 16; depth *= 2 {
		tracker := cost.NewTracker(cost.TrackerConfig{})
		var now time.Duration
		var queue [2][]int64 // bytes left of each request
		quantum := int64(512 << 10)
		whole, bit := hdd.Of(false, true, quantum), hdd.Of(false, true, piece)
		tag := [2]float64{}
		passed := 0
		for now < 10*time.Minute {
			for len(queue[0])+len(queue[1]) < depth { // 3:1 by cost
				i := 0
				if tag[1]*3 < tag[0] {
					i = 1
				}
				tag[i]++
				queue[i] = append(queue[i], quantum)
				tracker.Start(now, whole, 1)
			}
			i := 0
			if len(queue[0]) == 0 || len(queue[1]) > 0 && passed >= batch {
				i = 1
			}
			if passed++; i == 1 && passed > batch+batch/2 {
				passed = 0
			}
			now += bit
			if queue[i][0] -= piece; queue[i][0] == 0 {
				queue[i] = queue[i][1:]
				tracker.End(now, i == 1, whole, 1, whole)
			}
		}
		if got := tracker.Tilt(false); !near(got, 1, 0.03) {
			t.Errorf("at depth %d the scale of reads is %.3f times the right one", depth, got)
		}
	}
}
