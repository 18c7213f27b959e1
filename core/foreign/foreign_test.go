package foreign_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/cost"
	"penstock/core/depth"
	"penstock/core/foreign"
)

// mean looks a number of times and returns the means of the results and of the true cost.
func mean(d *disk, e *foreign.Estimate, looks int) (cost, truth, part float64) {
	for range looks {
		s := d.look(e, time.Second)
		cost += s.Cost.Seconds()
		truth += s.truth.Seconds()
		part += s.Part
	}
	n := float64(looks)
	return cost / n, truth / n, part / n
}

// begin returns a disk that the caller alone has kept busy for five seconds.
func begin(depth int) (*disk, *foreign.Estimate) {
	d, e := newDisk(1), foreign.New(hdd)
	d.loads = append(d.loads, own(false, mib, mib/2, depth))
	mean(d, e, 5)
	return d, e
}

// TestStreamIsNotPricedAsRandom uses a stream of 64 KiB requests. At random places, they would take
// 1.1 s a second.
func TestStreamIsNotPricedAsRandom(t *testing.T) {
	const rate = 73
	if random := rate * hdd.Of(false, false, 64*kib).Seconds(); random < 1.1 || random > 1.15 {
		t.Fatalf("as random requests they cost %.2f s a second, want 1.1", random)
	}
	if follow := rate * hdd.Of(false, true, 64*kib).Seconds(); follow < 0.39 || follow > 0.41 {
		t.Fatalf("without seeks they cost %.2f s a second, want 0.4", follow)
	}
	for depth := 1; depth <= 8; depth *= 2 {
		d, e := begin(depth)
		d.loads = append(d.loads, stream(false, 64*kib, rate, 16))
		mean(d, e, 10)
		cost, truth, part := mean(d, e, 30)
		if truth < 0.39 || truth > 0.5 {
			t.Fatalf("depth %d: the stream takes %.2f s a second", depth, truth)
		}
		if cost < truth-0.02 || cost > truth+0.15 {
			t.Errorf("depth %d: cost %.2f s a second, the truth is %.2f", depth, cost, truth)
		}
		if part < truth-0.1 || part > truth+0.02 {
			t.Errorf("depth %d: part %.2f, the truth is %.2f", depth, part, truth)
		}
	}
}

// TestDepthBesideOthers checks that foreign I/O does not change the depth at which the controller
// settles. Foreign pages are found late and in lumps, so the depth beside them is lower. It is
// never much higher.
func TestDepthBesideOthers(t *testing.T) {
	for name, test := range map[string]struct {
		other *load
		least float64
	}{
		"nobody":         {nil, 3.8},
		"64 KiB, stream": {stream(false, 64*kib, 73, 16), 3.8},
		"MiB, stream":    {stream(false, mib, 4.5, 1), 3.8},
		"MiB at random":  {scattered(false, mib, 4), 3.8},
		"pages":          {scattered(false, 4*kib, 40), 2.4},
	} {
		t.Run(name, func(t *testing.T) {
			const right = 4
			d, e := newDisk(1), foreign.New(hdd)
			mine := own(false, mib, mib/2, 1)
			c, err := depth.New(depth.Config{Read: depth.Line{PerMiB: right * perMiB}})
			if err != nil {
				t.Fatal(err)
			}
			d.control, d.loads = c, []*load{mine}
			if test.other != nil {
				d.loads = append(d.loads, test.other)
			}
			const settling, observed = 60, 200
			sum := 0.0
			for i := range settling + observed {
				c.Others(d.look(e, time.Second).Part)
				c.Limited()
				if mine.depth = c.Update(); i >= settling {
					sum += c.Report().Depth
				}
			}
			if got := sum / observed; got < test.least || got > 1.1*right {
				t.Errorf("D settles at %.2f, want %d", got, right)
			}
		})
	}
}

// TestLoadsOfOthers uses several foreign loads. The estimate for the depth must stay below the
// truth, except for noise. The estimate of the cost must not, if the disk is always busy.
func TestLoadsOfOthers(t *testing.T) {
	for name, loads := range map[string][]*load{
		"pages":               {scattered(false, 4*kib, 40)},
		"pages written":       {scattered(true, 4*kib, 40)},
		"16 KiB":              {scattered(false, 16*kib, 30)},
		"64 KiB at random":    {scattered(false, 64*kib, 25)},
		"MiB at random":       {scattered(false, mib, 4)},
		"stream":              {stream(true, 512*kib, 8, 2)},
		"stream and pages":    {stream(false, 128*kib, 20, 4), scattered(false, 4*kib, 15)},
		"both directions":     {stream(false, 256*kib, 8, 4), scattered(true, 8*kib, 20)},
		"more than the other": {stream(false, 512*kib, 17, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			d, e := begin(1)
			d.loads = append(d.loads, loads...)
			mean(d, e, 30)
			cost, truth, part := mean(d, e, 60)
			if cost < 0.85*truth || cost > truth+0.2 {
				t.Errorf("cost %.2f s a second, the truth is %.2f", cost, truth)
			}
			if part > truth+0.03 {
				t.Errorf("part %.2f, the truth is %.2f", part, truth)
			}
			if part < truth/4 {
				t.Errorf("part %.2f is too small, the truth is %.2f", part, truth)
			}
		})
	}
}

// TestOwnOnly checks that the caller's own I/O is never foreign, with any size of pieces and any
// depth.
func TestOwnOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, e := newDisk(1), foreign.New(hdd)
		for range rapid.IntRange(1, 4).Draw(t, "loads") {
			quantum := mib << rapid.IntRange(0, 1).Draw(t, "quantum, as a power")
			d.loads = []*load{own(rapid.Bool().Draw(t, "write"), quantum, 64*kib<<rapid.IntRange(0, 3).Draw(t, "piece, as a power"), rapid.IntRange(1, 12).Draw(t, "depth"))}
			if rapid.Bool().Draw(t, "kernel") {
				l := scattered(true, 64*kib, 5)
				l.foreign, l.moved = false, true
				d.loads = append(d.loads, l)
			}
			for range rapid.IntRange(1, 20).Draw(t, "looks") {
				length := time.Duration(rapid.IntRange(200, 3000).Draw(t, "ms")) * time.Millisecond
				if s := d.look(e, length); s.Cost != 0 || s.Part != 0 || s.Bytes != [2]int64{} {
					t.Fatalf("%+v of a device without foreign I/O", s.Result)
				}
			}
		}
	})
}

// TestBytesAddUp checks that bytes are exact in the long run: once nothing is in flight, the bytes
// found equal the foreign bytes.
func TestBytesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, e := newDisk(rapid.Uint64().Draw(t, "seed")), foreign.New(hdd)
		d.look(e, time.Second)
		d.loads = []*load{
			own(rapid.Bool().Draw(t, "own write"), mib, mib/4, rapid.IntRange(1, 8).Draw(t, "depth")),
			stream(rapid.Bool().Draw(t, "write"), kib<<rapid.IntRange(2, 9).Draw(t, "size, as a power"), 8, rapid.IntRange(1, 8).Draw(t, "burst")),
		}
		var found [2]int64
		look := func() {
			s := d.look(e, time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms"))*time.Millisecond)
			found[0] += s.Bytes[0]
			found[1] += s.Bytes[1]
			if found[0] > d.theirs[0] || found[1] > d.theirs[1] {
				t.Fatalf("%v bytes found of %v", found, d.theirs)
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			look()
		}
		d.loads = nil
		d.run(time.Minute)
		look()
		if found != d.theirs {
			t.Fatalf("%v bytes found of %v", found, d.theirs)
		}
	})
}

// TestMovedLate reports bytes with Moved after they were found as foreign. They are subtracted from
// later results. If Moved claims more bytes than were found, later foreign bytes must still be
// found.
func TestMovedLate(t *testing.T) {
	e := foreign.New(hdd)
	var device foreign.Counters
	now := time.Duration(0)
	look := func(others int64) int64 {
		now += time.Second
		device.Add(true, others)
		return e.Observe(now, device, foreign.Counters{}, foreign.Counters{}, 0).Bytes[1]
	}
	look(0)
	if got := look(8 * mib); got != 8*mib {
		t.Fatalf("%d bytes found", got)
	}
	e.Moved(true, 6*mib)
	for i, want := range []int64{0, 2 * mib, 4 * mib, 4 * mib} {
		if got := look(4 * mib); got != want {
			t.Errorf("look %d after the claim: %d bytes found, want %d", i+1, got, want)
		}
	}
	e.Moved(true, math.MaxInt64)
	e.Moved(true, math.MaxInt64)
	e.Moved(true, -1)
	sum := int64(0)
	for range 10 {
		sum += look(4 * mib)
	}
	if sum < 8*mib { // 10 MiB were foreign before, after the subtraction of 6
		t.Error("a claim of more bytes than were found hides later foreign I/O")
	}
}

// TestBounds checks the bounds for all input, such as jumping counters and a clock that stands
// still.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := foreign.New(hdd)
		counts := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 1<<20), rapid.Int64Range(0, 1<<40))
		counters := func(name string) (c foreign.Counters) {
			for i := range 2 {
				c.Requests[i], c.Bytes[i] = counts.Draw(t, name), counts.Draw(t, name)
			}
			return c
		}
		var device, own foreign.Counters
		var now, last, work time.Duration
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			switch rapid.IntRange(0, 5).Draw(t, "call") {
			case 0:
				device = counters("device")
			case 1:
				own = counters("own")
			case 2:
				bytes, write := rapid.Int64Range(-1, 1<<30).Draw(t, "moved"), rapid.Bool().Draw(t, "write")
				e.Moved(write, bytes)
				if bytes > 0 {
					work += hdd.Of(write, false, bytes)
				}
			default:
				for i := range 2 {
					device.Requests[i] += rapid.Int64Range(0, 5000).Draw(t, "requests")
					device.Bytes[i] += rapid.Int64Range(0, 1<<28).Draw(t, "bytes")
					own.Bytes[i] += rapid.Int64Range(0, 1<<28).Draw(t, "own bytes")
				}
			}
			now += time.Duration(rapid.Int64Range(-1e9, 1e10).Draw(t, "ns"))
			w := time.Duration(rapid.Int64Range(-1e9, 2e9).Draw(t, "work"))
			work += max(w, 0)
			r := e.Observe(now, device, own, counters("flying"), w)
			if r.Cost < 0 || r.Cost > 0 && r.Cost > now-last-work {
				t.Fatalf("cost %v in %v, of which the caller's own work takes %v", r.Cost, now-last, work)
			}
			if !(r.Part >= 0 && r.Part <= depth.OthersMax) || r.Bytes[0] < 0 || r.Bytes[1] < 0 {
				t.Fatalf("%+v", r)
			}
			if now > last || r == (foreign.Result{}) {
				last, work = now, 0
			}
		}
	})
}

// TestCorrect uses a model that is wrong by a factor. The bounds by elapsed time apply only once
// the factor is known.
func TestCorrect(t *testing.T) {
	for _, slower := range []float64{0.2, 1, 3} {
		for _, scale := range []float64{0, slower, math.NaN(), -1} {
			d, e := begin(2)
			d.slower = slower
			d.loads = append(d.loads, stream(false, 512*kib, 8/slower, 2))
			e.Correct(scale)
			mean(d, e, 20)
			cost, truth, part := mean(d, e, 20)
			cost *= slower
			if cost < 0.85*truth || cost > truth+0.2 {
				t.Errorf("a disk of %.1f times the model's costs, corrected by %v: cost %.2f s a second, the truth is %.2f", slower, scale, cost, truth)
			}
			if part < truth-0.15 || part > truth+0.05 {
				t.Errorf("a disk of %.1f times the model's costs, corrected by %v: part %.2f, the truth is %.2f", slower, scale, part, truth)
			}
		}
	}
}

// TestClockThatStandsStill checks that there is no cost if no time has passed. The counters are
// used once time has passed.
func TestClockThatStandsStill(t *testing.T) {
	e := foreign.New(hdd)
	var none, device foreign.Counters
	e.Observe(time.Second, none, none, none, 0)
	device.Add(false, mib)
	if r := e.Observe(time.Second, device, none, none, time.Millisecond); r != (foreign.Result{}) {
		t.Errorf("%+v although no time has passed", r)
	}
	if r := e.Observe(time.Second-1, device, none, none, 0); r != (foreign.Result{}) {
		t.Errorf("%+v although the clock went back", r)
	}
	if r := e.Observe(2*time.Second, device, none, none, 0); r.Bytes[0] != mib || r.Cost == 0 || r.Part != depth.OthersMax {
		t.Errorf("%+v after a foreign read of 1 MiB", r)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	e := foreign.New(hdd)
	var device, own, flying foreign.Counters
	now := time.Duration(0)
	if n := testing.AllocsPerRun(1000, func() {
		now += time.Second
		device.Add(false, mib)
		own.Add(true, mib)
		e.Moved(true, 4096)
		e.Correct(1.1)
		e.Observe(now, device, own, flying, cost.Max)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// steady returns the result for a number of foreign requests a second and the given own work, after
// it has settled.
func steady(requests, size int64, work time.Duration) (r foreign.Result) {
	e := foreign.New(hdd)
	var device foreign.Counters
	for i := range 100 {
		r = e.Observe(time.Duration(i)*time.Second, device, foreign.Counters{}, foreign.Counters{}, work)
		device.Requests[0] += requests
		device.Bytes[0] += requests * size
	}
	return r
}

func TestEdges(t *testing.T) {
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-6 }
	transfer := func(bytes int64) float64 { return hdd.Of(false, true, bytes).Seconds() }
	part := func(theirs, own float64) float64 { return theirs / (theirs + own) }

	// Requests of 64 KiB or more belong to a stream. Of requests of 32 KiB, half are at random
	// places, and of pages nearly all.
	for size, small := range map[int64]float64{4 * kib: 15. / 16, 32 * kib: 1. / 2, 63 * kib: 1. / 64, 64 * kib: 0, 128 * kib: 0} {
		want := part(10*small*seek.Seconds()+transfer(10*size), 0.5)
		if got := steady(10, size, time.Second/2); !near(got.Part, want) {
			t.Errorf("requests of %d bytes: part %.4f, want %.4f", size, got.Part, want)
		}
		if got, want := steady(10, size, time.Second/2).Cost.Seconds(), 10*hdd.Of(false, false, size).Seconds(); !near(got, want) {
			t.Errorf("requests of %d bytes: cost %.4f s, want %.4f", size, got, want)
		}
	}

	// The cost is at most the time that the caller's own work leaves.
	most := 30 * hdd.Of(false, false, 4*kib)
	for _, beyond := range []time.Duration{0, time.Millisecond, time.Second} {
		if got := steady(30, 4*kib, time.Second-most+beyond).Cost; got > max(0, most-beyond) || got < max(0, most-beyond)-time.Microsecond {
			t.Errorf("own work that leaves %v too little time: cost %v of %v", beyond, got, most)
		}
	}

	// Foreign I/O below 3 % of the work is ignored. Small requests have almost no transfer time.
	one := hdd.Of(false, false, 4*kib).Seconds()
	for own, some := range map[float64]bool{one * 97 / 3 * 0.99: true, one * 97 / 3 * 1.01: false} {
		if got := steady(1, 4*kib, time.Duration(own*float64(time.Second))).Cost > 0; got != some {
			t.Errorf("%.4f s of foreign work beside %.4f s of own work: counted %v", one, own, got)
		}
	}
}

// TestAnotherDevice checks that the estimate restarts if counters are lower or far higher than
// before.
func TestAnotherDevice(t *testing.T) {
	most := int64(time.Second/cost.PerMiBMin) * mib // in a second
	for jump, found := range map[int64]int64{-1: 0, 0: 0, 4096: 4096, most: most, most + 1: 0, 1 << 60: 0} {
		e := foreign.New(hdd)
		var none foreign.Counters
		device := foreign.Counters{Bytes: [2]int64{1 << 40, 1 << 40}}
		e.Observe(0, device, none, none, 0)
		device.Bytes[1] += jump
		if got := e.Observe(time.Second, device, none, none, 0).Bytes[1]; got != found {
			t.Errorf("a jump by %d bytes: %d found, want %d", jump, got, found)
		}
		device.Bytes[0] += mib
		if got := e.Observe(2*time.Second, device, none, none, 0).Bytes[0]; got != mib {
			t.Errorf("after a jump by %d bytes: %d found", jump, got)
		}
	}
}
