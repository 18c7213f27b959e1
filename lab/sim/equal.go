package sim

import (
	"math"
	"slices"
	"time"

	"penstock/core/slowdown"
)

// weighing is the time between two changes of weights: two reporting periods (slowdownPeriods in package broker).
const weighing = 2

// equalizer is the part of the broker that estimates the slowdowns of all jobs' applications and, with move, moves their
// weights until they are slowed down alike. It knows what nodes report, and the number of running tasks from the
// ResourceManager.
type equalizer struct {
	cluster *Cluster
	yarn    *yarn
	move    bool
	group   slowdown.Group
	apps    []slowdown.App // by application
	weights []float64      // the scenario's, by application
	tasks   []int          // at the last poll, by application
	polled  time.Duration
	moved   time.Duration
}

func newEqualizer(c *Cluster, y *yarn, move bool) *equalizer {
	e := &equalizer{cluster: c, yarn: y, move: move, apps: make([]slowdown.App, len(c.apps)), tasks: make([]int, len(c.apps)), polled: -polling}
	for _, a := range c.apps {
		e.weights = append(e.weights, a.Weight)
	}
	c.After(reordering, e.update)
	return e
}

// update adds what nodes have reported to the estimates, and moves the weights in every second reporting period. Nodes get
// them with their next answers.
func (e *equalizer) update() {
	c := e.cluster
	c.After(reordering, e.update)
	poll := c.Now()-e.polled >= polling
	if poll {
		e.polled = c.Now()
		clear(e.tasks)
	}
	var there []int
	seen := map[int]bool{}
	for _, j := range e.yarn.jobs { // submitted and not done
		i := j.app.index
		if poll {
			e.tasks[i] += j.active()
		}
		if !seen[i] {
			seen[i], there = true, append(there, i)
		}
	}
	period := c.exchange.Period
	take := c.Now()-e.moved >= weighing*period && !c.broker.down && c.settled()
	if take {
		e.moved = c.Now()
	}
	var apps []*slowdown.App
	for _, i := range there {
		a := &e.apps[i]
		apps = append(apps, a)
		total, _ := c.broker.totals.Of(c.apps[i].Name)
		a.Add(slowdown.Sample{Streams: float64(total.Streams) / 1000, Waiting: float64(total.Waiting) / 1000, Hindered: float64(total.Hindered) / 1000,
			Tasks: float64(e.tasks[i]), Used: float64(total.Used), Touched: float64(total.Touched)}, reordering)
		if take {
			a.Take()
		}
	}
	if !take || !e.move {
		return
	}
	e.group.Update(apps)
	for _, i := range there {
		c.apps[i].Weight = e.weights[i] * e.apps[i].Factor()
	}
}

// active returns the number of a job's running tasks, without those that have written everything: HDFS closes a file before
// its data is on the disk, so these have ended for YARN.
func (j *job) active() (n int) {
	for _, all := range [][]*task{j.maps, j.reduces} {
		for _, t := range all {
			if t.state == running && !t.written() {
				n++
			}
		}
	}
	return n
}

// written reports whether all of a task's streams are closed, and some wait until their data is on the disk.
func (t *task) written() bool {
	return t.open > 0 && !slices.ContainsFunc(t.streams, func(s *stream) bool { return !s.dead })
}

// noteEstimate keeps the broker's estimate of a job's slowdown, if there is one.
func (w *work) noteEstimate(e *equalizer, a *App, estimate func(*slowdown.App) float64) {
	if e == nil {
		return
	}
	n := 0
	if e.move {
		n = 1
	}
	w.estimate[n] = estimate(&e.apps[a.index])
}

func (w *work) setRate(way string, rate float64) {
	if w.rates == nil {
		w.rates = map[string]float64{}
	}
	w.rates[way] = rate
}

// measureRates calls then with the bytes per second that each application has moved between two times.
func (c *Cluster) measureRates(from, to time.Duration, then func(rates []float64)) {
	before := make([]int64, len(c.apps))
	c.At(from, func() {
		for i, a := range c.apps {
			before[i] = a.read + a.written
		}
	})
	c.At(to, func() {
		rates := make([]float64, len(c.apps))
		for i, a := range c.apps {
			rates[i] = float64(a.read+a.written-before[i]) / (to - from).Seconds()
		}
		then(rates)
	})
}

// slowdown returns a job's slowdown in one way; 0: not known.
func (j *Job) slowdown(way string) float64 {
	switch {
	case j.Rates[wayAlone] > 0 && j.Rates[way] > 0:
		return j.Rates[wayAlone] / j.Rates[way]
	case j.Alone > 0:
		return j.Took(way) / j.Alone
	}
	return 0
}

// slowdowns returns the smallest and the largest mean slowdown of a kind of jobs in one way; 0 and 0 if none is known.
func (r *Result) slowdowns(way string) (low, high float64) {
	of := map[string][]float64{}
	for i := range r.Jobs {
		if v := r.Jobs[i].slowdown(way); v > 0 {
			of[r.Jobs[i].Kind] = append(of[r.Jobs[i].Kind], v)
		}
	}
	for _, all := range of {
		m := mean(all)
		if high = max(high, m); low == 0 || m < low {
			low = m
		}
	}
	return low, high
}

// judgeEqual compares the jobs' slowdowns with the expectations of equal slowdowns.
func (s *Scenario) judgeEqual(r *Result) {
	e := s.Expect.Equal
	low, high := r.slowdowns(wayEqual)
	if e != (EqualSpec{}) {
		r.expect(low > 0, "the slowdowns in the way %s are not known: let play include alone and %s", wayEqual, wayEqual)
	}
	r.expect(e.Within == 0 || high-low <= e.Within, "the slowdowns in the way %s are %.3f to %.3f: they should be within %g", wayEqual, low, high, e.Within)
	if e.Better > 0 {
		_, was := r.slowdowns(wayCoordinated)
		r.expect(was > 0 && high <= was-e.Better, "the largest slowdown is %.3f in the way %s and %.3f coordinated: it should be lower by at least %g", high, wayEqual, was, e.Better)
	}
	for _, j := range r.Jobs {
		if truth := j.slowdown(wayEqual); e.Estimate > 0 && truth > 0 {
			r.expect(math.Abs(j.EqualEstimate-truth) <= e.Estimate*truth, "%s: the broker's estimate of the slowdown is %.3f, and the slowdown is %.3f: the estimate should be within %.0f %%", j.Name, j.EqualEstimate, truth, 100*e.Estimate)
		}
	}
}
