package sim

import (
	"testing"
	"time"

	"penstock/settings"
)

// TestDelays: S = max(v, F + delay/weight). After a flow's service on other nodes, the other flows
// get the device until they have caught up, as measured by service per weight. Then all flows share
// the device by weight.
func TestDelays(t *testing.T) {
	for _, weight := range []float64{1, 4} {
		s := &Scenario{Nodes: []NodeSpec{{Disk: "ssd", Algorithm: "sfqd", Depth: 1}}, Applications: []ApplicationSpec{{Name: "a", Weight: weight}, {Name: "b"}}}
		s.Exchange.Off, s.Exchange.Rule = true, ruleDSFQ
		if err := s.validate(); err != nil {
			t.Fatal(err)
		}
		p, err := newPlay(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		c := p.cluster
		c.Run(10 * time.Second)
		a, b := c.apps[0].service, c.apps[1].service
		// Up to here a and b have equal service per weight. 8 s of service for a elsewhere
		// correspond to 8/weight s for b.
		c.places[0].device.charge(0, 8*time.Second)
		alone := time.Duration(8 / weight * float64(time.Second))
		c.Run(10*time.Second + alone)
		a, b = c.apps[0].service-a, c.apps[1].service-b
		// Requests in flight continue: each flow has at most two requests of 1 MiB, a few ms each.
		if a > 50*time.Millisecond || b < alone-50*time.Millisecond || b > alone+50*time.Millisecond {
			t.Errorf("weight %g: while b has its turn of %v, a is served for %v and b for %v", weight, alone, a, b)
		}
		before := c.apps[0].service
		c.Run(30*time.Second + alone)
		if had, due := (c.apps[0].service - before).Seconds(), 20*weight/(1+weight); had < due-0.1 || had > due+0.1 {
			t.Errorf("weight %g: then a has %.2f s of 20, want %.2f", weight, had, due)
		}
	}
}

// TestSwingsOfDelays compares the rule of DSFQ and IBIS with Penstock's own rule. Delays lead to
// the right totals in the end. But every node compensates for the whole difference, with the totals
// of the last exchange, so shares swing over some seconds.
func TestSwingsOfDelays(t *testing.T) {
	type way struct {
		name, rule string
		period     time.Duration
	}
	ways := []way{{"local shares", "", 0}, {"parts", ruleParts, time.Second}, {"delays", ruleDSFQ, time.Second}, {"delays, ten exchanges a second", ruleDSFQ, 100 * time.Millisecond}}
	for _, file := range []string{"ten-nodes", "hundred-nodes"} {
		for _, window := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second} {
			misplaced := map[string]float64{}
			for _, w := range ways {
				s := load(t, "scenarios/"+file+".yaml")
				s.Length, s.Settle, s.Window = settings.Duration(60*time.Second), settings.Duration(20*time.Second), settings.Duration(window)
				s.Exchange.Off, s.Exchange.Rule = w.period == 0, w.rule
				if w.period > 0 {
					s.Exchange.Period = settings.Duration(w.period)
				}
				r := played(t, s, 1)
				misplaced[w.name] = r.Misplaced
				t.Logf("%s, windows of %v, %s: %.1f %% misplaced, at most %.1f %%", file, window, w.name, 100*r.Misplaced, 100*r.Worst)
			}
			if window == time.Second && misplaced["delays"] < 3*misplaced["parts"] {
				t.Errorf("%s: in windows of 1 s, %.3f of the service is misplaced with delays, %.3f with parts", file, misplaced["delays"], misplaced["parts"])
			}
			if window == 20*time.Second && misplaced["delays"] > min(0.04, misplaced["local shares"]/3) {
				t.Errorf("%s: in windows of 20 s, %.3f of the service is misplaced with delays, %.3f with local shares", file, misplaced["delays"], misplaced["local shares"])
			}
		}
	}
}
