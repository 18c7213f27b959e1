package broker

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// TestForecast: an application has half of two devices and makes 1 % of progress every 10 s, for half of which it uses the
// devices. The broker foresees its end at this share and at others, and which share ends it by a time.
func TestForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		progress := -1.0
		b, err := New(t.Context(), Options{Progress: func(flow string) float64 {
			if flow == "app" {
				return progress
			}
			return -1
		}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := b.totals.Join()
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"app", "other"} {
			if _, err := b.totals.Name(m, i, name); err != nil {
				t.Fatal(err)
			}
			b.rights[name] = right{weight: 1}
			rate := int64(coord.Second / 2) // app: 1 device for half of the time
			if name == "other" {
				rate = coord.Second * 3 / 2
			}
			if err := b.totals.Report(m, i, coord.Service{Rate: rate, Room: 2 * coord.Second}); err != nil {
				t.Fatal(err)
			}
		}
		names := []string{"app", "other"}
		ask := func(q *cluster.ForecastRequest) *cluster.ForecastAnswer {
			t.Helper()
			q.Application = "app"
			a, err := b.forecast(q)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		b.observeProgress(names)
		if a := ask(&cluster.ForecastRequest{}); a.GetReason() == "" || a.GetProgress() >= 0 {
			t.Errorf("without progress: %v", a)
		}
		progress = 0
		b.observeProgress(names)
		if a := ask(&cluster.ForecastRequest{}); a.GetReason() == "" {
			t.Errorf("without progress so far: %v", a)
		}
		begun := time.Now()
		for range 50 {
			time.Sleep(10 * time.Second)
			progress += 0.01
			b.observeProgress(names)
		}
		for what, test := range map[string]struct {
			share, ends, within float64
		}{
			"present share": {0, 1000, 10}, "all": {1, 875, 40}, "a quarter": {0.25, 1250, 80},
		} {
			a := ask(&cluster.ForecastRequest{Share: test.share})
			ends := time.UnixMilli(a.GetEndUnixMs()).Sub(begun).Seconds()
			if math.Abs(ends-test.ends) > test.within || a.GetLowUnixMs() > a.GetEndUnixMs() || a.GetHighUnixMs() < a.GetEndUnixMs() {
				t.Errorf("%s: it ends after %.0f s, want %.0f: %v", what, ends, test.ends, a)
			}
		}
		quarter := ask(&cluster.ForecastRequest{Share: 0.25})
		if a := ask(&cluster.ForecastRequest{ByUnixMs: quarter.GetEndUnixMs()}); math.Abs(a.GetShare()-0.25) > 0.01 {
			t.Errorf("by the end at a quarter: share %v", a.GetShare())
		}
		if a := ask(&cluster.ForecastRequest{ByUnixMs: time.Now().UnixMilli()}); a.GetReason() == "" {
			t.Errorf("by now: %v", a)
		}
		state := &cluster.ApplicationState{}
		b.describeForecast("app", state)
		if state.GetProgress() < 0.49 || state.GetForecastEndUnixMs() == 0 {
			t.Errorf("state: %v", state)
		}
		if _, err := b.forecast(&cluster.ForecastRequest{Application: "nobody"}); status.Code(err) != codes.NotFound {
			t.Errorf("an unknown application: %v", err)
		}
		time.Sleep(forecastRetention + time.Second)
		b.observeProgress(nil)
		if len(b.forecasts) != 0 {
			t.Error("an application that has ended is still known")
		}
	})
}

// TestForecastWithHistory: of a program that has done 90 % of its work at half of its progress, the broker foresees the end in its second run, and says from how many runs
// it knows. A run that fails teaches nothing, and a change of leader forgets nothing.
func TestForecastWithHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const whole = 1000 * time.Second
		var r struct { // the present run
			began       time.Time
			name        string
			ended, good bool
		}
		progress := func() float64 {
			done := float64(time.Since(r.began)) / float64(whole)
			return min(1, map[bool]float64{true: done / 0.9 * 0.5, false: 0.5 + (done-0.9)*5}[done <= 0.9])
		}
		b, err := New(t.Context(), Options{
			Facts: func(flow string) policy.Facts {
				return policy.Facts{Flow: flow, User: "me", Type: "MAPREDUCE", Name: "report 2026-11-" + flow}
			},
			Life: func(flow string) Life {
				if flow != r.name {
					return Life{Progress: -1}
				}
				return Life{Progress: progress(), Boundary: 0.5, Ended: r.ended, Succeeded: r.ended && r.good, Finished: map[bool]int64{true: r.began.Add(whole).UnixMilli()}[r.ended]}
			}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := b.totals.Join()
		if err != nil {
			t.Fatal(err)
		}
		// run runs the program, and returns the answer at a half of its work.
		run := func(i int, good bool) (answer *cluster.ForecastAnswer) {
			r.name, r.began, r.ended, r.good = fmt.Sprint(i), time.Now(), false, good
			if _, err := b.totals.Name(m, i, r.name); err != nil {
				t.Fatal(err)
			}
			if err := b.totals.Report(m, i, coord.Service{Rate: coord.Second / 2, Room: coord.Second}); err != nil {
				t.Fatal(err)
			}
			b.rights[r.name] = right{weight: 1}
			for time.Since(r.began) < whole {
				b.observeProgress([]string{r.name})
				if answer == nil && time.Since(r.began) >= whole/2 {
					if answer, err = b.forecast(&cluster.ForecastRequest{Application: r.name}); err != nil || answer.GetReason() != "" {
						t.Fatal(answer, err)
					}
				}
				time.Sleep(5 * time.Second)
			}
			r.ended = true
			delete(b.rights, r.name)
			time.Sleep(20 * time.Second) // its outcome is known later
			b.observeProgress(nil)
			b.observeProgress(nil)
			return answer
		}
		ends := func(a *cluster.ForecastAnswer) time.Duration { return time.UnixMilli(a.GetEndUnixMs()).Sub(r.began) }
		if a := run(11, false); a.GetEarlierRuns() != 0 || ends(a) < whole*3/2 || a.GetDone() != a.GetProgress() {
			t.Errorf("the first run ends after %v: %v", ends(a), a)
		}
		if a := run(12, true); a.GetEarlierRuns() != 0 {
			t.Errorf("a run that failed has taught: %v", a)
		}
		b.mu.Lock()
		b.beginEpoch(7)
		b.mu.Unlock()
		for i := range 2 {
			a := run(13+i, true)
			if a.GetEarlierRuns() != uint32(1+i) || (ends(a)-whole).Abs() > whole/20 || math.Abs(a.GetDone()-0.5) > 0.03 || a.GetHighUnixMs()-a.GetLowUnixMs() > 250_000 {
				t.Errorf("a run with history ends after %v: %v", ends(a), a)
			}
		}
	})
}
