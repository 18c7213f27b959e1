package forecast

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// restored returns the history that another program has, which was given what this one knows.
func restored(t interface {
	Helper()
	Fatalf(string, ...any)
}, h *History) *History {
	t.Helper()
	var all []Entry
	for _, e := range h.Entries() {
		again, err := NewEntry(e.Kind, e.Curve.Values())
		if err != nil {
			t.Fatalf("%+v: %v", e.Kind, err)
		}
		all = append(all, again)
	}
	var next History
	next.Restore(all)
	return &next
}

// TestSavedHistory: forecasts with a history that was saved are those with the original.
func TestSavedHistory(t *testing.T) {
	for i := range programs {
		p := &programs[i]
		var h History
		k, _ := KindOf("TEST", "me", p.name)
		learn(&h, k, p, 3, 1)
		var a, b Model
		a.Use(h.Curve(k))
		b.Use(restored(t, &h).Curve(k))
		r := p.newRun(7, 2)
		for !r.ended() {
			o := r.second(0.5)
			a.Observe(o)
			b.Observe(o)
			x, err := a.Forecast(0)
			y, other := b.Forecast(0)
			if (err == nil) != (other == nil) || math.Abs((x.Expected-y.Expected).Seconds()) > 0.1 || math.Abs((x.High-y.High).Seconds()) > 0.1 {
				t.Fatalf("%s after %v s: %v, %v; saved: %v, %v", p.name, r.at, x, err, y, other)
			}
		}
		if b.Runs() != 3 {
			t.Errorf("%s: %d runs", p.name, b.Runs())
		}
	}
}

// TestRestore: what is restored replaces what is known of its kinds, leaves the others, and is used last first.
func TestRestore(t *testing.T) {
	kind := func(n int) Kind { return Kind{"F", "u", fmt.Sprint("name ", n)} }
	var one, other History
	for n := range 3 {
		learn(&one, kind(n), &programs[4], 1, 1)
	}
	learn(&other, kind(1), &programs[4], 2, 1)
	learn(&other, kind(7), &programs[4], 2, 1)
	one.Curve(kind(0))
	all := one.Entries()
	var order []string
	for _, e := range all {
		order = append(order, e.Kind.Name)
	}
	if want := []string{"name 0", "name 2", "name 1"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	other.Restore(all)
	for n, runs := range map[int]int{0: 1, 1: 1, 2: 1, 7: 2} {
		if got := other.Curve(kind(n)).Runs(); got != runs {
			t.Errorf("kind %d: %d runs, want %d", n, got, runs)
		}
	}
	// More kinds of one user than a history keeps: those that were used last stay.
	var many []Entry
	for n := range 2 * MaxKindsOfUser {
		many = append(many, Entry{kind(100 + n), all[0].Curve})
	}
	other.Restore(many)
	if other.Len() != MaxKindsOfUser || other.Curve(kind(100)) == nil || other.Curve(kind(100+MaxKindsOfUser)) != nil {
		t.Errorf("%d kinds", other.Len())
	}
}

// TestWrongValues: contents that no curve has are refused, and say where.
func TestWrongValues(t *testing.T) {
	var h History
	learn(&h, Kind{"F", "u", "n"}, &programs[0], 2, 1)
	good := h.Entries()[0].Curve.Values
	for want, spoil := range map[string]func(*Values){
		"0 runs":                  func(v *Values) { v.Runs = 0 },
		"x is":                    func(v *Values) { v.X = 0 },
		"x is NaN":                func(v *Values) { v.X = math.NaN() },
		"first point is 65":       func(v *Values) { v.First = 65 },
		"first point is -1":       func(v *Values) { v.First = -1 },
		"c has 64":                func(v *Values) { v.C = v.C[1:] },
		"stop has 0":              func(v *Values) { v.Stop = nil },
		"b: -1 at 3":              func(v *Values) { v.B[3] = -1 },
		"spread: +Inf":            func(v *Values) { v.Spread[0] = math.Inf(1) },
		"weight: NaN at 64":       func(v *Values) { v.Weight[64] = math.NaN() },
		"weight at 64 of 64 is 0": func(v *Values) { v.Weight[64] = 0 },
		"reach: 1.5":              func(v *Values) { v.Reach[1] = 1.5 },
		"rises at 0":              func(v *Values) { v.C[1] = 1 },
		"the whole is":            func(v *Values) { v.C = make([]float64, points+1); v.B = make([]float64, points+1) },
		"the work is -1":          func(v *Values) { v.Work = -1 },
	} {
		v := good()
		spoil(&v)
		if _, err := NewEntry(Kind{"F", "u", "n"}, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, k := range []Kind{{}, {"F", "u", ""}, {"", "u", "n"}, {"F", strings.Repeat("u", maxWord+1), "n"}, {"F", "u", "\xff"}} {
		if _, err := NewEntry(k, good()); err == nil {
			t.Errorf("%q is accepted", k)
		}
	}
	if _, err := NewEntry(Kind{"F", "", "n"}, good()); err != nil {
		t.Error(err)
	}
}

// TestAnyValues: with any contents that are accepted, forecasts are ordered numbers.
func TestAnyValues(t *testing.T) {
	part := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 1, 1e-300, 5e-324}))
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, g *rapid.Generator[float64]) []float64 {
			return rapid.SliceOfN(g, points+1, points+1).Draw(t, name)
		}
		falling := func(name string, whole float64) []float64 {
			all := draw(name, part)
			slices.Sort(all)
			slices.Reverse(all)
			first := all[0]
			for k := range all {
				if first > 0 {
					all[k] = min(all[k]/first, 1) * whole
				}
			}
			all[points] = 0
			return all
		}
		of := rapid.Float64Range(0, 1).Draw(t, "part of the disk")
		v := Values{Runs: rapid.IntRange(1, 100).Draw(t, "runs"), X: rapid.Float64Range(1, 1/MinShare).Draw(t, "x"), First: rapid.IntRange(0, points).Draw(t, "first"),
			Spread: draw("spread", rapid.Float64Range(0, 1e3)), Weight: draw("weight", rapid.Float64Range(1e-12, maxWeight)), Reach: draw("reach", part), Stop: draw("stop", part),
			Work: rapid.Float64Range(0, 1e6).Draw(t, "work"), Steady: rapid.Bool().Draw(t, "steady"), Grows: rapid.Bool().Draw(t, "grows"), Unmeasured: rapid.Bool().Draw(t, "unmeasured")}
		v.C, v.B = falling("c", 1-of), falling("b", of/v.X)
		e, err := NewEntry(Kind{"F", "u", "n"}, v)
		if err != nil {
			return // for example, all of a part is 0
		}
		var m Model
		m.Use(e.Curve)
		o := Observation{}
		for range rapid.IntRange(1, 20).Draw(t, "observations") {
			o.Time += time.Duration(rapid.Int64Range(1e9, 1e11).Draw(t, "after"))
			o.Progress, o.Share = min(1, o.Progress+rapid.Float64Range(0, 0.2).Draw(t, "step")), rapid.Float64Range(0.01, 1).Draw(t, "share")
			o.Service += rapid.Float64Range(0, 10).Draw(t, "service")
			o.Work = rapid.Float64Range(0, 100).Draw(t, "work now")
			m.Observe(o)
			if done := m.Done(); !(done >= 0 && done <= 1) {
				t.Fatalf("%v done", done)
			}
			if end, err := m.Forecast(0); err == nil && (end.Low < o.Time || end.Expected < end.Low || end.High < end.Expected) {
				t.Fatalf("%+v at %v", end, o.Time)
			}
		}
		var trace Trace
		trace.Observe(Observation{Share: 0.5})
		trace.Observe(Observation{Time: time.Minute, Progress: 0.6, Share: 0.5, Service: 7})
		var h History
		h.Restore([]Entry{e})
		h.Learn(e.Kind, &trace, 2*time.Minute)
	})
}

// TestNoNumber: a time that is not a number counts as a century.
func TestNoNumber(t *testing.T) {
	for _, seconds := range []float64{math.NaN(), math.Inf(1), 1e300} {
		if got := after(time.Second, seconds); got != after(time.Second, 100*365*24*3600) || got < time.Second {
			t.Errorf("%v: %v", seconds, got)
		}
	}
}
