package cost_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/cost"
)

// beside runs requests one after another for a time. Foreign I/O takes the given part of the
// device, and is reported once a second.
func (d *device) beside(length time.Duration, bytes int64, write func() bool, part float64, extra func() time.Duration) {
	end, heard, theirs := d.now+length, d.now, time.Duration(0)
	for d.now < end {
		before := d.now
		d.start(write(), bytes)
		own := cost.Scaled(hdd.Of(false, false, bytes), d.factor[0])
		foreign := time.Duration(part / (1 - part) * float64(own))
		theirs += time.Duration(float64(foreign) / d.factor[0])
		d.finish(foreign + extra())
		if d.now-heard >= time.Second || d.now-before >= time.Second {
			d.tracker.Others(theirs)
			heard, theirs = d.now, 0
		}
	}
}

func nothing() time.Duration { return 0 }

// TestAStepIsFollowed changes the device's speed at once, beside any foreign I/O. A slower device
// is followed within 10 s; a faster one only without foreign I/O.
func TestAStepIsFollowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDevice(cost.TrackerConfig{})
		bytes := int64(64<<10) << rapid.IntRange(0, 4).Draw(t, "quantum, as a power")
		i, every := 0, rapid.IntRange(1, 5).Draw(t, "a write every so many")
		write := func() bool { i++; return i%every == 0 }
		part := rapid.SampledFrom([]float64{0, 0, 0.2, 0.5}).Draw(t, "foreign part")
		d.beside(10*time.Second, bytes, write, part, nothing)
		f := rapid.Float64Range(1.4, 1.95).Draw(t, "factor")
		d.factor = [2]float64{f, f}
		d.beside(9*time.Second, bytes, write, part, nothing)
		least := 0.9 * f
		if part > 0 {
			least = 0.75 * f
		}
		if got, _ := d.tracker.Healthy(); got < least || got > 1.1*f {
			t.Fatalf("scale %.3f nine seconds after the device takes %.3f times as long", got, f)
		}
		d.factor = [2]float64{1, 1}
		d.beside(9*time.Second, bytes, write, part, nothing)
		if got, _ := d.tracker.Healthy(); part == 0 && (got > 1.1 || got < 0.9) {
			t.Fatalf("scale %.3f nine seconds after the device is as fast as before", got)
		}
	})
}

// TestAStallIsNoStep checks that a stall of any length below that of a slow device does not move the
// scale by more than slices move it.
func TestAStallIsNoStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDevice(cost.TrackerConfig{})
		stall := time.Duration(rapid.IntRange(0, 3000).Draw(t, "stall in ms")) * time.Millisecond
		at := time.Duration(rapid.IntRange(3000, 6000).Draw(t, "its moment in ms")) * time.Millisecond
		d.beside(10*time.Second, 512<<10, always(false), 0, func() (extra time.Duration) {
			if d.now >= at {
				extra, stall = stall, 0
			}
			return extra
		})
		if got, _ := d.tracker.Healthy(); got > 1.06 || got < 0.94 {
			t.Fatalf("scale %.3f after one stall", got)
		}
	})
}

// TestStepsLeaveDirections checks that phases of reads and of writes, whose costs the model has
// wrong in opposite directions, still correct these costs when foreign I/O is reported.
func TestStepsLeaveDirections(t *testing.T) {
	d := newDevice(cost.TrackerConfig{})
	d.factor = [2]float64{0.8, 1.25}
	for range 60 {
		for _, write := range []bool{false, true} {
			for range 5 {
				d.run(time.Second, 2, 512<<10, always(write), never)
				d.tracker.Others(0)
			}
		}
	}
	if r, w := d.tracker.Scale(false), d.tracker.Scale(true); !near(r, 0.8, 0.1) || !near(w, 1.25, 0.1) {
		t.Errorf("scales of reads and writes: %.3f and %.3f, want 0.8 and 1.25", r, w)
	}
}

// TestABurstIsNoStep: a device that is faster for a few seconds makes no room for promises at once. After a
// slower time, the scale goes back to what it was, and no further.
func TestABurstIsNoStep(t *testing.T) {
	d := newDevice(cost.TrackerConfig{})
	pace := func(factor float64, length time.Duration) float64 {
		d.factor = [2]float64{factor, factor}
		d.beside(length, 512<<10, always(false), 0, nothing)
		scale, _ := d.tracker.Healthy()
		return scale
	}
	pace(1, 10*time.Second)
	if got := pace(0.5, 3*time.Second); got < 0.75 {
		t.Errorf("scale %.3f after a burst of 3 s", got)
	}
	pace(1, 20*time.Second)
	if got := pace(1.8, 10*time.Second); got < 1.6 {
		t.Errorf("scale %.3f of a device that takes 1.8 times as long", got)
	}
	if got := pace(0.5, 5*time.Second); got < 0.7 || got > 1.05 {
		t.Errorf("scale %.3f after 5 s of a faster device, want about 1", got)
	}
}
