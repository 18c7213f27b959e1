package sfq_test

import (
	"errors"
	"math/big"
	"slices"

	"penstock/core/sfq"
	"penstock/lab/requests"
)

// pair drives a scheduler and the model through the same operations and stops the test at the first
// difference. Indices are taken modulo the number of flows or requests, so any numbers make a valid
// walk.
type pair struct {
	t     fataler
	s     *requests.Queues
	m     *model
	cfg   sfq.Config
	exact bool // all weights are powers of two, so there is no rounding
	flows []sfq.Flow
	live  []live
	ref   uint64
	slack *big.Rat // minimum distance of two start tags for their order to be certain
}

type live struct {
	h   requests.Handle
	m   *modelRequest
	ref uint64
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// tolerance is the initial slack of a pair. One rounding is below 2^-32, and a walk has fewer than
// 2^12 roundings. A change to a smaller weight enlarges earlier errors (keeps).
var tolerance = big.NewRat(1, 1<<20)

// keeps enlarges the slack for a change of weight, which multiplies tags by old/new, and with them
// their errors and the error of v.
func (p *pair) keeps(old, new int64) {
	if r := big.NewRat(2*old-new, new); r.Cmp(big.NewRat(1, 1)) > 0 {
		p.slack = r.Mul(r, p.slack)
	}
}

// mostQueued bounds a flow's queue in a walk, because the model sums up each request.
const mostQueued = 5

func newPair(t fataler, cfg sfq.Config, depth int, exact bool) *pair {
	s, err := sfq.New(cfg)
	if err != nil {
		t.Fatalf("New(%+v): %v", cfg, err)
	}
	if cfg.MaxLead == 0 {
		cfg.MaxLead = sfq.DefaultMaxLead
	}
	return &pair{t: t, s: requests.New(s, depth), m: newModel(depth, cfg.MaxLead), cfg: cfg, exact: exact, slack: tolerance}
}

func (p *pair) want(what string, got, want error) bool {
	p.t.Helper()
	if !errors.Is(got, want) {
		p.t.Fatalf("%s: got error %v, want %v\n%s", what, got, want, p.s)
	}
	return want == nil
}

// weight rounds a weight down to a power of two if the pair is exact.
func (p *pair) weight(w int) int {
	for p.exact && w&(w-1) != 0 {
		w &= w - 1
	}
	return w
}

// setQueue puts a flow into a queue, and checks that the bound on queues holds.
func (p *pair) setQueue(i int, path []sfq.Level) {
	p.t.Helper()
	if len(p.flows) == 0 {
		return
	}
	f := p.flows[i%len(p.flows)]
	at, missing := p.m.root, 0
	for i := range path {
		path[i].Weight = p.weight(path[i].Weight)
		if at != nil {
			at = at.named(path[i].Name)
		}
		if at == nil {
			missing++
		} else {
			p.keeps(at.weight, int64(path[i].Weight))
		}
	}
	var want error
	if missing > 0 && p.m.root.queues()+missing > p.cfg.MaxQueues {
		want = sfq.ErrTooManyQueues
	}
	if p.want("SetQueue", p.s.SetQueue(f, path), want) {
		p.keeps(2, 1) // two virtual times, each with an error
		p.m.setQueue(f, path)
	}
	p.check()
}

func (p *pair) addFlow(weight int) {
	p.t.Helper()
	weight = p.weight(weight)
	f, err := p.s.AddFlow(weight)
	var want error
	if len(p.flows) == p.cfg.MaxFlows {
		want = sfq.ErrTooManyFlows
	}
	if p.want("AddFlow", err, want) {
		if slices.Contains(p.flows, f) || int(f) >= p.cfg.MaxFlows {
			p.t.Fatalf("AddFlow returned %d, existing flows are %v", f, p.flows)
		}
		p.flows = append(p.flows, f)
		p.m.addFlow(f, int64(weight))
	}
	p.check()
}

func (p *pair) removeFlow(i int) {
	p.t.Helper()
	if len(p.flows) == 0 {
		p.want("RemoveFlow", p.s.RemoveFlow(0), sfq.ErrUnknownFlow)
		return
	}
	i %= len(p.flows)
	f := p.flows[i]
	mf := p.m.flows[f]
	var want error
	if len(mf.queue) > 0 || mf.out > 0 {
		want = sfq.ErrFlowBusy
	}
	if p.want("RemoveFlow", p.s.RemoveFlow(f), want) {
		p.flows = slices.Delete(p.flows, i, i+1)
		p.m.removeFlow(f)
		_, err := p.s.Submit(f, 1, 0)
		p.want("Submit to a removed flow", err, sfq.ErrUnknownFlow)
	}
	p.check()
}

func (p *pair) setWeight(i, weight int) {
	p.t.Helper()
	if len(p.flows) == 0 {
		return
	}
	weight = p.weight(weight)
	f := p.flows[i%len(p.flows)]
	p.keeps(p.m.flows[f].weight, int64(weight))
	p.want("SetWeight", p.s.SetWeight(f, weight), nil)
	p.m.setWeight(f, int64(weight))
	p.check()
}

func (p *pair) submit(i int, cost int64) {
	p.t.Helper()
	if len(p.flows) == 0 {
		return
	}
	f := p.flows[i%len(p.flows)]
	if len(p.m.flows[f].queue) == mostQueued {
		return
	}
	p.ref++
	h, err := p.s.Submit(f, cost, p.ref)
	if p.want("Submit", err, nil) {
		p.live = append(p.live, live{h, p.m.submit(f, cost), p.ref})
	}
	p.check()
}

// next also checks that the scheduler is work-conserving: it dispatches a request if and only if
// one waits and the depth allows it.
func (p *pair) next() {
	p.t.Helper()
	r, ok := p.s.Next()
	due := p.m.first()
	if want := due != nil && p.m.out < p.m.depth; ok != want {
		p.t.Fatalf("Next dispatched: %v, want %v\n%s", ok, want, p.s)
	}
	if !ok {
		return
	}
	i := slices.IndexFunc(p.live, func(l live) bool { return l.h == r.Handle })
	if i < 0 || p.live[i].ref != r.Ref {
		p.t.Fatalf("Next returned %+v, which is not a live request", r)
	}
	got := p.live[i].m
	if got != p.m.flows[r.Flow].queue[0] {
		p.t.Fatalf("Next returned %+v, which is not its flow's first\n%s", r, p.s)
	}
	if got != due {
		late := p.m.late(got.flow, due.flow)
		if p.exact || late.Cmp(p.slack) > 0 {
			p.t.Fatalf("Next dispatched r%d of flow %d, its start tag is %s too large: want flow %d\n%s",
				r.Ref, r.Flow, late.FloatString(9), due.flow, p.s)
		}
	}
	p.m.dispatch(r.Flow)
	p.check()
}

// pick returns the i-th live request that is outstanding, or that is not.
func (p *pair) pick(i int, outstanding bool) (live, bool) {
	var of []live
	for _, r := range p.live {
		if (r.m.service != nil) == outstanding {
			of = append(of, r)
		}
	}
	if len(of) == 0 {
		return live{}, false
	}
	return of[i%len(of)], true
}

func (p *pair) forget(r live) {
	p.live = slices.DeleteFunc(p.live, func(l live) bool { return l.h == r.h })
}

// complete ends an outstanding request; a negative cost means the submitted cost.
func (p *pair) complete(i int, cost int64) {
	p.t.Helper()
	r, ok := p.pick(i, true)
	if !ok {
		return
	}
	if cost < 0 {
		cost = r.m.cost
	}
	p.want("Complete", p.s.Complete(r.h, cost), nil)
	p.m.end(r.m, cost)
	p.forget(r)
	p.check()
}

func (p *pair) cancel(i int, outstanding bool) {
	p.t.Helper()
	r, ok := p.pick(i, outstanding)
	if !ok {
		return
	}
	p.want("Cancel", p.s.Cancel(r.h), nil)
	if outstanding {
		p.m.end(r.m, 0)
	} else {
		p.m.withdraw(r.m)
	}
	p.forget(r)
	p.check()
}

func (p *pair) charge(i int, cost int64) {
	p.t.Helper()
	if len(p.flows) == 0 {
		return
	}
	f := p.flows[i%len(p.flows)]
	p.want("Charge", p.s.Charge(f, cost), nil)
	p.m.charge(f, cost)
	p.check()
}

func (p *pair) void(i int) {
	p.t.Helper()
	if len(p.flows) == 0 {
		return
	}
	f := p.flows[i%len(p.flows)]
	p.want("Void", p.s.Void(f), nil)
	p.m.void(f)
	p.check()
}

func (p *pair) trim() {
	p.t.Helper()
	p.s.Trim()
	p.m.trim()
	p.check()
}

func (p *pair) setDepth(d int) {
	p.t.Helper()
	p.s.SetDepth(d)
	p.m.depth = max(d, 1)
	p.check()
}

// drain serves the remaining requests, so that every walk ends in a full order.
func (p *pair) drain() {
	p.t.Helper()
	for p.s.Waiting() > 0 || p.s.Outstanding() > 0 {
		p.next()
		if p.s.Outstanding() >= p.s.Depth() || p.s.Waiting() == 0 {
			p.complete(0, -1)
		}
	}
}

func (p *pair) check() {
	p.t.Helper()
	if p.s.Outstanding() != p.m.out || p.s.Waiting() != p.m.waiting() || p.s.Depth() != p.m.depth {
		p.t.Fatalf("outstanding %d, waiting %d, depth %d; want %d, %d, %d\n%s", p.s.Outstanding(), p.s.Waiting(), p.s.Depth(), p.m.out, p.m.waiting(), p.m.depth, p.s)
	}
	ready := 0
	for _, f := range p.flows {
		if len(p.m.flows[f].queue) > 0 {
			ready++
		}
		if got, want := p.s.Queued(f), len(p.m.flows[f].queue); got != want {
			p.t.Fatalf("flow %d has %d queued, want %d\n%s", f, got, want, p.s)
		}
	}
	if got := p.s.Scheduler.Waiting(); got != ready {
		p.t.Fatalf("%d flows are ready, want %d\n%s", got, ready, p.s)
	}
}
