package forecast

import (
	"math"
	"strings"
	"testing"
	"time"

	"penstock/core/character"
	"penstock/lab/experiment/claims"
)

// measured has two runs of WordCount's forecasts, and one of all profiles.
func measured() Result {
	r := Result{}
	r.Setup = DefaultSetup()
	at := func(mark, asked, expected, low, high float64) Forecast {
		return Forecast{Of: ofProgress, Mark: mark, Progress: mark, Runs: 1, AtS: asked, ExpectedS: expected, LowS: low, HighS: high}
	}
	without, work := at(0.5, 50, 170, 100, 180), at(0.5, 50, 105, 95, 110)
	without.Runs, work.Of = 0, ofWork
	r.Turns = []Turn{
		{Row: "wordcount", Run: 3, RuntimeS: 100, Forecasts: []Forecast{without}},
		{Row: "wordcount-changed", Run: 1, RuntimeS: 100, Change: &Change{33, 0.33, 3, 1}, Forecasts: []Forecast{work}},
		{Row: "wordcount", Run: 1, RuntimeS: 100, Forecasts: []Forecast{at(0.4, 40, 130, 110, 150), at(0.5, 50, 108, 95, 120)}, Curve: []Point{{1, 0.1}, {50, 0.5}}},
		{Row: "wordcount", Run: 2, RuntimeS: 100, Forecasts: []Forecast{at(0.5, 80, 90, 85, 100), {Mark: 0.6, Progress: 0.6, Reason: "too early"}}},
		{Row: "wordcount-changed", Run: 2, RuntimeS: 100, Change: &Change{33, 0.33, 1, 3}, Forecasts: []Forecast{at(0.5, 50, 120, 101, 140)}},
		{Row: "query", Run: 1, RuntimeS: 60, Note: "no forecast: the broker's last progress was 10 %"},
	}
	for job, use := range map[string]character.Use{
		sorting: {character.CPU: 0.3, character.Disk: 0.9}, teraSort: {character.CPU: 0.6, character.Disk: 0.8}, wordCount: {character.Disk: 0.5},
		query: {character.Memory: 0.6, character.Disk: 0.7}, bayes: {character.CPU: 0.9}, kMeans: {character.CPU: 0.9, character.Memory: 0.7},
	} {
		p := &character.Profile{To: time.Minute, Nodes: 1, Mean: use, Phases: make([]character.Phase, 2), Points: []character.Point{{To: time.Minute, Use: use}}}
		for resource, x := range use {
			if x >= 0.5 {
				p.Intensive = append(p.Intensive, character.Resource(resource))
			}
		}
		r.Turns = append(r.Turns, Turn{Row: profilePrefix + job, Run: 1, RuntimeS: 60, Profile: p})
	}
	return r
}

func TestClaims(t *testing.T) {
	all := measured().claims()
	for _, w := range []struct {
		name             string
		value, low, high float64
		runs             int
		met              string
	}{
		{"WordCount: the forecast's error at half of the progress, at unchanged weights, with history, of the whole run time", 9, 8, 10, 2, "met"},
		{"WordCount: the forecast's error at half of the progress, at unchanged weights, with history, of the time that remains", 33, 16, 50, 2, ""},
		{"WordCount: the forecasts' errors at all marks, at unchanged weights, with history, of the whole run time", 10, 8, 30, 3, ""},
		{"WordCount: the forecast's error at half of the progress, at unchanged weights, without history, of the whole run time", 70, 70, 70, 1, ""},
		{"WordCount: the forecast's error at half of the progress, after a change of the weights, with history, of the whole run time", 20, 20, 20, 1, "missed"},
		{"WordCount: the forecast's error at half of the work, after a change of the weights, with history, of the whole run time", 5, 5, 5, 1, "met"},
		{"intervals of all forecasts with history that hold the application's end", 60, 23.072, 88.238, 5, "missed"},
		{"intervals of all forecasts without history that hold the application's end", 100, 20.654, 100, 1, ""},
		{"applications with the class of Table II, of 6", 4, 4, 4, 1, "missed"},
		{"K-means alone: mean use of memory", 70, 70, 70, 1, ""},
	} {
		found := false
		for _, c := range all {
			if c.Name != w.name {
				continue
			}
			found = true
			for _, pair := range [][2]float64{{c.Value, w.value}, {c.Low, w.low}, {c.High, w.high}} {
				if math.Abs(pair[0]-pair[1]) > 0.01 {
					t.Errorf("%+v, want %v (%v to %v)", c, w.value, w.low, w.high)
				}
			}
			if met := verdict(c); c.Runs != w.runs || met != w.met {
				t.Errorf("%s: %d runs, %q; want %d, %q", c.Name, c.Runs, met, w.runs, w.met)
			}
		}
		if !found {
			t.Errorf("no claim %q", w.name)
		}
	}
	for _, c := range all {
		if strings.HasPrefix(c.Name, "Spark SQL query: the forecast") || strings.HasPrefix(c.Name, "TeraSort: the forecast") {
			t.Errorf("%q was not measured", c.Name)
		}
	}
}

func verdict(c claims.Claim) string {
	switch {
	case c.Met == nil:
		return ""
	case *c.Met:
		return "met"
	}
	return "missed"
}

// Some profiles alone say nothing of all six.
func TestClaimOfAllApplications(t *testing.T) {
	r := measured()
	r.Turns = r.Turns[:len(r.Turns)-1]
	for _, c := range r.claims() {
		if strings.HasPrefix(c.Name, "applications with the class") {
			t.Errorf("%+v", c)
		}
	}
}

// An interval holds its own ends.
func TestHeld(t *testing.T) {
	f := Forecast{LowS: 1, HighS: 2}
	for end, want := range map[float64]bool{0.999: false, 1: true, 2: true, 2.001: false} {
		if f.held(end) != want {
			t.Errorf("%v: %v", end, !want)
		}
	}
}

func TestWilson(t *testing.T) {
	for _, c := range []struct {
		held, all int
		low, high float64
	}{{0, 1, 0, 0.7935}, {1, 1, 0.2065, 1}, {27, 30, 0.7438, 0.9654}} {
		if low, high := wilson(c.held, c.all); math.Abs(low-c.low) > 1e-3 || math.Abs(high-c.high) > 1e-3 {
			t.Errorf("%d of %d: %v to %v, want %v to %v", c.held, c.all, low, high, c.low, c.high)
		}
	}
}

func TestTableAndReport(t *testing.T) {
	r := measured()
	var table, page, json strings.Builder
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&json); err != nil {
		t.Fatal(err)
	}
	if err := r.Report().Write(&page, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1:1, 1:3", "95.0 to 120.0", "too early", "the broker's last progress was 10 %", "CPU/memory-intensive"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	for text, in := range map[string]string{"Progress (line) and forecasts": page.String(), "K-means: CPU/memory-intensive": page.String(), `"claims": [`: json.String()} {
		if !strings.Contains(in, text) {
			t.Errorf("no %q", text)
		}
	}
	for _, turn := range r.Turns {
		if turn.String() == "" {
			t.Errorf("%+v", turn)
		}
	}
}
