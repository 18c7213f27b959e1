package sfq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/core/sfq"
	"penstock/lab/requests"
)

// queueing returns operations that put flows into random queues. There are few names, so that flows
// share queues.
func queueing(p *pair) map[string]func(*rapid.T) {
	weight := rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, sfq.MaxWeight))
	name := rapid.SampledFrom([]string{"a", "b"})
	path := rapid.Custom(func(t *rapid.T) (path []sfq.Level) {
		for range rapid.IntRange(0, 3).Draw(t, "levels") {
			path = append(path, sfq.Level{Name: name.Draw(t, "name"), Weight: weight.Draw(t, "weight of the queue")})
		}
		return path
	})
	set := func(t *rapid.T) { p.setQueue(rapid.IntRange(0, 30).Draw(t, "flow"), path.Draw(t, "path")) }
	return map[string]func(*rapid.T){"SetQueue": set, "SetQueue too": set}
}

// TestQueuesDecideAsModelExactly adds, removes and changes flows and queues at random, while
// requests are queued and in flight. The order of dispatch must be the exact model's at every step,
// every request must be dispatched once, and no request may wait while the depth allows one.
func TestQueuesDecideAsModelExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { walkWith(t, true, queueing) })
}

func TestQueuesDecideAsModelWithinRounding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { walkWith(t, false, queueing) })
}

// twins are two schedulers that must make the same decisions.
type twins struct {
	a, b *requests.Queues
	out  [][2]requests.Request
}

func (w *twins) both(t *rapid.T, do func(*requests.Queues) error) {
	t.Helper()
	errA, errB := do(w.a), do(w.b)
	if !errors.Is(errA, errB) {
		t.Fatalf("%v and %v", errA, errB)
	}
}

// TestOneLevelDecidesAsNone checks that queues do not change decisions if all flows are in one
// queue at any depth, or if each flow has a queue of its own with the flow's weight.
func TestOneLevelDecidesAsNone(t *testing.T) {
	for name, path := range map[string]func(f sfq.Flow, weight int) []sfq.Level{
		"all in one":      func(sfq.Flow, int) []sfq.Level { return []sfq.Level{{Name: "q", Weight: 7}} },
		"deep":            func(sfq.Flow, int) []sfq.Level { return deep(sfq.MaxLevels) },
		"each in its own": func(f sfq.Flow, weight int) []sfq.Level { return []sfq.Level{{Name: fmt.Sprint(f), Weight: weight}} },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				depth := rapid.IntRange(1, 6).Draw(t, "depth")
				w := twins{a: newQueues(t, sfq.Config{}, depth), b: newQueues(t, sfq.Config{}, depth)}
				const flows = 4
				weights := rapid.OneOf(rapid.IntRange(1, 8), rapid.IntRange(1, 1000))
				put := func(f sfq.Flow, weight int) {
					if err := w.b.SetQueue(f, path(f, weight)); err != nil {
						t.Fatal(err)
					}
				}
				for f := range sfq.Flow(flows) {
					weight := weights.Draw(t, "weight")
					w.both(t, func(s *requests.Queues) error { _, err := s.AddFlow(weight); return err })
					put(f, weight)
				}
				flow := func() sfq.Flow { return sfq.Flow(rapid.IntRange(0, flows-1).Draw(t, "flow")) }
				cost := rapid.Int64Range(1, 50)
				ref := uint64(0)
				submit := func(t *rapid.T) {
					f, c := flow(), cost.Draw(t, "cost")
					ref++
					w.both(t, func(s *requests.Queues) error { _, err := s.Submit(f, c, ref); return err })
				}
				next := func(t *rapid.T) {
					a, okA := w.a.Next()
					b, okB := w.b.Next()
					if okA != okB || a.Ref != b.Ref {
						t.Fatalf("r%d (%v) without queues, r%d (%v) with\n%s\n%s", a.Ref, okA, b.Ref, okB, w.a, w.b)
					}
					if okA {
						w.out = append(w.out, [2]requests.Request{a, b})
					}
				}
				actions := map[string]func(*rapid.T){
					"Submit": submit, "Submit too": submit, "Next": next, "Next too": next,
					"Complete": func(t *rapid.T) {
						if len(w.out) == 0 {
							return
						}
						i, actual := rapid.IntRange(0, len(w.out)-1).Draw(t, "request"), rapid.Int64Range(0, 60).Draw(t, "actual")
						o := w.out[i]
						w.out = append(w.out[:i:i], w.out[i+1:]...)
						if err := errors.Join(w.a.Complete(o[0].Handle, actual), w.b.Complete(o[1].Handle, actual)); err != nil {
							t.Fatal(err)
						}
					},
					"Charge": func(t *rapid.T) {
						f, c := flow(), cost.Draw(t, "cost")
						w.both(t, func(s *requests.Queues) error { return s.Charge(f, c) })
					},
				}
				if name != "each in its own" { // there the queue's weight decides, not the flow's
					actions["SetWeight"] = func(t *rapid.T) {
						f, weight := flow(), weights.Draw(t, "weight")
						w.both(t, func(s *requests.Queues) error { return s.SetWeight(f, weight) })
					}
				} else {
					actions["SetQueue"] = func(t *rapid.T) {
						f, weight := flow(), weights.Draw(t, "weight")
						if err := w.a.SetWeight(f, weight); err != nil {
							t.Fatal(err)
						}
						put(f, weight)
					}
				}
				for range rapid.IntRange(1, 4).Draw(t, "length") {
					t.Repeat(actions)
				}
			})
		})
	}
}

func deep(levels int) (path []sfq.Level) {
	for i := range levels {
		path = append(path, sfq.Level{Name: "q", Weight: 1 + i})
	}
	return path
}

// grown is a random tree with flows that always have requests queued.
type grown struct {
	s       *requests.Queues
	paths   [][]sfq.Level
	weights []int64
	largest int64   // cost
	done    []int64 // cost dispatched, by flow
	asleep  []bool  // has no requests queued and is not served
}

func grow(t *rapid.T) *grown {
	s := newQueues(t, sfq.Config{}, 1)
	g := &grown{s: s, largest: rapid.Int64Range(1, 100).Draw(t, "largest cost")}
	var queues [][]sfq.Level
	queues = append(queues, nil)
	for i := range rapid.IntRange(1, 5).Draw(t, "queues") {
		parent := rapid.SampledFrom(queues).Draw(t, "parent")
		path := append(append([]sfq.Level{}, parent...), sfq.Level{Name: fmt.Sprint(i), Weight: rapid.IntRange(1, 9).Draw(t, "weight")})
		queues = append(queues, path)
	}
	for f := range sfq.Flow(rapid.IntRange(2, 8).Draw(t, "flows")) {
		path, weight := rapid.SampledFrom(queues).Draw(t, "path"), rapid.IntRange(1, 9).Draw(t, "weight")
		if _, err := s.AddFlow(weight); err != nil {
			t.Fatal(err)
		}
		if err := s.SetQueue(f, path); err != nil {
			t.Fatal(err)
		}
		g.paths, g.weights = append(g.paths, path), append(g.weights, int64(weight))
		g.done, g.asleep = append(g.done, 0), append(g.asleep, false)
	}
	return g
}

// serve keeps the queues of all awake flows filled and dispatches n requests.
func (g *grown) serve(t *rapid.T, n int) {
	for range n {
		for f, asleep := range g.asleep {
			for !asleep && g.s.Queued(sfq.Flow(f)) < 2 {
				if _, err := g.s.Submit(sfq.Flow(f), rapid.Int64Range(1, g.largest).Draw(t, "cost"), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		r, ok := g.s.Next()
		if !ok {
			t.Fatalf("no flow is ready\n%s", g.s)
		}
		g.done[r.Flow] += r.Cost
		if err := g.s.Complete(r.Handle, r.Cost); err != nil {
			t.Fatal(err)
		}
	}
}

// member is a flow or queue with its service and its weight.
type member struct {
	parent string
	weight int64
	served int64
	awake  bool
}

func (g *grown) members() map[string]*member {
	all := map[string]*member{}
	add := func(path, parent string, weight, served int64, awake bool) {
		m := all[path]
		if m == nil {
			m = &member{parent: parent, weight: weight}
			all[path] = m
		}
		m.served += served
		m.awake = m.awake || awake
	}
	for f, path := range g.paths {
		at := "/"
		for _, l := range path {
			add(at+l.Name+"/", at, int64(l.Weight), g.done[f], !g.asleep[f])
			at += l.Name + "/"
		}
		add(fmt.Sprintf("%sflow %d", at, f), at, g.weights[f], g.done[f], !g.asleep[f])
	}
	return all
}

// TestSiblingsAreServedByWeight checks each level of the tree. Any two siblings that always have
// requests queued are served in proportion to their weights, within one request of each, whichever
// other flows are idle. So the service of an idle flow goes to its siblings first, and its queue's
// service does not change.
func TestSiblingsAreServedByWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := grow(t)
		for range rapid.IntRange(1, 4).Draw(t, "phases") {
			awake := 0
			for f := range g.asleep {
				// The last requests of a sleeping flow are served in the previous phase.
				if g.asleep[f] = rapid.IntRange(0, 2).Draw(t, "asleep") == 0; !g.asleep[f] {
					awake++
				}
			}
			if awake == 0 {
				g.asleep[0] = false
			}
			for f, asleep := range g.asleep {
				if asleep {
					g.drain(t, sfq.Flow(f))
				}
			}
			before := g.members()
			for range rapid.IntRange(1, 5).Draw(t, "times") {
				g.serve(t, rapid.IntRange(1, 60).Draw(t, "requests"))
				after := g.members()
				for x, a := range after {
					if !a.awake && a.served != before[x].served {
						t.Fatalf("%s is asleep but was served", x)
					}
					for y, b := range after {
						if x >= y || a.parent != b.parent || !a.awake || !b.awake {
							continue
						}
						// The gap is multiplied by both weights. The bound is one request of each,
						// and the rest of the previous phase.
						gap := (a.served-before[x].served)*b.weight - (b.served-before[y].served)*a.weight
						if bound := g.largest*(a.weight+b.weight) + 1; gap > bound || -gap > bound {
							t.Fatalf("%s (weight %d) and %s (%d) differ by %d, want at most %d\n%s", x, a.weight, y, b.weight, gap, bound, g.s)
						}
					}
				}
			}
		}
	})
}

// drain serves until a flow has no requests queued. The queues of the other flows stay filled.
func (g *grown) drain(t *rapid.T, f sfq.Flow) {
	for g.s.Queued(f) > 0 {
		g.serve(t, 1)
	}
}

// TestQueueBounds checks each bound of SetQueue at its limit. A refused call must change nothing.
func TestQueueBounds(t *testing.T) {
	s, err := sfq.New(sfq.Config{MaxQueues: sfq.MaxLevels + 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.AddFlow(1); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, f sfq.Flow, want error, path ...sfq.Level) {
		t.Helper()
		before := s.String()
		if err := s.SetQueue(f, path); !errors.Is(err, want) {
			t.Fatalf("%s: got %v, want %v", what, err, want)
		}
		if want != nil && s.String() != before {
			t.Errorf("%s: the refused call changed\n%s\nto\n%s", what, before, s)
		}
	}
	long := strings.Repeat("x", sfq.MaxQueueName)
	want("an unknown flow", 3, sfq.ErrUnknownFlow)
	want("no name", 0, sfq.ErrQueue, sfq.Level{Weight: 1})
	want("too long a name", 0, sfq.ErrQueue, sfq.Level{Name: long + "x", Weight: 1})
	want("no weight", 0, sfq.ErrWeight, sfq.Level{Name: "a"})
	want("too large a weight", 0, sfq.ErrWeight, sfq.Level{Name: "a", Weight: sfq.MaxWeight + 1})
	want("a bad level below a good one", 0, sfq.ErrWeight, sfq.Level{Name: "a", Weight: 1}, sfq.Level{Name: "b"})
	want("too deep", 0, sfq.ErrQueue, deep(sfq.MaxLevels+1)...)
	want("the largest depth", 0, nil, deep(sfq.MaxLevels)...)
	want("the longest name, the largest weight", 1, nil, sfq.Level{Name: long, Weight: sfq.MaxWeight})
	want("one queue too many", 2, sfq.ErrTooManyQueues, sfq.Level{Name: "a", Weight: 1})
	want("an existing queue", 2, nil, sfq.Level{Name: "q", Weight: 1})
	want("back to the root", 1, nil)
	want("in a free place", 1, nil, sfq.Level{Name: "a", Weight: 1})
	if strings.Contains(s.String(), long) {
		t.Error("an empty queue still exists")
	}
	if err := s.RemoveFlow(1); err != nil {
		t.Fatal(err)
	}
	want("in the place of a removed flow's queue", 2, nil, sfq.Level{Name: "b", Weight: 1})
	for _, bad := range []int{-1, 1<<16 + 1} {
		if _, err := sfq.New(sfq.Config{MaxQueues: bad}); err == nil {
			t.Errorf("%d invalid queues were accepted", bad)
		}
	}
}

// FuzzQueues is FuzzScheduler with flows in queues.
func FuzzQueues(f *testing.F) {
	f.Add([]byte{2, 251, 0, 9, 3, 0, 5, 252, 1, 17, 3, 1, 5, 6, 0, 0, 250, 0, 0, 6, 0, 0, 9, 0, 9})
	f.Fuzz(func(t *testing.T, ops []byte) { fuzz(t, ops) })
}

// TestMovingIntoBusyQueue checks that a flow that moves into a queue with queued requests, even if
// they are only the flow's own, begins no run of the queue. A later correction must count in the
// run in which the request was charged.
func TestMovingIntoBusyQueue(t *testing.T) {
	q, inner := sfq.Level{Name: "q", Weight: 1}, sfq.Level{Name: "inner", Weight: 1}
	for name, c := range map[string]struct {
		from, to []sfq.Level
		other    bool // another flow moves
	}{
		"another":      {from: []sfq.Level{q}, to: []sfq.Level{q}, other: true},
		"further in":   {from: []sfq.Level{q}, to: []sfq.Level{q, inner}},
		"further out":  {from: []sfq.Level{q, inner}, to: []sfq.Level{q}},
		"other inside": {from: []sfq.Level{q, inner}, to: []sfq.Level{q}, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, sfq.Config{MaxFlows: 3, MaxQueues: 4}, 3, true)
			const b, a, third = 0, 1, 2
			for range 3 {
				p.addFlow(1)
			}
			p.setQueue(b, c.from)
			for _, f := range []int{b, a} {
				for range 4 {
					p.submit(f, 100)
				}
			}
			for range 3 {
				p.next() // b, a, b
			}
			moves := b
			if c.other {
				p.submit(third, 100)
				moves = third
			}
			p.setQueue(moves, c.to)
			p.cancel(0, true) // both requests of b, which are the oldest
			p.cancel(0, true)
			p.next()
			p.next()
			p.drain()
		})
	}
}
