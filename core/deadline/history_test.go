package deadline

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/forecast"
)

// TestADeadlineWithHistory: a job has done nine tenths of its work at half of its progress. Its deadline is granted in the first three fifths of its work, and kept,
// if the broker knows four earlier runs of another size. Without history, it is granted later.
func TestADeadlineWithHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := aJob(t)
		share := rapid.Float64Range(0.1, 0.3).Draw(t, "share")
		size := rapid.Float64Range(0.5, 2).Draw(t, "size of the earlier runs")
		noisy := *j
		observe := func(j *job, share float64, to func(forecast.Observation)) {
			var m forecast.Model // takes what step observes
			j.step(&m, share)
			reported := j.progress / 0.9 * 0.5
			if j.progress > 0.9 {
				reported = 0.5 + (j.progress-0.9)*5
			}
			to(forecast.Observation{Time: j.now(), Progress: min(reported, 1), Share: share, Service: j.service, Bytes: j.progress * j.bytes, Boundary: 0.5})
		}
		var h forecast.History
		for range 4 {
			earlier := noisy
			earlier.c, earlier.b = size*earlier.c, size*earlier.b
			var trace forecast.Trace
			for earlier.progress < 1 {
				observe(&earlier, 0.4, trace.Observe)
			}
			if !h.Learn(forecast.Kind{}, &trace, earlier.now()) {
				t.Fatal("nothing was learned")
			}
		}
		alone, weighted := j.c+j.b, j.c+j.b/share
		by := seconds(alone + (weighted-alone)*rapid.Float64Range(0.8, 0.95).Draw(t, "by"))
		grantedAt := func(j job, c *forecast.Curve) (at float64, ended time.Duration) {
			var m forecast.Model
			m.Use(c)
			var g Goal
			at = 1
			for j.progress < 1 {
				v := g.Update(j.now(), by, &m, 0)
				if v.State == Granted {
					at = min(at, j.progress)
				}
				observe(&j, min(1, max(share, float64(v.Rate)/j.whole())), m.Observe)
			}
			return at, j.now()
		}
		if at, ended := grantedAt(noisy, h.Curve(forecast.Kind{})); at > 0.6 || ended > by {
			t.Fatalf("with history, it is granted at %.0f %% of the work, and ends after %v, not by %v", 100*at, ended, by)
		}
		if at, _ := grantedAt(noisy, nil); at < 0.9 {
			t.Fatalf("without history, it is granted at %.0f %% of the work", 100*at)
		}
	})
}
