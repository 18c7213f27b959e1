// Package figures computes what a handful of measurements can show about an overhead.
//
// An overhead of a few per cent is smaller than a machine's noise. So values are compared in pairs
// that were measured in the same round, where most of the noise is common to both, and the result
// is the ratio's confidence interval. A bound is met only if the interval's upper end meets it.
// Ratios are averaged as logarithms, because half and double are equally far from one. IBIS
// (section 7.7) gives single figures; here five rounds are the minimum.
package figures

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Confidence is the part of all repetitions with an interval that contains the true value.
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

// Quantile returns the smallest of the values that at least a part q (0 to 1] of them do not
// exceed. It returns NaN without values.
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

// PairedRatio compares values with bases of the same rounds: values[i] and
// bases[i] were measured together. It needs two pairs, all of them positive;
// else it returns nil, because there is no interval.
//
// The interval is Student's, of the mean of the logarithms. With five to ten pairs, the interval of
// a bootstrap is too narrow, because the bootstrap draws only from the measured values, which lack
// the extremes.
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

// Spread describes a few runs by their median and the median absolute deviation from it, because
// one slow run among a few distorts mean and standard deviation.
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
	m := Median(values)
	away := make([]float64, len(values))
	for i, v := range values {
		away[i] = math.Abs(v - m)
	}
	return Spread{Median: m, Min: slices.Min(values), Max: slices.Max(values), MAD: Median(away)}
}
