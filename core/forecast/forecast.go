// Package forecast foresees the end of an application from its progress.
//
// IBIS (section 9) asks for models that map the share of the storage to an application's run time. One application runs
// once, its noise is large, and its share often never changes. So the model has only two parameters: a unit of progress
// takes the time
//
//	T(share) = c + b/share
//
// where b is disk work, in seconds of the whole resource, and c is the time that does not depend on the disk. Both are fitted by
// recursive least squares with forgetting (Ljung, System Identification, section 11.2), in information form: the sums of the
// normal equations lose weight as progress is made.
//
// While the share stays, only the sum c + b/share can be seen. Two facts with an error of their own stand beside the
// observations: disk work takes between nothing and all of the time, and b is about the measured service per unit of progress.
// So the fit has a solution from the first equation on, and the interval of a forecast for another share is wide as long as neither
// the service nor a change of the share shows the disk work.
//
// Applications have phases (map, reduce). A two-sided CUSUM test (Page 1954) on the standardised errors of prediction
// notices a change and forgets the phase before. A phase that has not begun cannot be foreseen: if the observer knows that such a phase
// may come (Observation.Boundary), or the work has grown (Observation.Work), the interval is wider.
//
// Earlier runs of the same kind of application show its phases (History, Curve). The model then is
//
//	T(share) = c·C + b·B/share
//
// where C and B are the earlier runs' time without the disk, and disk work, between two values of the progress. c and b are fitted
// as above; they show how much larger this run is than the earlier runs. So only the form of the earlier runs is carried over, not
// their length. As the form is known, the whole run counts: there is no test for phases, and little forgetting.
package forecast

import (
	"errors"
	"math"
	"slices"
	"time"
)

const (
	// minStep is the least progress of one equation: a twohundredth of the whole. Smaller steps are added up.
	minStep = 0.005
	// shareStep is the relative change of the share that closes an equation early.
	shareStep = 0.05
	// memory is the progress after which an equation has lost 63 % of its weight.
	memory = 0.25
	// quantile makes an interval that holds 90 % of a normal distribution.
	quantile = 1.645
	// priorNoise is the error of the first equations, relative to the time of a step of minStep, and counts as priorCount
	// equations.
	priorNoise = 0.3
	priorCount = 2.0
	// workError is the relative error of the measured service as a measure of b: disk and processor overlap.
	workError = 0.1
	// cusumSlack and cusumLimit are in standard errors. A clipped error moves the sum by at most cusumClip.
	cusumSlack = 0.75
	cusumLimit = 8.0
	cusumClip  = 4.0
	// knownWork is the largest error of the disk's part of the time with which a model is Identified.
	knownWork = 0.15
	// minSteps is the number of equations before which there is no forecast.
	minSteps = 4
	// modelError is the least relative error of the remaining time.
	modelError = 0.02
	// leastTime is the least time between two observations.
	leastTime = time.Millisecond
	// leastStep is the least progress of an equation that is closed early.
	leastStep = 1e-6
	// otherPace is the largest assumed ratio of the paces of two phases: a phase that has not begun takes between 1/otherPace and
	// otherPace of the time of the present one.
	otherPace = 3.0
	// settled is the progress after a boundary from which the model is that of the new phase.
	settled = 0.04
	// With a curve, the memory is longer, and there are other conditions for an equation and for a forecast, in parts of the whole
	// time.
	curveMemory   = 1.0
	curveStep     = 0.01
	curveSteps    = 2
	curveLeast    = 0.05
	leastVariance = 1e-3 // of an equation, as a part of that of the whole
	// ratioError is the relative error with which this run has the earlier runs' ratio of disk and other work, and
	// unmeasuredError the same if the service was not measured in these.
	ratioError      = 0.15
	unmeasuredError = 0.5
	flatError       = 10.0
	// With a curve, the time at which a progress is observed is late by an error, which is that of the curve there (Curve.smear) and of
	// readings every few seconds: readTime. A Kalman filter separates it from a run that is really late, by up to walk of
	// the whole time.
	readTime = 1.5 // seconds
	walk     = 0.1
	// The present share is the median over recent, so that a flow that comes and goes does not change a forecast.
	recent      = 10 * time.Second
	recentCount = 12
	recentStep  = time.Second // least time between two shares in the median
	// MinShare is the smallest share; a smaller one counts as MinShare.
	MinShare = 1e-4
)

// The errors of Forecast and Share.
var (
	ErrNoProgress = errors.New("too little progress to judge by")
	ErrTooEarly   = errors.New("not even the whole device ends the application by then")
	ErrUnknown    = errors.New("it is not known how much of the time depends on the disk: the share has not changed, and the service was not measured")
	ErrNoBytes    = errors.New("it moves no bytes that nodes report")
	ErrShare      = errors.New("a share is above 0 and at most 1")
)

// Observation is the state of an application at one time.
type Observation struct {
	Time     time.Duration // since any fixed moment
	Progress float64       // of the whole application, 0 to 1
	// Share is the part of the resource, above 0 to 1, that the application had since the last observation while it used the
	// resource.
	Share float64
	// Service is the service that the application has had since its start, in seconds of the whole resource. Negative: not measured.
	Service float64
	// Bytes is what the application has moved since its start. 0: not measured.
	Bytes float64
	// Boundary is the progress at which a phase with another pace may begin. 0: none is known.
	Boundary float64
	// Work is the whole work of which Progress is the part that is done, in any unit. If it changes, for example because a Spark
	// driver has submitted another job, what was observed is scaled. 0: it does not change.
	Work float64
}

// End is the forecast of an end.
type End struct {
	Expected time.Duration // on the clock of the observations
	// Low and High are the ends of an interval that holds the true end with a probability of 90 %, while the
	// application goes on as in its present phase.
	Low, High time.Duration
}

// Model is the model of one application. Its zero value is ready for use. It takes constant memory.
type Model struct {
	curve     *Curve // nil: progress is in proportion to the work
	started   bool
	from      Observation // where the open equation begins
	last      Observation
	arrived   time.Duration // when the last progress was first observed
	reported  float64       // the last progress, as it was observed
	shareTime float64       // integral of the share over the open equation, in seconds
	shares    [recentCount]float64
	sharesAt  [recentCount]time.Duration
	sharesEnd int // number of shares so far

	// Sums of the normal equations. An equation says that the time y is c·u + b·v, with a variance in proportion to g. Without a curve,
	// u and g are the progress, and v is the progress times x = 1/share.
	n, nx, nxx, ny, nxy float64 // of u², u·v, v², u·y and v·y, each divided by g
	weight, wx, wy      float64 // of g, g·x and y
	steps               int     // since the start or the last change of phase
	work, workProgress  float64 // measured service, and the progress that it made; with a curve, the disk work of the curve
	moved, bytesStep    float64 // measured bytes, and the same
	grown               float64 // part of the present work that was not known at first
	noise, noiseCount   float64 // sum of squared errors, and its weight
	late, lateVariance  float64 // with a curve: by how many seconds the last equation seems to end too late, and the variance of the filter
	up, down            float64 // sums of the CUSUM test
	phases              int
}

// Use lets the model use what was learned from earlier runs. It must be called before Observe. A nil curve changes nothing.
func (m *Model) Use(c *Curve) { m.curve = c }

// Runs returns the number of earlier runs that the forecasts use.
func (m *Model) Runs() int { return m.curve.Runs() }

// Done returns the part of the work that is done, 0 to 1: with a curve, the part of the time of the earlier runs at the present share;
// otherwise the progress.
func (m *Model) Done() float64 {
	if m.curve == nil {
		return m.last.Progress
	}
	c, b := m.curve.at(m.last.Progress)
	x := 1 / max(m.LastShare(), MinShare)
	return min(max(1-(c+b*x)/(m.curve.c[0]+m.curve.b[0]*x), 0), 1)
}

// Observe adds an observation. It ignores one that is less than 1 ms later than the last, or has values out of range. Progress can
// fall when tasks are lost; the lost part then counts as new work.
func (m *Model) Observe(o Observation) {
	if !o.valid() {
		return
	}
	o.Share = min(max(o.Share, MinShare), 1)
	reported := o.Progress
	if m.curve != nil {
		if !m.started && !m.curve.fits(o.Work) {
			m.curve = nil
		} else {
			o = m.curve.foreseen(o)
		}
	}
	switch {
	case !m.started:
		m.started, m.arrived, m.reported = true, o.Time, reported
		m.begin(o)
		m.noteShare(o)
		return
	case o.Time < m.last.Time+leastTime:
		return
	}
	m.reported = reported
	m.noteShare(o)
	if o.Work > 0 && m.last.Work > 0 && o.Work != m.last.Work {
		m.rescale(workRatio(m.last.Work, o.Work))
	}
	if o.Progress != m.last.Progress {
		m.arrived = o.Time
	}
	if o.Progress < m.last.Progress {
		m.begin(o)
		return
	}
	if passed := (m.last.Time - m.from.Time).Seconds(); passed > 0 && m.last.Progress-m.from.Progress >= leastStep {
		if before := m.shareTime / passed; math.Abs(o.Share-before) > shareStep*before {
			m.close()
		}
	}
	m.shareTime += o.Share * (o.Time - m.last.Time).Seconds()
	m.last = o
	if m.steady(o) {
		m.close()
	}
}

// steady reports whether the open equation has enough progress.
func (m *Model) steady(o Observation) bool {
	if m.curve == nil {
		return o.Progress-m.from.Progress >= minStep
	}
	u, v, _ := m.terms(m.from.Progress, o.Progress, 1/o.Share)
	return o.Progress > m.from.Progress && u+v >= curveStep
}

// terms returns the terms u, v and g of an equation between two values of the progress at the share 1/x.
func (m *Model) terms(from, to, x float64) (u, v, g float64) {
	if m.curve == nil {
		return to - from, (to - from) * x, to - from
	}
	c, b := m.curve.at(from)
	cTo, bTo := m.curve.at(to)
	u, v = max(0, c-cTo), max(0, b-bTo)*x
	return u, v, max(u+v, leastVariance)
}

// noteShare remembers the share for the median.
func (m *Model) noteShare(o Observation) {
	if m.sharesEnd > 0 && o.Time-m.sharesAt[(m.sharesEnd-1)%recentCount] < recentStep {
		return
	}
	m.shares[m.sharesEnd%recentCount], m.sharesAt[m.sharesEnd%recentCount] = o.Share, o.Time
	m.sharesEnd++
}

// valid reports whether all values are in range.
func (o Observation) valid() bool {
	return o.Progress >= 0 && o.Progress <= 1 && o.Share > 0 && finite(o.Service) && finite(o.Bytes) && finite(o.Work) && o.Boundary >= 0 && o.Boundary <= 1
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// rescale changes the unit of progress: what was 1 is now ratio. Times, service and bytes stay.
func (m *Model) rescale(ratio float64) {
	m.grown = min(max(1-(1-m.grown)*ratio, 0), 1)
	m.from.Progress, m.last.Progress = m.from.Progress*ratio, m.last.Progress*ratio
	if m.curve != nil { // the equations are in the unit of the curve
		return
	}
	m.weight, m.wx = m.weight*ratio, m.wx*ratio
	m.n, m.nx, m.nxx = m.n*ratio, m.nx*ratio, m.nxx*ratio
	m.noise /= ratio
	m.workProgress, m.bytesStep = m.workProgress*ratio, m.bytesStep*ratio
}

// begin opens an equation.
func (m *Model) begin(o Observation) { m.from, m.last, m.shareTime = o, o, 0 }

// close adds the open equation to the sums. Its error has a variance in proportion to its progress, as the
// sum of many independent parts, so it counts in proportion to its progress.
func (m *Model) close() {
	passed := (m.last.Time - m.from.Time).Seconds()
	x := passed / max(m.shareTime, MinShare*passed)
	u, v, g := m.terms(m.from.Progress, m.last.Progress, x)
	if m.steps >= minSteps && m.curve == nil {
		p := m.fit()
		e := (passed - p.time(u, v)) / math.Sqrt(p.noise*(g+p.variance(u, v)))
		m.up = max(0, m.up+min(max(e, -cusumClip), cusumClip)-cusumSlack)
		m.down = max(0, m.down-min(max(e, -cusumClip), cusumClip)-cusumSlack)
		if m.up > cusumLimit || m.down > cusumLimit {
			m.forget()
		}
	}
	keep := math.Exp(-g / m.memory())
	if m.curve != nil {
		passed -= m.filter(u, v, g, passed)
	}
	if m.steps > 0 {
		p := m.fit()
		e := passed - p.time(u, v)
		m.noise = m.noise*keep + e*e/(g+p.variance(u, v))
		m.noiseCount = m.noiseCount*keep + 1
	}
	m.n = m.n*keep + u*u/g
	m.nx = m.nx*keep + u*v/g
	m.nxx = m.nxx*keep + v*v/g
	m.ny = m.ny*keep + u*passed/g
	m.nxy = m.nxy*keep + v*passed/g
	m.weight, m.wx, m.wy = m.weight*keep+g, m.wx*keep+g*x, m.wy*keep+passed
	step := v / x
	if m.from.Service >= 0 && m.last.Service >= m.from.Service {
		m.work = m.work*keep + min(m.last.Service-m.from.Service, passed)
		m.workProgress = m.workProgress*keep + step
	}
	if m.last.Bytes > 0 && m.last.Bytes >= m.from.Bytes {
		m.moved = m.moved*keep + m.last.Bytes - m.from.Bytes
		m.bytesStep = m.bytesStep*keep + step
	}
	m.steps++
	m.begin(m.last)
}

// filter updates the estimate of how late the observed progress is, and returns the change.
func (m *Model) filter(u, v, g, passed float64) float64 {
	scale, e := passed/g, 0.0
	if m.steps > 0 {
		p := m.fit()
		scale, e = p.meanPace, passed-p.time(u, v)
	}
	measured := readTime*readTime + scale*scale*m.curve.smear(m.last.Progress)
	if m.steps == 0 {
		m.lateVariance = measured
	}
	m.lateVariance += walk * walk * scale * scale * g
	gain := m.lateVariance / (m.lateVariance + measured)
	m.lateVariance *= 1 - gain
	before := m.late
	m.late = min((1-gain)*(m.late+e), before+0.9*passed) // a step takes some time
	return m.late - before
}

// forget begins a phase.
func (m *Model) forget() {
	m.n, m.nx, m.nxx, m.ny, m.nxy, m.weight, m.wx, m.wy = 0, 0, 0, 0, 0, 0, 0, 0
	m.work, m.workProgress, m.moved, m.bytesStep = 0, 0, 0, 0
	m.up, m.down, m.steps, m.noise, m.noiseCount = 0, 0, 0, 0, 0
	m.phases++
}

// Phases returns the number of changes of phase that were noticed.
func (m *Model) Phases() int { return m.phases }

// Progress returns the progress of the last observation.
func (m *Model) Progress() float64 { return m.reported }

// LastShare returns the present share: the median of the last seconds.
func (m *Model) LastShare() float64 {
	var near [recentCount]float64
	n := 0
	for i := m.sharesEnd - 1; i >= max(0, m.sharesEnd-recentCount); i-- {
		if n > 0 && m.last.Time-m.sharesAt[i%recentCount] > recent {
			break
		}
		near[n] = m.shares[i%recentCount]
		n++
	}
	if n == 0 {
		return 0
	}
	slices.Sort(near[:n])
	return near[n/2]
}

// memory returns the part of the whole after which an equation has lost 63 % of its weight.
func (m *Model) memory() float64 {
	if m.curve != nil {
		return curveMemory
	}
	return memory
}

// UsualShare returns the share at which the fitted time is that of the steps so far. The model knows the time at this share best. 0: the
// share is not known.
func (m *Model) UsualShare() float64 {
	if m.nx == 0 {
		return 0
	}
	return min(m.n/m.nx, 1)
}

// parameters are the fitted model.
type parameters struct {
	c, b       float64
	noise      float64 // variance of the error of an equation with g = 1
	cc, cb, bb float64 // covariance of c and b, in units of noise
	meanX      float64
	meanPace   float64 // time of an equation with g = 1
}

// time returns the time of an equation.
func (p parameters) time(u, v float64) float64 { return p.c*u + p.b*v }

// variance returns the variance of time(u, v) by the errors of the parameters, in units of noise.
func (p parameters) variance(u, v float64) float64 {
	return max(0, p.cc*u*u+2*p.cb*u*v+p.bb*v*v)
}

// disk returns the part of the time of the whole run that depends on the disk, at the shares so far, and its standard error.
func (m *Model) disk(p parameters) (part, deviation float64) {
	u, v, _ := m.terms(0, 1, p.meanX)
	whole := p.meanPace
	if m.curve != nil {
		whole *= u + v
	}
	return min(p.b*v/whole, 1), math.Sqrt(p.bb*p.noise) * v / whole
}

// fit solves the normal equations. There must be at least one equation.
func (m *Model) fit() parameters {
	p := parameters{meanX: m.wx / m.weight, meanPace: m.wy / m.weight}
	prior := priorNoise * p.meanPace
	p.noise = (priorCount*prior*prior*minStep + m.noise) / (priorCount + m.noiseCount)
	n, nx, nxx, ny, nxy := m.n, m.nx, m.nxx, m.ny, m.nxy
	most := p.meanPace // b, if all is disk work
	if m.curve == nil {
		// Disk work takes between nothing and all of the time: b has the mean and variance of that uniform distribution.
		most /= p.meanX
		weight := p.noise * 12 / (most * most)
		nxx, nxy = nxx+weight, nxy+weight*most/2
	} else { // c and b are about equal
		deviation := ratioError * p.meanPace
		if m.curve.unmeasured {
			deviation = unmeasuredError * p.meanPace
		}
		weight := p.noise / (deviation * deviation)
		n, nx, nxx = n+weight, nx-weight, nxx+weight
		// Where the curve is flat, equations do not depend on c.
		weight = p.noise / (flatError * flatError * p.meanPace * p.meanPace)
		n, ny = n+weight, ny+weight*p.meanPace
	}
	if m.workProgress > 0 {
		work := m.work / m.workProgress
		deviation := workError*work + 0.02*most
		weight := p.noise / (deviation * deviation)
		nxx, nxy = nxx+weight, nxy+weight*work
	}
	det := n*nxx - nx*nx
	p.b = (n*nxy - ny*nx) / det
	p.cc, p.cb, p.bb = nxx/det, -nx/det, n/det
	p.b = max(0, p.b)
	p.c = (ny - p.b*nx) / n
	if p.c < 0 { // the best b alone
		p.c, p.b = 0, nxy/nxx
	}
	return p
}

// enough reports whether there are enough equations for a forecast, with enough progress.
func (m *Model) enough() bool {
	if m.curve != nil {
		return m.steps >= curveSteps && m.weight >= curveLeast
	}
	return m.steps >= minSteps && m.n >= 0.9*minSteps*minStep
}

// Forecast returns the end of the application if its share is the given one from the last observation on; 0: the present
// share. Errors: ErrNoProgress, ErrShare.
func (m *Model) Forecast(share float64) (End, error) {
	if share == 0 {
		share = m.LastShare()
	}
	if !m.enough() {
		return End{}, ErrNoProgress
	}
	if !(share > 0 && share <= 1) {
		return End{}, ErrShare
	}
	return m.end(m.fit(), share), nil
}

// rest is what remains from a time on, at the share 1.
type rest struct {
	at      time.Duration
	u, v, g float64
}

// rests returns what remains, in two ways. The application ends at the later of the two ends. With a curve, the first rest counts from the
// time at which the progress was first observed, as in earlier runs. The second rest counts from now: at least as much remains as
// remained of the earlier runs at their next progress.
func (m *Model) rests() [2]rest {
	var all [2]rest
	now, progress := m.last.Time, m.last.Progress
	all[0].at = now
	all[0].u, all[0].v, all[0].g = m.terms(progress, 1, 1)
	all[1] = all[0]
	if m.curve != nil {
		all[0].at = m.arrived
		all[1].u, all[1].v, all[1].g = m.terms(m.curve.next(progress), 1, 1)
	}
	return all
}

// end returns the forecast for a share with fitted parameters.
func (m *Model) end(p parameters, share float64) End {
	x := 1 / max(share, MinShare)
	now := m.last.Time
	r := m.rests()
	first, next := r[0], r[1]
	u, v, g := m.terms(m.last.Progress, 1, x)
	remains := p.time(u, v)
	// Three errors: of the parameters, of the steps to come, and of parameters that drift. The drift is the one for
	// which the memory of the fit is the best one: its variance is noise/memory² for each unit of progress.
	variance := p.noise * (p.variance(u, v) + g + g*g*g/(3*m.memory()*m.memory()))
	if m.curve != nil { // the part that is done, too, is known from the curve only
		whole, wholeV, _ := m.terms(0, 1, x)
		done := max(1-(u+v)/(whole+wholeV), curveLeast)
		time := p.time(whole, wholeV) / done
		variance += m.curve.variance(m.last.Progress)*time*time + m.lateVariance
	}
	expected := max((first.at-now).Seconds()-m.late+remains, p.time(next.u, next.v*x), 0)
	// The variance of a few errors is not well known: the factor approximates Student's distribution.
	width := quantile*math.Sqrt(variance)*(1+1.2/(1+m.noiseCount)) + modelError*remains
	low, high := expected-width, expected+width
	if m.curve == nil {
		if unseen := m.unseen() * p.time(1, x); unseen > 0 {
			low, high = low-unseen*(1-1/otherPace), high+unseen*(otherPace-1)
		}
		high += m.grown * p.time(1, x) // as much work may be added again
	}
	return End{Expected: after(now, expected), Low: after(now, max(0, low)), High: after(now, high)}
}

// unseen returns the part of the progress that may have another pace than the present one.
func (m *Model) unseen() float64 {
	if b := m.last.Boundary; b > 0 && m.last.Progress < b+settled {
		return 1 - max(b, m.last.Progress)
	}
	return 0
}

// after returns the time so many seconds after another one, at most a century later. Seconds that are not a
// number count as a century. The quotient of two very small parts of a stored curve can be such a value.
func after(at time.Duration, seconds float64) time.Duration {
	const most = 100 * 365 * 24 * 3600
	if !(seconds < most) {
		seconds = most
	}
	return at + time.Duration(seconds*float64(time.Second))
}

// Need is what an application needs to end by a time.
type Need struct {
	Share float64 // of the resource, from MinShare to 1
	Rate  float64 // bytes per second while the application uses the resource
	End   End     // with this share
}

// Need returns the share with which the application is expected to end at the given time, like Share, and the rate at which it
// then moves bytes. If not even the whole resource suffices, Need returns that, and ErrTooEarly. Errors: ErrNoProgress, ErrUnknown,
// ErrNoBytes, ErrTooEarly.
func (m *Model) Need(by time.Duration) (Need, error) {
	switch {
	case !m.enough():
		return Need{}, ErrNoProgress
	case !m.Identified():
		return Need{}, ErrUnknown
	case !(m.moved > 0 && m.bytesStep > 0):
		return Need{}, ErrNoBytes
	}
	share, err := m.Share(by)
	if err != nil { // ErrTooEarly
		share = 1
	}
	p := m.fit()
	need := Need{Share: share, End: m.end(p, share)}
	if p.b > 0 {
		need.Rate = m.moved / m.bytesStep * share / p.b
	}
	return need, err
}

// Identified reports whether the model knows how much of the time depends on the share.
func (m *Model) Identified() bool {
	if !m.enough() {
		return false
	}
	_, deviation := m.disk(m.fit())
	return deviation <= knownWork
}

// Disk returns the part of the time that depends on the share, at the shares so far, 0 to 1, and its standard error.
// Errors: ErrNoProgress.
func (m *Model) Disk() (part, deviation float64, err error) {
	if !m.enough() {
		return 0, 0, ErrNoProgress
	}
	part, deviation = m.disk(m.fit())
	return part, deviation, nil
}

// Share returns the share with which the application is expected to end at the given time. It may be
// below what the application has now. An application that does not depend on the disk, and ends by then, needs MinShare.
// Errors: ErrNoProgress, ErrTooEarly, ErrUnknown.
func (m *Model) Share(by time.Duration) (float64, error) {
	switch {
	case !m.enough():
		return 0, ErrNoProgress
	case !m.Identified():
		return 0, ErrUnknown
	}
	p := m.fit()
	share := MinShare
	for i, r := range m.rests() {
		left := (by - r.at).Seconds() - p.c*r.u
		if i == 0 {
			left += m.late
		}
		work := p.b * r.v
		if left < work || left < 0 || by < m.last.Time {
			return 0, ErrTooEarly
		}
		if work > 0 {
			share = max(share, min(work/left, 1))
		}
	}
	return share, nil
}
