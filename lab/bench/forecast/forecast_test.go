package forecast

import (
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/lab/experiment"
	"penstock/wire/cluster"
)

func TestRows(t *testing.T) {
	all := Rows()
	if len(all) != 12 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != 12 {
		t.Error(all)
	}
	for _, name := range all {
		if r := rowOf(name); r.Name != name || titles[r.Job] == "" || r.Profile == r.Changed && r.Profile || r.Profile && paperClass[r.Job] == nil {
			t.Errorf("%+v", r)
		}
	}
}

func TestValidate(t *testing.T) {
	q := Request{Setup: DefaultSetup(), TableRequest: experiment.TableRequest{Runs: 1}}
	q.Setup.Machine.CPUs = 2
	if err := q.Validate(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []func(*Request){
		func(q *Request) { q.Runs = 0 }, func(q *Request) { q.Runs = experiment.MaxRuns + 1 },
		func(q *Request) { q.Setup.DiskRate = MinRate - 1 }, func(q *Request) { q.Setup.DiskRate = MaxRate + 1 },
		func(q *Request) { q.Setup.Machine.CPUs = 1 }, func(q *Request) { q.Setup.Scheduler = "cfq" }, func(q *Request) { q.Setup.Hadoop = "1.0" },
	} {
		bad := q
		wrong(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestPolicy(t *testing.T) {
	if got := policy(nil); got != "default: 1\n" {
		t.Errorf("%q", got)
	}
	if got := policy(map[string]int{"b": 1, "a": 3}); got != "default: 1\nrules:\n  - {flow: a, weight: 3}\n  - {flow: b, weight: 1}\n" {
		t.Errorf("%q", got)
	}
}

var began = time.UnixMilli(1_700_000_000_000)

func seconds(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }

// watched lets a vigil take an answer every second. progress returns the progress at a second, below 0: not known.
func watched(change bool, run int, progress func(second int) float64) (t Turn, changes []int) {
	v := &vigil{setup: DefaultSetup(), change: change, run: run}
	for s := range 100 {
		p := progress(s)
		a := &cluster.ForecastAnswer{Progress: p, Present: 0.5, EndUnixMs: seconds(110).UnixMilli(), LowUnixMs: seconds(90).UnixMilli(), HighUnixMs: seconds(130).UnixMilli()}
		switch {
		case p < 0:
			a = &cluster.ForecastAnswer{Progress: -1, Reason: "no progress"}
		case p >= 0.6:
			a = &cluster.ForecastAnswer{Progress: p, Reason: "too late"}
		}
		if v.take(seconds(float64(s)), a) {
			changes = append(changes, s)
		}
	}
	t.Run = run
	v.conclude(&t, began, seconds(100))
	return t, changes
}

// The broker's answer counts when the progress reaches a mark, once.
func TestVigil(t *testing.T) {
	turn, changes := watched(false, 1, func(s int) float64 { return float64(s/5*5) / 100 })
	if len(turn.Forecasts) != 4 || turn.RuntimeS != 100 || turn.Note != "" || turn.Change != nil || len(changes) > 0 {
		t.Fatalf("%+v, changes at %v", turn, changes)
	}
	if f := turn.Forecasts[1]; f.Mark != half || f.Progress != half || f.AtS != 50 || f.ExpectedS != 110 || f.LowS != 90 || f.HighS != 130 || f.Share != 0.5 || f.Reason != "" {
		t.Errorf("%+v", f)
	}
	if f := turn.Forecasts[2]; f.Mark != 0.6 || f.known() || f.ExpectedS != 0 {
		t.Errorf("%+v", f)
	}
	if c := turn.Curve; len(c) != 20 || c[1] != (Point{AtS: 5, Progress: 0.05}) {
		t.Errorf("%+v", c)
	}
}

// The weights change once, at a third of the progress; in every second run in favour of the background.
func TestVigilChanges(t *testing.T) {
	for run, want := range map[int]Change{1: {34, 0.34, 3, 1}, 2: {34, 0.34, 1, 3}} {
		turn, changes := watched(true, run, func(s int) float64 { return float64(s) / 100 })
		if !slices.Equal(changes, []int{34}) || turn.Change == nil || *turn.Change != want || len(turn.Forecasts) != 4 {
			t.Errorf("run %d: %+v, %+v, changes at %v", run, turn, turn.Change, changes)
		}
	}
}

// With history, the broker is also asked at marks of the work, and the weights change at a third of the work. Until the new share is known, it is not
// asked.
func TestVigilWithHistory(t *testing.T) {
	for _, changes := range []bool{false, true} {
		v := &vigil{setup: DefaultSetup(), change: changes, run: 1}
		var changed []int
		for s := range 100 {
			done := float64(s) / 100
			a := &cluster.ForecastAnswer{Progress: done / 2, Done: done, EarlierRuns: 2, EndUnixMs: seconds(110).UnixMilli()}
			if v.take(seconds(float64(s)), a) {
				changed = append(changed, s)
			}
		}
		var turn Turn
		v.conclude(&turn, began, seconds(100))
		want := []Forecast{{Of: ofWork, Mark: 0.4, AtS: 40}, {Of: ofWork, Mark: half, AtS: 50}, {Of: ofWork, Mark: 0.6, AtS: 60}, {Of: ofWork, Mark: 0.7, AtS: 70}, {Of: ofProgress, Mark: 0.4, AtS: 80}}
		if changes {
			want[0].AtS = 44
		}
		if slices.Equal(changed, []int{34}) != changes || len(turn.Forecasts) != len(want) {
			t.Fatalf("changes at %v, %+v", changed, turn.Forecasts)
		}
		for i, f := range turn.Forecasts {
			if f.Of != want[i].Of || f.Mark != want[i].Mark || f.AtS != want[i].AtS || f.Runs != 2 {
				t.Errorf("%+v, want %+v", f, want[i])
			}
		}
	}
}

// One answer is one forecast, even if the progress has passed several marks at once.
func TestVigilOfAJump(t *testing.T) {
	turn, _ := watched(false, 1, func(s int) float64 { return map[bool]float64{false: 0.3, true: 0.55}[s > 40] })
	if len(turn.Forecasts) != 1 || turn.Forecasts[0].Mark != half || turn.Forecasts[0].Progress != 0.55 || len(turn.Curve) != 2 {
		t.Errorf("%+v", turn)
	}
}

// An application that has ended is not foreseen.
func TestVigilAfterTheEnd(t *testing.T) {
	turn, changes := watched(true, 1, func(s int) float64 { return map[bool]float64{false: 0.3, true: 1}[s > 40] })
	if len(turn.Forecasts) != 0 || turn.Change != nil || len(changes) > 0 || len(turn.Curve) != 1 || !strings.Contains(turn.Note, "30 %") {
		t.Errorf("%+v", turn)
	}
}

// The broker may know that an application has ended before it knows all of its progress.
func TestVigilOfAnEnd(t *testing.T) {
	v := &vigil{setup: DefaultSetup()}
	v.take(seconds(1), &cluster.ForecastAnswer{Progress: half, Reason: "it has ended", Ended: true})
	if len(v.got) != 0 || len(v.curve) != 0 {
		t.Errorf("%+v", v)
	}
}

// A turn without a forecast says why.
func TestVigilWithoutProgress(t *testing.T) {
	if turn, _ := watched(true, 1, func(int) float64 { return 0.1 }); !strings.Contains(turn.Note, "last progress was 10 %") || turn.Change != nil {
		t.Errorf("%+v", turn)
	}
	if turn, _ := watched(false, 1, func(int) float64 { return -1 }); !strings.Contains(turn.Note, "unknown: no progress") {
		t.Errorf("%+v", turn)
	}
}
