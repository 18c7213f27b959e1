package optimum

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestKnownDivisions(t *testing.T) {
	for name, test := range map[string]struct {
		seekers []Seeker
		devices []float64
		want    []float64
	}{
		"one device":                   {[]Seeker{{3, 0, []int{0}}, {1, 0, []int{0}}}, []float64{1}, []float64{0.75, 0.25}},
		"one on both, one on one":      {[]Seeker{{1, 0, []int{0, 1}}, {1, 0, []int{1}}}, []float64{1, 1}, []float64{1, 1}},
		"more elsewhere than due":      {[]Seeker{{1, 0, []int{0, 1}}, {3, 0, []int{1}}}, []float64{1, 1}, []float64{1, 1}},
		"bound by its only device":     {[]Seeker{{9, 0, []int{0}}, {1, 0, []int{0, 1, 2}}}, []float64{1, 1, 1}, []float64{1, 2}},
		"a demand leaves the rest":     {[]Seeker{{1, 0.1, []int{0}}, {1, 0, []int{0}}, {2, 0, []int{0}}}, []float64{1}, []float64{0.1, 0.3, 0.6}},
		"nothing to do":                {[]Seeker{{1, 0, nil}, {1, 0, []int{0}}}, []float64{1}, []float64{0, 1}},
		"three groups of three levels": {[]Seeker{{1, 0, []int{0}}, {1, 0, []int{0}}, {1, 0, []int{1}}, {1, 0, []int{2, 1}}}, []float64{1, 1, 4}, []float64{0.5, 0.5, 1, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Totals(test.seekers, test.devices)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if math.Abs(got[i]-test.want[i]) > 1e-6 {
					t.Fatalf("totals %v, want %v", got, test.want)
				}
			}
		})
	}
}

func TestBadInputIsRefused(t *testing.T) {
	for _, seekers := range [][]Seeker{{{0, 0, []int{0}}}, {{1, -1, []int{0}}}, {{1, 0, []int{1}}}, {{math.NaN(), 0, nil}}} {
		if got, err := Totals(seekers, []float64{1}); err == nil {
			t.Errorf("%v: %v and no error", seekers, got)
		}
	}
	if got, err := Totals(nil, []float64{-1}); err == nil {
		t.Errorf("%v and no error", got)
	}
}

// TestNobodyCanBeRaised: every device is fully used while a seeker wants it. A seeker shares no
// device with another seeker that has less service per weight, not even indirectly through further
// seekers.
func TestNobodyCanBeRaised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		devices := rapid.SliceOfN(rapid.Float64Range(0.1, 4), 1, 6).Draw(t, "devices")
		var seekers []Seeker
		for range rapid.IntRange(1, 6).Draw(t, "seekers") {
			s := Seeker{Weight: float64(rapid.IntRange(1, 32).Draw(t, "weight"))}
			for d := range devices {
				if rapid.Bool().Draw(t, "there") {
					s.Devices = append(s.Devices, d)
				}
			}
			seekers = append(seekers, s)
		}
		totals, err := Totals(seekers, devices)
		if err != nil {
			t.Fatal(err)
		}
		// For every level, the seekers at or below it use their devices fully.
		for i, s := range seekers {
			level := totals[i] / s.Weight
			used, give := 0.0, 0.0
			reach := make([]bool, len(devices))
			for j, o := range seekers {
				if totals[j]/o.Weight <= level*(1+1e-6) {
					used += totals[j]
					for _, d := range o.Devices {
						reach[d] = true
					}
				}
			}
			for d, c := range devices {
				if reach[d] {
					give += c
				}
			}
			if math.Abs(used-give) > 1e-5 {
				t.Fatalf("%v on %v: totals %v: those up to level %v use %v of %v", seekers, devices, totals, level, used, give)
			}
		}
	})
}
