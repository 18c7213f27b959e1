package forecast

import (
	"math"
	"testing"
	"time"

	"penstock/core/coord"
)

// accountOf returns an account that has observed the states, one a second.
func accountOf(states ...State) *Account {
	a := &Account{}
	for i, s := range states {
		a.Observe(time.Duration(i+1)*time.Second, time.Minute, s)
	}
	return a
}

// TestTheAccountAddsUp: rates of nodes become service and bytes, and the first state begins with nothing.
func TestTheAccountAddsUp(t *testing.T) {
	s := State{Total: coord.Service{Rate: coord.Second / 2, Room: 4 * coord.Second, Bytes: 100}}
	if a := accountOf(s, s, s); a.service != 1 || a.moved != 200 || a.Devices() != 4 || a.At() != 3*time.Second {
		t.Errorf("%+v", a)
	}
	measured := s // what was measured counts, and not what follows a guaranteed rate slowly
	measured.Total.Used, measured.Total.Touched = 2*coord.Second, 4*coord.Second
	if a := accountOf(measured, measured); a.service != 2 {
		t.Errorf("service %v", a.service)
	}
	starved := s
	starved.Total.Touched = 4 * coord.Second
	if a := accountOf(starved, starved); a.service != 0 {
		t.Errorf("service of a starved application %v", a.service)
	}
	a := accountOf(s)
	a.Observe(time.Hour, time.Minute, s)
	if a.service != 30 {
		t.Errorf("a report counts for %v s of service after its node was silent", a.service)
	}
}

// TestTheShareOfAState: the share is the largest one of the entitlement, of what the application has, and of what its guaranteed
// rate takes.
func TestTheShareOfAState(t *testing.T) {
	total := coord.Service{Rate: coord.Second, Room: 4 * coord.Second, Bytes: 100e6}
	for name, test := range map[string]struct {
		state State
		want  float64
	}{
		"entitlement":   {State{Entitled: 0.5, Total: total, Rates: 4 * coord.Second}, 0.5},
		"what it has":   {State{Entitled: 0.1, Total: total, Rates: 4 * coord.Second}, 0.25},
		"rate":          {State{Entitled: 0.1, Total: total, Rates: 4 * coord.Second, Guaranteed: 300e6}, 0.75},
		"absurd rate":   {State{Entitled: 0.1, Total: total, Guaranteed: 1e18}, 1},
		"rate, no work": {State{Entitled: 0.1, Guaranteed: 300e6}, 0.1},
	} {
		if got := accountOf(test.state, test.state).Model.LastShare(); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
