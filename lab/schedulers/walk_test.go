package schedulers_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/core/sfq"
	"penstock/lab/requests"
)

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// pair drives DRR and its model through the same operations and stops the test at the first
// difference. Indices are taken modulo the number of elements, so any numbers give a valid walk.
type pair struct {
	t     fataler
	s     *requests.Queues
	m     *model
	flows []sfq.Flow
	live  []live
	ref   uint64
}

type live struct {
	h   requests.Handle
	m   *modelRequest
	ref uint64
}

// Bounds of a walk.
const (
	mostFlows  = 6
	mostQueued = 5
)

func newPair(t fataler, depth int) *pair {
	return &pair{t: t, s: newDRR(t, depth), m: newModel(depth)}
}

func (p *pair) check(what string, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", what, err, p.s)
	}
	if p.s.Outstanding() != p.m.out || p.s.Waiting() != p.m.waiting() {
		p.t.Fatalf("%s: outstanding %d, queued %d, want %d and %d\n%s", what, p.s.Outstanding(), p.s.Waiting(), p.m.out, p.m.waiting(), p.s)
	}
}

func (p *pair) addFlow(weight int) {
	p.t.Helper()
	if len(p.flows) < mostFlows {
		f, err := p.s.AddFlow(weight)
		p.flows = append(p.flows, f)
		p.m.addFlow(f, int64(weight))
		p.check("AddFlow", err)
	}
}

// flow returns the i-th flow.
func (p *pair) flow(i int) (sfq.Flow, bool) {
	if len(p.flows) == 0 {
		return 0, false
	}
	return p.flows[i%len(p.flows)], true
}

func (p *pair) removeFlow(i int) {
	p.t.Helper()
	f, ok := p.flow(i)
	if !ok {
		return
	}
	err := p.s.RemoveFlow(f)
	if mf := p.m.flows[f]; len(mf.queue) > 0 || mf.out > 0 {
		if !errors.Is(err, sfq.ErrFlowBusy) {
			p.t.Fatalf("RemoveFlow of a busy flow: %v", err)
		}
		return
	}
	p.flows = slices.Delete(p.flows, i%len(p.flows), i%len(p.flows)+1)
	p.m.removeFlow(f)
	p.check("RemoveFlow", err)
}

func (p *pair) setWeight(i, weight int) {
	p.t.Helper()
	if f, ok := p.flow(i); ok {
		p.m.setWeight(f, int64(weight))
		p.check("SetWeight", p.s.SetWeight(f, weight))
	}
}

func (p *pair) submit(i int, cost int64) {
	p.t.Helper()
	f, ok := p.flow(i)
	if !ok || len(p.m.flows[f].queue) == mostQueued {
		return
	}
	p.ref++
	h, err := p.s.Submit(f, cost, p.ref)
	p.live = append(p.live, live{h, p.m.submit(f, cost), p.ref})
	p.check("Submit", err)
}

// next dispatches a request, and checks that work is conserved.
func (p *pair) next() {
	p.t.Helper()
	r, ok := p.s.Next()
	due := p.m.next()
	if ok != (due != nil) {
		p.t.Fatalf("Next dispatched: %v, want %v\n%s", ok, !ok, p.s)
	}
	if ok {
		i := slices.IndexFunc(p.live, func(l live) bool { return l.h == r.Handle })
		if i < 0 || p.live[i].m != due || p.live[i].ref != r.Ref {
			p.t.Fatalf("Next dispatched r%d of flow %d, due is a request of flow %d\n%s", r.Ref, r.Flow, due.flow, p.s)
		}
	}
	p.check("Next", nil)
}

// pick removes and returns the i-th live request that is, or is not, outstanding.
func (p *pair) pick(i int, outstanding bool) (live, bool) {
	var of []int
	for k, r := range p.live {
		if r.m.dispatched == outstanding {
			of = append(of, k)
		}
	}
	if len(of) == 0 {
		return live{}, false
	}
	k := of[i%len(of)]
	r := p.live[k]
	p.live = slices.Delete(p.live, k, k+1)
	return r, true
}

// complete ends an outstanding request. A cost below 0 means the submitted cost.
func (p *pair) complete(i int, cost int64) {
	p.t.Helper()
	r, ok := p.pick(i, true)
	if !ok {
		return
	}
	if cost < 0 {
		cost = r.m.cost
	}
	p.m.end(r.m, cost)
	p.check("Complete", p.s.Complete(r.h, cost))
}

func (p *pair) cancel(i int, outstanding bool) {
	p.t.Helper()
	r, ok := p.pick(i, outstanding)
	if !ok {
		return
	}
	if outstanding {
		p.m.end(r.m, 0)
	} else {
		p.m.withdraw(r.m)
	}
	p.check("Cancel", p.s.Cancel(r.h))
}

func (p *pair) charge(i int, cost int64) {
	p.t.Helper()
	if f, ok := p.flow(i); ok {
		p.m.turns.moved(f, cost)
		p.check("Charge", p.s.Charge(f, cost))
	}
}

func (p *pair) void(i int) {
	p.t.Helper()
	if f, ok := p.flow(i); ok {
		p.m.void(f)
		p.check("Void", p.s.Void(f))
	}
}

func (p *pair) setDepth(d int) {
	p.s.SetDepth(d)
	p.m.depth = max(d, 1)
}

// drain serves the remaining requests, so every walk ends with a complete order.
func (p *pair) drain() {
	p.t.Helper()
	for p.s.Waiting() > 0 || p.s.Outstanding() > 0 {
		p.next()
		if p.s.Outstanding() >= p.s.Depth() || p.s.Waiting() == 0 {
			p.complete(0, -1)
		}
	}
}

func TestDRRDecidesAsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t, rapid.IntRange(1, 8).Draw(t, "depth"))
		weight := rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, sfq.MaxWeight))
		cost := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, sfq.MaxCost), rapid.Just(int64(1<<20)))
		actual := rapid.OneOf(rapid.Just(int64(-1)), rapid.Int64Range(0, 40), rapid.Int64Range(0, sfq.MaxCost))
		index := rapid.IntRange(0, 30)
		submit := func(t *rapid.T) { p.submit(index.Draw(t, "flow"), cost.Draw(t, "cost")) }
		next := func(*rapid.T) { p.next() }
		actions := map[string]func(*rapid.T){
			"AddFlow":    func(t *rapid.T) { p.addFlow(weight.Draw(t, "weight")) },
			"RemoveFlow": func(t *rapid.T) { p.removeFlow(index.Draw(t, "flow")) },
			"SetWeight":  func(t *rapid.T) { p.setWeight(index.Draw(t, "flow"), weight.Draw(t, "weight")) },
			"Submit":     submit,
			"Submit too": submit,
			"Submit 3":   submit,
			"Next":       next,
			"Next too":   next,
			"Complete":   func(t *rapid.T) { p.complete(index.Draw(t, "request"), actual.Draw(t, "actual")) },
			"Cancel":     func(t *rapid.T) { p.cancel(index.Draw(t, "request"), rapid.Bool().Draw(t, "outstanding")) },
			"Charge":     func(t *rapid.T) { p.charge(index.Draw(t, "flow"), cost.Draw(t, "cost")) },
			"Void":       func(t *rapid.T) { p.void(index.Draw(t, "flow")) },
			"SetDepth":   func(t *rapid.T) { p.setDepth(rapid.IntRange(0, 8).Draw(t, "depth")) },
			"drain":      func(*rapid.T) { p.drain() },
		}
		for range 3 {
			p.addFlow(weight.Draw(t, "weight"))
		}
		// One Repeat has about 30 operations, too few for a queue to fill and age.
		for range rapid.IntRange(1, 8).Draw(t, "length") {
			t.Repeat(actions)
		}
		p.drain()
	})
}

// FuzzDRR reads a byte string as operations of three bytes each: operation, index and amount. The
// first byte selects the depth.
func FuzzDRR(f *testing.F) {
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) == 0 || len(ops) > 600 {
			return
		}
		p := newPair(t, 1+int(ops[0]>>1)%8)
		p.addFlow(1)
		p.addFlow(32)
		for ops = ops[1:]; len(ops) >= 3; ops = ops[3:] {
			which, much := int(ops[1]), int(ops[2])
			// Mostly small, and sometimes the largest.
			amount := min(1+int64(much&63)<<(much>>6*13), sfq.MaxCost)
			switch ops[0] % 12 {
			case 0:
				p.addFlow(min(int(amount), sfq.MaxWeight))
			case 1:
				p.removeFlow(which)
			case 2:
				p.setWeight(which, min(int(amount), sfq.MaxWeight))
			case 3, 4, 5:
				p.submit(which, amount)
			case 6, 7:
				p.next()
			case 8:
				p.complete(which, -1)
			case 9:
				p.complete(which, amount-1)
			case 10:
				p.cancel(which, much&1 == 0)
			case 11:
				switch much & 3 {
				case 0:
					p.setDepth(which % 9)
				case 1:
					p.drain()
				case 2:
					p.charge(which, amount)
				case 3:
					p.void(which)
				}
			}
		}
		p.drain()
	})
}
