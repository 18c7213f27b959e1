package slowdown

import (
	"math"
	"time"
)

// Sample is what the nodes report about one application, as means over their last periods.
type Sample struct {
	Streams  float64 // open streams, over all nodes
	Waiting  float64 // of these, streams that waited
	Hindered float64 // of these, streams that would not have waited if the application had been alone (function Hindered)
	// Tasks is the number of the application's running tasks; 0: not known. A task without an open stream computes, so with
	// more tasks than streams, the parts are parts of the tasks.
	Tasks float64
	// Used is the device time per second that the application had, and Touched the device time per second that all
	// applications had on the devices where it has streams.
	Used, Touched float64
}

// meter adds up samples until the next period ends.
type meter struct {
	all, waiting, hindered float64 // stream seconds
	used, touched          float64 // seconds of device time
}

// Add adds a sample that describes a time of the given length. Values out of range are brought into it.
func (a *App) Add(s Sample, length time.Duration) {
	seconds := max(length.Seconds(), 0)
	streams := positive(s.Streams)
	waiting := min(positive(s.Waiting), streams)
	a.meter.all += seconds * max(streams, positive(s.Tasks))
	a.meter.waiting += seconds * waiting
	a.meter.hindered += seconds * min(positive(s.Hindered), waiting)
	a.meter.used += seconds * positive(s.Used)
	a.meter.touched += seconds * positive(s.Touched)
	a.seconds += seconds
	a.seen = a.seen || streams > 0
}

// positive returns v if it is a number above 0 and not infinite, otherwise 0.
func positive(v float64) float64 {
	if !(v > 0) || math.IsInf(v, 1) {
		return 0
	}
	return v
}

// Take ends a period: it observes the samples since the last one. Without streams and tasks, the application did not
// wait.
func (a *App) Take() {
	m := a.meter
	a.meter = meter{}
	if !a.seen {
		return
	}
	u := Use{}
	if m.all > 0 {
		u = Use{Waited: m.waiting / m.all, Hindered: m.hindered / m.all}
	}
	if m.touched > 0 {
		u.Used = m.used / m.touched
	}
	a.gained += a.seconds * within(u.Hindered)
	a.passed += a.seconds
	if a.seconds > 0 {
		a.pastTime = min(a.pastTime+a.seconds, memory)
		a.past += (within(u.Hindered) - a.past) * min(a.seconds/a.pastTime, 1)
	}
	a.seconds = 0
	a.Observe(u)
}

// Overall returns the estimated slowdown since the first stream, at least 1.
func (a *App) Overall() float64 {
	if a.passed == 0 {
		return 1
	}
	return 1 / max(1-a.gained/a.passed, 1e-3)
}

// Release returns the factor to 1 at once, for an application that is in no group any more.
func (a *App) Release() { a.log = 0 }

// Spread returns the largest slowdown of those applications that wait for disks, or use them much, divided by the smallest
// one, each times its goal; 1 if there are fewer than two.
func Spread(apps []*App) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, a := range apps {
		if a.counts() {
			low, high = min(low, a.unfairness()), max(high, a.unfairness())
		}
	}
	if high <= low {
		return 1
	}
	return math.Exp(high - low)
}
