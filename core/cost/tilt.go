package cost

import "math"

// Where times with more reads come out later than those with more writes, reads
// cost more than the model says, and the two scales drift apart; under an even
// mixture they move together, so that what the profile says of their ratio holds.
//
// What is in flight at the ends of a time is counted in another one than it was
// done in, and that by itself makes error and mixture go together: while the
// device passes over a write for the sake of reads, as elevators do, it works for
// nothing that completes as a write, and when the writes are done at last they
// seem to have cost too little. Ratios learnt from slices of half a second run
// away by that, a third in half a minute on a hard disk. So ratios are learnt
// from stretches, slices in a row that together are several times as long as
// what was in flight at both ends, and of the mixture only what those ends cannot
// explain counts.
//
// A device may also change its speed for good, as when a cache is full or somebody sets
// a limit, and whatever the mixture does at that time would seem to be the reason. So
// the means are short, and where error and mixture differ from them by more than reads
// and writes can, begin anew.

const (
	stretchEnds = 4.0 // a stretch's work, times what was in flight at its ends
	tiltGain    = 0.3 // of the product of how far error and mixture are off their means
	meanGain    = 0.3
	slopeMax    = 0.8  // of error by mixture: reads that take over twice what writes do
	noise       = 0.05 // of an error
	tiltMax     = 1.4
)

// apart tells reads and writes apart, by stretches.
type tiltEstimator struct {
	mix float64 // running mean of the reads' part of the work; negative before the first stretch
	off float64 // running mean of the stretches' error

	open           bool
	ends           float64 // predicted cost of what was in flight when the stretch began, ns, unscaled
	busy, expected float64 // of the open stretch, ns
	work           [2]float64
}

func newTiltEstimator() tiltEstimator { return tiltEstimator{mix: -1} }

// cut drops the open stretch: a slice that tells nothing lies between.
func (a *tiltEstimator) restart() { *a = tiltEstimator{mix: a.mix, off: a.off} }

// tilt gives the tilt after another slice, at whose end so much is pending.
func (a *tiltEstimator) tilt(tilt, busy, expected float64, work [2]float64, pending float64) float64 {
	if !a.open {
		a.restart()
		a.open, a.ends = true, pending // the slice before is not of the stretch
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

// beyond is what is left of a difference that may be so far off.
func beyond(d, slack float64) float64 {
	switch {
	case d > slack:
		return d - slack
	case d < -slack:
		return d + slack
	}
	return 0
}
