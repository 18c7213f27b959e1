package isolation

import (
	"slices"
	"strings"
	"testing"
)

// made builds figures from run time and MB/s.
func made(values map[string][2]float64) []Figure {
	var figures []Figure
	for name, v := range values {
		mbps := v[1]
		figures = append(figures, Figure{Name: name, RuntimeS: v[0], DeviceMBps: &mbps})
	}
	slices.SortFunc(figures, func(a, b Figure) int { return strings.Compare(a.Name, b.Name) })
	return figures
}

// The best phase of a family has the highest throughput of those phases that protect nearly as well
// as any other.
func TestBestOf(t *testing.T) {
	figures := made(map[string][2]float64{
		"sfqd-1": {100, 15}, "sfqd-2": {104, 20}, "sfqd-4": {106, 23}, "sfqd2": {90, 30},
		"throttler-2": {100, 12}, "throttler-8": {180, 22}, "alone": {80, 10},
	})
	for want, family := range map[string]family{"sfqd-2": sfqd, "throttler-2": throttled} {
		if f := family.best(figures); f == nil || f.Name != want {
			t.Errorf("the best of %s is %+v; want %s", family.prefix, f, want)
		}
	}
	if f := drr.best(figures); f != nil {
		t.Errorf("%s is the best of a family that did not run", f.Name)
	}
}

func TestComparisons(t *testing.T) {
	figures := made(map[string][2]float64{"sfqd2": {100, 20}, "sfqd-4": {101, 20}, "throttler-4": {100, 15}, "drr-2": {130, 22}})
	var got []string
	for _, c := range (Result{Phases: figures}).comparisons() {
		got = append(got, c.With+" "+c.Verdict)
	}
	if want := []string{"sfqd-4 as good", "throttler-4 better", "drr-2 mixed"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if c := (Result{Phases: figures[:1]}).comparisons(); c != nil {
		t.Errorf("compared without SFQ(D2): %v", c)
	}
}

// The figures lie just within and just outside of the difference that the constant even allows.
func TestVerdictOf(t *testing.T) {
	device := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		runtime float64
		device  *float64
		want    string
	}{
		{1, nil, "as good"}, {1.05, device(1), "as good"}, {1.06, device(1), "worse"}, {0.95, device(1), "better"},
		{0.96, device(1), "as good"}, {1, device(1.06), "better"}, {1, device(0.95), "worse"}, {1, device(0.96), "as good"},
		{0.9, device(0.9), "mixed"}, {1.1, device(1.1), "mixed"}, {1.1, nil, "worse"},
	} {
		if got := verdictOf(Comparison{Runtime: c.runtime, Device: c.device}); got != c.want {
			t.Errorf("run time %v, device %v: %s, want %s", c.runtime, times(c.device), got, c.want)
		}
	}
}
