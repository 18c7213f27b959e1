package broker

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/core/coord"
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
