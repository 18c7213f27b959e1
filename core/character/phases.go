package character

import (
	"math"
	"slices"
)

// A phase must be worth its penalty: a change of the use of one resource by change of its capacity that
// lasts for changeTime. If the use is noisy, the penalty is noisePenalty times the noise's variance for
// each doubling of the number of points, so that noise makes no phases.
const (
	change       = 0.2
	changeTime   = 10.0 // seconds
	noisePenalty = 4
	mostPhases   = 24
)

// divide returns the phases as ranges of points, [first, after the last).
func divide(points []Point) [][2]int {
	n := len(points)
	step := points[0].To.Seconds() - points[0].From.Seconds()
	penalty := max(change*change*changeTime, noisePenalty*noise(points)*step*math.Log2(float64(n)+1))
	for {
		cuts := partition(points, penalty)
		if len(cuts) <= mostPhases {
			return cuts
		}
		penalty *= 2
	}
}

// noise estimates the variance of the points around a steady mean, the sum over the resources: half of
// the median of the squared differences of neighbours. Few changes of phase do not affect a median.
func noise(points []Point) float64 {
	var all []float64
	for i := 1; i < len(points); i++ {
		sum := 0.0
		for r := range Resources {
			d := points[i].Use[r] - points[i-1].Use[r]
			sum += d * d
		}
		all = append(all, sum)
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2] / 2
}

// partition returns the division with the smallest sum of penalties and squared distances to the means,
// weighted with time. It takes time in the square of the number of points, of which there are few.
func partition(points []Point, penalty float64) (cuts [][2]int) {
	n := len(points)
	// Prefix sums of time, use and squared use make the cost of a range a subtraction.
	times, squares := make([]float64, n+1), make([]float64, n+1)
	sums := make([]Use, n+1)
	for i, p := range points {
		t := (p.To - p.From).Seconds()
		times[i+1], squares[i+1], sums[i+1] = times[i]+t, squares[i], sums[i]
		for r, u := range p.Use {
			squares[i+1] += t * u * u
			sums[i+1][r] += t * u
		}
	}
	cost := func(i, j int) float64 {
		c, t := squares[j]-squares[i], times[j]-times[i]
		for r := range Resources {
			s := sums[j][r] - sums[i][r]
			c -= s * s / t
		}
		return c
	}
	best, first := make([]float64, n+1), make([]int, n+1)
	for j := 1; j <= n; j++ {
		best[j] = math.Inf(1)
		for i := range j {
			if c := best[i] + cost(i, j) + penalty; c < best[j]-1e-12 {
				best[j], first[j] = c, i
			}
		}
	}
	for j := n; j > 0; j = first[j] {
		cuts = append(cuts, [2]int{first[j], j})
	}
	slices.Reverse(cuts)
	return cuts
}
