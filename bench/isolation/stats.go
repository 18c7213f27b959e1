package isolation

import (
	"math"
	"slices"
)

// Spread describes a handful of runs. With few runs a standard deviation says
// little and one slow run ruins a mean, so it is the median and the median
// absolute deviation from it.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	MAD    float64 `json:"mad"`
}

// NewSpread summarises values in the values' own unit; no values give NaN
// everywhere, which Ratio and the table turn into "not measured".
func NewSpread(values []float64) Spread {
	if len(values) == 0 {
		nan := math.NaN()
		return Spread{nan, nan, nan, nan}
	}
	m := median(values)
	away := make([]float64, len(values))
	for i, v := range values {
		away[i] = math.Abs(v - m)
	}
	return Spread{Median: m, Min: slices.Min(values), Max: slices.Max(values), MAD: median(away)}
}

// median is the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// quantile is the smallest of the values that at least a part q (0 to 1] of
// them do not exceed; no values give NaN.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	i := int(math.Ceil(q*float64(len(s)))) - 1
	return s[min(max(i, 0), len(s)-1)]
}

// ratio is a/b, or nil when either was not measured: JSON has no NaN, and a
// missing figure must not look like a zero.
func ratio(a, b float64) *float64 {
	r := a / b
	if math.IsNaN(r) || math.IsInf(r, 0) {
		return nil
	}
	return &r
}
