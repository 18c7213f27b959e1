package slowdown

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// job is an application whose unit of progress takes c without the disk and b of the disk, alone.
type job struct {
	App
	c, b   float64
	factor float64 // in force
	share  float64 // of the disk while it waits
	waited float64
}

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
			uses[i] = Use{j.waited * (1 + noise*(2*random.Float64()-1)), j.share}
		}
		late = append(late, uses)
		if period < settled {
			late = late[:0]
		} else if len(late) > delay {
			for i, j := range jobs {
				j.Observe(late[0][i])
			}
			late = late[1:]
			g.Update(apps)
		}
		for _, j := range jobs {
			j.factor = j.Factor()
		}
		if each != nil {
			each(period)
		}
	}
}

// TestEqualSlowdown: jobs of different disk parts have different slowdowns at equal weights, and the same within 5 points under the
// controller, at any delay up to 3 periods; the worst one is better off; and factors rest in the end.
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
				a.Observe(Use{rapid.Float64().Draw(t, "waited"), rapid.Float64().Draw(t, "share")})
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
