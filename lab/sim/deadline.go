package sim

import (
	"slices"
	"time"

	"penstock/core/deadline"
	"penstock/core/forecast"
	"penstock/core/policy"
)

const (
	// judging is the least time between two verdicts about a deadline (judgeInterval in package broker).
	judging = time.Second
	// silent is the longest time for which a node's last report counts (package broker).
	silent = 150 * time.Second
	// reducesBegin is the progress of MapReduce from which reduces make progress (package applications).
	reducesBegin = 0.5
	// mostDecisions bounds the decisions about one deadline in a result.
	mostDecisions = 1000
)

// DeadlineSpec contains expectations of jobs with deadlines that are played in the way deadline; 0 or empty: not checked.
type DeadlineSpec struct {
	// Kept is the least part, 0 to 1, of the jobs with deadlines, except those of Refused, that end in time.
	Kept float64 `yaml:"kept"`
	// MissedCoordinated is the least part, 0 to 1, of the same jobs that end too late in the way coordinated.
	MissedCoordinated float64 `yaml:"missed_coordinated"`
	// Refused are the entries of jobs whose deadlines are refused from the beginning to the end.
	Refused []string `yaml:"refused"`
	// Others is the largest mean run time of a kind of jobs without deadlines, in relation to that in the way coordinated.
	Others float64 `yaml:"others"`
}

// Deadline is a job's deadline, and what was decided about it in the way deadline.
type Deadline struct {
	After     float64    `json:"after"` // seconds after the submission
	Decisions []Decision `json:"decisions,omitempty"`
}

// Decision is one of the broker's decisions about a deadline. Rates are in bytes per second.
type Decision struct {
	At    float64 `json:"at"` // seconds after the submission
	State string  `json:"state"`
	Rate  int64   `json:"rate,omitempty"` // that is to be guaranteed
	// Needed and Reason are the last ones before the next decision.
	Needed int64  `json:"needed,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// note adds a decision if its state or its rate is new. Otherwise it notes the present reason.
func (d *Deadline) note(n Decision) {
	k := len(d.Decisions)
	if k > 0 && d.Decisions[k-1].State == n.State && d.Decisions[k-1].Rate == n.Rate {
		d.Decisions[k-1].Needed, d.Decisions[k-1].Reason = n.Needed, n.Reason
		return
	}
	if k < mostDecisions {
		d.Decisions = append(d.Decisions, n)
	}
}

// States returns the states in their order, without repetitions.
func (d *Deadline) States() (states []string) {
	for _, one := range d.Decisions {
		states = append(states, one.State)
	}
	return slices.Compact(states)
}

// Rate returns the largest rate that was to be guaranteed, in bytes per second.
func (d *Deadline) Rate() (most int64) {
	for _, one := range d.Decisions {
		most = max(most, one.Rate)
	}
	return most
}

// forDeadline returns the guarantee of an application whose total reserve follows from a deadline. order is the place of its rule.
func forDeadline(after time.Duration, order int) *guarantee {
	return &guarantee{rule: plainRule, order: order, deadline: after}
}

// rated reports whether an application has, or may get, total rates.
func (g *guarantee) rated() bool { return g.total != (policy.Total{}) || g.deadline > 0 }

// deadlines is the part of the broker that makes jobs' deadlines total reserves (broker/deadlines.go and broker/forecasts.go). It knows
// what nodes report, and the jobs' progress from the ResourceManager.
type deadlines struct {
	cluster *Cluster
	jobs    []*deadlineJob
	life    int // of the broker; a broker that starts knows nothing
}

// deadlineJob is a job with a deadline.
type deadlineJob struct {
	*job
	by       time.Duration
	account  forecast.Account
	goal     deadline.Goal
	verdict  deadline.Verdict
	judged   time.Duration
	progress float64 // as last polled
}

func newDeadlines(c *Cluster, y *yarn) {
	d := &deadlines{cluster: c}
	c.deadlines = d
	c.At(0, func() { d.poll(y) })
}

// poll reads the jobs' progress from the ResourceManager.
func (d *deadlines) poll(y *yarn) {
	c := d.cluster
	c.After(polling, func() { d.poll(y) })
	for _, j := range y.jobs { // submitted and not done
		if j.app.guarantee == nil || j.app.guarantee.deadline == 0 {
			continue
		}
		k := slices.IndexFunc(d.jobs, func(o *deadlineJob) bool { return o.job == j })
		if k < 0 {
			k = len(d.jobs)
			d.jobs = append(d.jobs, &deadlineJob{job: j, by: j.submitted + j.app.guarantee.deadline, judged: -judging})
		}
		d.jobs[k].progress = j.progress()
	}
}

// judge makes the rates that deadlines need the total reserves of applications, before total rates are divided.
func (d *deadlines) judge() {
	if d == nil {
		return
	}
	c := d.cluster
	if d.life != c.broker.life {
		d.life = c.broker.life
		for _, j := range d.jobs {
			j.account, j.goal, j.judged = forecast.Account{}, deadline.Goal{}, -judging
		}
	}
	for _, j := range d.jobs {
		g := j.app.guarantee
		g.total = policy.Total{}
		if _, atWork := c.broker.totals.Of(j.app.Name); !atWork || j.app.ended {
			j.goal, j.judged = deadline.Goal{}, -judging
			continue
		}
		if c.now-j.judged >= judging {
			j.judged = c.now
			j.verdict = j.goal.Update(c.now, j.by, &j.account.Model, 0)
		}
		if j.verdict.Rate > 0 {
			t := c.broker.rates[j.app.index]
			g.total.Reserve = max(j.verdict.Ask(t.Total.Reserve, t.Verdict), policy.MinTotal)
		}
	}
}

// observe adds what is known to the jobs' models, after total rates were divided.
func (d *deadlines) observe() {
	if d == nil {
		return
	}
	c := d.cluster
	rates, weights := 0.0, 0.0
	for _, a := range c.apps {
		if total, atWork := c.broker.totals.Of(a.Name); atWork {
			rates += float64(total.Rate)
			weights += a.Weight
		}
	}
	for _, j := range d.jobs {
		total, atWork := c.broker.totals.Of(j.app.Name)
		if !atWork || j.app.ended {
			continue
		}
		s := forecast.State{Progress: j.progress, Total: total, Rates: rates, Entitled: j.app.Weight / weights}
		if j.work.reduces > 0 {
			s.Boundary = reducesBegin
		}
		t := c.broker.rates[j.app.index]
		s.Guaranteed = t.Verdict.Granted * float64(t.Total.Reserve)
		j.account.Observe(c.now, silent, s)
		state, reason := j.verdict.Admitted(t.Verdict)
		j.decided.note(Decision{At: (c.now - j.submitted).Seconds(), State: state, Rate: j.verdict.Rate, Needed: j.verdict.Needed, Reason: reason})
	}
}

// checkDeadlines checks the jobs' deadlines and what is expected of them.
func (s *Scenario) checkDeadlines(check func(bool, string, ...any)) {
	names, with := map[string]bool{}, map[string]bool{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		names[j.Name] = true
		if j.Deadline == 0 {
			continue
		}
		with[j.Name] = true
		d := time.Duration(j.Deadline)
		check(d >= policy.MinDeadline && d <= policy.MaxDeadline, "jobs[%d]: deadline %v: use %v to %v after the submission", i, d, policy.MinDeadline, policy.MaxDeadline)
		check(j.Application == "", "jobs[%d]: deadline: a job with a deadline is an application of its own: remove application", i)
		check(!j.Background, "jobs[%d]: deadline: the run does not wait for a background job: remove background", i)
	}
	e := s.Expect.Deadline
	check(e.Kept >= 0 && e.Kept <= 1 && e.MissedCoordinated >= 0 && e.MissedCoordinated <= 1, "expect: deadline: kept and missed_coordinated: use 0 to 1")
	check(e.Others == 0 || e.Others >= 1 && e.Others <= 1000, "expect: deadline: others %v: use 1 to 1000", e.Others)
	for i, name := range e.Refused {
		check(!names[name] || with[name], "expect: deadline: refused[%d]: the job %q has no deadline", i, name)
		check(names[name], "expect: deadline: refused[%d]: the scenario has no job %q", i, name)
	}
	if e.Kept == 0 && e.MissedCoordinated == 0 && e.Others == 0 && len(e.Refused) == 0 {
		return
	}
	check(len(with) > 0, "expect: deadline: no job has a deadline")
	check(slices.Contains(s.MapReduce.Play, wayDeadline), "expect: deadline: let play include deadline")
	check(e.MissedCoordinated == 0 && e.Others == 0 || slices.Contains(s.MapReduce.Play, wayCoordinated), "expect: deadline: missed_coordinated and others: let play include coordinated")
	check(!s.Exchange.Off && s.Exchange.Rule == ruleParts, "expect: deadline: without a broker that divides total rates there are no deadlines: remove exchange.off and exchange.rule")
}

// InTime reports whether the job ended before its deadline in one way. A job that did not end is late.
func (j *Job) InTime(way string) bool {
	took := j.Took(way)
	return took > 0 && took <= j.Due.After
}

// judgeDeadlines compares the jobs with the expectations of deadlines.
func (s *Scenario) judgeDeadlines(r *Result) {
	e := s.Expect.Deadline
	all, kept, missed := 0, 0, 0
	others := map[string][2][]float64{}
	var kinds []string
	for i := range r.Jobs {
		j := &r.Jobs[i]
		switch {
		case j.Due == nil:
			if !slices.Contains(kinds, j.Kind) {
				kinds = append(kinds, j.Kind)
			}
			o := others[j.Kind]
			if a, b := j.Took(wayDeadline), j.Took(wayCoordinated); a > 0 && b > 0 {
				o[0], o[1] = append(o[0], a), append(o[1], b)
			}
			others[j.Kind] = o
		case slices.Contains(e.Refused, j.Kind):
			states := j.Due.States()
			refused := len(states) > 0 && states[0] == deadline.Refused.String() && !slices.ContainsFunc(states, func(s string) bool {
				return s != deadline.Refused.String() && s != deadline.Missed.String()
			})
			r.expect(refused, "%s: its deadline should be refused, and it was %v", j.Name, states)
		default:
			all++
			if j.InTime(wayDeadline) {
				kept++
			}
			if !j.InTime(wayCoordinated) {
				missed++
			}
		}
	}
	r.expect(float64(kept) >= e.Kept*float64(all), "%d of %d jobs ended by their deadlines in the way deadline: at least %.0f %% should", kept, all, 100*e.Kept)
	r.expect(float64(missed) >= e.MissedCoordinated*float64(all), "%d of %d jobs ended after their deadlines in the way coordinated: at least %.0f %% should", missed, all, 100*e.MissedCoordinated)
	for _, kind := range kinds {
		o := others[kind]
		if b := mean(o[1]); e.Others > 0 && b > 0 {
			r.expect(mean(o[0]) <= e.Others*b, "%s: the mean run time is %.1f s in the way deadline and %.1f s coordinated: at most %g times as long is expected", kind, mean(o[0]), b, e.Others)
		}
	}
}

// deadlineOf returns the deadline of a work for the result; nil if it has none.
func (w *work) deadlineOf() *Deadline {
	if w.deadline == 0 {
		return nil
	}
	d := w.decided
	d.After = w.deadline.Seconds()
	return &d
}
