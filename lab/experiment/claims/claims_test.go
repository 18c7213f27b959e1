package claims

import (
	"encoding/json"
	"math"
	"testing"
)

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		value           float64
		atLeast, atMost bool
	}{{1, true, true}, {0.99, false, true}, {1.01, true, false}, {math.NaN(), false, false}} {
		least, most := Claim{Value: c.value}.AtLeast(1), Claim{Value: c.value}.AtMost(1)
		if *least.Met != c.atLeast || !least.HigherIsBetter || *most.Met != c.atMost || most.HigherIsBetter || *least.Goal != 1 || *most.Goal != 1 {
			t.Errorf("%v: at least 1 %v, at most 1 %v", c.value, *least.Met, *most.Met)
		}
	}
}

// A goal within the interval leaves the verdict open. A goal at an end of the interval does not.
func TestOpen(t *testing.T) {
	c := Claim{Value: 2, Low: 1, High: 3}
	for goal, open := range map[float64]bool{0.5: false, 1.5: true, 2.5: true, 3.5: false} {
		if least, most := c.AtLeast(goal).Open(), c.AtMost(goal).Open(); least != open || most != open {
			t.Errorf("%v: at least %v, at most %v", goal, least, most)
		}
	}
	if c.Open() || c.AtLeast(1).Open() || c.AtMost(3).Open() {
		t.Error("open without a goal, or with one at the end of the interval")
	}
}

// A figure without a goal has neither met nor missed it.
func TestJSON(t *testing.T) {
	b, err := json.Marshal(Claim{Name: "run time", Unit: "s", Value: 2, Low: 1, High: 3, Runs: 5, Source: "IBIS, Table 2"})
	want := `{"name":"run time","unit":"s","value":2,"low":1,"high":3,"runs":5,"goal":null,"higher_is_better":false,"met":null,"source":"IBIS, Table 2"}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v; want %s", b, err, want)
	}
}
