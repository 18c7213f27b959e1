package cost

import "math"

// The speed of a device can change suddenly, for example when a disk of a RAID fails or a cloud volume
// has used up its burst. Slices correct the scale slowly, because their errors are noisy, and not at
// all beside much foreign I/O. So steps are also looked for in the intervals between two calls of
// Others, for which the foreign work is known.
//
// An interval is judged once the work completed in it exceeds the work in flight at its ends twice.
// A step is a difference of at least a quarter between the scale and the quotient of busy time and
// work, with the same sign in two intervals in a row. The scale then moves by a part of the smaller
// error at each further interval, until the difference is below a twentieth.
//
//   - The cost of foreign work is an upper estimate (package foreign), after a few seconds. So an
//     interval that takes too long in spite of it means a slower device, however much foreign work
//     there is.
//   - A device that is faster for a while, by a cache or a burst, must not make room for promises that
//     it cannot keep. So a step to a faster device only goes back to the scale before a slower one, and
//     needs an interval without foreign work.
//   - A stall falls into one interval, so it is no step. Slow slices belong to the verdict (Tracker).
//   - If the mixture of reads and writes has just changed, the error can come from their ratio, which
//     the tilt corrects.

const (
	stepGain  = 0.5               // part of the error
	stepLeast = 1.25              // factor between the scale and the device's time at which a step begins
	stepRest  = 1.05              // and at which it ends
	stepBusy  = sliceBusy * 3 / 2 // least busy time of an interval
	stepEnds  = 2.0               // least work of an interval, as a multiple of the work in flight at its ends
	stepMix   = 0.25              // change of the reads' part of the work beyond which an interval is not judged
	mixGain   = 0.2
)

// stepFinder looks for steps of a device's speed. Its zero value has seen no interval.
type stepFinder struct {
	busy   float64 // of the open interval, in ns
	work   [2]float64
	others float64
	ends   float64 // predicted cost in flight when the interval began, in ns, unscaled

	mix   float64 // running mean of the reads' part of the work
	known bool    // mix is known
	last  float64 // relative error of the interval before; 0 if that was not judged
	moves bool    // the scale is moving
	base  float64 // the common scale before steps to a slower device; 0: there was none
}

// restart drops the open interval. pending is the predicted cost in flight.
func (s *stepFinder) restart(pending float64) {
	s.busy, s.work, s.others, s.ends = 0, [2]float64{}, 0, pending
}

// forget also drops the interval before.
func (s *stepFinder) forget(pending float64) {
	s.restart(pending)
	s.last, s.moves = 0, false
}

// judge is called at the end of an interval. It returns the factor by which the scale must change,
// 1 almost always. common is the common scale, own and others are the time of the interval's work by
// it, and pending is the predicted cost in flight, unscaled, all in ns.
func (s *stepFinder) judge(common, own, others, pending float64) float64 {
	work := s.work[0] + s.work[1]
	if s.busy < stepBusy || work < stepEnds*(s.ends+pending) {
		return 1 // the interval goes on
	}
	busy, expected, mix := s.busy, own+others, s.work[0]/work
	s.restart(pending)
	changed := s.known && math.Abs(mix-s.mix) > stepMix
	if !s.known {
		s.mix, s.known = mix, true
	}
	s.mix += float64(mixGain * (mix - s.mix))
	late, before, least := relativeError(busy, expected), s.last, stepLeast
	if s.moves {
		least = stepRest
	}
	s.last, s.moves = 0, false
	slower, faster := busy >= least*expected && busy < slowAt*expected, busy*least <= expected && others <= othersMax*own
	if changed || !slower && !faster {
		return 1
	}
	s.last = late
	if late*before <= 0 {
		return 1
	}
	s.moves = true
	if math.Abs(before) < math.Abs(late) {
		late = before
	}
	factor := 1 + float64(stepGain*late)
	switch {
	case factor > 1:
		if s.base == 0 {
			s.base = common
		}
	case s.base == 0 || s.base >= common: // there is no step to go back from
		s.base, s.moves = 0, false
		return 1
	default:
		factor = max(factor, s.base/common)
	}
	s.last = relativeError(busy, float64(expected*factor)) // what remains
	return factor
}
