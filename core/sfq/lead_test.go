package sfq_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"penstock/core/sfq"
	"penstock/lab/requests"
)

// debtors are flows in a tree of queues that always have a request queued. Some flows receive
// charges all the time.
type debtors struct {
	s       *requests.Queues
	paths   [][]sfq.Level
	weights []int
	largest int64 // largest cost of a request
	lead    int64
}

func newDebtors(t *rapid.T) *debtors {
	d := &debtors{
		largest: rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 1_000_000)).Draw(t, "largest cost"),
		lead:    rapid.Int64Range(1, 10_000_000).Draw(t, "lead"),
	}
	d.s = newQueues(t, sfq.Config{MaxLead: d.lead}, 1)
	weight := rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, 1000))
	queues := [][]sfq.Level{nil}
	for i := range rapid.IntRange(0, 3).Draw(t, "queues") {
		parent := rapid.SampledFrom(queues).Draw(t, "parent")
		queues = append(queues, append(parent[:len(parent):len(parent)], sfq.Level{Name: fmt.Sprint(i), Weight: weight.Draw(t, "weight")}))
	}
	for f := range sfq.Flow(rapid.IntRange(1, 6).Draw(t, "flows")) {
		path, w := rapid.SampledFrom(queues).Draw(t, "path"), weight.Draw(t, "weight")
		d.paths, d.weights = append(d.paths, path), append(d.weights, w)
		if _, err := d.s.AddFlow(w); err != nil {
			t.Fatal(err)
		}
		if err := d.s.SetQueue(f, path); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *debtors) charge(t *rapid.T) {
	f := sfq.Flow(rapid.IntRange(0, len(d.paths)-1).Draw(t, "charged"))
	if err := d.s.Charge(f, rapid.Int64Range(1, sfq.MaxCost).Draw(t, "charge")); err != nil {
		t.Fatal(err)
	}
}

// fill makes all flows ready.
func (d *debtors) fill(t *rapid.T) {
	for f := range d.paths {
		if d.s.Queued(sfq.Flow(f)) == 0 {
			if _, err := d.s.Submit(sfq.Flow(f), rapid.Int64Range(1, d.largest).Draw(t, "cost"), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// serve dispatches a request while all flows are ready, and returns its flow and its cost.
func (d *debtors) serve(t *rapid.T) (sfq.Flow, int64) {
	d.fill(t)
	r, ok := d.s.Next()
	if !ok {
		t.Fatalf("no flow is ready\n%s", d.s)
	}
	if err := d.s.Complete(r.Handle, r.Cost); err != nil {
		t.Fatal(err)
	}
	return r.Flow, r.Cost
}

// patience returns an upper bound of the device's service before a flow is dispatched, while all
// flows are ready. At each level from the flow up, the member waits for its lead, and for the
// service that it needs itself for the level below. Meanwhile its siblings, with the sum W of all
// weights, are served, each with up to one request beyond its due. The lead is the part from
// charges, cut to the level's MaxLead, and one request of the member's own.
func (d *debtors) patience(f int) float64 {
	path, weight := d.paths[f], d.weights[f]
	share := map[string]float64{"/": 1}
	sum, count := d.siblings()
	at := "/"
	for _, l := range path {
		share[at+l.Name+"/"] = share[at] * float64(l.Weight) / sum[at]
		at += l.Name + "/"
	}
	service := 0.0
	for i := len(path); i >= 0; i-- {
		at, w := "/", float64(weight)
		for _, l := range path[:i] {
			at += l.Name + "/"
		}
		if i < len(path) {
			w = float64(path[i].Weight)
		}
		service = float64(d.lead)*share[at] + (float64(d.largest)+service)*sum[at]/w + float64(d.largest)*float64(count[at]) + 1
	}
	return service
}

// siblings returns the sum of the weights of the members of each queue, and their number.
func (d *debtors) siblings() (sum map[string]float64, count map[string]int) {
	sum, count = map[string]float64{}, map[string]int{}
	seen := map[string]bool{}
	for f, path := range d.paths {
		at := "/"
		for _, l := range path {
			if next := at + l.Name + "/"; !seen[next] {
				seen[next] = true
				sum[at] += float64(l.Weight)
				count[at]++
			}
			at += l.Name + "/"
		}
		sum[at] += float64(d.weights[f])
		count[at]++
	}
	return sum, count
}

// TestChargesLockNobodyOut charges arbitrary amounts to arbitrary flows, before and after other
// flows become ready. After a trim, a flow must be dispatched within MaxLead of the device's time
// at each level, plus the time of its own and its siblings' requests.
func TestChargesLockNobodyOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDebtors(t)
		for range rapid.IntRange(0, 4).Draw(t, "charges before") {
			d.charge(t)
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				d.charge(t)
			} else {
				d.serve(t)
			}
		}
		d.fill(t)
		d.s.Trim()
		f := rapid.IntRange(0, len(d.paths)-1).Draw(t, "flow")
		most, waited := d.patience(f), 0.0
		for steps := 0; ; steps++ {
			g, cost := d.serve(t)
			if g == sfq.Flow(f) {
				return
			}
			if waited += float64(cost); waited > most {
				t.Fatalf("flow %d has waited for %v of service, want at most %v\n%s", f, waited, most, d.s)
			}
			if steps == 2000 { // requests of cost 1 take too long to catch up with a lead of millions
				return
			}
		}
	})
}

// TestTrimLeavesWhatRequestsMade checks that a flow's own requests cause no debt. Without charges,
// a trim must change nothing, for any dispatches and corrections, even with the smallest MaxLead.
func TestTrimLeavesWhatRequestsMade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDebtors(t)
		d.s = newQueues(t, sfq.Config{MaxLead: 1}, 3)
		for f, path := range d.paths {
			if _, err := d.s.AddFlow(d.weights[f]); err != nil {
				t.Fatal(err)
			}
			if err := d.s.SetQueue(sfq.Flow(f), path); err != nil {
				t.Fatal(err)
			}
		}
		var out []requests.Request
		t.Repeat(map[string]func(*rapid.T){
			"Submit": func(t *rapid.T) {
				f := sfq.Flow(rapid.IntRange(0, len(d.paths)-1).Draw(t, "flow"))
				if _, err := d.s.Submit(f, rapid.Int64Range(1, d.largest).Draw(t, "cost"), 0); err != nil {
					t.Fatal(err)
				}
			},
			"Next": func(t *rapid.T) {
				if r, ok := d.s.Next(); ok {
					out = append(out, r)
				}
			},
			"Complete": func(t *rapid.T) {
				if len(out) > 0 {
					if err := d.s.Complete(out[0].Handle, rapid.Int64Range(0, 2*d.largest).Draw(t, "actual")); err != nil {
						t.Fatal(err)
					}
					out = out[1:]
				}
			},
			"": func(t *rapid.T) {
				before := d.s.String()
				if d.s.Trim(); d.s.String() != before {
					t.Fatalf("a trim changed\n%s\nto\n%s", before, d.s)
				}
			},
		})
	})
}
