package isolation

import (
	"math"
	"slices"

	"penstock/lab/experiment/figures"
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
	m := figures.Median(values)
	away := make([]float64, len(values))
	for i, v := range values {
		away[i] = math.Abs(v - m)
	}
	return Spread{Median: m, Min: slices.Min(values), Max: slices.Max(values), MAD: figures.Median(away)}
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
