package measure

import (
	"errors"
	"math"
	"time"

	"gonum.org/v1/gonum/mat"

	"penstock/node/profile"
)

const mib = 1 << 20

// line is t = fixed + perMiB*MiB, in ns.
type line struct{ fixed, perMiB float64 }

func (l line) at(bytes int64) float64 { return l.fixed + l.perMiB*float64(bytes)/mib }

func (l line) profile() profile.Line {
	round := func(ns float64) profile.Duration {
		return profile.Duration(time.Duration(ns).Round(100 * time.Nanosecond))
	}
	return profile.Line{Fixed: round(l.fixed), PerMiB: round(l.perMiB)}
}

// sample is a measured time and the factors of the unknowns in it.
type sample struct {
	factors []float64
	ns      float64
}

// fit returns the non-negative unknowns that match the samples best. Errors are relative to the
// measured times; otherwise only the large requests would count.
//
// It uses least squares. The most negative unknown is set to 0 and the others are fitted again,
// until none is negative. With two or three unknowns, that is as good as the exact method.
func fit(samples []sample) ([]float64, error) {
	unknowns := len(samples[0].factors)
	free := make([]bool, unknowns)
	for i := range free {
		free[i] = true
	}
	for {
		var columns []int
		for i, f := range free {
			if f {
				columns = append(columns, i)
			}
		}
		if len(columns) == 0 {
			return nil, errors.New("no line fits the measured times")
		}
		if len(samples) < len(columns) {
			return nil, errors.New("the measured times fit no line: too few sizes were measured")
		}
		a, b := mat.NewDense(len(samples), len(columns), nil), mat.NewVecDense(len(samples), nil)
		for row, s := range samples {
			for j, c := range columns {
				a.Set(row, j, s.factors[c]/s.ns)
			}
			b.SetVec(row, 1)
		}
		var x mat.VecDense
		if err := x.SolveVec(a, b); err != nil {
			return nil, errors.New("the measured times fit no line: too few sizes were measured")
		}
		out, worst := make([]float64, unknowns), -1
		for j, c := range columns {
			out[c] = x.AtVec(j)
			if out[c] < 0 && (worst < 0 || out[c] < out[worst]) {
				worst = c
			}
		}
		if worst < 0 {
			return out, nil
		}
		free[worst] = false
	}
}

// fitCosts fits one direction's costs to its saturated points. As in iocost's model, the cost per
// byte does not depend on the place, so both lines have the same slope. A random request cannot be
// cheaper than a sequential one. If it seems cheaper because of noise, fitCosts assumes that the
// place makes no difference on this device.
func fitCosts(points []Point) (random, sequential line, err error) {
	samples := make([]sample, len(points))
	for i, p := range points {
		f := []float64{1, 0, float64(p.Bytes) / mib}
		if p.Sequential {
			f[0], f[1] = 0, 1
		}
		samples[i] = sample{f, p.took()}
	}
	x, err := fit(samples)
	if err != nil {
		return line{}, line{}, err
	}
	if x[0] < x[1] {
		for i, s := range samples {
			samples[i].factors = []float64{1, s.factors[2]}
		}
		both, err := fit(samples)
		if err != nil {
			return line{}, line{}, err
		}
		x = []float64{both[0], both[0], both[1]}
	}
	return line{x[0], x[2]}, line{x[1], x[2]}, nil
}

// fitLatency fits a line to latencies by size.
func fitLatency(sizes []int64, latencies []time.Duration) (line, error) {
	samples := make([]sample, len(sizes))
	for i, n := range sizes {
		samples[i] = sample{[]float64{1, float64(n) / mib}, float64(latencies[i])}
	}
	x, err := fit(samples)
	if err != nil {
		return line{}, err
	}
	return line{x[0], x[1]}, nil
}

// residual returns the root mean square of the points' distances from their lines, relative to the
// measured times.
func residual(points []Point, random, sequential line) (sum float64) {
	for _, p := range points {
		l := random
		if p.Sequential {
			l = sequential
		}
		off := l.at(p.Bytes)/p.took() - 1
		sum += off * off
	}
	return math.Sqrt(sum / float64(len(points)))
}

// kept returns the part of the sequential rate that random requests of that size reach.
func kept(random, sequential line, bytes int64) float64 {
	rate := func(l line, n int64) float64 { return float64(n) / l.at(n) }
	return min(1, rate(random, bytes)/rate(sequential, bytesMax))
}
