package isolation

import (
	"math"
	"testing"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{5}, Spread{5, 5, 5, 0}},
		{[]float64{1, 9}, Spread{5, 1, 9, 4}},
		{[]float64{100, 1, 3, 2, 4}, Spread{3, 1, 100, 1}}, // one slow run moves neither median nor MAD
		{[]float64{4, 1, 3, 2}, Spread{2.5, 1, 4, 1}},
	} {
		if got := NewSpread(c.values); got != c.want {
			t.Errorf("NewSpread(%v) = %+v, want %+v", c.values, got, c.want)
		}
	}
	if got := NewSpread(nil); !math.IsNaN(got.Median) || !math.IsNaN(got.MAD) {
		t.Errorf("NewSpread(nil) = %+v, want NaN", got)
	}
}

func TestRatio(t *testing.T) {
	if r := ratio(3, 2); r == nil || *r != 1.5 {
		t.Errorf("ratio(3, 2) = %v", r)
	}
	for _, c := range [][2]float64{{1, 0}, {0, 0}, {math.NaN(), 1}, {1, math.NaN()}} {
		if r := ratio(c[0], c[1]); r != nil {
			t.Errorf("ratio(%v) = %v, want nil: not measured is not zero", c, *r)
		}
	}
}
