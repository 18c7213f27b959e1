package measure

import (
	"fmt"
	"time"

	"penstock/node/profile"
)

// conclude makes a profile of the points. The profile lacks only the device's name.
func conclude(points []Point, writes bool) (*Result, error) {
	p := &profile.Profile{Version: profile.Version}
	result := &Result{Profile: p, Points: points, Warnings: []string{}}
	directions := []bool{false}
	if writes {
		directions = append(directions, true)
	} else {
		result.Warnings = append(result.Warnings, "writes were not measured: the profile assumes that they cost as much as reads")
	}
	var random, sequential [2]line
	for i, write := range directions {
		saturated := choose(points, func(p Point) bool { return p.Write == write && p.Saturated })
		var err error
		if random[i], sequential[i], err = fitCosts(saturated); err != nil {
			return nil, err
		}
		p.Residual = max(p.Residual, residual(saturated, random[i], sequential[i]))
		alone, err := latencies(points, write, 1)
		if err != nil {
			return nil, err
		}
		c := profile.Coefficients{Random: random[i].profile(), Sequential: sequential[i].profile(), Alone: alone.profile()}
		if write {
			p.Cost.Write = &c
		} else {
			p.Cost.Read = c
		}
	}
	if p.Residual > residualMax {
		return nil, fmt.Errorf("the measurements differ by %.0f %% from the fitted costs: the disk may have been busy with something else. Measure again, or longer with --time", 100*p.Residual)
	}
	if p.Residual > residualWarn {
		result.Warnings = append(result.Warnings, fmt.Sprintf("the measurements differ by %.0f %% from the fitted costs: measure again, or longer with --time", 100*p.Residual))
	}
	quantum := int64(profile.QuantumMin)
	for ; ; quantum *= 2 {
		result.Kept = 1
		for i, write := range directions {
			result.Kept = min(result.Kept, kept(random[i], sequential[i], quantum)*busy(points, write, quantum))
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
		latency, err := reference(points, write, quantum)
		if err != nil {
			return nil, err
		}
		if write {
			p.Reference.Write = &latency
		} else {
			p.Reference.Read = latency
		}
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

// curve returns the points of random requests of one direction and one size.
func curve(points []Point, write bool, size int64) []Point {
	return choose(points, func(p Point) bool { return p.Write == write && !p.Sequential && p.Bytes == size })
}

// reference returns the latency just before saturation. The concurrency is the one at which
// requests of the quantum's size, or of the largest measured size below it, saturate the device.
// The latencies of all sizes are taken at this concurrency, so that a mixture of sizes has the same
// depth.
func reference(points []Point, write bool, quantum int64) (l profile.Latency, err error) {
	at := Sizes[0]
	for _, size := range Sizes {
		if size <= quantum {
			at = size
		}
	}
	for _, p := range curve(points, write, at) {
		if p.Saturated {
			l.Concurrency = max(referenceMin, p.Concurrency)
		}
	}
	fitted, err := latencies(points, write, l.Concurrency)
	l.Line = fitted.profile()
	return l, err
}

// latencies fits a line to the latencies at a concurrency.
func latencies(points []Point, write bool, concurrency int) (line, error) {
	var all []time.Duration
	for _, size := range Sizes {
		all = append(all, latencyAt(curve(points, write, size), concurrency))
	}
	return fitLatency(Sizes, all)
}

// busy returns the part of its saturated throughput that the device reaches with referenceMin
// requests of that size in flight. It interpolates between the measured sizes. With a quantum that
// needs many requests in flight, the depth would have to grow before the device is busy, and the
// daemon would need more messages.
func busy(points []Point, write bool, bytes int64) float64 {
	part := func(size int64) float64 {
		best, few := 0.0, 0.0
		for _, p := range curve(points, write, size) {
			if p.Saturated {
				best = p.BytesPerSecond
			}
			if p.Concurrency <= referenceMin {
				few = max(few, p.BytesPerSecond)
			}
		}
		return min(1, few/best)
	}
	for i, size := range Sizes {
		switch {
		case size == bytes:
			return part(size)
		case size > bytes:
			below := Sizes[i-1]
			return part(below) + (part(size)-part(below))*float64(bytes-below)/float64(size-below)
		}
	}
	return 1
}

// latencyAt returns the latency of a curve at a concurrency. If that concurrency was not measured,
// the latency is computed from the throughput by Little's law. Beyond the last point, the
// throughput is assumed to be the saturated one.
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
