package deadline

import (
	"math/rand/v2"
	"testing"
	"time"

	"penstock/core/forecast"
	"penstock/core/reserve"
)

// TestAGrantOutlivesItsEffect: a granted rate changes the share at once. Nothing is known of the new share yet, and the deadline stays granted.
func TestAGrantOutlivesItsEffect(t *testing.T) {
	granted := 0
	for seed := range uint64(50) {
		j := &job{b: 100, bytes: 950e9, noise: 0.8, random: rand.New(rand.NewPCG(seed, 1))}
		var m forecast.Model
		var g Goal
		by := 400 * time.Second
		var v Verdict
		for v.State != Granted && j.now() < by/2 {
			j.step(&m, 1.0/7)
			v = g.Update(j.now(), by, &m, 0)
		}
		if v.State != Granted {
			continue // its noise is too large
		}
		granted++
		at := j.now()
		for i := range 4 { // until the next progress is known
			at += time.Second
			m.Observe(forecast.Observation{Time: at, Progress: j.progress, Share: min(1, float64(v.Rate)/j.whole()), Service: j.service, Bytes: j.progress * j.bytes})
			if v = g.Update(at, by, &m, 0); v.State != Granted {
				t.Fatalf("seed %d, %d s after the grant: %+v", seed, i+1, v)
			}
		}
	}
	if granted < 40 {
		t.Errorf("only %d of 50 deadlines were granted", granted)
	}
}

// TestAskForWhatFits: a rate that does not fit as a whole is replaced by what fits, as long as this ends the application in time.
func TestAskForWhatFits(t *testing.T) {
	v := Verdict{State: Granted, Rate: 1000, Needed: 900, Least: 600}
	for name, test := range map[string]struct {
		v     Verdict
		asked int64
		by    reserve.Verdict
		want  int64
	}{
		"new":                   {v, 0, reserve.Verdict{}, 1000},
		"admitted":              {v, 1000, reserve.Verdict{State: reserve.Admitted, Granted: 1, Fits: 1}, 1000},
		"reduced":               {v, 1000, reserve.Verdict{State: reserve.Reduced, Granted: 0.7, Fits: 0.7}, 1000},
		"most fits":             {v, 1000, reserve.Verdict{State: reserve.Queued, Fits: 0.8}, 760},
		"just enough fits":      {v, 1000, reserve.Verdict{State: reserve.Queued, Fits: 0.632}, 600},
		"too little fits":       {v, 1000, reserve.Verdict{State: reserve.Queued, Fits: 0.63}, 1000},
		"less is needed now":    {v, 2000, reserve.Verdict{State: reserve.Queued, Fits: 0.9}, 1000},
		"nothing less is known": {Verdict{State: Held, Rate: 1000}, 1000, reserve.Verdict{State: reserve.Queued, Fits: 0.9}, 1000},
	} {
		if got := test.v.Ask(test.asked, test.by); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestTheLeastRate: the rate without a margin is below the needed one, and ends the job at the deadline.
func TestTheLeastRate(t *testing.T) {
	j := &job{c: 50, b: 100, bytes: 100e9, random: rand.New(rand.NewPCG(1, 1))}
	var m forecast.Model
	var g Goal
	by := 500 * time.Second
	var v Verdict
	for v.State != Granted && j.now() < by {
		j.step(&m, 0.2)
		v = g.Update(j.now(), by, &m, 0)
	}
	if v.Least <= 0 || v.Least >= v.Needed || v.Needed > v.Rate {
		t.Fatalf("%+v", v)
	}
	end, err := m.Forecast(float64(v.Least) / j.whole())
	if err != nil || (end.Expected-by).Abs() > by/20 {
		t.Errorf("with the least rate it ends at %v, want %v (%v)", end.Expected, by, err)
	}
}
