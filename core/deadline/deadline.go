// Package deadline finds the guaranteed rate with which an application ends by a time.
//
// IBIS (section 9) asks for weights that follow from what users want. A user wants an application to end by a time, and cannot know which
// rate this takes. The model of package forecast estimates the rate, but only after a part of the application's work, and with an error
// that changes. What is hard: a rate must be granted only if the estimate is certain, and a granted rate must not be withdrawn at each
// small change of the estimate. So a deadline is granted by strict rules and withdrawn by loose ones, the rate is for an end before the
// deadline, and the rate changes rarely.
//
// Certainty and margin are judged at the share that the application has had so far. At another share the interval is wider, as long as
// the share has never changed. This is no reason to refuse a deadline, and no reason to withdraw a rate that has just changed the share:
// the change of the share shows the right rate, long before the deadline.
package deadline

import (
	"errors"
	"fmt"
	"time"

	"penstock/core/forecast"
	"penstock/core/limit"
	"penstock/core/reserve"
)

const (
	// NarrowPart is the largest part by which an application may end later than expected at its usual share (the upper end of
	// the interval), relative to the time that remains for it or until the deadline, whichever is longer. A deadline that is granted
	// stays until the part is above widePart.
	NarrowPart = 0.25
	widePart   = 0.5
	// margin is the part of the time until the deadline by which the application should end earlier. If it may be later than expected
	// by a larger part, that part counts, up to NarrowPart.
	margin = 0.1
	// headroom is the part by which a new rate is above the needed one, so that noise changes nothing.
	headroom = 0.1
	// The rate is lowered when less than lowerPart of it is needed, and raised when more than all of it is.
	lowerPart = 0.75
	// fitsPart is the part of the room that a rate asks for which does not fit as a whole, so that a small change of the room does
	// not matter.
	fitsPart = 0.95
	// A granted rate may need up to keepPart of the most that the application may have; then it has that.
	keepPart = 1.25
	// Interval is the least time between two changes of a rate.
	Interval = 10 * time.Second
	// A rate stays while there is no estimate, for example in a new phase: for holdPart of the time until the deadline, and at
	// least for leastHold.
	holdPart  = 0.1
	leastHold = time.Minute
)

// State is what is decided about a deadline.
type State uint8

// The states of a deadline.
const (
	Refused State = iota // the application has its weight only
	Granted              // it has the rate
	Held                 // it has the last rate, although nothing is known at present
	Missed               // the deadline has passed
)

// String returns the state's name in statuses and metrics.
func (s State) String() string { return [...]string{"refused", "granted", "held", "missed"}[s] }

// The reasons of a Verdict, beside the errors of forecast.Model.Need.
var (
	ErrProgress   = errors.New("its progress is not known")
	ErrWide       = errors.New("the forecast is not certain enough")
	ErrImpossible = errors.New("the application would end too late even with the whole service of its devices")
	ErrUncertain  = errors.New("even with the whole service of its devices, the application is not certain to end by the deadline")
	ErrLimit      = errors.New("the needed rate is above its limit")
	ErrPassed     = errors.New("the deadline has passed")
)

// Verdict is the decision about one deadline.
type Verdict struct {
	State State
	// Rate is the guaranteed rate, in bytes per second over all devices; 0 unless Granted or Held, and if no rate is needed.
	Rate int64
	// Needed is the rate that is needed at present, in bytes per second; 0: not known, or none.
	Needed int64
	// Least is the rate with which the application is expected to end just at the deadline, without any margin, in bytes per second;
	// 0: not known, or none.
	Least  int64
	Reason error // nil if Granted
}

// Ask returns the rate that the admission of guaranteed rates is asked for. asked is the rate that the admission was last asked
// for, in bytes per second, and by is the admission's verdict. A new rate that does not fit as a whole is queued. But the first rate of a
// deadline has a large margin, and the model learns that less is enough only while the application has a rate. So if the least rate
// fits, Ask returns what fits.
func (v Verdict) Ask(asked int64, by reserve.Verdict) int64 {
	if by.State != reserve.Queued || v.Least == 0 {
		return v.Rate
	}
	if fits := int64(fitsPart * by.Fits * float64(asked)); fits >= v.Least {
		return min(fits, v.Rate)
	}
	return v.Rate
}

// Admitted returns what is decided about a deadline, for operators: the name of its State or, if its rate is queued or reduced, that of
// the admission's verdict about the rate; and why the rate is not granted as a whole, empty if it is.
func (v Verdict) Admitted(by reserve.Verdict) (state, reason string) {
	if v.Rate > 0 && (by.State == reserve.Queued || by.State == reserve.Reduced) {
		return by.State.String(), fmt.Sprintf("the nodes where it is at work can guarantee %.0f %% of the needed rate", 100*by.Fits)
	}
	if v.Reason != nil {
		reason = v.Reason.Error()
	}
	return v.State.String(), reason
}

// Goal is the state of one application's deadline. Its zero value is ready for use. A new leader of the cluster begins with the zero
// value, and grants nothing until it has a forecast of its own.
type Goal struct {
	granted bool
	rate    int64
	changed time.Duration // when the rate was last changed
	known   time.Duration // when the model last supported the rate
}

// Update decides. now and by are on the clock of the model's observations. A nil model means that no progress is known. most is the
// largest rate that the application may have, in bytes per second; 0: any.
func (g *Goal) Update(now, by time.Duration, m *forecast.Model, most int64) Verdict {
	if by <= now {
		*g = Goal{}
		return Verdict{State: Missed, Reason: ErrPassed}
	}
	if most == 0 {
		most = limit.MaxRate
	}
	needed, least, reason := g.judge(now, by, m, most)
	unknown := errors.Is(reason, ErrProgress) || errors.Is(reason, forecast.ErrNoProgress) || errors.Is(reason, forecast.ErrUnknown) || errors.Is(reason, forecast.ErrNoBytes)
	switch {
	case reason == nil:
		g.revise(now, needed, most)
		return Verdict{State: Granted, Rate: g.rate, Needed: needed, Least: min(least, g.rate)}
	case unknown && g.granted && now-g.known <= max(leastHold, time.Duration(holdPart*float64(by-g.known))):
		return Verdict{State: Held, Rate: min(g.rate, most), Reason: reason}
	}
	*g = Goal{}
	return Verdict{State: Refused, Needed: needed, Reason: reason}
}

// judge returns the needed rate with the margin and without, or why there is none.
func (g *Goal) judge(now, by time.Duration, m *forecast.Model, most int64) (needed, least int64, reason error) {
	if m == nil {
		return 0, 0, ErrProgress
	}
	late, part := lateness(now, by, m)
	need, err := m.Need(by - time.Duration(min(max(margin, part), NarrowPart)*float64(by-now)))
	needed = int64(min(need.Rate, 1<<60))
	if just, err := m.Need(by); err == nil {
		least = int64(min(just.Rate, 1<<60))
	}
	narrow := NarrowPart
	if g.granted {
		narrow = widePart
	}
	switch {
	case errors.Is(err, forecast.ErrTooEarly) && need.End.Expected > by && !(g.granted && need.End.Low <= by):
		return needed, least, ErrImpossible
	case err != nil && !errors.Is(err, forecast.ErrTooEarly):
		return 0, 0, err
	case part > narrow:
		return needed, least, fmt.Errorf("%w: it may end %v later than expected, which is %.0f %% of the time that remains (at most %.0f %%)", ErrWide, late.Round(time.Second), 100*part, 100*narrow)
	case err != nil && !g.granted:
		return needed, least, ErrUncertain
	case needed > most && !(g.granted && float64(needed) <= keepPart*float64(most)):
		return needed, least, ErrLimit
	}
	return needed, least, nil
}

// lateness returns by how much the application may end later than expected at its usual share, and this in relation to the time
// that remains for it or until the deadline.
func lateness(now, by time.Duration, m *forecast.Model) (late time.Duration, part float64) {
	end, err := m.Forecast(m.UsualShare())
	if err != nil {
		return 0, 0
	}
	late = end.High - end.Expected
	return late, late.Seconds() / max(end.Expected-now, by-now).Seconds()
}

// revise changes the granted rate if the needed one differs enough.
func (g *Goal) revise(now time.Duration, needed, most int64) {
	g.known = now
	target := min(int64((1+headroom)*float64(needed)), most)
	switch {
	case !g.granted:
	case g.rate > most: // the limit has become lower
	case now-g.changed < Interval || target == g.rate:
		return
	case needed <= g.rate && float64(needed) >= lowerPart*float64(g.rate):
		return
	}
	g.granted, g.rate, g.changed = true, target, now
}
