package shares

import (
	"fmt"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/judge"
)

// TestReservation: beside 16 readers and writers of equal weight, a reader has its guaranteed rate, in bytes or in
// the disk's time. The others use the rest of the disk.
func TestReservation(t *testing.T) {
	const others = 16
	for _, x := range []struct {
		reserve string
		measure func(judge.Usage) float64 // a second
		least   float64
	}{
		{"4000000", bytesOf, 4e6},
		{"40%", serviceOf, 0.4 * float64(time.Second)},
	} {
		t.Run(x.reserve, func(t *testing.T) {
			c := start(t)
			known := fine
			known.profile = c.profile(t)
			c.retune(t, known)
			g := c.guests(t)
			promised := part{number: 200, bytes: 512 * mib}
			parts := []part{promised}
			for i := range others {
				parts = append(parts, part{number: 201 + i, write: i%2 == 0, bytes: 96 * mib})
			}
			paths := map[string][]string{}
			for _, p := range parts {
				g.prepare(t, p)
				paths[p.flow()] = p.paths()
			}
			c.node.rule(t, fmt.Sprintf("{application: %s, weight: 1, reserve: %s}", promised.flow(), x.reserve))
			c.forget(t)
			c.limit(t, slow)
			var all []contender
			for _, p := range parts[1:] {
				all = append(all, g.join(t, p))
			}
			c.backlogged(t, all...)
			vip := g.join(t, promised)
			c.backlogged(t, vip)
			s := c.watch(t, window+10*slide, often, vip)
			for _, p := range all {
				p.running(t)
			}
			// All clients end before the next test. Blocks of killed writers would take room at the NameNode for
			// minutes.
			fixture.Must(t, shared.SetModel(disk.Model{}))
			for _, p := range append(all, vip) {
				p.(*guest).wait(t)
			}

			var windows []judge.Window
			for from := s.From; from+int64(window) <= s.To; from += int64(slide) {
				windows = append(windows, judge.Window{From: from, To: from + int64(window)})
			}
			var got []string
			busy := 1.0
			for _, a := range c.judge(t, c.owners(t, paths), windows...) {
				had := x.measure(a.Owners[promised.flow()]) / window.Seconds() / x.least
				got = append(got, fmt.Sprintf("%.3f", had))
				// When the kernel itself writes, nothing is scheduled: a second of that is 10 % of a window, and is made
				// up for in the next one.
				if !(had >= 0.85) {
					t.Errorf("in a window of %v the reader had %.3f of its rate", window, had)
				}
				busy = min(busy, a.Total().Service.Seconds()/window.Seconds())
			}
			span := c.judge(t, c.owners(t, paths), s.Window)[0]
			whole := x.measure(span.Owners[promised.flow()]) / (float64(s.To-s.From) / 1e9) / x.least
			t.Logf("of its guaranteed rate, window by window: %v, in all %.3f; the disk was busy for at least %.3f", got, whole, busy)
			if !(whole >= 0.97) {
				t.Errorf("in all, the reader had %.3f of its rate", whole)
			}
			if busy < 0.95 {
				t.Errorf("the disk was busy for only %.3f of a window", busy)
			}
			kept := s.after.Sum("flow_promise_seconds_total", "flow="+vip.name(), "state=kept") - s.before.Sum("flow_promise_seconds_total", "flow="+vip.name(), "state=kept")
			broken := s.after.Sum("flow_promise_seconds_total", "flow="+vip.name(), "state=broken") - s.before.Sum("flow_promise_seconds_total", "flow="+vip.name(), "state=broken")
			t.Logf("kept for %.1f s, broken for %.1f s", kept, broken)
			if kept < 0.9*time.Duration(s.To-s.From).Seconds() || broken > 0 {
				t.Errorf("by its own account, the rate was kept for %.1f s and broken for %.1f s", kept, broken)
			}
		})
	}
}
