package soak

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestTheSameSeedIsTheSamePlan(t *testing.T) {
	for seed := range uint64(20) {
		one, other := NewPlan(seed, 50), NewPlan(seed, 50)
		if !reflect.DeepEqual(one, other) {
			t.Errorf("seed %d: two plans", seed)
		}
		if reflect.DeepEqual(one.Steps, NewPlan(seed+1, 50).Steps) {
			t.Errorf("seeds %d and %d: one plan", seed, seed+1)
		}
		// A longer campaign begins like a shorter one.
		if longer := NewPlan(seed, 51); !reflect.DeepEqual(longer.Steps[:len(one.Steps)], one.Steps) {
			t.Errorf("seed %d: a kill more changes what comes before", seed)
		}
	}
}

func TestAPlanHasWhatItSays(t *testing.T) {
	for _, kills := range []int{1, 2, stride - quiet, stride, 300} {
		p := NewPlan(7, kills)
		seen, count := map[Kind]int{}, 0
		for i, s := range p.Steps {
			seen[s.Kind]++
			if s.Kind.kill() {
				count++
			}
			shortest, longest := s.Kind.lasts()
			if s.Number != i+1 || s.Lasts < shortest || s.Lasts > longest || s.Node < 0 || s.Node >= Nodes || s.Pause < 300*time.Millisecond {
				t.Errorf("%d kills: step %d is %+v", kills, i+1, s)
			}
			if strings.Contains(s.String(), "%!") || strings.HasPrefix(s.String(), " ") {
				t.Errorf("step reads %q", s)
			}
		}
		if count != kills {
			t.Errorf("a plan of %d kills has %d", kills, count)
		}
		if last := p.Steps[len(p.Steps)-1]; !last.Kind.kill() {
			t.Errorf("%d kills: the plan goes on after the last: %v", kills, last)
		}
		if kills == 300 {
			for _, k := range append(between, KillDaemon, KillDataNode) {
				if seen[k] < 5 {
					t.Errorf("300 kills: %s only %d times", k, seen[k])
				}
			}
		}
	}
}

// The command in a report must lead to the same faults years later.
func TestASeedsPlanNeverChanges(t *testing.T) {
	var got bytes.Buffer
	if err := NewPlan(1, 4).Write(&got); err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimLeft(planOfSeed1, "\n"); got.String() != want {
		t.Errorf("seed 1:\n%swant\n%s", got.String(), want)
	}
}

const planOfSeed1 = `
   1      1.2 s            weights file: an unknown field, for 2.5 s
   2      4.8 s  kill 1    kill -9 of the daemon, started again after 1.4 s
   3      7.1 s            a peer sends garbage: oversized
   4      8.5 s  kill 2    kill -9 of the daemon, started again after 1.5 s
   5     11.3 s            DataNode 0 is stopped for 1.1 s
   6     13.0 s  kill 3    kill -9 of the daemon, started again after 0.7 s
   7     14.5 s            no fault for 4.8 s
   8     19.6 s  kill 4    kill -9 of the daemon, started again after 1.7 s
`
