package cost

import "math"

// The tilt corrects the ratio of the costs of reads and writes. If intervals with more reads take
// longer than predicted, compared with intervals with more writes, reads cost more than the model
// says, and the two scales move apart. Under a constant mixture they move together, and the
// profile's ratio stays.
//
// Requests in flight at the ends of an interval are counted in a later interval than some of their
// work was done in. That alone correlates error and mixture: while an elevator passes over a write
// in favour of reads, the device works on nothing that completes as a write, and when the writes
// complete they seem to have cost too little. Ratios learnt from intervals of half a second run
// away for this reason, by a third in half a minute on a hard disk. So ratios are learnt from
// stretches: consecutive slices that together are several times as long as the work in flight at
// both ends. Only the part of a change of mixture counts that the ends cannot explain.
//
// A device may also change its speed for good, for example when a cache is full or a limit is set.
// Whatever the mixture does at that time would seem to be the cause. So the running means are
// short, and they restart if error and mixture differ from them by more than reads and writes can.

const (
	stretchEnds = 4.0 // least work of a stretch, as a multiple of the work in flight at its ends
	tiltGain    = 0.3 // of the product of the deviations of error and mixture
	meanGain    = 0.3
	slopeMax    = 0.8  // of the error by the mixture: reads cost over twice as much as writes
	noise       = 0.05 // of an error
	tiltMax     = 1.4
)

// tiltEstimator estimates the ratio of the costs of reads and writes from stretches.
type tiltEstimator struct {
	mix float64 // running mean of the part of reads in the work; negative before the first stretch
	off float64 // running mean of the error of stretches

	open           bool
	ends           float64 // predicted cost in flight when the stretch began, in ns, unscaled
	busy, expected float64 // of the open stretch, in ns
	work           [2]float64
}

func newTiltEstimator() tiltEstimator { return tiltEstimator{mix: -1} }

// restart drops the open stretch, after a slice that is not usable.
func (a *tiltEstimator) restart() { *a = tiltEstimator{mix: a.mix, off: a.off} }

// tilt returns the tilt after another slice. pending is the predicted cost in flight at the slice's
// end.
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

// beyond returns the part of a difference that exceeds slack.
func beyond(d, slack float64) float64 {
	switch {
	case d > slack:
		return d - slack
	case d < -slack:
		return d + slack
	}
	return 0
}
