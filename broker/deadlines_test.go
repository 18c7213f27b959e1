package broker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/broker/policyfile"
	"penstock/core/coord"
	"penstock/core/policy"
	"penstock/wire/cluster"
)

// worker is an application on one disk of 100 MB/s, beside another one. It moves 60 GB with the disk, and computes for 300 s.
type worker struct {
	b        *Broker
	s        *session
	byWeight float64 // its share without a guaranteed rate
	progress float64
	ended    bool
	silent   bool // its progress is not known
}

const (
	workerDisk    = 100e6 // bytes per second
	workerBytes   = 60e9
	workerCompute = 300.0 // seconds
)

// work returns a broker with a policy, and a node on which the application works.
func work(t *testing.T, text string, capacity uint64) *worker {
	t.Helper()
	w := &worker{byWeight: 0.25}
	submitted := time.Now().UnixMilli()
	var err error
	w.b, err = New(t.Context(), Options{
		Life: func(flow string) Life {
			if flow != "app" || w.silent {
				return Life{Progress: -1, Submitted: submitted}
			}
			return Life{Progress: w.progress, Submitted: submitted, Ended: w.ended}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if w.b.policy, err = policyfile.Parse([]byte(text)); err != nil {
		t.Fatal(err)
	}
	w.s = reporting(t, w.b, "n1", capacity, "app", "other")
	w.b.startup.Reset(-time.Hour)
	w.b.matchPending()
	return w
}

// second passes: the application makes progress with the part of the disk that its weight or its guaranteed rate gives it.
func (w *worker) second(t *testing.T) {
	t.Helper()
	time.Sleep(time.Second)
	share := w.byWeight
	if p := w.s.parts["app"]; p != nil {
		share = min(1, max(share, float64(p.Due().Reserve)/workerDisk))
	}
	step := min(1/(workerCompute+workerBytes/workerDisk/share), 1-w.progress)
	w.progress += step
	moved := step * workerBytes
	service := uint64(moved / workerDisk * coord.Second)
	if _, err := w.b.handleReport(w.s, &cluster.Report{Sequence: w.s.sequence + 1, Capacity: uint64(w.s.capacity), Entries: []uint32{0, 1}, Rates: []uint64{service, coord.Second - service},
		Rooms: []uint64{coord.Second, coord.Second}, Bytes: []uint64{uint64(moved), 1e6}, Hungry: []bool{true, true}}); err != nil {
		t.Fatal(err)
	}
	w.b.mu.Lock()
	w.b.computeRights()
	w.b.mu.Unlock()
}

// state returns what operators see of the application.
func (w *worker) state() *cluster.ApplicationState {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	s := &cluster.ApplicationState{TotalReserve: uint64(w.b.rights["app"].total.Reserve)}
	w.b.describeDeadline("app", s)
	return s
}

// TestADeadline: with its weight alone, the application would end after 45 min. With the deadline it has a guaranteed rate early, and ends
// within 25 min. Then the rate is free.
func TestADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := work(t, "rules: [{flow: app, deadline: 25m}, {weight: 3}]", 90e6)
		begun, changes, rate := time.Now(), 0, uint64(0)
		w.second(t)
		if s := w.state(); s.GetDeadlineState() != "refused" || s.GetTotalReserve() != 0 || s.GetDeadlineReason() == "" || s.GetDeadlineUnixMs() != begun.Add(25*time.Minute).UnixMilli() {
			t.Errorf("at the beginning: %v", s)
		}
		for w.progress < 1 {
			w.second(t)
			s := w.state()
			if s.GetTotalReserve() != rate {
				rate = s.GetTotalReserve()
				changes++
			}
			if time.Since(begun) > 5*time.Minute && w.progress < 1 && (s.GetDeadlineState() != "granted" || s.GetDeadlineReason() != "" || s.GetDeadlineRate() == 0) {
				t.Fatalf("at %.0f %%: %v", 100*w.progress, s)
			}
			if time.Since(begun) > 25*time.Minute {
				t.Fatalf("late at %.0f %%: %v", 100*w.progress, s)
			}
		}
		if changes > 15 {
			t.Errorf("the rate changed %d times", changes)
		}
		if value := count(t, w.b, `penstock_broker_deadlines{state="granted"}`); value != "1" {
			t.Errorf("metric: %s granted", value)
		}
		w.ended = true
		w.second(t)
		if s := w.state(); s.GetDeadlineState() != "" || s.GetTotalReserve() != 0 || w.s.parts["app"] != nil {
			t.Errorf("after its end: %v", s)
		}
		a, err := w.b.forecast(&cluster.ForecastRequest{Application: "app"})
		if err != nil || !a.GetEnded() || a.GetReason() == "" || a.GetEndUnixMs() != 0 {
			t.Errorf("a forecast after its end: %v, %v", a, err)
		}
		time.Sleep(forecastRetention + time.Minute)
		w.b.observeProgress(nil)
		if a, err = w.b.forecast(&cluster.ForecastRequest{Application: "app"}); err != nil || !a.GetEnded() || a.GetProgress() != -1 {
			t.Errorf("a forecast long after its end: %v, %v", a, err)
		}
	})
}

// TestADeadlineOverCapacity: the rate is known, but the node cannot guarantee it.
func TestADeadlineOverCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := work(t, "rules: [{flow: app, deadline: 25m}, {weight: 3}]", 20e6)
		for range 300 {
			w.second(t)
		}
		if s := w.state(); s.GetDeadlineState() != "queued" || !strings.Contains(s.GetDeadlineReason(), "can guarantee") || s.GetDeadlineRate() < 20e6 {
			t.Errorf("%v", s)
		}
		if value := count(t, w.b, `penstock_broker_deadlines{state="queued"}`); value != "1" {
			t.Errorf("metric: %s queued", value)
		}
	})
}

// TestADeadlineThatAlmostFits: the first rate has a margin, and does not fit with it. The application gets what fits, and ends in time.
func TestADeadlineThatAlmostFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := work(t, "rules: [{flow: app, deadline: 25m}, {weight: 3}]", 62e6)
		begun, reduced := time.Now(), false
		for w.progress < 1 {
			w.second(t)
			s := w.state()
			reduced = reduced || s.GetDeadlineState() == "reduced" && w.s.parts["app"].Due().Reserve > 50e6
			if time.Since(begun) > 25*time.Minute {
				t.Fatalf("late at %.0f %%: %v", 100*w.progress, s)
			}
		}
		if !reduced {
			t.Error("it never had what fits of a larger rate")
		}
	})
}

// TestRefusedDeadlines: each reason, after 10 min.
func TestRefusedDeadlines(t *testing.T) {
	for name, test := range map[string]struct{ text, state, reason string }{
		"a limit of the whole": {"rules: [{flow: app, deadline: 25m, total_limit: 30MiB}, {weight: 3}]", "refused", "above its limit"},
		"a limit of a device":  {"rules: [{flow: app, deadline: 25m, limit: 30MiB}, {weight: 3}]", "refused", "above its limit"},
		"impossible":           {"rules: [{flow: app, deadline: 12m}, {weight: 3}]", "refused", "too late even with the whole service"},
		"passed":               {"rules: [{flow: app, deadline: 9m}, {weight: 3}]", "missed", "has passed"},
		"of another":           {"rules: [{flow: other, deadline: 25m}, {weight: 3}]", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := work(t, test.text, 90e6)
				for range 600 {
					w.second(t)
				}
				if s := w.state(); s.GetDeadlineState() != test.state || !strings.Contains(s.GetDeadlineReason(), test.reason) || s.GetTotalReserve() != 0 {
					t.Errorf("%v", s)
				}
			})
		})
	}
}

// TestADeadlineNeedsFacts: without the time of the submission or progress, the reason says what is missing.
func TestADeadlineNeedsFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := idle(t, "rules: [{flow: app, deadline: 1h}, {flow: other, deadline: 2200-01-01T00:00:00Z}]", func(f string) policy.Facts { return policy.Facts{Flow: f} })
		reporting(t, b, "n1", 90e6, "app", "other")
		b.matchPending()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.computeRights()
		for name, want := range map[string]string{"app": "the time of the submission is not known", "other": "its progress is not known"} {
			s := &cluster.ApplicationState{}
			b.describeDeadline(name, s)
			if s.GetDeadlineState() != "refused" || !strings.Contains(s.GetDeadlineReason(), want) {
				t.Errorf("%s: %v", name, s)
			}
		}
		b.beginEpoch(7)
		if b.deadlines != nil {
			t.Error("a new leader has deadlines of the last one")
		}
	})
}

// TestProgressThatEnds: while the progress is not known any more, the rate is held for some time, and then free. The forecast says why
// there is none.
func TestProgressThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := work(t, "rules: [{flow: app, deadline: 25m}, {weight: 3}]", 90e6)
		for range 600 {
			w.second(t)
		}
		if s := w.state(); s.GetDeadlineState() != "granted" {
			t.Fatalf("%v", s)
		}
		w.silent = true
		states := map[string]bool{}
		for range 400 {
			w.second(t)
			s := w.state()
			states[s.GetDeadlineState()] = true
			if held := s.GetDeadlineState() != "refused"; held != (s.GetTotalReserve() > 0) {
				t.Fatalf("%v", s)
			}
		}
		if s := w.state(); !states["held"] || s.GetDeadlineState() != "refused" || !strings.Contains(s.GetDeadlineReason(), "has not been known") {
			t.Errorf("states %v, %v", states, s)
		}
		if a, err := w.b.forecast(&cluster.ForecastRequest{Application: "app"}); err != nil || !strings.Contains(a.GetReason(), "has not been known") || a.GetEndUnixMs() != 0 {
			t.Errorf("%v, %v", a, err)
		}
	})
}

// TestForecastWithoutRoom: beyond the most models, the reason is not that the progress is unknown.
func TestForecastWithoutRoom(t *testing.T) {
	b := idle(t, "default: 1", nil)
	reporting(t, b, "n1", 90e6, "app")
	b.forecasts = map[string]*forecaster{}
	for i := range maxForecasts {
		b.forecasts[strings.Repeat("x", i+1)] = nil
	}
	if a, err := b.forecast(&cluster.ForecastRequest{Application: "app"}); err != nil || !strings.Contains(a.GetReason(), "at most 10000 applications") {
		t.Errorf("%v, %v", a, err)
	}
}
