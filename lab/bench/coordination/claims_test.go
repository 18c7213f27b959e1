package coordination

import (
	"math"
	"testing"
)

func TestClaims(t *testing.T) {
	run := func(misplaced, with, without float64) Run {
		return Run{With: Outcome{Misplaced: misplaced}, Without: Outcome{Misplaced: 0.2},
			SlowdownWith: []float64{with - 1, with + 1}, SlowdownWithout: []float64{without - 1, without + 1}}
	}
	// The interval is over the runs, not over the applications. 24 % less is a ratio of 1.316.
	r := Result{Runs: []Run{run(0.005, 2.05, 2.7), run(0.004, 2.052, 2.7), run(0.02, 2.1, 2.8)}}
	soak := SoakResult{Rounds: []Kills{{Outcome: Outcome{Misplaced: 0.01}, PauseMS: 300}, {Outcome: Outcome{Misplaced: 0.04}, PauseMS: 200}, {PauseMS: 100}}}
	for _, w := range []struct {
		name             string
		value, low, high float64
		goal             float64 // 0: none
		met              bool
	}{
		{"disk time misallocated with the broker", 0.5, 0.4, 2, 1, true},
		{"disk time misallocated without the broker", 20, 20, 20, 0, false},
		{"average slowdown with the broker", 2.052, 2.05, 2.1, 0, false},
		{"average slowdown without the broker", 2.7, 2.7, 2.8, 0, false},
		{"average slowdown without the broker / with it", 2.7 / 2.05, 2.7 / 2.052, 2.8 / 2.1, 4. / 3, false},
		{"broker killed under load: disk time misallocated in the worst round", 4, 0, 4, 3, false},
		{"broker killed under load: longest pause of a task", 300, 100, 300, 0, false},
	} {
		found := false
		for _, c := range append(r.claims(), soak.claims()...) {
			if c.Name != w.name {
				continue
			}
			found = true
			for _, pair := range [][2]float64{{c.Value, w.value}, {c.Low, w.low}, {c.High, w.high}} {
				if math.Abs(pair[0]-pair[1]) > 1e-9 {
					t.Errorf("%+v, want %v (%v to %v)", c, w.value, w.low, w.high)
				}
			}
			if c.Runs != 3 || (c.Goal == nil) != (w.goal == 0) || c.Goal != nil && (math.Abs(*c.Goal-w.goal) > 1e-9 || *c.Met != w.met) {
				t.Errorf("%+v: goal %v, met %v, want %v, %v", c, c.Goal, c.Met, w.goal, w.met)
			}
		}
		if !found {
			t.Errorf("no claim %q", w.name)
		}
	}
}
