package coord_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/coord"
)

// TestWaitsAddUp: two devices' waits add up, and only devices with streams or service count as touched.
func TestWaitsAddUp(t *testing.T) {
	var s coord.Service
	s.AddWaits(coord.Waits{Streams: 4 * time.Second, Waited: 3 * time.Second, Contended: 1500 * time.Millisecond, Served: 500 * time.Millisecond, All: 2 * time.Second}, 2*time.Second)
	s.AddWaits(coord.Waits{Streams: 2 * time.Second, Served: 100 * time.Millisecond, All: 200 * time.Millisecond}, 2*time.Second)
	s.AddWaits(coord.Waits{All: 2 * time.Second}, 2*time.Second)
	want := coord.Service{Streams: 3000, Waiting: 1500, Hindered: 1500, Used: 300_000_000, Touched: 1_100_000_000}
	if s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// TestAnyWaitsAreAccepted: whatever a device reports, the broker's totals accept the sum.
func TestAnyWaitsAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		totals := coord.NewTotals(1, 1, 1)
		m, err := totals.Join()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := totals.Name(m, 0, "a"); err != nil {
			t.Fatal(err)
		}
		var s coord.Service
		some := rapid.Int64Range(-1<<40, 1<<62)
		draw := func(name string) time.Duration { return time.Duration(some.Draw(t, name)) }
		for range rapid.IntRange(1, 5).Draw(t, "devices") {
			s.AddWaits(coord.Waits{Streams: draw("streams"), Waited: draw("waited"), Contended: draw("contended"), Served: draw("served"), All: draw("all")},
				time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "length")))
			if err := totals.Report(m, 0, s); err != nil {
				t.Fatalf("%+v: %v", s, err)
			}
		}
	})
}
