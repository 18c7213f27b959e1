package deadline

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/core/forecast"
)

// job is a synthetic application beside others: a unit of progress takes c + b/share seconds, and moves bytes.
type job struct {
	c, b, bytes, noise float64
	boundary           float64 // of phases; 0: none is known

	at, progress, service float64
	random                *rand.Rand
}

// whole is the rate of the resource, in bytes per second, for this job.
func (j *job) whole() float64 { return j.bytes / j.b }

// step runs the job for 5 s at a share, and observes it.
func (j *job) step(m *forecast.Model, share float64) {
	for range 5 {
		step := min(max(0, 1+j.noise*j.random.NormFloat64())/(j.c+j.b/share), 1-j.progress)
		j.progress += step
		j.service += step * j.b
		if j.at++; j.progress >= 1 {
			break
		}
	}
	m.Observe(forecast.Observation{Time: j.now(), Progress: min(j.progress, 1), Share: share, Service: j.service, Bytes: j.progress * j.bytes, Boundary: j.boundary})
}

func (j *job) now() time.Duration { return seconds(j.at) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// aJob draws a job of 10 to 60 min with the whole resource.
func aJob(t *rapid.T) *job {
	length := rapid.Float64Range(600, 3600).Draw(t, "length")
	disk := rapid.Float64Range(0.3, 0.9).Draw(t, "disk")
	return &job{c: length * (1 - disk), b: length * disk, bytes: rapid.Float64Range(10e9, 1e12).Draw(t, "bytes"), noise: rapid.Float64Range(0, 0.3).Draw(t, "noise"),
		random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
}

// TestADeadlineIsKept: an application whose weight alone would end it too late ends in time with the granted rate. The rate is
// granted early, and changes rarely.
func TestADeadlineIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := aJob(t)
		share := rapid.Float64Range(0.1, 0.3).Draw(t, "share") // by weight
		alone, weighted := j.c+j.b, j.c+j.b/share
		by := seconds(alone + (weighted-alone)*rapid.Float64Range(0.5, 0.9).Draw(t, "by"))
		var m forecast.Model
		var g Goal
		granted, changes, last := false, 0, Verdict{}
		for j.progress < 1 {
			v := g.Update(j.now(), by, &m, 0)
			if v.State == Granted && last.State == Granted && v.Rate != last.Rate {
				changes++
			}
			granted = granted || v.State == Granted
			last = v
			j.step(&m, min(1, max(share, float64(v.Rate)/j.whole())))
			if j.now() > by {
				t.Fatalf("it is late at %.0f %%: %+v", 100*j.progress, last)
			}
		}
		if !granted {
			t.Fatalf("never granted: %+v", last)
		}
		if most := 5 + int(j.at/60); changes > most {
			t.Fatalf("the rate changed %d times in %.0f s", changes, j.at)
		}
	})
}

// TestTheRules: whatever was observed, each verdict keeps the stated rules.
func TestTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := aJob(t)
		by := seconds(rapid.Float64Range(1, 20_000).Draw(t, "by"))
		most := rapid.SampledFrom([]int64{0, 1 << 20, 1 << 28, 1 << 34}).Draw(t, "most")
		var m forecast.Model
		var g Goal
		var last Verdict
		changed := -time.Hour
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			known := &m
			if rapid.IntRange(0, 20).Draw(t, "known") == 0 {
				known = nil
			}
			v := g.Update(j.now(), by, known, most)
			_, part := lateness(j.now(), by, &m)
			need, err := m.Need(by - time.Duration(min(max(margin, part), NarrowPart)*float64(by-j.now())))
			has := v.State == Granted || v.State == Held
			had := last.State == Granted || last.State == Held
			switch {
			case v.Rate < 0 || v.Rate > 0 && !has, (v.Reason == nil) != (v.State == Granted):
				t.Fatalf("%+v", v)
			case most > 0 && v.Rate > most:
				t.Fatalf("above the limit: %+v", v)
			case (v.State == Missed) != (by <= j.now()):
				t.Fatalf("at %v of %v: %+v", j.now(), by, v)
			case v.State == Held && !had:
				t.Fatalf("held without a grant: %+v", v)
			case v.State == Granted && !had && (err != nil || need.End.Expected > by || known == nil || part > NarrowPart):
				t.Fatalf("granted by %v, %v: %+v", need, err, v)
			case v.State == Granted && float64(v.Rate) < need.Rate-1 && v.Rate != most && j.now()-changed >= Interval:
				t.Fatalf("%.0f are needed: %+v", need.Rate, v)
			case has && had && v.Rate != last.Rate && j.now()-changed < Interval:
				t.Fatalf("changed after %v: %+v, %+v", j.now()-changed, last, v)
			}
			if v.Rate != last.Rate {
				changed = j.now()
			}
			last = v
			j.step(&m, rapid.SampledFrom([]float64{0.2, 0.2, 0.2, 0.8}).Draw(t, "share"))
			if j.progress >= 1 {
				break
			}
		}
	})
}

// observed returns the model of a job after half of it, at half of the resource.
func observed(noise float64) (*job, *forecast.Model) {
	j := &job{c: 600, b: 600, bytes: 600e9, noise: noise, random: rand.New(rand.NewPCG(1, 1))} // 1 GB/s with the whole resource
	if noise == boundary {
		j.noise, j.boundary = 0.1, 0.8
	}
	m := &forecast.Model{}
	for j.progress < 0.5 {
		j.step(m, 0.5)
	}
	return j, m
}

// boundary stands for a noise in TestReasons.
const boundary = -1.0

// TestReasons: 600 s of work remain with the whole resource, and 900 s at the present share.
func TestReasons(t *testing.T) {
	for name, test := range map[string]struct {
		noise float64 // boundary: little noise, and a phase to come
		left  float64 // seconds
		most  int64
		state State
		want  error
	}{
		"enough time":          {0.1, 1500, 0, Granted, nil},
		"little time":          {0.1, 800, 0, Granted, nil},
		"impossible":           {0.1, 400, 0, Refused, ErrImpossible},
		"about as expected":    {0.1, 640, 0, Refused, ErrUncertain},
		"passed":               {0.1, 0, 0, Missed, ErrPassed},
		"a limit below it":     {0.1, 800, 300e6, Refused, ErrLimit},
		"a limit above it":     {0.1, 800, 900e6, Granted, nil},
		"a phase to come":      {boundary, 1500, 0, Refused, ErrWide},
		"the same, much later": {boundary, 15_000, 0, Granted, nil},
	} {
		j, m := observed(test.noise)
		var g Goal
		v := g.Update(j.now(), j.now()+seconds(test.left), m, test.most)
		if v.State != test.state || !errors.Is(v.Reason, test.want) {
			t.Errorf("%s: %+v", name, v)
		}
	}
	var g Goal
	if v := g.Update(0, time.Hour, nil, 0); v.State != Refused || !errors.Is(v.Reason, ErrProgress) {
		t.Errorf("no progress: %+v", v)
	}
	if v := g.Update(0, time.Hour, &forecast.Model{}, 0); v.State != Refused || !errors.Is(v.Reason, forecast.ErrNoProgress) {
		t.Errorf("an empty model: %+v", v)
	}
}

// TestARateIsHeld: while nothing is known, the rate stays for a tenth of the time until the deadline, and not longer.
func TestARateIsHeld(t *testing.T) {
	j, m := observed(0.1)
	by := j.now() + 1500*time.Second
	var g Goal
	granted := g.Update(j.now(), by, m, 0)
	if granted.State != Granted || granted.Rate == 0 {
		t.Fatalf("%+v", granted)
	}
	if v := g.Update(j.now()+140*time.Second, by, nil, 0); v.State != Held || v.Rate != granted.Rate {
		t.Errorf("after 140 s: %+v", v)
	}
	if v := g.Update(j.now()+160*time.Second, by, nil, 0); v.State != Refused || v.Rate != 0 {
		t.Errorf("after 160 s: %+v", v)
	}
}

// TestAGrantStaysWhenItIsLate: a deadline that is granted is not refused as soon as the upper end of the interval is late, but when it
// cannot be kept.
func TestAGrantStaysWhenItIsLate(t *testing.T) {
	j, m := observed(0.1)
	var g Goal
	if v := g.Update(j.now(), j.now()+800*time.Second, m, 0); v.State != Granted {
		t.Fatalf("%+v", v)
	}
	late := g
	if v := late.Update(j.now()+Interval, j.now()+640*time.Second, m, 0); v.State != Granted || float64(v.Rate) < j.whole() {
		t.Errorf("on the edge: %+v", v)
	}
	if v := g.Update(j.now()+Interval, j.now()+300*time.Second, m, 0); v.State != Refused || !errors.Is(v.Reason, ErrImpossible) {
		t.Errorf("impossible: %+v", v)
	}
}
