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
// So a forecast for another share is wide as long as neither service nor a change of the share says what
// the disk work is, and least squares never lose their footing.
//
// Applications have phases (map, reduce). A two-sided CUSUM test (Page 1954) on the standardised errors of prediction
// notices a change and forgets the phase before. No forecast foresees a phase that has not begun.
package forecast

import (
	"errors"
	"math"
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
	// MinShare is the smallest share; a smaller one counts as MinShare.
	MinShare = 1e-4
)

// The errors of Forecast and Share.
var (
	ErrNoProgress = errors.New("too little progress to judge by")
	ErrTooEarly   = errors.New("not even the whole device ends the application by then")
	ErrUnknown    = errors.New("it is not known how much of the time depends on the disk: the share has not changed, and the service was not measured")
	ErrShare      = errors.New("a share is above 0 and at most 1")
)

// Observation is the state of an application at one time.
type Observation struct {
	Time     time.Duration // since any fixed moment
	Progress float64       // of the whole application, 0 to 1
	// Share is the part of the resource, above 0 to 1, that the application had since the last observation while it used the
	// resource.
	Share float64
	// Service is what it has had since its start, in seconds of the whole resource. Negative: not measured.
	Service float64
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
	started   bool
	from      Observation // where the open equation begins
	last      Observation
	shareTime float64 // integral of the share over the open equation, in seconds

	// Sums of the normal equations, in powers of x = 1/share.
	n, nx, nxx, ny, nxy float64
	steps               int     // since the start or the last change of phase
	work, workProgress  float64 // measured service, and the progress that it made
	noise, noiseCount   float64 // sum of squared errors, and its weight
	up, down            float64 // sums of the CUSUM test
	phases              int
}

// Observe adds an observation. It ignores one that is less than 1 ms later than the last, or has values out of range. Progress can
// fall when tasks are lost; the lost part is then seen as new.
func (m *Model) Observe(o Observation) {
	if !(o.Progress >= 0 && o.Progress <= 1) || !(o.Share > 0) || math.IsNaN(o.Service) || math.IsInf(o.Service, 0) {
		return
	}
	o.Share = min(max(o.Share, MinShare), 1)
	switch {
	case !m.started:
		m.started = true
		m.begin(o)
		return
	case o.Time < m.last.Time+leastTime:
		return
	case o.Progress < m.last.Progress:
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
	if o.Progress-m.from.Progress >= minStep {
		m.close()
	}
}

// begin opens an equation.
func (m *Model) begin(o Observation) { m.from, m.last, m.shareTime = o, o, 0 }

// close adds the open equation to the sums. Its error has a variance in proportion to its progress, as the
// sum of many independent parts, so it counts in proportion to its progress.
func (m *Model) close() {
	step, passed := m.last.Progress-m.from.Progress, (m.last.Time - m.from.Time).Seconds()
	x := passed / max(m.shareTime, MinShare*passed)
	pace := passed / step
	if m.steps >= minSteps {
		p := m.fit()
		e := (pace - p.at(x)) * math.Sqrt(step) / math.Sqrt(p.noise*(1+step*p.variance(x)))
		m.up = max(0, m.up+min(max(e, -cusumClip), cusumClip)-cusumSlack)
		m.down = max(0, m.down-min(max(e, -cusumClip), cusumClip)-cusumSlack)
		if m.up > cusumLimit || m.down > cusumLimit {
			m.forget()
		}
	}
	keep := math.Exp(-step / memory)
	if m.steps > 0 {
		p := m.fit()
		e := pace - p.at(x)
		m.noise = m.noise*keep + step*e*e/(1+step*p.variance(x))
		m.noiseCount = m.noiseCount*keep + 1
	}
	m.n = m.n*keep + step
	m.nx = m.nx*keep + step*x
	m.nxx = m.nxx*keep + step*x*x
	m.ny = m.ny*keep + step*pace
	m.nxy = m.nxy*keep + step*x*pace
	if m.from.Service >= 0 && m.last.Service >= m.from.Service {
		m.work = m.work*keep + min(m.last.Service-m.from.Service, passed)
		m.workProgress = m.workProgress*keep + step
	}
	m.steps++
	m.begin(m.last)
}

// forget begins a phase.
func (m *Model) forget() {
	m.n, m.nx, m.nxx, m.ny, m.nxy, m.work, m.workProgress = 0, 0, 0, 0, 0, 0, 0
	m.up, m.down, m.steps, m.noise, m.noiseCount = 0, 0, 0, 0, 0
	m.phases++
}

// Phases returns the number of changes of phase that were noticed.
func (m *Model) Phases() int { return m.phases }

// Progress returns the progress of the last observation.
func (m *Model) Progress() float64 { return m.last.Progress }

// LastShare returns the share of the last observation.
func (m *Model) LastShare() float64 { return m.last.Share }

// parameters are the fitted model.
type parameters struct {
	c, b       float64
	noise      float64 // variance of the error of one unit of progress
	cc, cb, bb float64 // covariance of c and b, in units of noise
	meanX      float64
	meanPace   float64
}

func (p parameters) at(x float64) float64 { return p.c + p.b*x }

// variance returns the variance of at(x), in units of noise.
func (p parameters) variance(x float64) float64 { return max(0, p.cc+2*p.cb*x+p.bb*x*x) }

// diskError returns the standard error of the disk's part of the time at the shares so far, 0 to 1.
func (p parameters) diskError() float64 { return math.Sqrt(p.bb*p.noise) * p.meanX / p.meanPace }

// fit solves the normal equations. There must be at least one equation.
func (m *Model) fit() parameters {
	p := parameters{meanX: m.nx / m.n, meanPace: m.ny / m.n}
	prior := priorNoise * p.meanPace
	p.noise = (priorCount*prior*prior*minStep + m.noise) / (priorCount + m.noiseCount)
	// Disk work takes between nothing and all of the time: b has the mean and variance of that uniform distribution.
	most := p.meanPace / p.meanX
	weight := p.noise * 12 / (most * most)
	nxx, nxy := m.nxx+weight, m.nxy+weight*most/2
	if m.workProgress > 0 {
		work := m.work / m.workProgress
		deviation := workError*work + 0.02*most
		weight = p.noise / (deviation * deviation)
		nxx, nxy = nxx+weight, nxy+weight*work
	}
	det := m.n*nxx - m.nx*m.nx
	p.b = (m.n*nxy - m.nx*m.ny) / det
	p.cc, p.cb, p.bb = nxx/det, -m.nx/det, m.n/det
	p.b = max(0, p.b)
	p.c = (m.ny - p.b*m.nx) / m.n
	if p.c < 0 { // the best b alone
		p.c, p.b = 0, nxy/nxx
	}
	return p
}

// enough reports whether there are enough equations for a forecast, with enough progress.
func (m *Model) enough() bool { return m.steps >= minSteps && m.n >= 0.9*minSteps*minStep }

// Forecast returns the end of the application if its share is the given one from the last observation on; 0: the last
// share. Errors: ErrNoProgress, ErrShare.
func (m *Model) Forecast(share float64) (End, error) {
	if share == 0 {
		share = m.last.Share
	}
	if !m.enough() {
		return End{}, ErrNoProgress
	}
	if !(share > 0 && share <= 1) {
		return End{}, ErrShare
	}
	x := 1 / max(share, MinShare)
	p := m.fit()
	rest := 1 - m.last.Progress
	expected := rest * p.at(x)
	// Three errors: of the parameters, of the steps to come, and of parameters that drift. The drift is the one for
	// which the memory of the fit is the best one: its variance is noise/memory² for each unit of progress.
	variance := p.noise * (rest*rest*p.variance(x) + rest + rest*rest*rest/(3*memory*memory))
	// Few errors say little of their variance: the factor approaches Student's distribution.
	width := quantile*math.Sqrt(variance)*(1+1.2/(1+m.noiseCount)) + modelError*expected
	return End{Expected: m.after(expected), Low: m.after(max(0, expected-width)), High: m.after(expected + width)}, nil
}

// after returns the time so many seconds after the last observation, at most a century.
func (m *Model) after(seconds float64) time.Duration {
	const most = 100 * 365 * 24 * 3600
	return m.last.Time + time.Duration(min(seconds, most)*float64(time.Second))
}

// Identified reports whether the model knows how much of the time depends on the share.
func (m *Model) Identified() bool { return m.enough() && m.fit().diskError() <= knownWork }

// Disk returns the part of the time that depends on the share, at the shares so far, 0 to 1, and its standard error.
// Errors: ErrNoProgress.
func (m *Model) Disk() (part, deviation float64, err error) {
	if !m.enough() {
		return 0, 0, ErrNoProgress
	}
	p := m.fit()
	return min(p.b*p.meanX/p.meanPace, 1), p.diskError(), nil
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
	rest := 1 - m.last.Progress
	left := (by - m.last.Time).Seconds() - rest*p.c
	if left < rest*p.b || left < 0 {
		return 0, ErrTooEarly
	}
	if rest*p.b == 0 {
		return MinShare, nil
	}
	return min(max(rest*p.b/left, MinShare), 1), nil
}
