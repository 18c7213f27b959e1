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
	bytes    float64 // moved by the whole job; 0: not measured
	boundary float64 // of phases; 0: none is known

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
	o := Observation{Time: time.Duration(j.at * 1e9), Progress: min(j.progress, 1), Share: share, Service: -1, Bytes: j.progress * j.bytes, Boundary: j.boundary}
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

// TestNarrow: the intervals are not wider than needed. An interval that holds every end by its width is useless.
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
				Share: rapid.Float64().Draw(t, "share"), Service: rapid.Float64().Draw(t, "service"), Bytes: rapid.Float64().Draw(t, "bytes"),
				Boundary: rapid.Float64().Draw(t, "boundary"), Work: rapid.Float64().Draw(t, "work")})
		}
		steady := m.last
		for i := range rapid.IntRange(0, 50).Draw(t, "steps") {
			steady.Time += time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "after"))
			steady.Progress = min(1, steady.Progress+rapid.Float64Range(0, 0.05).Draw(t, "step"))
			steady.Share = rapid.Float64Range(0, 1).Draw(t, "share")
			steady.Service, steady.Bytes = float64(i), float64(i)*1e6
			steady.Work = rapid.Float64Range(0, 1e6).Draw(t, "work")
			m.Observe(steady)
		}
		f, err := m.Forecast(rapid.Float64Range(0, 1).Draw(t, "to"))
		if err == nil && !(m.last.Time <= f.Low && f.Low <= f.Expected && f.Expected <= f.High) {
			t.Fatalf("after %v: %v", m.last.Time, f)
		}
		if need, err := m.Need(m.last.Time + time.Duration(rapid.Int64Range(-1e12, 1e15).Draw(t, "by"))); err == nil && !(need.Rate >= 0 && !math.IsInf(need.Rate, 0)) {
			t.Fatalf("%+v", need)
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

// TestNeed: the share is that of Share, or the whole if that is too little, and the rate is the one that the application has at this share while
// it uses the disk.
func TestNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := anyJob(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2)))
		j.noise = rapid.Float64Range(0, 0.3).Draw(t, "noise")
		j.bytes = rapid.Float64Range(1e9, 1e13).Draw(t, "bytes")
		var m Model
		j.run(&m, rapid.Float64Range(0.1, 1).Draw(t, "share"), rapid.Float64Range(0.1, 0.9).Draw(t, "progress"))
		by := m.last.Time + time.Duration(rapid.Float64Range(0, 1e4).Draw(t, "left")*1e9)
		need, err := m.Need(by)
		share, want := m.Share(by)
		if !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
		if errors.Is(err, ErrNoProgress) || errors.Is(err, ErrUnknown) {
			return
		}
		if errors.Is(err, ErrTooEarly) {
			share = 1
		}
		if end, _ := m.Forecast(share); need.Share != share || need.End != end {
			t.Fatalf("%+v, want share %v and end %v", need, share, end)
		}
		if work := m.fit().b; work > 0 && math.Abs(need.Rate-j.bytes*share/work) > 1e-6*need.Rate {
			t.Fatalf("rate %v, want %v", need.Rate, j.bytes*share/work)
		}
	})
}

// TestNoBytes: without measured bytes, no rate is known.
func TestNoBytes(t *testing.T) {
	j := anyJob(rand.New(rand.NewPCG(1, 2)))
	var m Model
	j.run(&m, 0.5, 0.5)
	if _, err := m.Need(time.Duration(1e15)); !errors.Is(err, ErrNoBytes) {
		t.Error(err)
	}
}

// TestAnUnseenPhase: before a boundary, the interval holds the end whatever the pace of the next phase is, from a third to three times the
// present one. After it, the interval is as narrow as without a boundary.
func TestAnUnseenPhase(t *testing.T) {
	for seed := range uint64(50) {
		for _, pace := range []float64{0.4, 1, 2.5} {
			j := anyJob(rand.New(rand.NewPCG(seed, 13)))
			j.noise, j.boundary = 0.2, 0.5
			var m Model
			foresee := func(from, before float64) End { // a phase may just have been noticed
				for at := from; at < before; at += 0.02 {
					j.run(&m, 0.5, at)
					if f, err := m.Forecast(0); err == nil {
						return f
					}
				}
				t.Fatalf("seed %d, pace %.1f: no forecast from %v to %v", seed, pace, from, before)
				return End{}
			}
			before := foresee(0.4, 0.5)
			j.run(&m, 0.5, 0.5)
			j.c, j.b = j.c*pace, j.b*pace
			with := foresee(0.6, 0.95)
			m.last.Boundary = 0
			if without, _ := m.Forecast(0); with != without {
				t.Errorf("seed %d: after the boundary, %v instead of %v", seed, with, without)
			}
			j.run(nil, 0.5, 1)
			if at := time.Duration(j.at * 1e9); at < before.Low || at > before.High {
				t.Errorf("seed %d, pace %.1f: it ended at %v, foreseen %v to %v", seed, pace, at, before.Low, before.High)
			}
		}
	}
}

// TestWorkGrows: an application whose work is doubled has the same model in the new unit, and an interval that contains that the work
// grows as much again.
func TestWorkGrows(t *testing.T) {
	j := anyJob(rand.New(rand.NewPCG(3, 17)))
	j.noise, j.bytes = 0.1, 1e10
	var m, whole Model
	for j.progress < 0.5 {
		j.run(nil, 0.5, j.progress+0.005)
		o := j.observe(0.5)
		o.Work = 100
		m.Observe(o)
		o.Progress /= 2 // the same, in the unit of the later work
		o.Work = 200
		whole.Observe(o)
	}
	o := j.observe(0.5)
	o.Time += time.Second
	o.Progress, o.Work = o.Progress/2, 200
	m.Observe(o)
	whole.Observe(o)
	got, err := m.Forecast(0)
	if err != nil {
		t.Fatal(err)
	}
	want, err := whole.Forecast(0)
	if err != nil {
		t.Fatal(err)
	}
	near := func(a, b, within float64) bool { return math.Abs(a-b) <= within*b }
	// The last equations are open at different times, and the memory is measured in progress.
	if rest := (want.Expected - o.Time).Seconds(); !near((got.Expected - o.Time).Seconds(), rest, 0.05) {
		t.Errorf("expected %v, want %v", got.Expected, want.Expected)
	}
	if again := time.Duration(m.fit().time(1, 1/0.5) * 0.5 * 1e9); got.High < want.Expected+again {
		t.Errorf("the end is at most %v, but the same work again ends at %v", got.High, want.Expected+again)
	}
	if a, b := m.moved/m.bytesStep, whole.moved/whole.bytesStep; !near(a, b, 0.05) {
		t.Errorf("%v bytes for the whole work, want %v", a, b)
	}
}
