package isolation

import "math"

// ratio returns a/b, or nil if either was not measured: JSON has no NaN.
func ratio(a, b float64) *float64 {
	r := a / b
	if math.IsNaN(r) || math.IsInf(r, 0) {
		return nil
	}
	return &r
}
