// Package slowdown moves weights so that applications are slowed down in proportion.
//
// Users of a shared cluster compare a run time with the run time alone. IBIS (section 7.5) tunes weights by hand until two
// applications have the same slowdown. What is hard is that an application runs once: its time alone cannot be measured beside
// others. So it is estimated while the application runs, as STFM (Mutlu and Moscibroda, MICRO 2007) and MISE (Subramanian et
// al., HPCA 2013) do for memory: time alone is the time passed less the interference.
//
// STFM's interference is the time in which a thread waits and others have the memory. An application on a cluster has many
// streams, which read ahead and write behind. So two things are measured on each device: how long its streams wait
// (without a wait it is not slowed), and how long the device serves others although it has a request (the most that
// it can gain). Interference is the smaller one (Hindered).
//
// A controller then moves the logarithms of the weights by a part of the logarithmic errors. It has these parts:
//
//   - The error is that of the present slowdown, which makes the controller stable, plus that of the slowdown since the
//     start, which is what users see. So an application that was slowed down too much is then slowed down less for some
//     time. With both, the loop is damped (0.7 of critical or more) at any age of the applications.
//   - It is slow: at a delay of up to 3 periods, the gain times the whole lag stays below 0.37, where an integrator with
//     a delay begins to oscillate.
//   - It has hysteresis: it starts at an error of startError and rests at restError.
//   - Factors are clamped to 1/MaxFactor to MaxFactor of the policy's weight.
//   - An application that neither waits for disks nor uses them much does not count in the mean, and its factor returns
//     to 1. So an application that is bound by the processor takes nothing from others, and does not lose its weight for
//     later. An application that uses disks much and does not wait loses weight: its factor decreases until it waits, too.
//
// The factors multiply the policy's weights (Weights).
package slowdown

import (
	"math"
	"time"
)

const (
	// MaxFactor bounds the factor of a weight from above, and its inverse from below.
	MaxFactor = 8
	// gain is the part of a logarithmic error that one update corrects. It is divided by the effect of weights on
	// slowdowns, or by leastEffect if the effect is smaller (Group.Update).
	gain        = 0.05
	leastEffect = 0.25
	// keep is the weight of the past in the averages, for each update.
	keep = 0.7
	// leastWait is the part of the time below which an application does not wait for disks, and leastUse the part of their
	// service below which it does not use them much.
	leastWait = 0.02
	leastUse  = 0.05
	// memory is the longest time that the slowdown since the start covers, in seconds. Without a bound, the past of an
	// application that never ends would keep its influence.
	memory = 1800
	// startError and restError are the logarithmic errors at which the controller starts and rests.
	startError = 0.012
	restError  = 0.006
)

// Use is what an application did in one period.
type Use struct {
	// Waited is the part of the time in which the application's streams waited for devices, 0 to 1.
	Waited float64
	// Hindered is the part of the time by which the application would have waited less if it had been alone, 0 to Waited.
	Hindered float64
	// Used is the part of its devices' service that the application had, 0 to 1.
	Used float64
}

// Hindered returns the time by which the streams of an application would have waited less on a device in a period of the
// given length, if no other application had used the device. streams and waited are sums over the application's
// streams: of the time for which they were open, and for which they waited. contended is the time for which the application
// had a request and the device served others. Alone, requests end earlier by at most contended, for each
// stream; and a stream that does not wait gains nothing. Negative values count as 0.
func Hindered(streams, waited, contended, length time.Duration) time.Duration {
	if streams <= 0 || waited <= 0 || contended <= 0 || length <= 0 {
		return 0
	}
	return min(waited, time.Duration(float64(streams)*min(contended.Seconds()/length.Seconds(), 1)))
}

// App is the state of one application. Its zero value is ready for use.
type App struct {
	// Goal is the application's weight among slowdowns: the controller moves performance, the inverse of slowdown, into
	// proportion to the goals. 0 counts as 1.
	Goal float64

	time, interference, waited, used float64 // averages; time is their weight
	log                              float64 // of the factor

	meter          meter
	seconds        float64 // of the samples since the last period
	seen           bool    // some streams were open
	passed, gained float64 // seconds since then, and the seconds of interference
	past, pastTime float64 // the mean interference of the last pastTime seconds, at most memory
}

// Observe adds one period. Values out of range are brought into it.
func (a *App) Observe(u Use) {
	waited := within(u.Waited)
	a.time = a.time*keep + 1
	a.waited = a.waited*keep + waited
	a.used = a.used*keep + within(u.Used)
	a.interference = a.interference*keep + min(within(u.Hindered), waited)
}

// within returns v in 0 to 1; NaN is 0.
func within(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	return min(v, 1)
}

// Slowdown returns the estimated time beside others divided by the time alone, at least 1.
func (a *App) Slowdown() float64 {
	if a.time == 0 {
		return 1
	}
	return 1 / max(1-a.interference/a.time, 1e-3)
}

// Factor returns the factor of the application's weight, 1/MaxFactor to MaxFactor.
func (a *App) Factor() float64 { return math.Exp(a.log) }

// counts reports whether the application waits for disks, or uses them much.
func (a *App) counts() bool {
	return a.time > 0 && (a.waited >= leastWait*a.time || a.used >= leastUse*a.time)
}

// unfairness returns the logarithm of the slowdown times the goal; the goal makes it equal for all.
func (a *App) unfairness() float64 { return math.Log(a.Slowdown() * a.goal()) }

// pastUnfairness returns the logarithm of the slowdown since the start times the goal, or 0 before the first period.
func (a *App) pastUnfairness() float64 {
	if a.pastTime == 0 {
		return 0
	}
	return math.Log(a.goal() / max(1-a.past, 1e-3))
}

// error returns the sum of both logarithms, which the controller makes equal for all.
func (a *App) error() float64 { return a.unfairness() + a.pastUnfairness() }

// goal returns the goal, or 1 if there is none.
func (a *App) goal() float64 {
	if a.Goal > 0 {
		return a.Goal
	}
	return 1
}

// Group is a set of applications that the controller slows down in proportion. Its zero value is ready for use.
type Group struct{ moving bool }

// Update moves the factors of the group's applications. It is called once a period, after Observe of each.
//
// A weight changes a slowdown more if it concerns more of the time. If an application waits for a part w of the time
// and has a share s of the device, its logarithmic slowdown changes by w(1-s) times the change of its logarithmic weight.
// This factor is the interference as a part of the time. Update divides the steps by its mean over the applications, so
// the loop is equally fast for applications that need the disks much and for those that need them little.
func (g *Group) Update(apps []*App) {
	sum, effect, n := 0.0, 0.0, 0
	for _, a := range apps {
		if a.counts() {
			sum += a.error()
			effect += a.interference / a.time
			n++
		} else {
			a.log -= gain * a.log
		}
	}
	if n == 0 {
		return
	}
	mean, worst := sum/float64(n), 0.0
	for _, a := range apps {
		if a.counts() {
			worst = max(worst, math.Abs(a.error()-mean))
		}
	}
	if g.moving = worst > startError || g.moving && worst > restError; !g.moving {
		return
	}
	most := math.Log(MaxFactor)
	step := gain / max(effect/float64(n), leastEffect)
	for _, a := range apps {
		if a.counts() {
			a.log = min(max(a.log+step*(a.error()-mean), -most), most)
		}
	}
}

// Known reports whether there is an estimate.
func (a *App) Known() bool { return a.time > 0 }

// Waiting returns the part of the time in which the application waited for devices, 0 to 1.
func (a *App) Waiting() float64 {
	if a.time == 0 {
		return 0
	}
	return min(a.waited/a.time, 1)
}

// WeightScale bounds the weights that Weights returns.
const WeightScale = 1_000_000

// Weights multiplies the policy's weights, 1 to WeightScale, by factors, 1/MaxFactor to MaxFactor. The results are whole
// numbers from 1 to WeightScale, of which only the ratios count. Their scale is a power of two that depends on
// the policy's weights only, so a weight stays if its factor does. It returns base.
func Weights(base []int, factors []float64) []int {
	most := 1
	for _, w := range base {
		most = max(most, w)
	}
	scale := math.Exp2(math.Floor(math.Log2(WeightScale / (MaxFactor * float64(most)))))
	for i, w := range base {
		base[i] = int(min(max(math.Round(float64(w)*factors[i]*scale), 1), WeightScale))
	}
	return base
}
