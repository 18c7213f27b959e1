package policy

import (
	"testing"
	"time"
)

func TestLatencyGoals(t *testing.T) {
	for goal, good := range map[time.Duration]bool{
		0: true, 10 * time.Millisecond: true, 10 * time.Second: true,
		10*time.Millisecond - 1: false, 10*time.Second + 1: false, -1: false,
	} {
		p := Policy{Default: 1, Rules: []Rule{{Flow: "a", Weight: 1, Latency: goal}}}
		if err := p.Validate(); (err == nil) != good {
			t.Errorf("%v: %v", goal, err)
		}
		if g := p.Grant(Facts{Flow: "a"}); g.Latency != goal {
			t.Errorf("%v: granted %v", goal, g.Latency)
		}
	}
}
