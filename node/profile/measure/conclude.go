package measure

import (
	"errors"
	"fmt"
	"time"

	"penstock/node/profile"
)

// conclude makes a profile of the points, all but which device it is of.
func conclude(points []Point, writes bool) (*Result, error) {
	p := &profile.Profile{Version: profile.Version, Parallel: 1}
	result := &Result{Profile: p, Points: points, Warnings: []string{}}
	directions := []bool{false}
	if writes {
		directions = append(directions, true)
	} else {
		result.Warnings = append(result.Warnings, "writes were not measured: they are taken for as costly as reads")
	}
	var random, sequential [2]line
	for i, write := range directions {
		saturated := choose(points, func(p Point) bool { return p.Write == write && p.Saturated })
		var err error
		if random[i], sequential[i], err = fitCosts(saturated); err != nil {
			return nil, err
		}
		p.Residual = max(p.Residual, residual(saturated, random[i], sequential[i]))
		c := profile.Coefficients{Random: random[i].profile(), Sequential: sequential[i].profile()}
		if write {
			p.Cost.Write = &c
		} else {
			p.Cost.Read = c
		}
	}
	if p.Residual > residualMax {
		return nil, fmt.Errorf("the measurements are %.0f %% off any line: was the disk busy with something else? Measure again, or longer with --time", 100*p.Residual)
	}
	if p.Residual > residualWarn {
		result.Warnings = append(result.Warnings, fmt.Sprintf("the measurements are %.0f %% off the costs: measure again, or longer with --time", 100*p.Residual))
	}
	quantum := int64(profile.QuantumMin)
	for ; ; quantum *= 2 {
		result.Kept = 1
		for i := range directions {
			result.Kept = min(result.Kept, kept(random[i], sequential[i], quantum))
		}
		if result.Kept >= keep || quantum >= bytesMax {
			break
		}
	}
	if result.Kept < keep {
		result.Warnings = append(result.Warnings, fmt.Sprintf(
			"the largest quantum measured, %v, keeps %.0f %% of the sequential rate where streams take turns: seeks are long on this disk", profile.Bytes(quantum), 100*result.Kept))
	}
	p.Quantum = profile.Bytes(quantum)
	for _, write := range directions {
		latency, parallel, err := reference(points, write, quantum)
		if err != nil {
			return nil, err
		}
		if write {
			p.Reference.Write = &latency
		} else {
			p.Reference.Read = latency
		}
		// A device that does more at a time in one direction is not busy with one
		// request of the other: the greater number calls it slow less readily.
		p.Parallel = max(p.Parallel, parallel)
	}
	return result, nil
}

func choose(points []Point, which func(Point) bool) (out []Point) {
	for _, p := range points {
		if which(p) {
			out = append(out, p)
		}
	}
	return out
}

// reference is the latency just before saturation, and how many requests the
// device works on at a time. Where it saturates is taken at the quantum, or the
// size measured that is next below it; the latencies of the other sizes are those
// at the same concurrency, so that a mixture of sizes means the same depth.
func reference(points []Point, write bool, quantum int64) (l profile.Latency, parallel float64, err error) {
	curves := map[int64][]Point{}
	at := sizes[0]
	for _, size := range sizes {
		curves[size] = choose(points, func(p Point) bool { return p.Write == write && !p.Sequential && p.Bytes == size })
		if len(curves[size]) == 0 {
			return l, 0, errors.New("a size was not measured")
		}
		if size <= quantum {
			at = size
		}
	}
	for _, p := range curves[at] {
		if p.Saturated {
			l.Concurrency = max(referenceMin, p.Concurrency)
			parallel = max(1, p.BytesPerSecond/curves[at][0].BytesPerSecond)
		}
	}
	var latencies []time.Duration
	for _, size := range sizes {
		latencies = append(latencies, latencyAt(curves[size], l.Concurrency))
	}
	fitted, err := fitLatency(sizes, latencies)
	l.Line = fitted.profile()
	return l, parallel, err
}

// latencyAt is the latency of a curve at a concurrency: as measured, or where
// that was not, by Little's law from the throughput, which is the saturated one
// beyond the last point.
func latencyAt(curve []Point, concurrency int) time.Duration {
	last := curve[0]
	for _, p := range curve {
		if p.Concurrency == concurrency {
			return p.Latency
		}
		if p.Concurrency < concurrency {
			last = p
		}
	}
	return time.Duration(float64(concurrency) * last.took())
}
