package containers

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// at returns points with two replicas, except with one container, and the given throughputs.
func at(rates map[int]float64) (points []point) {
	for n := 1; n <= 64; n++ {
		if r, ok := rates[n]; ok {
			points = append(points, point{Nodes: n, Replication: replication(n), MBPerSecond: r})
		}
	}
	return points
}

func TestGain(t *testing.T) {
	for _, c := range []struct {
		from, to   int
		rate, then float64
		want       float64
	}{
		{2, 4, 10, 20, 1}, {2, 4, 10, 10, 0}, {2, 8, 10, 40, 1}, {4, 6, 10, 15, 1}, {2, 4, 10, 5, -0.5}, {4, 8, 10, 12.5, 0.25},
	} {
		if got := gain(point{Nodes: c.from, MBPerSecond: c.rate}, point{Nodes: c.to, MBPerSecond: c.then}); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestKnee(t *testing.T) {
	for name, c := range map[string]struct {
		rates map[int]float64
		want  int // 0: no knee
	}{
		"linear":                             {map[int]float64{2: 10, 4: 20, 8: 40}, 0},
		"bends at 4":                         {map[int]float64{2: 10, 4: 20, 8: 22}, 4},
		"flat":                               {map[int]float64{2: 10, 4: 10, 8: 10}, 2},
		"falls at the end":                   {map[int]float64{2: 10, 4: 20, 6: 30, 8: 25}, 6},
		"a flat step before a steep one":     {map[int]float64{2: 10, 4: 11, 8: 20}, 0},
		"just below the bound":               {map[int]float64{2: 10, 4: 20, 8: 24.9}, 4},
		"at the bound":                       {map[int]float64{2: 10, 4: 20, 8: 25}, 0},
		"one replica with one container":     {map[int]float64{1: 30, 2: 10, 4: 20, 8: 21}, 4},
		"a step of less than a doubling":     {map[int]float64{4: 20, 6: 20 * math.Pow(1.3, math.Log2(1.5))}, 0},
		"the same growth, below the bound":   {map[int]float64{4: 20, 6: 20 * math.Pow(1.2, math.Log2(1.5))}, 4},
		"one number that can be compared":    {map[int]float64{1: 10, 2: 20}, 0},
		"one number of containers":           {map[int]float64{8: 20}, 0},
		"two steps, both without much gain":  {map[int]float64{2: 20, 4: 23, 8: 24}, 2},
		"three steps, the last two are flat": {map[int]float64{2: 10, 4: 20, 6: 21, 8: 21}, 4},
	} {
		f, ok := find("job", NAT, at(c.rates))
		if f.Knee != c.want {
			t.Errorf("%s: %+v, want %d", name, f, c.want)
		}
		if many := len(comparable(at(c.rates))) > 1; ok != many {
			t.Errorf("%s: found %v, and there are points to compare: %v", name, ok, many)
		}
	}
	if _, ok := find("job", NAT, nil); ok {
		t.Error("a finding without figures")
	}
}

// A knee does not depend on the unit of throughput, and after it no step gains much, and the step before it does.
func TestKneeIsAsItsRuleSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []point
		for n := 2; n <= 32; n *= 2 {
			points = append(points, point{Nodes: n, Replication: 2, MBPerSecond: rapid.Float64Range(1, 100).Draw(t, "rate")})
		}
		i, ok := knee(points)
		for j := range len(points) - 1 {
			small := gain(points[j], points[j+1]) < leastGain
			if ok && j >= i && !small || ok && j == i-1 && small || !ok && j == len(points)-2 && small {
				t.Fatalf("knee %d, %v, and step %d gains little: %v: %+v", i, ok, j, small, points)
			}
		}
		for j := range points {
			points[j].MBPerSecond *= 8 // a power of two changes no quotient
		}
		if again, ok2 := knee(points); again != i || ok2 != ok {
			t.Fatalf("in another unit: %d, %v and %d, %v", i, ok, again, ok2)
		}
	})
}

// Each sign is seen at its bound, and not below it.
func TestCauses(t *testing.T) {
	before := point{Nodes: 2, CPU: 0.5, Disks: 0.5, RunDelayUS: 100, SwitchesPerMB: 1000, TripP50US: 50, TripP99US: 500, TripMeanUS: 100, TripDelayUS: 60}
	for name, c := range map[string]struct {
		change func(*point)
		want   Cause
	}{
		"nothing":                   {func(*point) {}, CauseNone},
		"CPU":                       {func(p *point) { p.CPU = 0.9 }, CauseCPU},
		"less CPU":                  {func(p *point) { p.CPU = 0.899 }, CauseNone},
		"disks":                     {func(p *point) { p.Disks = 0.9 }, CauseDisks},
		"less disks":                {func(p *point) { p.Disks = 0.899 }, CauseNone},
		"network":                   {func(p *point) { p.TripMeanUS = 120.1 }, CauseNetwork},
		"a longer way, but less":    {func(p *point) { p.TripMeanUS = 119 }, CauseNone},
		"trips that wait for a CPU": {func(p *point) { p.TripMeanUS, p.TripDelayUS, p.TripP50US = 1000, 960, 75 }, CauseQueue},
		"a tail":                    {func(p *point) { p.TripP99US = 750 }, CauseQueue},
		"switches":                  {func(p *point) { p.SwitchesPerMB = 1500 }, CauseSwitches},
		"less switches":             {func(p *point) { p.SwitchesPerMB = 1499 }, CauseNone},
		"run queue":                 {func(p *point) { p.RunDelayUS = 150 }, CauseQueue},
		"a CPU and all that follows": {func(p *point) {
			p.CPU, p.RunDelayUS, p.SwitchesPerMB, p.TripP50US, p.TripMeanUS = 1, 1000, 9000, 900, 9000
		}, CauseCPU},
		"switches and the run queue": {func(p *point) { p.SwitchesPerMB, p.RunDelayUS = 3000, 300 }, CauseSwitches},
	} {
		after := before
		after.Nodes = 4
		c.change(&after)
		if got := cause(signs(before, after)); got != c.want {
			t.Errorf("%s: %s, want %s: %+v", name, got, c.want, signs(before, after))
		}
	}
	// A figure that was not measured does not grow.
	if got := cause(signs(point{}, point{RunDelayUS: 1, TripMeanUS: 1})); got != CauseNone {
		t.Errorf("from nothing: %s", got)
	}
}

// The signs compare the fewest containers with the first number after the knee.
func TestFindComparesBeforeAndAfter(t *testing.T) {
	points := at(map[int]float64{1: 5, 2: 10, 4: 20, 6: 21, 8: 21})
	for i := range points {
		points[i].CPU = []float64{0.1, 0.3, 0.6, 0.95, 0.99}[i]
	}
	f, ok := find("TeraSort", Joined, points)
	if !ok || f.Knee != 4 || f.Cause != CauseCPU || f.Signs[0].From != 0.3 || f.Signs[0].To != 0.95 || f.Most != 8 {
		t.Fatalf("%+v", f)
	}
	for _, want := range []string{"TeraSort, joined: the knee is at 4 containers", "adds 9 %", "Cause: CPU", "busy part of the CPUs 0.3 to 0.95 (applies)"} {
		if !strings.Contains(f.String(), want) {
			t.Errorf("no %q in %q", want, f)
		}
	}
	f, _ = find("TeraGen", NAT, at(map[int]float64{2: 10, 4: 20}))
	if text := f.String(); !strings.Contains(text, "no knee up to 4 containers") || !strings.Contains(text, "adds 100 %") {
		t.Error(text)
	}
}
