package slowdown

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// job is an application whose unit of progress takes c without the disk and b of the disk, alone.
type job struct {
	App
	c, b   float64
	factor float64 // in force
	share  float64 // of the disk while it waits
	waited float64
	work   float64 // units done since the loads have settled
}

// overall returns the true slowdown since the loads have settled, some periods ago.
func (j *job) overall(periods int) float64 { return float64(periods) / j.work }

// slowdown returns the true slowdown at the present share.
func (j *job) slowdown() float64 { return (j.c + j.b/j.share) / (j.c + j.b) }

// settled is the number of periods without the controller, in which the loads settle at equal weights.
const settled = 50

// loop is a disk that divides by the weights in force among the jobs that wait. Observations arrive, and factors are in
// force, delay periods late.
func loop(jobs []*job, periods, delay int, noise float64, seed uint64, each func(period int)) {
	random := rand.New(rand.NewPCG(seed, 2))
	var g Group
	var apps []*App
	for _, j := range jobs {
		apps = append(apps, &j.App)
		j.factor, j.waited = 1, j.b/(j.c+j.b)
	}
	var late [][]Use
	for period := range periods {
		for _, j := range jobs {
			others := 0.0
			for _, o := range jobs {
				if o != j {
					others += o.factor * o.waited
				}
			}
			j.share = j.factor / (j.factor + others)
		}
		uses := make([]Use, len(jobs))
		for i, j := range jobs {
			wait := j.b / j.share
			j.waited = wait / (j.c + wait)
			waited := min(j.waited*(1+noise*(2*random.Float64()-1)), 1)
			uses[i] = Use{Waited: waited, Hindered: waited * (1 - j.share), Used: j.share * j.waited}
		}
		late = append(late, uses)
		if period < settled {
			late = late[:0]
		} else if len(late) > delay {
			for i, j := range jobs {
				u := late[0][i]
				j.Add(Sample{Streams: 1, Waiting: u.Waited, Hindered: u.Hindered, Used: u.Used, Touched: 1}, 2*time.Second)
				j.Take()
			}
			late = late[1:]
			g.Update(apps)
		}
		for _, j := range jobs {
			j.factor = j.Factor()
		}
		if period >= settled {
			for _, j := range jobs {
				j.work += 1 / j.slowdown()
			}
		}
		if each != nil {
			each(period)
		}
	}
}

// lived is the number of periods after which the slowdowns since the start are compared: 90 s at reports once a second.
const lived = 45

// TestEqualSlowdown: jobs of different disk parts have different slowdowns at equal weights, and the same within 5 points under the
// controller, at any delay up to 3 periods, at present and since the start; the job with the largest slowdown is slowed down less; and factors rest in the end.
func TestEqualSlowdown(t *testing.T) {
	for delay := range 4 {
		for _, noise := range []float64{0, 0.1} {
			t.Run(fmt.Sprintf("delay %d, noise %v", delay, noise), func(t *testing.T) {
				jobs := []*job{{c: 70, b: 30}, {c: 20, b: 80}}
				first, turns, direction, before, low, high := 0.0, 0, 0.0, 0.0, math.Inf(1), 0.0
				loop(jobs, 600, delay, noise, 1, func(period int) {
					switch change := jobs[1].factor - before; {
					case period == settled-1:
						first = max(jobs[0].slowdown(), jobs[1].slowdown())
					case math.Abs(change) > 1e-3 && change*direction < 0:
						turns++
						direction = change
					case change != 0:
						direction = change
					}
					before = jobs[1].factor
					if x, y := jobs[0].overall(period-settled+1), jobs[1].overall(period-settled+1); period == settled+lived && math.Abs(x-y) > 0.03*max(x, y) {
						t.Errorf("after %d periods, the slowdowns since the start are %.2f and %.2f", lived, x, y)
					}
					if period >= 400 {
						low, high = min(low, before), max(high, before)
					}
				})
				x, y := jobs[0].slowdown(), jobs[1].slowdown()
				if math.Abs(x-y) > 0.05*max(x, y) {
					t.Errorf("slowdowns %.2f and %.2f", x, y)
				}
				if max(x, y) >= first {
					t.Errorf("the worse slowdown is %.2f, and was %.2f at equal weights", max(x, y), first)
				}
				if noise == 0 && turns > 1 || high > 1.1*low {
					t.Errorf("%d turns; in the end from %.3f to %.3f", turns, low, high)
				}
			})
		}
	}
}

// TestGoals: performance is in proportion to the goals.
func TestGoals(t *testing.T) {
	jobs := []*job{{c: 10, b: 90}, {c: 10, b: 90}}
	jobs[0].Goal, jobs[1].Goal = 1.5, 1
	loop(jobs, 600, 1, 0, 1, nil)
	if ratio := jobs[1].slowdown() / jobs[0].slowdown(); math.Abs(ratio-1.5) > 0.1 {
		t.Errorf("slowdowns in the ratio %.2f", ratio)
	}
}

// TestAProcessorBoundJobTakesNothing: a job without disk work changes nothing for two others.
func TestAProcessorBoundJobTakesNothing(t *testing.T) {
	two := []*job{{c: 70, b: 30}, {c: 20, b: 80}}
	three := []*job{{c: 70, b: 30}, {c: 20, b: 80}, {c: 100, b: 0.1}}
	loop(two, 600, 1, 0, 1, nil)
	loop(three, 600, 1, 0, 1, nil)
	for i := range two {
		if a, b := two[i].slowdown(), three[i].slowdown(); math.Abs(a-b) > 0.02*a {
			t.Errorf("job %d: slowdown %.3f, and %.3f beside the third", i, a, b)
		}
	}
	if f := three[2].Factor(); f != 1 {
		t.Errorf("its factor is %v", f)
	}
}

// TestAnything: whatever jobs there are, factors are within their bounds, and what is observed is never a number below 1.
func TestAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var apps []*App
		var g Group
		for range rapid.IntRange(1, 10).Draw(t, "applications") {
			apps = append(apps, &App{Goal: rapid.Float64().Draw(t, "goal")})
		}
		for range rapid.IntRange(1, 50).Draw(t, "periods") {
			for _, a := range apps {
				a.Observe(Use{rapid.Float64().Draw(t, "waited"), rapid.Float64().Draw(t, "hindered"), rapid.Float64().Draw(t, "used")})
			}
			g.Update(apps)
			for _, a := range apps {
				if f := a.Factor(); !(f >= 1.0/MaxFactor-1e-9 && f <= MaxFactor+1e-9) || !(a.Slowdown() >= 1) {
					t.Fatalf("factor %v, slowdown %v", f, a.Slowdown())
				}
			}
		}
	})
}

// TestHindered compares the estimate with the truth for a stream that overlaps its computing with the device: of a unit's time c
// without the device and b of the device, the longer one counts. The device gives it a share while it has a request, which
// is always if it is bound by the device.
func TestHindered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, b, share := rapid.Float64Range(0, 2).Draw(t, "c"), rapid.Float64Range(0.01, 2).Draw(t, "b"), rapid.Float64Range(0.05, 1).Draw(t, "share")
		unit := max(c, b/share)
		waited := unit - c
		contended := b/share - b // the device works for it, or for others, for b/share
		second := func(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
		alone := unit - Hindered(second(unit), second(waited), second(contended), second(unit)).Seconds()
		if want := max(c, b); math.Abs(alone-want) > 1e-6 {
			t.Fatalf("time alone %v, want %v", alone, want)
		}
	})
	if h := Hindered(4*time.Second, 3*time.Second, 5*time.Second, time.Second); h != 3*time.Second {
		t.Errorf("more contended than the period is long: %v", h)
	}
	if h := Hindered(time.Second, -1, time.Second, time.Second); h != 0 {
		t.Errorf("negative wait: %v", h)
	}
}

// TestWeights: weights are in proportion to weights times factors, and within their range.
func TestWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SliceOfN(rapid.IntRange(1, WeightScale), 1, 10).Draw(t, "weights")
		factors := make([]float64, len(base))
		for i := range factors {
			factors[i] = rapid.Float64Range(1.0/MaxFactor, MaxFactor).Draw(t, "factor")
		}
		got := Weights(append([]int(nil), base...), factors)
		most := 0.0
		for i := range base {
			most = max(most, float64(base[i])*factors[i])
		}
		for i, w := range got {
			if w < 1 || w > WeightScale {
				t.Fatalf("weight %d", w)
			}
			if want := float64(base[i]) * factors[i]; want*1000 > most {
				ratio := float64(w) / float64(got[0]) / (want / (float64(base[0]) * factors[0]))
				if float64(base[0])*factors[0]*1000 > most && math.Abs(ratio-1) > 0.15 {
					t.Fatalf("weights %v of %v with factors %v", got, base, factors)
				}
			}
		}
	})
	if got := Weights([]int{1, 3}, []float64{1, 1}); got[1] != 3*got[0] {
		t.Errorf("%v", got)
	}
}
