package sfq_test

import (
	"testing"

	"pgregory.net/rapid"

	"penstock/core/sfq"
	"penstock/lab/requests"
)

// changing is flows that always have something queued and whose weights change at random;
// they may be in queues, whose weights change too.
type changing struct {
	sched   *sfq.Scheduler
	s       *requests.Queues
	largest int64
	due     []float64 // by flow: weight times what v of the root has moved, from the last look on
	got     []float64 // cost dispatched
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

// weight is now and then next to nothing, as a part may be.
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

// look adds up what v has moved, at the weights in force.
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
			t.Fatalf("nothing to dispatch\n%s", c.s)
		}
		c.got[r.Flow] += float64(r.Cost)
		c.look()
		if err := c.s.Complete(r.Handle, r.Cost); err != nil {
			t.Fatal(err)
		}
		c.fill(t)
	}
}

// However often weights change, and whenever: each flow has been served what its weights
// were worth while they were in force, and one request more at most. So nobody gains more than
// that by changing weights, one's own or another's; and from each change on service follows
// the new ones, as the flow comes to the change with no more than a request behind it.
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
					t.Fatalf("flow %d is %v off what its weights have been worth, a request has %d\n%s", f, apart, c.largest, c.s)
				}
			}
		}
	})
}

// A flow that changes its weight before each decision, to whatever it likes, has no more than
// one that has the larger of its weights all the time, and a request.
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
				t.Fatalf("served %v, at its larger weight it would be %v at most", got, most)
			}
			bound = float64(c.largest) * (1 + float64(low)/steady)
			if got, least := c.got[0], c.got[1]*float64(low)/steady-bound-1e-3; got < least {
				t.Fatalf("served %v, at its smaller weight it would be %v at least", got, least)
			}
		}
	})
}

// A correction and a change of weight may come in either order: the outcome is the same.
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
			for range 2 { // the other one moves v
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
			t.Fatalf("F is %s with the weight first, %s with the correction first", ends[0], ends[1])
		}
	})
}
