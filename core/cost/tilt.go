package cost

import "math"

// The tilt corrects the ratio of the costs of reads and writes. Suppose that intervals with more
// reads take longer than predicted, compared with intervals with more writes. Then reads cost more
// than the model says, and the scales of reads and of writes (Tracker) move apart. Under a constant
// mixture, the two scales move together, and the profile's ratio stays.
//
// Requests in flight at the end of an interval count in a later interval, although part of their
// work was done before. That alone correlates error and mixture. While the device's elevator passes
// over writes in favour of reads, it does part of their work, but no write completes. When the
// writes complete later, they seem to have cost too little. For this reason, ratios learnt from
// intervals of half a second drifted by a third in half a minute on a hard disk. So ratios are
// learnt from stretches. A stretch is a run of consecutive slices with several times as much work
// as is in flight at both ends. A change of mixture counts only as far as the work in flight at the
// ends cannot explain it.
//
// A device may also change its speed for good, for example when a cache is full or a limit is set.
// A change of mixture at that time would seem to be the cause. So the running means cover only a
// few stretches, and restart if the error deviates by more than the costs of reads and writes can
// explain.

const (
	stretchEnds = 4.0 // least work of a stretch, as a multiple of the work in flight at its ends
	tiltGain    = 0.3 // the tilt changes by this part of the product of the deviations of error and mixture
	meanGain    = 0.3
	slopeMax    = 0.8  // largest slope of the error over the mixture; at 0.8, reads cost over twice as much as writes
	noise       = 0.05 // error that counts as noise
	tiltMax     = 1.4
)

// tiltEstimator estimates the ratio of the costs of reads and writes from stretches.
type tiltEstimator struct {
	mix float64 // running mean of the reads' part of the work; negative before the first stretch
	off float64 // running mean of the error of stretches

	open           bool
	ends           float64 // predicted cost in flight when the stretch began, in ns, unscaled
	busy, expected float64 // of the open stretch, in ns
	work           [2]float64
}

func newTiltEstimator() tiltEstimator { return tiltEstimator{mix: -1} }

// restart drops the open stretch. It is called after a slice that cannot be used.
func (a *tiltEstimator) restart() { *a = tiltEstimator{mix: a.mix, off: a.off} }

// tilt adds a slice and returns the new tilt. pending is the predicted cost in flight at the
// slice's end.
func (a *tiltEstimator) tilt(tilt, busy, expected float64, work [2]float64, pending float64) float64 {
	if !a.open {
		a.restart()
		a.open, a.ends = true, pending // the stretch begins after this slice
		return tilt
	}
	a.busy += busy
	a.expected += expected
	a.work[0] += work[0]
	a.work[1] += work[1]
	all, ends := a.work[0]+a.work[1], a.ends+pending
	if all < stretchEnds*ends {
		return tilt
	}
	reads, late := a.work[0]/all, relativeError(a.busy, a.expected)
	a.restart()
	a.open, a.ends = true, pending
	more, later := beyond(reads-a.mix, ends/all), late-a.off
	if a.mix < 0 || math.Abs(later) > slopeMax*math.Abs(more)+noise {
		a.mix, a.off = reads, late
		return tilt
	}
	a.mix += float64(meanGain * (reads - a.mix))
	a.off += float64(meanGain * later)
	return min(max(tilt*(1+float64(tiltGain*float64(later*more))), 1/tiltMax), tiltMax)
}

// beyond returns the part of the difference d that exceeds slack in either direction.
func beyond(d, slack float64) float64 {
	switch {
	case d > slack:
		return d - slack
	case d < -slack:
		return d + slack
	}
	return 0
}
