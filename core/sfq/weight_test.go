package sfq_test

import (
	"testing"

	"pgregory.net/rapid"

	"penstock/core/sfq"
	"penstock/lab/requests"
)

// changing is a set of flows that always have requests queued. Their weights change at random. They
// may be in queues, whose weights change too.
type changing struct {
	sched   *sfq.Scheduler
	s       *requests.Queues
	largest int64
	due     []float64 // by flow: sum over the looks of weight times progress of the root's v
	got     []float64 // dispatched cost, by flow
	before  float64   // v at the last look
}

func newChanging(t *rapid.T, flows int) *changing {
	s, err := sfq.New(sfq.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := &changing{sched: s, s: requests.New(s, rapid.IntRange(1, 4).Draw(t, "depth")), largest: rapid.Int64Range(1, 1000).Draw(t, "largest cost"),
		due: make([]float64, flows), got: make([]float64, flows)}
	for range flows {
		if _, err := s.AddFlow(c.weight(t)); err != nil {
			t.Fatal(err)
		}
	}
	c.fill(t)
	return c
}

// weight draws a weight. Some weights are very small compared with others, as parts may be.
func (c *changing) weight(t *rapid.T) int {
	return rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(500, 2000)).Draw(t, "weight")
}

func (c *changing) fill(t *rapid.T) {
	for f := range c.due {
		for c.s.Queued(sfq.Flow(f)) < 2 {
			if _, err := c.s.Submit(sfq.Flow(f), rapid.Int64Range(1, c.largest).Draw(t, "cost"), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// look adds the progress of v since the last look, at the weights in force.
func (c *changing) look() {
	now := c.sched.V()
	for f := range c.due {
		c.due[f] += (now - c.before) * float64(c.sched.Weight(sfq.Flow(f)))
	}
	c.before = now
}

func (c *changing) serve(t *rapid.T, n int) {
	for range n {
		r, ok := c.s.Next()
		if !ok {
			t.Fatalf("no flow is ready\n%s", c.s)
		}
		c.got[r.Flow] += float64(r.Cost)
		c.look()
		if err := c.s.Complete(r.Handle, r.Cost); err != nil {
			t.Fatal(err)
		}
		c.fill(t)
	}
}

// TestServiceFollowsTheWeightsOfEachMoment changes weights often and at any time. Each flow must
// receive the service that its weights were worth while they were in force, within one request. So
// no flow gains more than one request by a change of its own or another weight. After each change,
// service follows the new weights.
func TestServiceFollowsTheWeightsOfEachMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChanging(t, rapid.IntRange(2, 5).Draw(t, "flows"))
		least, most := make([]float64, len(c.due)), make([]float64, len(c.due))
		for range rapid.IntRange(10, 100).Draw(t, "steps") {
			c.serve(t, rapid.IntRange(0, 4).Draw(t, "requests"))
			if rapid.Bool().Draw(t, "change") {
				if err := c.s.SetWeight(sfq.Flow(rapid.IntRange(0, len(c.due)-1).Draw(t, "flow")), c.weight(t)); err != nil {
					t.Fatal(err)
				}
			}
			for f := range c.due {
				gap := c.got[f] - c.due[f]
				least[f], most[f] = min(least[f], gap), max(most[f], gap)
				if apart := most[f] - least[f]; apart > float64(c.largest)+1e-3 {
					t.Fatalf("flow %d differs by %v from the service that its weights were worth, want at most one request, %d\n%s", f, apart, c.largest, c.s)
				}
			}
		}
	})
}

// TestTogglingGainsNothing changes a flow's weight before each decision. The flow must not get more
// service than with the larger weight all the time, plus one request.
func TestTogglingGainsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChanging(t, 2)
		high := rapid.IntRange(2, 1000).Draw(t, "high")
		low := rapid.IntRange(1, high-1).Draw(t, "low")
		const steady = 100
		if err := c.s.SetWeight(1, steady); err != nil {
			t.Fatal(err)
		}
		c.got = make([]float64, 2)
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			weight := low
			if rapid.Bool().Draw(t, "is high") {
				weight = high
			}
			if err := c.s.SetWeight(0, weight); err != nil {
				t.Fatal(err)
			}
			c.serve(t, 1)
			bound := float64(c.largest) * (1 + float64(high)/steady)
			if got, most := c.got[0], c.got[1]*float64(high)/steady+bound+1e-3; got > most {
				t.Fatalf("served %v, want at most %v as with the larger weight", got, most)
			}
			bound = float64(c.largest) * (1 + float64(low)/steady)
			if got, least := c.got[0], c.got[1]*float64(low)/steady-bound-1e-3; got < least {
				t.Fatalf("served %v, want at least %v as with the smaller weight", got, least)
			}
		}
	})
}

// TestCorrectionAndWeightInEitherOrder checks that a correction and a change of weight have the
// same result in either order.
func TestCorrectionAndWeightInEitherOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := [2]int{1 << rapid.IntRange(0, 10).Draw(t, "old"), 1 << rapid.IntRange(0, 10).Draw(t, "new")}
		cost, actual := rapid.Int64Range(1, 1000).Draw(t, "cost"), rapid.Int64Range(0, 2000).Draw(t, "actual")
		queued := rapid.Bool().Draw(t, "queued")
		var ends [2]string
		for i := range ends {
			sched, err := sfq.New(sfq.Config{})
			if err != nil {
				t.Fatal(err)
			}
			s := requests.New(sched, 2)
			for range 2 {
				if _, err := s.AddFlow(weights[0]); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the other flow moves v
				if _, err := s.Submit(1, 50, 0); err != nil {
					t.Fatal(err)
				}
			}
			h, err := s.Submit(0, cost, 0)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				s.Next()
			}
			if queued {
				if _, err := s.Submit(0, 1, 0); err != nil {
					t.Fatal(err)
				}
			}
			for k := range 2 {
				if i == k {
					err = s.SetWeight(0, weights[1])
				} else {
					err = s.Complete(h, actual)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			ends[i] = sched.Finish(0)
		}
		if ends[0] != ends[1] {
			t.Fatalf("F is %s if the weight changes first, %s if the correction comes first", ends[0], ends[1])
		}
	})
}
