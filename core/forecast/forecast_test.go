package forecast

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// job is a synthetic application: a unit of progress takes c + b/share seconds, with noise.
type job struct {
	c, b     float64
	noise    float64 // relative error of one second's progress
	measured bool    // its service is measured

	at, progress, service float64
	random                *rand.Rand
}

// run runs the job at a share until its progress, or its end, and returns the observations of each 5 s.
func (j *job) run(m *Model, share, until float64) {
	for i := 0; j.progress < until; i++ {
		step := min(max(0, 1+j.noise*j.random.NormFloat64())/(j.c+j.b/share), 1-j.progress)
		j.at++
		j.progress += step
		j.service += step * j.b
		if m != nil && i%5 == 4 {
			m.Observe(j.observe(share))
		}
	}
}

func (j *job) observe(share float64) Observation {
	o := Observation{Time: time.Duration(j.at * 1e9), Progress: min(j.progress, 1), Share: share, Service: -1}
	if j.measured {
		o.Service = j.service
	}
	return o
}

// anyJob returns a job of 5 to 30 minutes at a share of a half.
func anyJob(random *rand.Rand) *job {
	length := 300 + 1500*random.Float64()
	disk := 0.2 + 0.7*random.Float64()
	return &job{c: length * (1 - disk), b: length * disk / 2, noise: 0.1 + 0.5*random.Float64(), random: random, measured: true}
}

// TestForecasts: at half its progress, the end of each of 200 jobs is foreseen within 10 % of the whole time at an unchanged
// share, and within 15 % at another share. Of the intervals, at least 80 % hold the end.
func TestForecasts(t *testing.T) {
	for _, to := range []float64{0.5, 0.2, 0.3, 0.8, 1} {
		held, jobs := 0, 200
		within := 0.10
		if to != 0.5 {
			within = 0.15
		}
		for seed := range uint64(jobs) {
			j := anyJob(rand.New(rand.NewPCG(seed, 7)))
			var m Model
			j.run(&m, 0.5, 0.5)
			f, err := m.Forecast(to)
			if err != nil {
				t.Fatal(err)
			}
			j.run(nil, to, 1)
			if miss := math.Abs(f.Expected.Seconds()-j.at) / j.at; miss > within {
				t.Errorf("share %.1f, seed %d: foreseen %.0f s, ended after %.0f s", to, seed, f.Expected.Seconds(), j.at)
			}
			if f.Low.Seconds() <= j.at && j.at <= f.High.Seconds() {
				held++
			}
			if f.Low > f.Expected || f.Expected > f.High {
				t.Errorf("%v", f)
			}
		}
		if held < jobs*8/10 {
			t.Errorf("share %.1f: %d of %d intervals hold the end", to, held, jobs)
		}
		t.Logf("share %.1f: %d of %d intervals hold the end", to, held, jobs)
	}
}

// TestNarrow: an interval that holds every end by its width would help nobody.
func TestNarrow(t *testing.T) {
	for seed := range uint64(50) {
		j := anyJob(rand.New(rand.NewPCG(seed, 11)))
		j.noise = 0.2
		var m Model
		j.run(&m, 0.5, 0.5)
		f, err := m.Forecast(0)
		if err != nil {
			t.Fatal(err)
		}
		if rest := f.Expected - m.last.Time; f.High-f.Low > rest/2 {
			t.Errorf("seed %d: %v to %v, %v remain", seed, f.Low, f.High, rest)
		}
	}
}

// TestTheDisksPart: without measured service and at one share, the disk's part is not known, and the interval for another
// share holds everything from no disk work to nothing else. Service, or a change of the share, identifies it.
func TestTheDisksPart(t *testing.T) {
	for name, test := range map[string]struct {
		measured bool
		shares   []float64
		known    bool
	}{
		"one share": {false, []float64{0.5}, false}, "service": {true, []float64{0.5}, true}, "two shares": {false, []float64{0.5, 0.2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) {
				j := anyJob(rand.New(rand.NewPCG(seed, 5)))
				j.noise, j.measured = 0.2, test.measured
				var m Model
				for i, share := range test.shares {
					j.run(&m, share, 0.6*float64(i+1)/float64(len(test.shares)))
				}
				if m.Identified() != test.known {
					t.Fatalf("seed %d: identified %v", seed, !test.known)
				}
				part, deviation, err := m.Disk()
				if err != nil || part < 0 || part > 1 || deviation < 0 {
					t.Fatalf("seed %d: %v ± %v, %v", seed, part, deviation, err)
				}
				_, err = m.Share(time.Duration((j.at + 1e6) * 1e9))
				if test.known != (err == nil) || !test.known && !errors.Is(err, ErrUnknown) {
					t.Errorf("seed %d: %v", seed, err)
				}
				if test.known {
					continue
				}
				f, _ := m.Forecast(0.1) // five times the time, if all of it is disk work
				rest := (1 - m.last.Progress) * (j.c + j.b/0.5)
				if low, high := (f.Low - m.last.Time).Seconds(), (f.High - m.last.Time).Seconds(); low > 1.2*rest || high < 4.8*rest {
					t.Errorf("seed %d: %.0f to %.0f s, %.0f s remain at the present share", seed, low, high, rest)
				}
			}
		})
	}
}

// TestPhases: a reduce phase at a third of the map phase's pace is noticed, and the forecast is right again
// soon. Without a change, noise is no change.
func TestPhases(t *testing.T) {
	noticed := 0
	for seed := range uint64(50) {
		j := anyJob(rand.New(rand.NewPCG(seed, 3)))
		j.noise = 0.3
		var m Model
		j.run(&m, 0.5, 0.5)
		if m.Phases() > 0 {
			noticed++
		}
		before := m.Phases()
		j.c, j.b = 3*j.c, 3*j.b
		j.run(&m, 0.5, 0.65)
		if m.Phases() == before {
			t.Errorf("seed %d: the phase is not noticed", seed)
		}
		f, err := m.Forecast(0)
		if err != nil {
			t.Fatal(err)
		}
		j.run(nil, 0.5, 1)
		if miss := math.Abs(f.Expected.Seconds()-j.at) / j.at; miss > 0.10 {
			t.Errorf("seed %d: foreseen %.0f s, ended after %.0f s", seed, f.Expected.Seconds(), j.at)
		}
	}
	if noticed > 5 {
		t.Errorf("%d of 50 jobs without phases have one", noticed)
	}
}

// TestShareOfAnything: Share inverts Forecast, and a larger share never ends an application later.
func TestShareOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := anyJob(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)))
		j.noise = rapid.Float64Range(0, 0.3).Draw(t, "noise")
		var m Model
		j.run(&m, rapid.Float64Range(0.1, 1).Draw(t, "share"), rapid.Float64Range(0.1, 0.95).Draw(t, "progress"))
		small := rapid.Float64Range(0.05, 0.9).Draw(t, "a")
		large := rapid.Float64Range(small, 1).Draw(t, "b")
		slow, err := m.Forecast(small)
		if errors.Is(err, ErrNoProgress) {
			return // there were few observations, or a phase has just begun
		}
		if err != nil {
			t.Fatal(err)
		}
		fast, err := m.Forecast(large)
		if err != nil {
			t.Fatal(err)
		}
		if fast.Expected > slow.Expected {
			t.Fatalf("share %v ends at %v, share %v at %v", small, slow.Expected, large, fast.Expected)
		}
		if part, _, _ := m.Disk(); !m.Identified() || part < 0.01 {
			return
		}
		if share, err := m.Share(slow.Expected); err != nil || math.Abs(share-small) > 0.01*small {
			t.Fatalf("share %v ends at %v, for which Share returns %v, %v", small, slow.Expected, share, err)
		}
		if _, err := m.Share(m.last.Time); !errors.Is(err, ErrTooEarly) {
			t.Fatalf("at once: %v", err)
		}
	})
}

// TestAnything: whatever is observed, forecasts are ordered numbers that are not before the last observation.
func TestAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Model
		for range rapid.IntRange(1, 100).Draw(t, "observations") {
			m.Observe(Observation{Time: time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "time")), Progress: rapid.Float64().Draw(t, "progress"),
				Share: rapid.Float64().Draw(t, "share"), Service: rapid.Float64().Draw(t, "service")})
		}
		steady := m.last
		for i := range rapid.IntRange(0, 50).Draw(t, "steps") {
			steady.Time += time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "after"))
			steady.Progress = min(1, steady.Progress+rapid.Float64Range(0, 0.05).Draw(t, "step"))
			steady.Share = rapid.Float64Range(0, 1).Draw(t, "share")
			steady.Service = float64(i)
			m.Observe(steady)
		}
		f, err := m.Forecast(rapid.Float64Range(0, 1).Draw(t, "to"))
		if err == nil && !(m.last.Time <= f.Low && f.Low <= f.Expected && f.Expected <= f.High) {
			t.Fatalf("after %v: %v", m.last.Time, f)
		}
	})
}

// TestNoForecastOfLittleProgress: equations that changes of the share close early do not suffice.
func TestNoForecastOfLittleProgress(t *testing.T) {
	var m Model
	for i := range 100 {
		m.Observe(Observation{Time: time.Duration(i) * 5 * time.Second, Progress: 0.0001 * float64(i), Share: 0.4 + 0.1*float64(i%2), Service: -1})
		if e, err := m.Forecast(0); !errors.Is(err, ErrNoProgress) {
			t.Fatalf("at %.2f %% of progress: %v, %v", 100*m.Progress(), e, err)
		}
	}
}

func ExampleModel() {
	var m Model
	for i := range 50 { // half of the disk's time, 1 % of progress every 10 s
		m.Observe(Observation{Time: time.Duration(10*i) * time.Second, Progress: float64(i) / 100, Share: 0.5, Service: 2.5 * float64(i)})
	}
	now, _ := m.Forecast(0)
	half, _ := m.Forecast(0.25)
	fmt.Println(now.Expected.Round(time.Second), half.Expected.Round(time.Second))
	// Output: 16m40s 20m55s
}
