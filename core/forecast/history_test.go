package forecast

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// phase is a part of a synthetic program: the progress that it makes, and the work that this takes at size 1. A phase may make no
// progress at all.
type phase struct{ to, c, b float64 }

// program is a synthetic program with phases, whose progress is reported as a cluster manager does it: in steps, and read every few seconds.
type program struct {
	name   string
	phases []phase
	grain  float64 // progress of one step
	tasks  float64 // Observation.Work of size 1; 0: it has none
	grows  float64 // part of the tasks that are known only after half of the work; 0: all are known
}

// The programs have about the progress by time that was measured with `penstock-lab bench forecast`: see docs/design/forecast.md.
var programs = []program{
	// Half of the progress is reached after 98 % of the time.
	{name: "WordCount", phases: []phase{{0.05, 6, 1}, {0.5, 40, 24}, {1, 1, 0.5}}, grain: 0.0375},
	// Maps, a shuffle that makes no progress, and reduces that write.
	{name: "TeraSort", phases: []phase{{0.05, 5, 1}, {0.5, 6, 12}, {0.5, 3, 6}, {0.8, 4, 8}, {1, 3, 6}}, grain: 0.02},
	// A third of the tasks take nine tenths of the time.
	{name: "query", phases: []phase{{0.14, 20, 6}, {0.345, 16, 9}, {1, 3, 1}}, grain: 1.0 / 58, tasks: 58},
	{name: "query of two jobs", phases: []phase{{0.1, 10, 6}, {0.2, 30, 20}, {0.6, 5, 10}, {1, 3, 1}}, grain: 1.0 / 120, tasks: 120, grows: 0.6},
	{name: "even", phases: []phase{{1, 60, 30}}, grain: 0.01},
}

// run is one run of a program.
type run struct {
	*program
	size   float64
	noise  float64 // relative error of one second's work
	phases []phase // with what differs from run to run
	random *rand.Rand

	at       float64 // seconds
	phase    int
	part     float64 // of the phase that is done
	service  float64
	reported Observation
	poll     float64 // time of the next reading of the progress
}

// newRun returns a run of a size, whose phases take up to 8 % more or less.
func (p *program) newRun(seed uint64, size float64) *run {
	r := &run{program: p, size: size, noise: 0.3, random: rand.New(rand.NewPCG(seed, 23))}
	for _, f := range p.phases {
		around := 1 + 0.08*(2*r.random.Float64()-1)
		r.phases = append(r.phases, phase{f.to, f.c * size * around, f.b * size * around})
	}
	r.poll = 5 * r.random.Float64()
	return r
}

func (r *run) ended() bool { return r.phase == len(r.phases) }

// progress returns the true progress, and the part of the whole work that is done at a share.
func (r *run) progress(share float64) (progress, work float64) {
	from, done, all := 0.0, 0.0, 0.0
	for i, f := range r.phases {
		took := f.c + f.b/share
		switch all += took; {
		case i < r.phase:
			done, from, progress = done+took, f.to, f.to
		case i == r.phase:
			done, progress = done+r.part*took, from+r.part*(f.to-from)
		}
	}
	return progress, done / all
}

// second runs for a second at a share, and returns what is observed then.
func (r *run) second(share float64) Observation {
	left := max(0, 1+r.noise*r.random.NormFloat64())
	for left > 1e-9 && !r.ended() {
		f := r.phases[r.phase]
		took := f.c + f.b/share
		step := min(left/took, 1-r.part)
		r.part, r.service = r.part+step, r.service+step*f.b
		if left -= step * took; r.part >= 1-1e-9 {
			r.phase, r.part = r.phase+1, 0
		}
	}
	r.at++
	if r.at >= r.poll {
		r.poll += 5
		progress, work := r.progress(share)
		progress = math.Floor(progress/r.grain+1e-9) * r.grain
		r.reported = Observation{Progress: min(progress, 1)}
		if r.tasks > 0 {
			r.reported.Work = math.Round(r.tasks)
			if r.grows > 0 && work < 0.5 {
				r.reported.Work = math.Round(r.tasks * (1 - r.grows))
				r.reported.Progress = min(1, progress*r.tasks/r.reported.Work)
			}
		}
	}
	o := r.reported
	o.Time, o.Share, o.Service, o.Bytes = time.Duration(r.at*1e9), share, r.service, r.service*1e7
	return o
}

// learn lets a history learn from runs of all sizes and shares.
func learn(h *History, k Kind, p *program, runs int, seed uint64) {
	for i := range runs {
		r := p.newRun(seed+1000*uint64(i+1), []float64{2, 1.2, 4}[i%3])
		share := []float64{0.5, 0.8, 0.3}[(i+int(seed))%3]
		var t Trace
		for !r.ended() {
			t.Observe(r.second(share))
		}
		h.Learn(k, &t, time.Duration(r.at*1e9))
	}
}

// judged is the outcome of forecasts.
type judged struct {
	all, held, missed int
	worst             float64
}

// foresee runs a program of a kind with a history, at a share that changes at a third of its work, and judges its first forecast after
// half of its work, or of its reported progress.
func foresee(t *testing.T, h *History, k Kind, p *program, seed uint64, size, before, after, within float64, ofWork bool, j *judged) {
	t.Helper()
	r := p.newRun(seed, size)
	var m Model
	m.Use(h.Curve(k))
	share := before
	end, at, known := End{}, 0.0, false
	settled := 0.0 // 10 s after the change of the share
	for !r.ended() {
		o := r.second(share)
		m.Observe(o)
		_, work := r.progress(share)
		if work > 1.0/3 && settled == 0 {
			share, settled = after, r.at+10
		}
		half := m.Progress() >= 0.5
		if ofWork {
			half = m.Done() >= 0.5
		}
		if half && !known && !r.ended() && settled > 0 && r.at >= settled {
			got, err := m.Forecast(0)
			if err != nil {
				t.Errorf("%s, seed %d: %v at %.0f %% of the work", p.name, seed, err, 100*work)
				return
			}
			end, at, known = got, work, true
		}
	}
	if !known {
		return // the last report was below a half
	}
	j.all++
	miss := math.Abs(end.Expected.Seconds()-r.at) / r.at
	j.worst = max(j.worst, miss)
	if miss > within {
		j.missed++
		t.Logf("%s, seed %d, size %.1f, share %.2f to %.2f: foreseen %.1f s (%.1f to %.1f) at %.0f %% of the work, ended after %.1f s", p.name, seed, size, before, after, end.Expected.Seconds(), end.Low.Seconds(), end.High.Seconds(), 100*at, r.at)
	}
	if end.Low.Seconds() <= r.at && r.at <= end.High.Seconds() {
		j.held++
	}
}

// TestForecastsWithHistory: with one to five earlier runs of other sizes, and under other shares, the end is foreseen at half of the work, and at half of
// the reported progress, within 10 % of the whole time at an unchanged share and within 15 % after a change: 95 % of all forecasts, and 85 % of
// those for each program and change. 90 % of the intervals hold the end. Without history, WordCount's forecasts miss.
func TestForecastsWithHistory(t *testing.T) {
	var all judged
	for _, earlier := range []int{1, 2, 5} {
		for i := range programs {
			p := &programs[i]
			for name, test := range map[string]struct{ before, after, within float64 }{
				"unchanged": {0.5, 0.5, 0.10}, "more": {0.5, 0.75, 0.15}, "less": {0.5, 0.25, 0.15},
			} {
				for _, ofWork := range []bool{true, false} {
					var j judged
					for seed := range uint64(40) {
						var h History
						k, _ := KindOf("TEST", "me", p.name)
						learn(&h, k, p, earlier, seed)
						foresee(t, &h, k, p, seed, []float64{2, 1.4, 3}[seed%3], test.before, test.after, test.within, ofWork, &j)
					}
					all = judged{all.all + j.all, all.held + j.held, all.missed + j.missed, max(all.worst, j.worst)}
					if text := fmt.Sprintf("%s after %d runs, %s, half of the work %v: %+v", p.name, earlier, name, ofWork, j); j.missed > j.all*15/100 || j.held < j.all*9/10 {
						t.Error(text)
					} else {
						t.Log(text)
					}
				}
			}
		}
	}
	if t.Logf("all: %+v", all); all.missed > all.all/20 || all.all < 1000 {
		t.Errorf("all: %+v", all)
	}
	var without judged
	for seed := range uint64(40) {
		foresee(t, &History{}, Kind{}, &programs[0], seed, 2, 0.5, 0.5, 0.10, false, &without)
	}
	if t.Logf("WordCount without history: %+v", without); without.missed < without.all/2 {
		t.Errorf("the progress is no measure of the work, and yet: %+v", without)
	}
}

// TestStandsStill: the forecast of an application whose progress stands still where it always does stays. One that stands still for longer
// than ever is foreseen later and later.
func TestStandsStill(t *testing.T) {
	p := &programs[1]
	var h History
	k, _ := KindOf("TEST", "me", p.name)
	learn(&h, k, p, 3, 1)
	r := p.newRun(5, 2)
	var m Model
	m.Use(h.Curve(k))
	var o Observation
	for m.Progress() < 0.5 {
		o = r.second(0.5)
		m.Observe(o)
	}
	first, err := m.Forecast(0)
	if err != nil {
		t.Fatal(err)
	}
	wait := func(seconds int) End {
		o.Time += time.Duration(seconds) * time.Second
		m.Observe(o)
		end, err := m.Forecast(0)
		if err != nil || end.Low < o.Time || end.Expected < end.Low || end.High < end.Expected {
			t.Fatal(end, err)
		}
		return end
	}
	if end := wait(10); end.Expected != first.Expected {
		t.Errorf("%v, before %v", end, first)
	}
	if end := wait(600); end.Expected < o.Time+(first.Expected-first.Low)/4 || end.Expected < first.Expected+5*time.Minute {
		t.Errorf("after 10 min without progress: %v", end)
	}
}

// TestShareWithHistory: Share inverts Forecast, and a larger share never ends an application later.
func TestShareWithHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &programs[rapid.IntRange(0, len(programs)-1).Draw(t, "program")]
		seed := rapid.Uint64Range(0, 1e6).Draw(t, "seed")
		var h History
		k, _ := KindOf("TEST", "me", p.name)
		learn(&h, k, p, rapid.IntRange(1, 3).Draw(t, "runs"), seed)
		r := p.newRun(seed, rapid.Float64Range(1, 4).Draw(t, "size"))
		var m Model
		m.Use(h.Curve(k))
		for until := rapid.Float64Range(0.2, 0.9).Draw(t, "work"); m.Done() < until && !r.ended(); {
			m.Observe(r.second(0.5))
		}
		small := rapid.Float64Range(0.05, 0.9).Draw(t, "a")
		large := rapid.Float64Range(small, 1).Draw(t, "b")
		slow, err := m.Forecast(small)
		if errors.Is(err, ErrNoProgress) {
			return
		}
		fast, other := m.Forecast(large)
		if err != nil || other != nil || fast.Expected > slow.Expected {
			t.Fatalf("share %v ends at %v, %v, share %v at %v, %v", small, slow, err, large, fast, other)
		}
		if part, _, _ := m.Disk(); !m.Identified() || part < 0.05 || slow.Expected < m.last.Time+5*time.Second {
			return
		}
		if share, err := m.Share(slow.Expected); err != nil || math.Abs(share-small) > 0.02*small {
			t.Fatalf("share %v ends at %v, for which Share returns %v, %v", small, slow.Expected, share, err)
		}
		if need, err := m.Need(slow.Expected); err == nil && !(need.Rate >= 0 && !math.IsInf(need.Rate, 0)) {
			t.Fatalf("%+v", need)
		}
	})
}

// TestAnyHistory: whatever was observed of earlier runs and of this one, forecasts are ordered numbers that are not before the last observation.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h History
		k := Kind{"a", "b", "c"}
		now := time.Duration(0)
		o := Observation{}
		next := func() Observation {
			now += time.Duration(rapid.Int64Range(0, 1e11).Draw(t, "after"))
			o.Time = now
			if rapid.IntRange(0, 5).Draw(t, "jump") == 0 {
				o.Progress = rapid.Float64().Draw(t, "progress")
			} else {
				o.Progress = min(1, o.Progress+rapid.Float64Range(0, 0.2).Draw(t, "step"))
			}
			o.Share = rapid.Float64Range(0, 1).Draw(t, "share")
			o.Service += rapid.Float64Range(-1, 1e3).Draw(t, "service")
			o.Work = rapid.Float64Range(0, 100).Draw(t, "work")
			return o
		}
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			var r Trace
			o = Observation{}
			for range rapid.IntRange(1, 30).Draw(t, "observations") {
				r.Observe(next())
			}
			h.Learn(k, &r, now+time.Duration(rapid.Int64Range(-1e9, 1e11).Draw(t, "end")))
		}
		var m Model
		c := h.Curve(k)
		m.Use(c)
		restored(t, &h)
		o = Observation{}
		for range rapid.IntRange(1, 50).Draw(t, "observations") {
			m.Observe(next())
		}
		if done := m.Done(); !(done >= 0 && done <= 1) {
			t.Fatalf("%v done", done)
		}
		f, err := m.Forecast(rapid.Float64Range(0, 1).Draw(t, "to"))
		if err == nil && !(m.last.Time <= f.Low && f.Low <= f.Expected && f.Expected <= f.High) {
			t.Fatalf("after %v: %v", m.last.Time, f)
		}
		if c == nil {
			return
		}
		for k := range points { // what remains falls with progress, and nothing is not a number
			if !(c.c[k] >= c.c[k+1] && c.b[k] >= c.b[k+1] && c.c[k+1] >= 0 && c.b[k+1] >= 0 && c.spread[k] >= 0) || math.Abs(c.rest(0)-1) > 1e-6 {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// TestLearnsOnlyFromWholeRuns: a run that is observed only in its last half, or that makes no progress, teaches nothing.
func TestLearnsOnlyFromWholeRuns(t *testing.T) {
	for first, want := range map[float64]bool{0: true, 0.5: true, 0.51: false, 1: false} {
		var h History
		var r Trace
		for i := range 10 {
			r.Observe(Observation{Time: time.Duration(i) * time.Second, Progress: first + (1-first)*float64(i)/10, Share: 1, Service: -1})
		}
		if got := h.Learn(Kind{"a", "b", "c"}, &r, 10*time.Second); got != want || (h.Len() == 1) != want {
			t.Errorf("first observed at %v: %v", first, got)
		}
	}
	var h History
	if h.Learn(Kind{"a", "b", "c"}, &Trace{}, time.Second) || h.Len() != 0 {
		t.Error("learned from nothing")
	}
}

// TestUnsteadyWork: if the work of earlier runs grew, each time to another size, nobody knows which part is done, and the curve is not used.
func TestUnsteadyWork(t *testing.T) {
	for _, test := range []struct {
		sizes []float64
		grows bool
		runs  int
	}{{[]float64{100, 105}, true, 2}, {[]float64{100, 200}, true, 0}, {[]float64{100, 200}, false, 2}} {
		var h History
		k := Kind{"a", "b", "c"}
		for _, size := range test.sizes {
			var r Trace
			for i := range 20 {
				work := size
				if test.grows && i < 5 {
					work = size / 2
				}
				r.Observe(Observation{Time: time.Duration(i) * time.Second, Progress: float64(i) * size / 20 / work, Share: 1, Work: work})
			}
			if !h.Learn(k, &r, 20*time.Second) {
				t.Fatal(test)
			}
		}
		var m Model
		m.Use(h.Curve(k))
		m.Observe(Observation{Progress: 0.2, Share: 1, Work: 50})
		if m.Runs() != test.runs {
			t.Errorf("%+v: %d runs are used", test, m.Runs())
		}
		if want := map[bool]float64{true: 0.2 * 50 / 105, false: 0.2}[test.grows && test.runs > 0]; math.Abs(m.last.Progress-want) > 1e-9 || m.Progress() != 0.2 {
			t.Errorf("%+v: progress %v, want %v", test, m.last.Progress, want)
		}
	}
}

func TestKindOf(t *testing.T) {
	for name, want := range map[string]string{
		"word count": "word count", "TeraSort": "terasort", "report-2026-11-25T06:00": "report-#", "report-2026-11-26 07.30": "report-#",
		"etl_20261125_a": "etl_#_a", "q21": "q21", "0a1b2c3d": "#", "x deadbeef01 y": "x # y", "2.5": "#", "streamjob8412.jar": "streamjob#.jar", "job 17 of 20": "job # of #", "a  b": "a b", "": "", "Zählung 3": "zählung #",
	} {
		k, known := KindOf("SPARK", "me", name)
		if k.Name != want || known != (want != "" && want != "#") {
			t.Errorf("%q: %q, %v", name, k.Name, known)
		}
	}
	if _, known := KindOf("", "me", "a"); known {
		t.Error("without a framework")
	}
	a, _ := KindOf("SPARK", "a", "x")
	b, _ := KindOf("SPARK", "b", "x")
	if a == b {
		t.Error("two users have one kind")
	}
}

// FuzzKindOf: names are the submitter's. A kind has bounded UTF-8, and its name is its own kind's name.
func FuzzKindOf(f *testing.F) {
	f.Add("SPARK", "me", "report-2026-11-25")
	f.Add("", "\xff", strings.Repeat("-", 5000)+"\xc3")
	f.Fuzz(func(t *testing.T, framework, user, name string) {
		k, known := KindOf(framework, user, name)
		for _, text := range []string{k.Framework, k.User, k.Name} {
			if len(text) > maxWord || !utf8.ValidString(text) {
				t.Fatalf("%q", text)
			}
		}
		if regexp.MustCompile(`\d{3}`).MatchString(k.Name) || known && k.Name == "" {
			t.Fatalf("%q: %q, %v", name, k.Name, known)
		}
	})
}

// TestHistoryIsBounded: the kinds that were used last stay, and a user with many kinds displaces only the own ones.
func TestHistoryIsBounded(t *testing.T) {
	var h History
	add := func(user, name string) {
		var r Trace
		for i := range 10 {
			r.Observe(Observation{Time: time.Duration(i) * time.Second, Progress: float64(i) / 10, Share: 1, Service: -1})
		}
		h.Learn(Kind{"f", user, name}, &r, 10*time.Second)
	}
	add("other", "job")
	for i := range MaxKindsOfUser + 10 {
		add("hostile", fmt.Sprint(i))
		if h.Curve(Kind{"f", "hostile", "0"}) == nil {
			t.Fatalf("a kind in use was dropped after %d others", i)
		}
	}
	if h.Len() != MaxKindsOfUser+1 || h.Curve(Kind{"f", "other", "job"}) == nil || h.Curve(Kind{"f", "hostile", "1"}) != nil {
		t.Errorf("%d kinds", h.Len())
	}
	for i := range 2 * MaxKinds {
		add(fmt.Sprint("user", i), "job")
	}
	if h.Len() != MaxKinds || len(h.byUser) != MaxKinds || len(h.kinds) != MaxKinds || h.Curve(Kind{"f", "other", "job"}) != nil {
		t.Errorf("%d kinds of %d users", h.Len(), len(h.byUser))
	}
}

// TestMeasuredWordCount: two runs of WordCount as `penstock-lab bench forecast` measured them, with the times at which each progress was first read. In
// one, the share grew after 87 s. With the other one as history, the end is foreseen within 10 % of the whole time, from half of the work on, and each interval
// holds it.
func TestMeasuredWordCount(t *testing.T) {
	type reading struct{ at, progress float64 }
	type measured struct {
		readings []reading
		end      float64
		after    float64 // share after 87.2 s; before, it is 0.5
	}
	runs := []measured{
		{[]reading{{8.2, 0.05}, {23.2, 0.125}, {35.2, 0.163}, {41.2, 0.2}, {53.2, 0.275}, {65.2, 0.312}, {71.2, 0.35}, {83.2, 0.425}, {95.2, 0.5}}, 97.3, 0.5},
		{[]reading{{18.2, 0.05}, {33.2, 0.125}, {51.2, 0.2}, {69.2, 0.275}, {81.2, 0.312}, {87.2, 0.35}, {98.2, 0.425}}, 109.4, 0.75},
	}
	replay := func(r measured, observe func(Observation)) {
		service, k := 0.0, 0
		for at := r.readings[0].at; at < r.end; at += 0.5 {
			for k+1 < len(r.readings) && at >= r.readings[k+1].at {
				k++
			}
			share := 0.5
			if at > 87.2 {
				share = r.after
			}
			service += 0.5 * share * 0.6 // the disk's part of the time was about 60 %
			observe(Observation{Time: time.Duration(at * 1e9), Progress: r.readings[k].progress, Share: share, Service: service})
		}
	}
	for i, earlier := range runs {
		var h History
		var trace Trace
		replay(earlier, trace.Observe)
		if !h.Learn(Kind{}, &trace, time.Duration(earlier.end*1e9)) {
			t.Fatal("nothing was learned")
		}
		var m Model
		m.Use(h.Curve(Kind{}))
		last, judged, end := 0.0, 0, runs[1-i].end
		replay(runs[1-i], func(o Observation) {
			if m.Observe(o); m.Progress() == last || m.Done() < 0.49 {
				return
			}
			last = m.Progress()
			f, err := m.Forecast(0)
			if err != nil {
				t.Fatal(err)
			}
			judged++
			t.Logf("run %d, at %.1f s, %.1f %% of the progress, %.0f %% of the work: %.1f s (%.1f to %.1f), ended after %.1f s", 2-i, o.Time.Seconds(), 100*last, 100*m.Done(), f.Expected.Seconds(), f.Low.Seconds(), f.High.Seconds(), end)
			if math.Abs(f.Expected.Seconds()-end) > 0.10*end || f.Low.Seconds() > end || f.High.Seconds() < end {
				t.Errorf("at %.1f %%: %v", 100*last, f)
			}
		})
		if judged < 4 {
			t.Errorf("%d forecasts", judged)
		}
	}
}
