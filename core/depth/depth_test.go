package depth_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/depth"
)

var line = depth.Line{Fixed: 10 * time.Millisecond}

func TestConfigIsCheckedAtItsEdges(t *testing.T) {
	for _, test := range []struct {
		cfg depth.Config
		ok  bool
	}{
		{depth.Config{}, false}, // no reference
		{depth.Config{Read: line}, true},
		{depth.Config{Write: line}, false},
		{depth.Config{Read: depth.Line{PerMiB: 1}}, true},
		{depth.Config{Read: depth.Line{Fixed: -1, PerMiB: 5}}, false},
		{depth.Config{Read: line, Write: depth.Line{PerMiB: -1}}, false},
		{depth.Config{Read: line, Min: 0.5}, false},
		{depth.Config{Read: line, Min: 1.5}, false},
		{depth.Config{Read: line, Min: 2, Max: 2}, true},
		{depth.Config{Read: line, Min: 3, Max: 2}, false},
		{depth.Config{Read: line, Min: 13}, false}, // above the default maximum
		{depth.Config{Read: line, Max: 2.5}, false},
		{depth.Config{Read: line, Max: 1 << 16}, true},
		{depth.Config{Read: line, Max: 1<<16 + 1}, false},
		{depth.Config{Read: line, Max: math.Inf(1)}, false},
		{depth.Config{Read: line, Max: math.NaN()}, false},
		{depth.Config{Read: line, Start: 12}, true},
		{depth.Config{Read: line, Start: 12.1}, false},
		{depth.Config{Read: line, Start: 0.9}, false},
		{depth.Config{Read: line, Gain: -1}, false},
		{depth.Config{Read: line, Gain: math.NaN()}, false},
		{depth.Config{Read: line, Gain: 0.1}, true},
	} {
		if _, err := depth.New(test.cfg); (err == nil) != test.ok {
			t.Errorf("New(%+v): error %v, want success: %v", test.cfg, err, test.ok)
		}
	}
}

// TestInvariants checks that D stays within its bounds for all latencies. D never rises in a period
// in which the depth held no request back, and never by more than the gain. It falls by no more
// than the number of late periods in a row allows, and the counts add up.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := depth.Config{Read: line, Write: depth.Line{Fixed: time.Millisecond, PerMiB: 50 * time.Millisecond}, Min: 2, Max: 7,
			Gain: rapid.Float64Range(0.01, 20).Draw(t, "gain")}
		c, err := depth.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		periods, fall := 0, cfg.Gain
		for range rapid.IntRange(1, 50).Draw(t, "periods") {
			before := c.Report()
			limited := rapid.Bool().Draw(t, "limited")
			if limited {
				c.Limited()
			}
			if rapid.Bool().Draw(t, "heard of others") {
				c.Others(rapid.SampledFrom([]float64{-1, 0, 0.4, 0.9, 1, math.Inf(1), math.NaN()}).Draw(t, "others"))
			}
			requests := rapid.IntRange(0, 5).Draw(t, "requests")
			for range requests {
				c.Observe(rapid.Bool().Draw(t, "write"), rapid.Int64Range(-1, 1<<50).Draw(t, "bytes"), time.Duration(rapid.Int64Range(math.MinInt64, 1<<62).Draw(t, "latency")))
			}
			got := c.Update()
			after := c.Report()
			if requests > 0 {
				periods++
			}
			rise := after.Depth - before.Depth
			switch {
			case !(after.Depth >= 2 && after.Depth <= 7) || got > int(after.Depth+1e-6) || got < int(after.Depth) || got != c.Depth():
				t.Fatalf("depth %d, D %v, bounds 2 to 7", got, after.Depth)
			case rise > 0 && !limited:
				t.Fatalf("D rose by %v in a period in which the depth held no request back", rise)
			case -rise > fall*(1+1e-9):
				t.Fatalf("D fell by %v, want at most %v", -rise, fall)
			case rise > cfg.Gain*(1+1e-9):
				t.Fatalf("D rose by %v, the gain is %v", rise, cfg.Gain)
			case !(after.Others >= 0 && after.Others <= depth.OthersMax):
				t.Fatalf("foreign I/O takes %v of the device", after.Others)
			case requests == 0 && rise != 0:
				t.Fatalf("D moved by %v in a period without requests", rise)
			case after.Periods != periods || after.AtMin+after.AtMax > after.Periods || after.Held+after.Clipped > after.Periods:
				t.Fatalf("%+v after %d periods with requests", after, periods)
			}
			// The next period may lower D by more only if this one was late: at least twice Lref.
			late := float64(after.Latency)*(1-after.Others) >= 2*float64(after.Reference)*(1-1e-6)-1
			switch {
			case requests > 0 && late:
				fall *= 2
			case requests > 0:
				fall = cfg.Gain
			}
		}
	})
}

// TestSettlesAtTheReference checks that D settles around the depth that gives the reference
// latency, from any start, on a device with latency proportional to the depth.
func TestSettlesAtTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		right := rapid.Float64Range(1.2, 11).Draw(t, "right depth")
		c, err := depth.New(depth.Config{Read: line, Start: rapid.Float64Range(1, 12).Draw(t, "start")})
		if err != nil {
			t.Fatal(err)
		}
		const settling, observed = 200, 1000
		var sum float64
		for i := range settling + observed {
			if i >= settling {
				sum += float64(c.Depth())
			}
			c.Limited()
			c.Observe(false, 1, time.Duration(float64(line.Fixed)*float64(c.Depth())/right))
			c.Update()
		}
		if mean := sum / observed; math.Abs(mean-right) > 0.02*right {
			t.Fatalf("mean depth %v, the right one is %v", mean, right)
		}
	})
}

// TestOthersDoNotPushTheDepthDown puts foreign requests on the device, which serves them in turn
// with the governed ones. However many they are, D settles at the depth that it has without them.
// If they were not subtracted, D would fall to its minimum.
func TestOthersDoNotPushTheDepthDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		right := rapid.Float64Range(2, 8).Draw(t, "right depth")
		foreign := rapid.Float64Range(0, 9*right/2).Draw(t, "foreign requests at the device")
		c, err := depth.New(depth.Config{Read: line})
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		const settling, observed = 200, 1000
		for i := range settling + observed {
			d := float64(c.Depth())
			if i >= settling {
				sum += d
			}
			c.Limited()
			c.Others(foreign / (foreign + d))
			c.Observe(false, 1, time.Duration(float64(line.Fixed)*(d+foreign)/right))
			c.Update()
		}
		if mean := sum / observed; math.Abs(mean-right) > 0.03*right {
			t.Fatalf("mean depth %v beside %v foreign requests, the right one is %v", mean, foreign, right)
		}
	})
}

// TestOneLatePeriodIsNoneThatLast checks that a single period, however late, lowers D by at most K,
// and with a K of 1 by at most half of D. If the latency lasts, D reaches its minimum in four
// periods.
func TestOneLatePeriodIsNoneThatLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Float64Range(1, 12).Draw(t, "start")
		c, err := depth.New(depth.Config{Read: line, Start: start})
		if err != nil {
			t.Fatal(err)
		}
		late := time.Duration(rapid.Int64Range(int64(13*line.Fixed), math.MaxInt64).Draw(t, "latency"))
		for i := range 4 {
			c.Limited()
			c.Observe(false, 1, late)
			c.Update()
			if got := c.Report().Depth; i == 0 && got < start/2 {
				t.Fatalf("D fell from %v to %v in one period", start, got)
			}
		}
		if got := c.Report().Depth; got != 1 {
			t.Fatalf("after four late periods D is %v", got)
		}
	})
}
