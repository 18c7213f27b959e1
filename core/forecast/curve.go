package forecast

import (
	"cmp"
	"math"
	"time"
)

// Progress is seldom in proportion to the work done: YARN counts a MapReduce job's maps and reduces as 45 % each, however long they
// take, and Spark counts tasks of all stages alike. A curve corrects this. It is learned from earlier runs of the same Kind, and has two
// values for each progress: the time without the disk that is still to come, and the disk work that is still to come. With both, runs
// under different shares have the same curve: at the share s, the rest takes c + b/s.

const (
	// points is the number of intervals of progress in a curve.
	points = 64
	// leastSeen is the part of the progress that a run must have been observed over to be learned from.
	leastSeen = 0.5
	// leastCommon is the least part of a curve that a further run must cover.
	leastCommon = 0.2
	// memoryRuns is the number of runs over which a curve averages; a further run then counts 1/memoryRuns.
	memoryRuns = 8
	// usualSpread is the standard error of a curve in its middle, as a part of the whole time, before runs have shown it.
	// It counts as usualCount runs.
	usualSpread = 0.025
	usualCount  = 2.0
	// readError is the error of a curve by the time between two readings of the progress, as a part of the whole time.
	readError = 0.02
	// The progress stood still if a rise took stoodFactor times as long as at the pace of the rises before. Runs stand still at the same
	// progress if it differs by at most sameStop.
	stoodFactor = 2.5
	sameStop    = 0.002
	// sameWork is the relative difference up to which runs have the same Observation.Work.
	sameWork = 0.1
	// unmeasuredPart is the disk's part of the time of a run whose service is not measured.
	unmeasuredPart = 0.5
)

// Trace records one run for a History. Its zero value is ready for use. It takes constant memory.
type Trace struct {
	started bool
	last    Observation
	first   float64 // progress when the observations began

	// At the last rise of the progress.
	progress float64
	at       time.Duration
	service  float64
	cNow     float64 // time without the disk so far, in seconds
	bNow     float64 // disk work so far, in seconds of the whole resource

	covered, shareTime float64 // since the last rise: seconds that were observed, and the integral of the share over them
	diskTime           float64 // seconds at the disk
	x                  float64 // 1/share in the last interval
	unmeasured         bool    // the service of a part of the run is not known
	grew               bool    // the work has grown
	c, b               [points + 1]float64
	smear              [points + 1]float64 // variance of c + b·x between two rises, where neither is known: that of a Brownian bridge
	reach              [points + 1]float64 // largest progress that came next after a progress in this interval
	stop               [points + 1]float64 // the progress in this interval at which it stood still; 0: nowhere
	pace               float64             // seconds for a unit of progress at the last rises
}

// Observe adds an observation, under the conditions of Model.Observe.
func (t *Trace) Observe(o Observation) {
	if !o.valid() {
		return
	}
	o.Share = min(max(o.Share, MinShare), 1)
	if !t.started {
		t.started, t.last, t.first, t.progress, t.at, t.service, t.x = true, o, o.Progress, o.Progress, o.Time, o.Service, 1/o.Share
		return
	}
	if o.Time < t.last.Time+leastTime {
		return
	}
	if o.Work > 0 && t.last.Work > 0 && o.Work != t.last.Work {
		t.rescale(workRatio(t.last.Work, o.Work))
		t.grew = t.grew || o.Work > (1+sameWork)*t.last.Work
	}
	passed := (o.Time - t.last.Time).Seconds()
	t.covered, t.shareTime = t.covered+passed, t.shareTime+o.Share*passed
	if o.Progress > t.progress { // a fall is a loss of tasks: the time until they are made again belongs to what comes next
		t.advance(o.Progress, o.Time, o.Service, false)
	}
	t.last = o
}

// advance records that the progress has risen. ended is set if the run has ended and its last progress was not read. The progress is then assumed
// to have risen at the pace before until the end.
func (t *Trace) advance(progress float64, at time.Duration, service float64, ended bool) {
	passed := (at - t.at).Seconds()
	if t.shareTime > 0 {
		t.x = t.covered / t.shareTime
	}
	b := unmeasuredPart * passed / t.x
	if t.service >= 0 && service >= t.service {
		b = min(service-t.service, passed/t.x)
	} else {
		t.unmeasured = true
	}
	c := max(0, passed-b*t.x)
	step, from := progress-t.progress, int(t.progress*points)
	stood := 0.0 // the part of the time in which the progress stood still, and did not only rise in steps
	if usual := t.pace * step; usual > 0 && passed > stoodFactor*usual {
		stood = 1 - usual/passed
		t.stop[from] = max(t.progress, leastStep)
	} else if !ended {
		t.pace = cmp.Or((t.pace+passed/step)/2, passed/step)
	}
	for k := from + 1; k <= int(progress*points); k++ {
		part := min(max((float64(k)/points-t.progress)/step, 0), 1)
		done := stood + (1-stood)*part
		if ended && passed > 0 {
			done = min(max(done, t.pace*part*step/passed), 1)
		}
		t.c[k], t.b[k], t.smear[k] = t.cNow+done*c, t.bNow+done*b, passed*passed*(1-stood)*(1-stood)*part*(1-part)
	}
	t.reach[from] = max(t.reach[from], progress)
	t.cNow, t.bNow, t.diskTime = t.cNow+c, t.bNow+b, t.diskTime+b*t.x
	t.progress, t.at, t.service, t.covered, t.shareTime = progress, at, service, 0, 0
}

// rescale changes the unit of progress: what was 1 is now ratio.
func (t *Trace) rescale(ratio float64) {
	old := *t
	t.c, t.b, t.smear, t.reach, t.stop = [points + 1]float64{}, [points + 1]float64{}, [points + 1]float64{}, [points + 1]float64{}, [points + 1]float64{}
	t.pace /= ratio
	t.first, t.progress = min(t.first*ratio, 1), min(t.progress*ratio, 1)
	for k := range t.c {
		if at := float64(k) / points / ratio; at <= old.progress {
			t.c[k], t.b[k], t.smear[k] = interpolate(&old.c, at), interpolate(&old.b, at), interpolate(&old.smear, at)
		}
		to := int(min(float64(k)*ratio, points))
		t.reach[to] = max(t.reach[to], min(old.reach[k]*ratio, 1))
		if stop := min(old.stop[k]*ratio, 1); stop > 0 {
			t.stop[int(stop*points)] = stop
		}
	}
}

// workRatio returns the ratio of two values of Observation.Work, within bounds.
func workRatio(from, to float64) float64 { return min(max(from/to, 1e-3), 1e3) }

// interpolate returns the value at a progress.
func interpolate(values *[points + 1]float64, progress float64) float64 {
	at := min(max(progress, 0), 1) * points
	k := min(int(at), points-1)
	part := at - float64(k)
	return (1-part)*values[k] + part*values[k+1]
}

// end records the end of the run, not before the last rise, and reports whether it can be learned from.
func (t *Trace) end(at time.Duration) bool {
	if !t.started || t.first > 1-leastSeen {
		return false
	}
	if t.progress < 1 {
		t.advance(1, max(at, t.at+leastTime), t.last.Service, true)
	}
	return t.cNow+t.diskTime > 0
}

// Curve is what was learned from earlier runs of a kind. It is not changed after it was made. Its unit is the time of a whole run
// at the share 1/x.
type Curve struct {
	runs  int
	x     float64
	first int // the first point of which anything is known
	// What remains when the progress is k/points: time without the disk, and disk work.
	c, b   [points + 1]float64
	spread [points + 1]float64 // variance of c + b·x
	weight [points + 1]float64 // sum of the runs' weights; 1/weight is the variance of the mean by Trace.smear
	reach  [points + 1]float64
	stop   [points + 1]float64
	// unmeasured: the service of a run is not known, so the parts of disk and other work are guesses.
	unmeasured bool
	// work is the largest Observation.Work at the end of a run, if it was the same in all runs; steady is false if it was not. grows:
	// it was smaller in the middle of a run.
	work          float64
	steady, grows bool
}

// Runs returns the number of runs that the curve was learned from. nil has none.
func (c *Curve) Runs() int {
	if c == nil {
		return 0
	}
	return c.runs
}

// with returns the curve with one more run; c may be nil. It returns nil if too little of the run was observed.
func (c *Curve) with(t *Trace, at time.Duration) *Curve {
	run := *t
	if !run.end(at) {
		return nil
	}
	first := min(int(math.Ceil(run.first*points)), points)
	for k := range run.c { // from what is done to what remains
		if k < first {
			run.c[k], run.b[k] = 0, 0
		}
		run.c[k], run.b[k] = max(0, run.cNow-run.c[k]), max(0, run.bNow-run.b[k])
	}
	run.c[points], run.b[points] = 0, 0
	next := &Curve{first: first, steady: true}
	if c == nil {
		if next.x = run.x; run.bNow > 0 && run.diskTime > 0 {
			next.x = run.diskTime / run.bNow
		}
	} else {
		copied := *c
		next = &copied
	}
	from := max(first, next.first)
	scale := 1.0
	if c != nil {
		scale = next.rest(from)
	}
	whole := run.c[from] + run.b[from]*next.x
	if !(whole > 0) || scale < leastCommon {
		return nil
	}
	scale /= whole
	for k := first; k <= points; k++ {
		weight := 1 / (scale*scale*run.smear[k] + readError*readError)
		if next.runs >= memoryRuns {
			next.weight[k] *= 1 - 1.0/memoryRuns
		}
		next.weight[k] += weight
		weight /= next.weight[k]
		dc, db := scale*run.c[k]-next.c[k], scale*run.b[k]-next.b[k]
		d := dc + db*next.x
		if weight == 1 { // the first run
			d = 0
		}
		next.spread[k] = (1 - weight) * (next.spread[k] + weight*d*d)
		next.c[k], next.b[k] = next.c[k]+weight*dc, next.b[k]+weight*db
	}
	next.first = min(next.first, first)
	for k := range run.reach {
		next.reach[k] = max(next.reach[k], run.reach[k])
		next.stop[k] = cmp.Or(run.stop[k], next.stop[k])
	}
	next.note(run.last.Work, run.grew)
	next.unmeasured = next.unmeasured || run.unmeasured
	next.normalise()
	next.runs++
	return next
}

// note notes the work of a run.
func (c *Curve) note(work float64, grew bool) {
	if c.runs > 0 && math.Abs(work-c.work) > sameWork*c.work {
		c.steady = false
	}
	c.work, c.grows = max(c.work, work), c.grows || grew
}

// rest returns c + b·x at a point.
func (c *Curve) rest(k int) float64 { return c.c[k] + c.b[k]*c.x }

// normalise makes the whole 1 and the remaining parts fall with progress.
func (c *Curve) normalise() {
	for k := points - 1; k >= 0; k-- {
		if k < c.first {
			c.c[k], c.b[k], c.spread[k] = c.c[k+1], c.b[k+1], 0
			continue
		}
		c.c[k], c.b[k] = max(c.c[k], c.c[k+1]), max(c.b[k], c.b[k+1])
	}
	whole := c.rest(0)
	for k := range c.c {
		c.c[k], c.b[k] = c.c[k]/whole, c.b[k]/whole
		// Contradictory runs can make the whole very large or small.
		c.spread[k], c.weight[k] = min(maxSpread, c.spread[k]/(whole*whole)), min(maxWeight, c.weight[k]*whole*whole)
	}
}

// at returns what remains at a progress: time without the disk, and disk work.
func (c *Curve) at(progress float64) (time, work float64) {
	progress = c.beside(progress)
	return interpolate(&c.c, progress), interpolate(&c.b, progress)
}

// beside returns the progress, or an end of its interval if the progress stood still within this interval: the start, if this was not before
// the given progress, and the end, if it was.
func (c *Curve) beside(progress float64) float64 {
	k := min(int(progress*points), points-1)
	switch stop := c.stop[k]; {
	case stop == 0:
		return progress
	case progress <= stop+sameStop:
		return float64(k) / points
	}
	return float64(k+1) / points
}

// variance returns the variance of what remains at a progress, as a part of the whole, in a further run.
func (c *Curve) variance(progress float64) float64 {
	progress = c.beside(progress)
	rest := interpolate(&c.c, progress) + interpolate(&c.b, progress)*c.x
	n := float64(min(c.runs, memoryRuns))
	usual := usualSpread * usualSpread * 4 * rest * (1 - rest)
	return max(0, (usualCount*usual+n*interpolate(&c.spread, progress))/(usualCount+n)*(1+1/n))
}

// smear returns the variance of what remains at a progress, because earlier runs' progress was not known at each moment.
func (c *Curve) smear(progress float64) float64 {
	progress = c.beside(progress)
	k := min(int(progress*points), points-1)
	if k < c.first {
		return readError * readError
	}
	return max(1/c.weight[k], 1/c.weight[k+1])
}

// next returns the largest progress that came next after a progress.
func (c *Curve) next(progress float64) float64 {
	return max(progress, c.reach[min(int(progress*points), points)])
}

// fits reports whether the curve applies to an application whose work is as observed. If the work grows by an unknown amount,
// progress is no measure of it.
func (c *Curve) fits(work float64) bool { return work == 0 || !c.grows || c.steady }

// foreseen returns the observation with its progress as a part of the work that is expected at the end.
func (c *Curve) foreseen(o Observation) Observation {
	if o.Work > 0 && c.grows && c.steady && c.work > o.Work {
		o.Progress, o.Work = o.Progress*o.Work/c.work, c.work
	}
	return o
}
