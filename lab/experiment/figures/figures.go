// Package figures computes what a handful of measurements can show about an overhead.
//
// An overhead of a few per cent is smaller than a machine's noise. So the two values of a pair are
// measured in the same round, where most of the noise affects both. The result is the mean ratio of
// the pairs, with its confidence interval. A target of package overhead is kept only if the whole
// interval is within the bound. Ratios are averaged as logarithms, because half and double are
// equally far from one. IBIS (section 7.7) gives single figures; package overhead warns about a
// result of fewer than five rounds.
package figures

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Confidence is the part of all measurements whose confidence interval contains the true value.
const Confidence = 0.95

// Median returns the middle value, or the mean of the two in the middle. It returns NaN without
// values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Quantile returns the smallest v among the values such that at least a part q of the values is at
// most v. q is above 0 and at most 1. Quantile returns NaN without values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	i := int(math.Ceil(q*float64(len(s)))) - 1
	return s[min(max(i, 0), len(s)-1)]
}

// Ratio is a paired ratio: its geometric mean and its confidence interval.
type Ratio struct {
	Mean  float64 `json:"mean"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Pairs int     `json:"pairs"`
}

// PairedRatio returns the ratio of values to bases, where values[i] and bases[i] were measured in
// the same round. It returns nil if there are fewer than two pairs, or if a number is not positive
// and finite, because then there is no interval.
//
// The interval is Student's confidence interval of the mean of the logarithms. With five to ten
// pairs, a bootstrap's interval would be too narrow, because a bootstrap draws only from the
// measured values, which lack the extremes.
func PairedRatio(values, bases []float64) *Ratio {
	if len(values) != len(bases) || len(values) < 2 {
		return nil
	}
	logs := make([]float64, len(values))
	for i, v := range values {
		if !(v > 0 && bases[i] > 0) || math.IsInf(v, 1) || math.IsInf(bases[i], 1) {
			return nil
		}
		logs[i] = math.Log(v / bases[i])
	}
	mean, deviation := stat.MeanStdDev(logs, nil)
	n := float64(len(logs))
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile((1 + Confidence) / 2)
	half := t * deviation / math.Sqrt(n)
	return &Ratio{Mean: math.Exp(mean), Low: math.Exp(mean - half), High: math.Exp(mean + half), Pairs: len(logs)}
}

// Spread describes a few runs by their median and the median absolute deviation from the median
// (MAD), because one slow run among a few distorts mean and standard deviation.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	MAD    float64 `json:"mad"`
}

// NewSpread returns the spread of the values. Without values, every field is NaN.
func NewSpread(values []float64) Spread {
	if len(values) == 0 {
		nan := math.NaN()
		return Spread{nan, nan, nan, nan}
	}
	m := Median(values)
	away := make([]float64, len(values))
	for i, v := range values {
		away[i] = math.Abs(v - m)
	}
	return Spread{Median: m, Min: slices.Min(values), Max: slices.Max(values), MAD: Median(away)}
}
