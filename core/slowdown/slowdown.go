// Package slowdown moves weights so that applications are slowed down in proportion.
//
// Users of a shared cluster compare a run time with the run time alone. IBIS (section 7.5) tunes weights by hand until two
// applications have the same slowdown. What is hard is that an application runs once: its time alone cannot be measured beside
// others. So it is estimated while the application runs, as STFM (Mutlu and Moscibroda, MICRO 2007) and MISE (Subramanian et
// al., HPCA 2013) do for memory: time alone is the time passed less the interference, and interference is the time in which
// it waited for a device, times the part of the device that others had.
//
// A controller then moves the logarithms of the weights by a part of the logarithmic errors. It has these parts:
//
//   - It is slow: at a delay of up to 3 periods, the gain times the whole lag stays below 0.37, where an integrator with
//     a delay begins to overshoot.
//   - It has hysteresis: it starts at an error of startError and rests at restError.
//   - Factors are clamped to 1/MaxFactor to MaxFactor of the policy's weight.
//   - An application that does not wait for disks is in no mean and its factor returns to 1. So one that is bound by the
//     processor takes nothing from others, and does not lose its weight for later.
package slowdown

import "math"

const (
	// MaxFactor bounds the factor of a weight from above, and its inverse from below.
	MaxFactor = 8
	// gain is the part of a logarithmic error that one update corrects.
	gain = 0.05
	// keep is the weight of the past in the averages, for each update.
	keep = 0.7
	// leastWait is the part of the time below which an application does not wait for disks.
	leastWait = 0.02
	// startError and restError are the logarithmic errors at which the controller starts and rests.
	startError = 0.02
	restError  = 0.01
)

// Use is what an application did in one period.
type Use struct {
	// Waited is the part of the time in which the application waited for devices, 0 to 1.
	Waited float64
	// Share is the part of these devices' service that it had in that time, 0 to 1.
	Share float64
}

// App is the state of one application. Its zero value is ready for use.
type App struct {
	// Goal is the application's weight among slowdowns: performance, the inverse of slowdown, shall be in proportion to it. 0
	// counts as 1.
	Goal float64

	time, interference, waited float64 // averages; time is their weight
	log                        float64 // of the factor
}

// Observe adds one period. Values out of range are brought into it.
func (a *App) Observe(u Use) {
	waited, share := within(u.Waited), within(u.Share)
	a.time = a.time*keep + 1
	a.waited = a.waited*keep + waited
	a.interference = a.interference*keep + waited*(1-share)
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

// waits reports whether the application waits for disks.
func (a *App) waits() bool { return a.time > 0 && a.waited >= leastWait*a.time }

// unfairness returns the logarithm of the slowdown times the goal; the goal makes it equal for all.
func (a *App) unfairness() float64 {
	goal := a.Goal
	if !(goal > 0) {
		goal = 1
	}
	return math.Log(a.Slowdown() * goal)
}

// Group is a set of applications that shall be slowed down in proportion. Its zero value is ready for use.
type Group struct{ moving bool }

// Update moves the factors of the group's applications. It is called once a period, after Observe of each.
func (g *Group) Update(apps []*App) {
	sum, n := 0.0, 0
	for _, a := range apps {
		if a.waits() {
			sum += a.unfairness()
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
		if a.waits() {
			worst = max(worst, math.Abs(a.unfairness()-mean))
		}
	}
	if g.moving = worst > startError || g.moving && worst > restError; !g.moving {
		return
	}
	most := math.Log(MaxFactor)
	for _, a := range apps {
		if a.waits() {
			a.log = min(max(a.log+gain*(a.unfairness()-mean), -most), most)
		}
	}
}
