package broker

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"penstock/broker/policyfile"
	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/core/slowdown"
	"penstock/wire/cluster"
)

// equalQueue is a broker whose policy moves weights in the queue etl, with a model of a cluster of one disk in place of the nodes.
type equalQueue struct {
	t      *testing.T
	b      *Broker
	member coord.Member
	jobs   []*modelJob
	late   [][]float64 // weights that are not in force yet, oldest first
	delay  int         // reports until an answer is in force
}

// modelJob is a job with tasks that compute and use the disk at the same time: a unit of progress takes c seconds without
// the disk or b seconds of the disk, whatever takes longer.
type modelJob struct {
	name   string
	c, b   float64
	weight float64 // in force
	share  float64 // of the disk
}

// slowdown returns the true slowdown at the present share.
func (j *modelJob) slowdown() float64 { return max(j.c, j.b/j.share) / max(j.c, j.b) }

func newEqualQueue(t *testing.T, text string, delay int, jobs ...*modelJob) *equalQueue {
	t.Helper()
	p, err := policyfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.policy = p
	e := &equalQueue{t: t, b: b, jobs: jobs, delay: delay}
	if e.member, err = b.totals.Join(); err != nil {
		t.Fatal(err)
	}
	for i, j := range jobs {
		e.name(i, j.name)
		b.grants[j.name] = p.Grant(policy.Facts{Flow: j.name, Queue: "etl", User: j.name})
		j.weight = 1
	}
	return e
}

func (e *equalQueue) name(entry int, name string) {
	e.t.Helper()
	if _, err := e.b.totals.Name(e.member, entry, name); err != nil {
		e.t.Fatal(err)
	}
}

// report divides the disk by the weights in force, reports what the jobs' streams did, and computes rights.
func (e *equalQueue) report() {
	e.t.Helper()
	time.Sleep(minPeriod)
	left, weights := 1.0, 0.0
	for _, j := range e.jobs {
		j.share, weights = 0, weights+j.weight
	}
	for range e.jobs { // those that want less leave the rest to the others
		rest, of := left, weights
		for _, j := range e.jobs {
			if want := j.b / max(j.c, j.b); j.share == 0 && want <= rest*j.weight/of {
				j.share = want
				left, weights = left-want, weights-j.weight
			}
		}
	}
	for _, j := range e.jobs {
		if j.share == 0 {
			j.share = left * j.weight / weights
		}
	}
	for i, j := range e.jobs {
		const streams = 8
		unit := max(j.c, j.b/j.share)
		waited := (unit - j.c) / unit
		second := func(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
		hindered := slowdown.Hindered(second(streams), second(streams*waited), second(1-j.share), time.Second).Seconds()
		if err := e.b.totals.Report(e.member, i, coord.Service{Rate: int64(j.share * coord.Second), Room: coord.Second, Used: int64(j.share * coord.Second), Touched: coord.Second,
			Streams: 1000 * streams, Waiting: int64(1000 * streams * waited), Hindered: min(int64(1000*hindered), int64(1000*streams*waited))}); err != nil {
			e.t.Fatal(err)
		}
	}
	e.b.computeRights()
	var due []float64
	for _, j := range e.jobs {
		due = append(due, float64(e.b.rights[j.name].ownWeight))
	}
	if e.late = append(e.late, due); len(e.late) > e.delay {
		for i, j := range e.jobs {
			j.weight = e.late[0][i]
		}
		e.late = e.late[1:]
	}
}

func (e *equalQueue) state(name string) *cluster.ApplicationState {
	e.t.Helper()
	a, err := operators{b: e.b}.ListApplications(callFrom("127.0.0.1"), &cluster.ListApplicationsRequest{Application: name})
	if err != nil || len(a.GetApplications()) != 1 {
		e.t.Fatalf("%v, %v", a, err)
	}
	return a.GetApplications()[0]
}

// TestEqualSlowdowns: through the broker, two jobs with different needs reach the same slowdown within 5 points, without
// oscillation, whether answers are in force at once or up to three reports late.
func TestEqualSlowdowns(t *testing.T) {
	for delay := range 4 {
		t.Run(fmt.Sprint("delay ", delay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gen, count := &modelJob{name: "gen", b: 1}, &modelJob{name: "count", c: 0.8, b: 0.4}
				e := newEqualQueue(t, "queues: [{queue: etl, weight: 3, goal: equal-slowdown}]", delay, gen, count)
				e.report()
				before := max(gen.slowdown(), count.slowdown())
				turns, direction, last := 0, 0.0, 1.0
				for range 600 {
					e.report()
					ratio := count.weight / gen.weight
					if change := ratio - last; math.Abs(change) > 0.01*last {
						if change*direction < 0 {
							turns++
						}
						direction, last = change, ratio
					}
				}
				x, y := gen.slowdown(), count.slowdown()
				if math.Abs(x-y) > 0.05 || max(x, y) >= before {
					t.Errorf("slowdowns %.3f and %.3f, the worse one was %.3f", x, y, before)
				}
				if turns > 2 { // the loop is damped, but passes its end once
					t.Errorf("the weights' ratio turned %d times", turns)
				}
				s := e.state("gen")
				if math.Abs(s.GetSlowdown()-x) > 0.05 || math.Abs(s.GetSlowdownOverall()-x) > 0.05 || s.GetFactor() <= 1 || s.GetSlowdownGoal() != 1 || s.GetWaits() < 0.9 {
					t.Errorf("slowdown %.3f: %v", x, s)
				}
				if f := e.state("count").GetFactor(); f >= 1 {
					t.Errorf("the factor of count is %v", f)
				}
				if spread := e.b.slowdowns.spread; spread < 1 || spread > 1.05 {
					t.Errorf("spread %v", spread)
				}
			})
		})
	}
}

// TestGoalsInTheBroker: performance is in proportion to the rules' goals, and weights without a goal do not move.
func TestGoalsInTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &modelJob{name: "a", b: 1}, &modelJob{name: "b", b: 1}
		e := newEqualQueue(t, "queues: [{queue: etl, weight: 1, goal: equal-slowdown}]\nrules: [{user: a, slowdown: 2}]", 1, a, b)
		for range 600 {
			e.report()
		}
		if ratio := b.slowdown() / a.slowdown(); math.Abs(ratio-2) > 0.1 {
			t.Errorf("slowdowns in the ratio %.3f", ratio)
		}
		if g := e.state("a").GetSlowdownGoal(); g != 2 {
			t.Errorf("goal %v", g)
		}
		p, err := policyfile.Parse([]byte("queues: [{queue: etl, weight: 1}]"))
		if err != nil {
			t.Fatal(err)
		}
		e.b.policy = p
		e.report()
		e.report()
		if a.weight != 1 || b.weight != 1 {
			t.Errorf("weights %v and %v after the goal was removed", a.weight, b.weight)
		}
		if s := e.state("a"); s.GetFactor() != 0 || s.GetSlowdownGoal() != 0 || s.GetSlowdown() == 0 {
			t.Errorf("%v", s)
		}
	})
}

// TestAProcessorBoundJobTakesNothing: a job that computes leaves the weights of two others as they are without it, and its own
// factor is 1. Factors stay within their bounds if no weights can reach the goal.
func TestAProcessorBoundJobTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "queues: [{queue: etl, weight: 1, goal: equal-slowdown}]\nrules: [{user: favoured, slowdown: 10}]"
		compute, favoured, other := &modelJob{name: "compute", c: 1, b: 0.02}, &modelJob{name: "favoured", b: 1}, &modelJob{name: "other", b: 1}
		e := newEqualQueue(t, text, 1, compute, favoured, other)
		for range 600 {
			e.report()
		}
		if s := e.state("compute"); compute.slowdown() > 1.001 || s.GetFactor() != 1 || s.GetSlowdown() != 1 {
			t.Errorf("slowdown %.3f: %v", compute.slowdown(), s)
		}
		for _, name := range []string{"favoured", "other"} {
			if f := e.state(name).GetFactor(); f < 1.0/slowdown.MaxFactor-1e-9 || f > slowdown.MaxFactor+1e-9 {
				t.Errorf("the factor of %s is %v", name, f)
			}
		}
		if ratio := favoured.weight / other.weight; ratio < 9 || ratio > 64.1 {
			t.Errorf("weights in the ratio %v", ratio)
		}
	})
}

// TestSlowdownStateIsBounded: estimates of applications that end are forgotten, a new leader begins with the policy's weights,
// and there is a bound on the number of estimates.
func TestSlowdownStateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &modelJob{name: "a", b: 1}, &modelJob{name: "b", c: 0.8, b: 0.4}
		e := newEqualQueue(t, "queues: [{queue: etl, weight: 1, goal: equal-slowdown}]", 0, a, b)
		for range 100 {
			e.report()
		}
		if a.weight == b.weight {
			t.Error("the weights have not moved")
		}
		e.b.slowdowns.at = 0
		e.b.beginEpoch(7)
		if len(e.b.slowdowns.apps) != 0 {
			t.Errorf("%d estimates of the last leader", len(e.b.slowdowns.apps))
		}
		e.report()
		if a.weight != b.weight {
			t.Errorf("a new leader's weights: %v and %v", a.weight, b.weight)
		}
		e.name(0, "")
		e.name(1, "")
		e.jobs = nil
		e.report()
		if len(e.b.slowdowns.apps) != 2 {
			t.Errorf("%d estimates right after the applications ended", len(e.b.slowdowns.apps))
		}
		time.Sleep(slowdownRetention)
		e.report()
		if len(e.b.slowdowns.apps) != 0 {
			t.Errorf("%d estimates of applications that ended", len(e.b.slowdowns.apps))
		}
		var names []string
		grants := make([]policy.Grant, maxSlowdowns+10)
		for i := range grants {
			names = append(names, fmt.Sprint("app", i))
			grants[i] = policy.Grant{Rule: -1, Weight: 1, Queue: "etl"}
		}
		e.b.applySlowdowns(names, grants)
		if len(e.b.slowdowns.apps) != maxSlowdowns {
			t.Errorf("%d estimates", len(e.b.slowdowns.apps))
		}
	})
}

// TestSlowdownsOfNodes: nodes report how flows wait, operators see the estimates, and nodes get the weights that move.
func TestSlowdownsOfNodes(t *testing.T) {
	served := serveQueues(t, "127.0.0.1:0", "queues: [{queue: etl, weight: 1, goal: equal-slowdown}]\nrules: [{flow: a, slowdown: 2, weight: 3}, {weight: 3}]", map[string]string{"a": "etl", "b": "etl"})
	m := node(t, "first", []string{served.address}, "a", "b")
	state := func(flow string) *cluster.ApplicationState {
		all, err := operators{b: served.Broker}.ListApplications(callFrom("127.0.0.1"), &cluster.ListApplicationsRequest{Application: flow})
		if err != nil {
			t.Fatal(err)
		}
		if len(all.GetApplications()) == 0 {
			return nil
		}
		return all.GetApplications()[0]
	}
	eventually(t, "estimates of both", func() bool {
		a, b := state("a"), state("b")
		return a.GetSlowdown() > 1.8 && b.GetSlowdown() > 1.8 && a.GetWaits() > 0.9
	})
	if families, err := served.Broker.metrics.registry.Gather(); err != nil {
		t.Error(err)
	} else {
		found := map[string]float64{}
		for _, f := range families {
			if len(f.GetMetric()) == 1 && f.GetMetric()[0].GetGauge() != nil {
				found[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if found["penstock_broker_slowdown_applications"] != 2 || found["penstock_broker_slowdown_spread"] < 1.1 {
			t.Errorf("metrics %v", found)
		}
	}
	eventually(t, "a has more weight than b at the node, and a smaller slowdown", func() bool {
		a, b := state("a"), state("b")
		return m.right("a").Weight > 1.1*m.right("b").Weight && a.GetSlowdown() < b.GetSlowdown() && a.GetFactor() > 1 && b.GetFactor() < 1
	})
}
