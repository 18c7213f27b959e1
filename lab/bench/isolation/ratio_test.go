package isolation

import (
	"math"
	"testing"
)

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
