package isolation

import (
	"math"
	"slices"

	"penstock/lab/experiment/figures"
)

// Spread describes a few runs by their median and the median absolute deviation from it: with
// few runs one slow one distorts mean and standard deviation.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	MAD    float64 `json:"mad"`
}

// NewSpread returns the spread of the values, or NaN everywhere without values.
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

// ratio returns a/b, or nil if either was not measured: JSON has no NaN.
func ratio(a, b float64) *float64 {
	r := a / b
	if math.IsNaN(r) || math.IsInf(r, 0) {
		return nil
	}
	return &r
}
