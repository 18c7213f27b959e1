package shortest_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/core/shortest"
)

// fluid is a device of capacity 1 that serves jobs of known sizes, in steps.
type fluid struct {
	at, size []float64 // arrival and size of each job
	served   []float64
	end      []float64 // 0: not ended
}

func newFluid(at, size []float64) *fluid {
	return &fluid{at: at, size: size, served: make([]float64, len(at)), end: make([]float64, len(at))}
}

// present returns the jobs that have arrived and not ended.
func (f *fluid) present(now float64) (jobs []int) {
	for i := range f.at {
		if f.at[i] <= now && f.end[i] == 0 {
			jobs = append(jobs, i)
		}
	}
	return jobs
}

// run serves the jobs until all have ended. parts returns the parts of the capacity for the present jobs. A part
// that a job does not need up to the next step is given to nobody, so the ends are upper bounds.
func (f *fluid) run(t *rapid.T, step float64, parts func(now float64, jobs []int) []float64) {
	for now, left := 0.0, len(f.at); left > 0; now += step {
		if now > 1e5 {
			t.Fatalf("jobs %v have not ended: %v of %v", f.present(now), f.served, f.size)
		}
		jobs := f.present(now)
		if len(jobs) == 0 {
			continue
		}
		for k, p := range parts(now, jobs) {
			i := jobs[k]
			if f.served[i] += p * step; f.served[i] >= f.size[i]-1e-9 {
				f.end[i] = now + step
				left--
			}
		}
	}
}

func drawJobs(t *rapid.T) (at, size []float64) {
	for range rapid.IntRange(1, 8).Draw(t, "jobs") {
		at = append(at, float64(rapid.IntRange(0, 40).Draw(t, "arrival")))
		size = append(size, float64(rapid.IntRange(1, 60).Draw(t, "size")))
	}
	return at, size
}

// scale converts the fluid's work to bytes: estimates of less than a byte have no meaning.
const scale = 1e9

// ordered returns the parts by which a Queue divides the capacity. size returns the stated size of a job.
func (f *fluid) ordered(s shortest.Slices, size func(i int) float64) func(float64, []int) []float64 {
	q, before := &shortest.Queue{}, make([]float64, len(f.at))
	return func(_ float64, jobs []int) []float64 {
		var all []shortest.Job
		for _, i := range jobs {
			all = append(all, shortest.Job{Name: fmt.Sprint(i), Weight: 1, Moved: (f.served[i] - before[i]) * scale, Progress: -1, Size: size(i) * scale})
			before[i] = f.served[i]
		}
		var parts []float64
		for _, p := range q.Update(all, s) {
			parts = append(parts, p.Part)
		}
		return parts
	}
}

// TestNobodyEndsLater is FSP's property: with the whole device for the first and exact sizes, no job ends later than
// under processor sharing. Steps and the noise margin cost a little: two jobs whose estimates are within the margin
// keep their order, which exact sizes never change.
func TestNobodyEndsLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const step = 0.05
		at, size := drawJobs(t)
		sharing := newFluid(at, size)
		sharing.run(t, step, func(_ float64, jobs []int) []float64 {
			return slices.Repeat([]float64{1 / float64(len(jobs))}, len(jobs))
		})
		first := newFluid(at, size)
		first.run(t, step, first.ordered(shortest.Slices{Percent: []int{100}}, func(i int) float64 { return size[i] }))
		for i := range at {
			if late := first.end[i] - sharing.end[i]; late > step*float64(2*len(at)+2) {
				t.Fatalf("job %d ends %.2f later than under processor sharing: %v against %v", i, late, first.end, sharing.end)
			}
		}
	})
}

// TestFloorBoundsTheEnd: with a floor f, a job ends within size/(f x capacity), whatever is said of sizes.
func TestFloorBoundsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const step = 0.1
		at, size := drawJobs(t)
		said := make([]float64, len(at))
		for i := range said {
			said[i] = rapid.Float64Range(0, 1000).Draw(t, "stated size")
		}
		s := shortest.Slices{Percent: []int{100}, Floor: rapid.IntRange(1, shortest.MaxFloor).Draw(t, "floor")}
		f := newFluid(at, size)
		f.run(t, step, f.ordered(s, func(i int) float64 { return said[i] }))
		floor := s.FloorOf(len(at)) // more jobs are never there
		for i := range at {
			if took, most := f.end[i]-at[i], size[i]/floor+2*step; took > most {
				t.Fatalf("job %d took %.2f, at most %.2f with a floor of %.3f", i, took, most, floor)
			}
		}
	})
}

// drawSlices draws valid slices: each at most the one before it, until the rest is at most the last slice.
func drawSlices(t *rapid.T) shortest.Slices {
	s := shortest.Slices{Floor: rapid.IntRange(0, shortest.MaxFloor).Draw(t, "floor")}
	last, left := 100, 100
	for left > 0 && (left > last || len(s.Percent) == 0 || len(s.Percent) < shortest.MaxSlices && rapid.Bool().Draw(t, "one more")) {
		last = rapid.IntRange(max(1, min(last, left)/2), min(last, left)).Draw(t, "slice")
		if missing := shortest.MaxSlices - len(s.Percent); last*missing < left { // the rest of the slices must be enough
			last = min(left, (left+missing-1)/missing)
			if n := len(s.Percent); n > 0 {
				last = min(last, s.Percent[n-1])
			}
		}
		s.Percent = append(s.Percent, last)
		left -= last
	}
	return s
}

// TestParts: parts add up to 1, never increase with the rank, and keep the floor.
func TestParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSlices(t)
		if err := s.Validate(); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		n := rapid.IntRange(1, 300).Draw(t, "applications")
		parts, sum := s.Parts(n), 0.0
		for i, p := range parts {
			sum += p
			if p < s.FloorOf(n)-1e-9 || i > 0 && p > parts[i-1]+1e-9 {
				t.Fatalf("%+v, %d applications: part %d is %v, before it %v, floor %v", s, n, i, p, parts[max(0, i-1)], s.FloorOf(n))
			}
		}
		if math.Abs(sum-1) > 1e-9 || len(parts) != n {
			t.Fatalf("%d parts add up to %v", len(parts), sum)
		}
	})
	for _, test := range []struct {
		slices shortest.Slices
		n      int
		want   []float64
	}{
		{shortest.Slices{Percent: []int{70, 20, 10}, Floor: 5}, 3, []float64{0.7, 0.2, 0.1}},
		{shortest.Slices{Percent: []int{70, 20, 10}, Floor: 5}, 1, []float64{1}},
		{shortest.Slices{Percent: []int{90}, Floor: 1}, 3, []float64{0.9, 0.05, 0.05}},
		{shortest.Slices{Percent: []int{90, 10}, Floor: 25}, 2, []float64{0.75, 0.25}},
		{shortest.Slices{Percent: []int{100}, Floor: 10}, 2, []float64{0.9, 0.1}},
		{shortest.Slices{Percent: []int{100}}, 2, []float64{1, 0}},
	} {
		got := test.slices.Parts(test.n)
		for i := range test.want {
			if len(got) != len(test.want) || math.Abs(got[i]-test.want[i]) > 1e-9 {
				t.Errorf("%+v of %d: %v, want %v", test.slices, test.n, got, test.want)
				break
			}
		}
	}
	if got := shortest.Default().Parts(0); got != nil {
		t.Error(got)
	}
}

func TestSlicesAreChecked(t *testing.T) {
	good := slices.Repeat([]int{6}, shortest.MaxSlices)
	for name, test := range map[string]struct {
		slices shortest.Slices
		good   bool
	}{
		"default":               {shortest.Default(), true},
		"none":                  {shortest.Slices{Floor: 1}, false},
		"the most":              {shortest.Slices{Percent: good}, true},
		"one too many":          {shortest.Slices{Percent: append(good, 1)}, false},
		"a whole":               {shortest.Slices{Percent: []int{100}, Floor: shortest.MaxFloor}, true},
		"more than a whole":     {shortest.Slices{Percent: []int{60, 41}}, false},
		"a whole in two":        {shortest.Slices{Percent: []int{60, 40}}, true},
		"ascending":             {shortest.Slices{Percent: []int{20, 70}}, false},
		"a rest above the last": {shortest.Slices{Percent: []int{49}}, false},
		"a rest like the last":  {shortest.Slices{Percent: []int{50}}, true},
		"nothing":               {shortest.Slices{Percent: []int{100, 0}}, false},
		"too large a floor":     {shortest.Slices{Percent: []int{100}, Floor: shortest.MaxFloor + 1}, false},
		"a floor below 0":       {shortest.Slices{Percent: []int{100}, Floor: -1}, false},
	} {
		if err := test.slices.Validate(); (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestShorterFirst: of applications that came together, a shorter one never gets less.
func TestShorterFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSlices(t)
		var jobs []shortest.Job
		for i := range rapid.IntRange(1, 20).Draw(t, "applications") {
			jobs = append(jobs, shortest.Job{Name: fmt.Sprint(i), Weight: 1, Progress: -1, Size: rapid.Float64Range(1e6, 1e12).Draw(t, "size")})
		}
		places := (&shortest.Queue{}).Update(jobs, s)
		for i := range jobs {
			for k := range jobs {
				if jobs[i].Size < jobs[k].Size && (places[i].Part < places[k].Part-1e-12 || places[i].Rank > places[k].Rank) {
					t.Fatalf("%v before %v: %+v, %+v", jobs[i].Size, jobs[k].Size, places[i], places[k])
				}
			}
		}
	})
}

// TestNoiseSwapsNothing: estimates within Noise of the true values never change an order that the true values
// gave, and a difference beyond it does.
func TestNoiseSwapsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 10).Draw(t, "applications")
		size := make([]float64, n)
		for i := range size {
			size[i] = rapid.Float64Range(1e9, 1e12).Draw(t, "size")
		}
		slices.Sort(size)
		q := &shortest.Queue{}
		update := func(noise func() float64) []shortest.Place {
			var jobs []shortest.Job
			for i := range size {
				jobs = append(jobs, shortest.Job{Name: fmt.Sprint(i), Weight: 1, Progress: -1, Size: size[i] * noise()})
			}
			return q.Update(jobs, shortest.Default())
		}
		update(func() float64 { return 1 })
		for range 20 {
			places := update(func() float64 {
				return rapid.Float64Range(1-shortest.Noise+1e-9, 1+shortest.Noise-1e-9).Draw(t, "noise")
			})
			for i, p := range places {
				if p.Rank != i+1 {
					t.Fatalf("application %d of sizes %v has rank %d", i, size, p.Rank)
				}
			}
		}
		size[n-1] = size[0] / 2
		if places := update(func() float64 { return 1 }); places[n-1].Rank != 1 {
			t.Fatalf("with half of the least size, the last has rank %d", places[n-1].Rank)
		}
	})
}

// TestRemaining checks the estimates against jobs of known size.
func TestRemaining(t *testing.T) {
	for name, test := range map[string]struct {
		seen shortest.Observation
		want float64
		most float64 // error
	}{
		"by progress":                 {shortest.Observation{Served: 4e9, Progress: 0.4, First: 0}, 6e9, 0.3},
		"early":                       {shortest.Observation{Served: 1e9, Progress: 0.1, First: 0}, 9e9, 0.8},
		"seen from the middle":        {shortest.Observation{Served: 2e9, Progress: 0.7, First: 0.5}, 3e9, 0.5},
		"a size":                      {shortest.Observation{Served: 4e9, Progress: -1, First: -1, Size: 10e9}, 6e9, 0.2},
		"a size, from the middle":     {shortest.Observation{Served: 1e9, Progress: 0.6, First: 0.5, Size: 10e9}, 4e9, 0.3},
		"both":                        {shortest.Observation{Served: 4e9, Progress: 0.4, First: 0, Size: 10e9}, 6e9, 0.17},
		"a size that is used up":      {shortest.Observation{Served: 4e9, Progress: -1, First: -1, Size: 3e9}, 4e9, 1},
		"history":                     {shortest.Observation{Served: 1e9, Progress: -1, First: -1, History: 5e9}, 4e9, 1},
		"beyond history":              {shortest.Observation{Served: 6e9, Progress: -1, First: -1, History: 5e9}, 6e9, 1},
		"a progress that stands":      {shortest.Observation{Served: 6e9, Progress: 0.1, First: 0.1}, 6e9, 1},
		"a progress without any work": {shortest.Observation{Progress: 0.5, First: 0}, 0, 1},
		"all done":                    {shortest.Observation{Served: 1e9, Progress: 1, First: 0}, 0, 10},
	} {
		got := test.seen.Remaining()
		if math.Abs(got.Bytes-test.want) > 1e-6*test.want+1 || got.Error > test.most || got.Error < 0 {
			t.Errorf("%s: %+v, want %v with an error of at most %v", name, got, test.want, test.most)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		any := rapid.Float64Range(-1, 1e15)
		o := shortest.Observation{Served: max(0, any.Draw(t, "served")), Progress: rapid.Float64Range(-1, 1).Draw(t, "progress"), First: rapid.Float64Range(-1, 1).Draw(t, "first"),
			Size: max(0, any.Draw(t, "size")), History: max(0, any.Draw(t, "history"))}
		if got := o.Remaining(); !(got.Bytes >= 0) || math.IsInf(got.Bytes, 0) || !(got.Error >= 0 && got.Error <= 10) {
			t.Fatalf("%+v: %+v", o, got)
		}
	})
}

// TestByProgress: without sizes, three jobs of 1:2:3 get their order while they run, and it stays.
func TestByProgress(t *testing.T) {
	q := &shortest.Queue{}
	size, served := []float64{30e9, 20e9, 10e9}, []float64{0, 0, 0}
	swaps, last := 0, []int{}
	for range 200 {
		var jobs []shortest.Job
		for i := range size {
			jobs = append(jobs, shortest.Job{Name: fmt.Sprint(i), Weight: 1, Progress: math.Floor(100*served[i]/size[i]) / 100})
		}
		for i := range jobs {
			if len(last) > 0 {
				jobs[i].Moved = 30e6
				served[i] += 30e6
			}
		}
		var ranks []int
		for _, p := range q.Update(jobs, shortest.Default()) {
			ranks = append(ranks, p.Rank)
		}
		if len(last) > 0 && !slices.Equal(ranks, last) {
			swaps++
		}
		last = ranks
	}
	if !slices.Equal(last, []int{3, 2, 1}) || swaps > 4 {
		t.Errorf("ranks %v after %d changes", last, swaps)
	}
}

// TestBounds: applications beyond MaxOrdered share the last rank, and a later one takes the place of one that
// has ended.
func TestBounds(t *testing.T) {
	q := &shortest.Queue{}
	var jobs []shortest.Job
	for i := range shortest.MaxOrdered + 2 {
		jobs = append(jobs, shortest.Job{Name: fmt.Sprint(i), Weight: 1, Progress: -1, Size: float64(1e9 + i)})
	}
	for i, p := range q.Update(jobs, shortest.Default()) {
		if want := min(i, shortest.MaxOrdered) + 1; p.Rank != want || p.Part <= 0 {
			t.Fatalf("application %d: %+v, want rank %d", i, p, want)
		}
	}
	if p := q.Update(jobs[2:], shortest.Default()); p[0].Rank == shortest.MaxOrdered+1 {
		t.Errorf("%+v", p[0])
	}
	p := q.Update(jobs[2:], shortest.Default())
	if last := p[len(p)-1]; last.Rank != shortest.MaxOrdered {
		t.Errorf("%+v, want the last of %d ranks", last, shortest.MaxOrdered)
	}
}

// TestAChainWithinTheNoise: each application is within the noise of the next one, and the last has a hundredth of the first one's
// work. It must not stay behind.
func TestAChainWithinTheNoise(t *testing.T) {
	var q shortest.Queue
	jobs := make([]shortest.Job, 10)
	for i := range jobs {
		jobs[i] = shortest.Job{Name: fmt.Sprint(i), Weight: 1, Progress: -1, Size: 1e12}
	}
	q.Update(jobs, shortest.Default())
	for i := range jobs {
		jobs[i].Size = 1e12 * math.Pow(1.7, float64(-i))
	}
	var places []shortest.Place
	for range 5 {
		places = q.Update(jobs, shortest.Default())
	}
	if places[9].Rank > places[0].Rank {
		t.Errorf("the shortest has rank %d, the longest %d", places[9].Rank, places[0].Rank)
	}
}
