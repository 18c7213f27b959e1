package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/settings"
)

// parsed returns a scenario from its text.
func parsed(t *testing.T, text string) *Scenario {
	t.Helper()
	s := &Scenario{}
	if err := settings.Parse([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAHugeJobDoesNotBlockItsQueue: jobs that follow a huge job in the same queue get slots as soon
// as tasks end. If slots were given in order of arrival, these jobs would wait for nearly all of
// the huge job.
func TestAHugeJobDoesNotBlockItsQueue(t *testing.T) {
	const text = `
length: 1h
nodes: [{count: 4}]
jobs:
  - {name: huge, queue: q, input: 100GiB, shuffle: 20GiB, output: 10GiB, slots: 32}
  - {name: small, queue: q, at: 5s, every: 5s, count: 20, input: 64MiB, shuffle: 1MiB, output: 1MiB}
mapreduce: {play: [alone, local], order: `
	slowdown := func(order string) float64 {
		r := played(t, parsed(t, text+order+"}\n"), 1)
		if r.Ended(wayLocal) != 21 {
			t.Errorf("%s: %d of 21 jobs have ended", order, r.Ended(wayLocal))
		}
		for _, s := range r.Summaries {
			if s.Way == wayLocal && s.Of == "small" {
				t.Logf("%s: slowdowns of the small jobs: median %.1f, p90 %.1f", order, s.SlowdownMedian, s.SlowdownP90)
				return s.SlowdownMedian
			}
		}
		t.Fatal("no summary of the small jobs")
		return 0
	}
	fair, fifo := slowdown(orderFair), slowdown(orderFIFO)
	if fair > 8 || fifo < 4*fair {
		t.Errorf("the small jobs take %.1f times as long as alone, first come first served %.1f", fair, fifo)
	}
}

// TestQueuesShareSlots: two queues that both want all slots get half of the slots each, regardless
// of their numbers of jobs. No queue gets more slots than its bound.
func TestQueuesShareSlots(t *testing.T) {
	for bound, want := range map[int]int{0: 24, 5: 5} {
		s := parsed(t, fmt.Sprintf(`
nodes: [{count: 6}]
jobs:
  - {name: many, queue: a, count: 5, input: 20GiB, slots: %d}
  - {name: one, queue: b, input: 100GiB}
`, bound))
		works, err := s.works(1)
		if err != nil {
			t.Fatal(err)
		}
		apps, of := applicationsOf(works)
		c := newCluster(1, s.exchange(), apps)
		if err := c.populate(s); err != nil {
			t.Fatal(err)
		}
		y := newYarn(c, s.MapReduce, 1)
		for i, w := range works {
			y.add(w, of[i], 0, 1, func(time.Duration) {})
		}
		c.Run(40 * time.Second)
		a, b := y.queues["a"].running, y.queues["b"].running
		if max(a-want, want-a) > 1 || a+b != 48 {
			t.Errorf("bound %d: queue a has %d slots and b %d of 48, want %d for a", bound, a, b, want)
		}
		for _, j := range y.jobs[1:5] {
			if d := j.running - y.jobs[0].running; d > 2 || d < -2 {
				t.Errorf("bound %d: the jobs of one queue have %d and %d tasks running", bound, j.running, y.jobs[0].running)
			}
		}
	}
}

// TestTracesOfADay: the sample spans a day and, as in Facebook's traces, has jobs of terabytes
// among many jobs of kilobytes. The jobs to play are submitted within half of the run, and all of
// them end.
func TestTracesOfADay(t *testing.T) {
	s := load(t, "scenarios/swim.yaml")
	jobs, err := LoadTrace("scenarios/swim-sample.tsv")
	if err != nil {
		t.Fatal(err)
	}
	if last := jobs[len(jobs)-1].Submitted; last < 18*time.Hour {
		t.Fatalf("the last job is submitted after %v", last)
	}
	huge := uint64(0)
	for seed := range uint64(100) {
		works, err := s.works(seed)
		if err != nil {
			t.Fatal(err)
		}
		works = works[1:] // without TeraGen
		if len(works) != 50 || works[0].at != 0 || works[49].at > time.Hour {
			t.Fatalf("seed %d: %d jobs, the first at %v, the last at %v", seed, len(works), works[0].at, works[len(works)-1].at)
		}
		first := -1
		for i, w := range works {
			var number int
			if _, err := fmt.Sscanf(w.name, "trace/job%d", &number); err != nil {
				t.Fatal(err)
			}
			if first < 0 {
				first = number
			}
			if number != first+i {
				t.Fatalf("seed %d: job %s is the %d. one after job %d", seed, w.name, i, first)
			}
			if w.input > 50e9 {
				huge = seed
			}
			in := max(64<<20, jobs[number].Input*8/600)
			if d := w.input - in; d > 1 || d < -1 || w.reduces == 0 {
				t.Fatalf("%s: input %d, %d reduces: want input %d", w.name, w.input, w.reduces, in)
			}
		}
	}
	if huge == 0 {
		t.Fatal("no seed draws a huge job")
	}
	r := played(t, s, huge)
	for _, fault := range r.Faults {
		t.Errorf("seed %d: %s", huge, fault)
	}
	for _, way := range s.MapReduce.Play {
		if r.Ended(way) != 50 {
			t.Errorf("seed %d, %s: %d of 50 jobs have ended", huge, way, r.Ended(way))
		}
	}
}

// TestJobsThatCannotEnd: jobs that cannot end are refused before the run. Jobs that could end, but
// do not, are counted.
func TestJobsThatCannotEnd(t *testing.T) {
	const nodes = "nodes: [{count: 2}]\nlength: 20m\nmapreduce: {play: [local]}\n"
	file := filepath.Join(t.TempDir(), "trace.tsv")
	write := func(gap int) {
		t.Helper()
		var text strings.Builder
		for i := range 10 {
			fmt.Fprintf(&text, "j%d\t%d\t%d\t1000\t0\t1000\n", i, i*gap, gap)
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		gap        int
		text, want string
	}{
		{0, "jobs: [{name: j, input: 1, count: 3, every: 10m}]\n", "1 of 3 jobs are submitted after the run's length of 20m0s, the last one at 20m0s"},
		{0, "jobs: [{name: j, input: 1, count: 2, every: 19m}, {name: k, input: 1, at: 20m, background: true}]\n", ""},
		{134, "traces: [{name: t, file: " + file + "}]\n", "1 of 10 jobs are submitted after the run's length"},
		{133, "traces: [{name: t, file: " + file + "}]\n", ""},
		{1, "traces: [{name: t, file: " + file + ", machines: 100000, least: 1024GiB}]\n", ""},
		{301, "traces: [{name: t, file: " + file + ", jobs: 3}]\n", "the submissions of 3 successive jobs take at least 10m2s, and half of the run's length is 10m0s"},
		{300, "traces: [{name: t, file: " + file + ", jobs: 3}]\n", ""},
		{602, "traces: [{name: t, file: " + file + ", jobs: 3, time: 0.5}]\n", "take at least 10m2s"},
	} {
		write(test.gap)
		works, err := parsed(t, nodes+test.text).works(1)
		if test.want == "" && (err != nil || len(works) == 0) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.text, err, test.want)
		}
	}
	parsed(t, "nodes: [{count: 1000}]\ntraces: [{name: t, machines: 1}]\n") // at the upper bound of scale
	r := played(t, parsed(t, nodes+"jobs: [{name: a, input: 1000}, {name: b, input: 1024GiB}]\n"), 1)
	if r.Good || r.Ended(wayLocal) != 1 || !strings.Contains(strings.Join(r.Faults, ""), "local: 1 of 2 jobs have not ended within 20m0s") {
		t.Errorf("%d have ended, good %v: %v", r.Ended(wayLocal), r.Good, r.Faults)
	}
	for _, s := range r.Summaries {
		if s.Of == "b" && (s.All != 1 || s.Jobs != 0) {
			t.Errorf("%+v", s)
		}
	}
}
