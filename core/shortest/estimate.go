package shortest

import "math"

const (
	// progressError is the error of a reported progress, as a part of the whole job. A MapReduce job's
	// progress counts its phases, whose I/O differs.
	progressError = 0.05
	// minProgress is the progress since the first observation from which an estimate is made of it.
	minProgress = 0.02
	// sizeError is the error of a stated size, as a part of the size.
	sizeError = 0.1
	// unknownError is the relative error of an estimate from service or history alone.
	unknownError = 1
)

// Estimate is the work that remains.
type Estimate struct {
	Bytes float64
	// Error is the standard error of Bytes, relative to Bytes; at most 10.
	Error float64
}

// Observation is what is known of an application since it was first seen. Bytes count reads and writes on all
// devices of all nodes.
type Observation struct {
	Served float64 // bytes
	// Progress is the part, 0 to 1, of the whole job that is done, and First is its value at the first
	// observation. Below 0: not known. A broker that has just started has not seen a job's earlier service, so
	// only the progress since First says what the service since then means.
	Progress, First float64
	// Size is the stated size of the whole job in bytes; 0: not known.
	Size float64
	// History is the mean size of applications of the same queue that have ended; 0: not known.
	History float64
}

// Remaining returns an estimate of the remaining work. It combines the service so far with the progress,
// served x (1-p)/p, and with the stated size, each weighted by its precision. A size that is used up says
// nothing more. Without both, the history's mean counts, and beyond it the application is expected to need as
// much again as it has had, which orders by least attained service.
func (o Observation) Remaining() Estimate {
	value, precision := 0.0, 0.0
	add := func(bytes, deviation float64) {
		p := 1 / max(deviation*deviation, 1)
		value, precision = value+bytes*p, precision+p
	}
	known := o.Progress >= 0 && o.First >= 0
	if since := o.Progress - o.First; known && since >= minProgress && o.Served > 0 {
		whole := o.Served / since
		rest := whole * max(0, 1-o.Progress)
		add(rest, math.Hypot(rest*math.Sqrt2*progressError/since, whole*progressError))
	}
	if o.Size > 0 {
		left := o.Size - o.Served
		if known {
			left -= o.Size * o.First
		}
		if left > 0 {
			add(left, o.Size*sizeError)
		}
	}
	if precision > 0 {
		return relative(value/precision, 1/math.Sqrt(precision))
	}
	if o.History > o.Served {
		return Estimate{Bytes: o.History - o.Served, Error: unknownError}
	}
	return Estimate{Bytes: o.Served, Error: unknownError}
}

// relative returns an estimate with an error relative to it.
func relative(bytes, deviation float64) Estimate {
	return Estimate{Bytes: bytes, Error: min(10, deviation/max(bytes, 1))}
}
