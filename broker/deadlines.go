package broker

import (
	"errors"
	"math"
	"time"

	"penstock/core/deadline"
	"penstock/core/forecast"
	"penstock/core/policy"
	"penstock/core/reserve"
	"penstock/wire/cluster"
)

// goal is the state of one application's deadline (policy.Deadline). A new leader begins without goals.
type goal struct {
	deadline.Goal
	by      int64 // Unix ms; 0: not known
	verdict deadline.Verdict
	judged  time.Duration // when the verdict was made, since Broker.created
}

// judgeInterval is the least time between two verdicts about a deadline. The progress of applications is read less often.
const judgeInterval = time.Second

// deadlineStates are the states of deadlines, in metrics and for operators. The last two are the admission's: the needed rate
// is known, but the nodes cannot guarantee it, or only a part of it.
var deadlineStates = [...]string{deadline.Granted.String(), deadline.Held.String(), deadline.Refused.String(), deadline.Missed.String(),
	reserve.Queued.String(), reserve.Reduced.String()}

var errNotSubmitted = errors.New("the time of the submission is not known: start the broker with the address of the ResourceManager or of the Spark master, if it reports this time, or give the deadline as a time")

// applyDeadlines makes the rates that deadlines need the total reserves of applications. grants belong to names. b.mu is held. The
// cost is about a microsecond for each application with a deadline, once per judgeInterval.
func (b *Broker) applyDeadlines(names []string, grants []policy.Grant) {
	now := time.Since(b.created)
	old := b.deadlines
	b.deadlines = map[string]*goal{}
	for i, name := range names {
		if grants[i].Deadline == (policy.Deadline{}) {
			continue
		}
		life := b.options.Life(name)
		if life.Ended {
			continue
		}
		by, known := grants[i].Deadline.By(life.Submitted)
		g := old[name]
		if g == nil {
			g = &goal{judged: -judgeInterval}
		}
		b.deadlines[name] = g
		switch {
		case !known:
			*g = goal{verdict: deadline.Verdict{State: deadline.Refused, Reason: errNotSubmitted}}
		case now-g.judged >= judgeInterval || by != g.by:
			g.by, g.judged = by, now
			g.judge(now, time.UnixMilli(by).Sub(b.created), b.model(name), b.forecasts[name], grants[i])
			if errors.Is(g.verdict.Reason, deadline.ErrProgress) {
				g.verdict.Reason = b.noModel(name)
			}
		}
		if g.verdict.Rate > 0 {
			asked, admitted := int64(0), reserve.Verdict{}
			if t := b.totalRates[name]; t != nil {
				asked, admitted = t.Total.Reserve, t.Verdict
			}
			grants[i].Total.Reserve = max(g.verdict.Ask(asked, admitted), policy.MinTotal)
		}
	}
}

// judge makes the verdict. now and by are times since Broker.created; m and f may be nil.
func (g *goal) judge(now, by time.Duration, m *forecast.Model, f *forecaster, grant policy.Grant) {
	most := grant.Total.Limit
	if grant.Limit > 0 && f != nil && f.Devices() > 0 {
		devices := float64(grant.Limit) * math.Ceil(f.Devices())
		if most == 0 || devices < float64(most) {
			most = int64(devices)
		}
	}
	g.verdict = g.Update(now, by, m, most)
}

// deadlineState returns what is decided about a deadline, one of deadlineStates, and why it is not granted; empty if it is. b.mu is held.
func (b *Broker) deadlineState(name string, g *goal) (state, reason string) {
	var admitted reserve.Verdict
	if t := b.totalRates[name]; t != nil {
		admitted = t.Verdict
	}
	return g.verdict.Admitted(admitted)
}

// describeDeadline adds an application's deadline, if it has one. b.mu is held.
func (b *Broker) describeDeadline(name string, s *cluster.ApplicationState) {
	g := b.deadlines[name]
	if g == nil {
		return
	}
	s.DeadlineUnixMs, s.DeadlineRate = g.by, uint64(g.verdict.Needed)
	s.DeadlineState, s.DeadlineReason = b.deadlineState(name, g)
}
