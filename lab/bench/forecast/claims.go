package forecast

import (
	"fmt"
	"math"
	"slices"

	"penstock/core/character"
	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
)

// Goals: errors at half of the progress in per cent of the whole run time, and the intervals that hold the end, in per cent.
const (
	mostUnchanged = 10
	mostChanged   = 15
	leastHeld     = 90
)

// paperClass has the classes of Table II.
var paperClass = map[string][]character.Resource{
	sorting: {character.Disk}, teraSort: {character.Disk}, wordCount: {character.Disk},
	query: {character.Memory, character.Disk}, // Hive
	bayes: {character.CPU, character.Memory}, kMeans: {character.CPU, character.Memory},
}

const (
	ofPaper  = "disk contention paper, Table II"
	ofIssue  = "IBIS, section 9 (models)"
	ofFigure = "disk contention paper, Figure 1"
)

// which selects forecasts: with history or without, and at one mark of the progress or the work, or at all marks if mark is 0.
type which struct {
	history bool
	of      string
	mark    float64
}

func (w which) selects(f Forecast) bool {
	return f.known() && w.history == (f.Runs > 0) && (w.mark == 0 || f.Mark == w.mark && f.Of == w.of)
}

// errors returns the errors of a row's forecasts, in per cent of the whole run time and of the rest.
func (r Result) errors(row string, w which) (whole, rest []float64) {
	for _, t := range r.Of(row) {
		for _, f := range t.Forecasts {
			if !w.selects(f) {
				continue
			}
			whole = append(whole, f.missed(t.RuntimeS))
			if percent, known := f.missedRest(t.RuntimeS); known {
				rest = append(rest, percent)
			}
		}
	}
	return whole, rest
}

// intervals returns the claim about all intervals with or without history. Its interval is Wilson's, of 95 %, as if the forecasts were
// independent.
func (r Result) intervals(history bool) claims.Claim {
	held, all := 0, 0
	for _, t := range r.Turns {
		for _, f := range t.Forecasts {
			if !(which{history: history}).selects(f) {
				continue
			}
			if all++; f.held(t.RuntimeS) {
				held++
			}
		}
	}
	if all == 0 {
		return claims.Claim{}
	}
	low, high := wilson(held, all)
	c := claims.Claim{Name: "intervals of all forecasts without history that hold the application's end", Unit: "%", Value: 100 * float64(held) / float64(all),
		Low: 100 * low, High: 100 * high, Runs: all}.From(ofIssue + "; runs: forecasts")
	if history {
		c.Name = "intervals of all forecasts with history that hold the application's end"
		c = c.AtLeast(leastHeld)
	}
	return c
}

// wilson returns the ends of Wilson's interval of 95 % for a part (Wilson 1927). all is above 0.
func wilson(held, all int) (low, high float64) {
	const z = 1.96
	n, p := float64(all), float64(held)/float64(all)
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	width := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, middle-width), min(1, middle+width)
}

// claims returns the published figures.
func (r Result) claims() (all []claims.Claim) {
	add := func(c ...claims.Claim) { all = claims.Add(all, c...) }
	for _, row := range rows {
		if row.Profile {
			continue
		}
		at, goal := "at unchanged weights", float64(mostUnchanged)
		if row.Changed {
			at, goal = "after a change of the weights", mostChanged
		}
		for _, of := range []string{ofWork, ofProgress} {
			name := fmt.Sprintf("%s: the forecast's error at half of the %s, %s, with history, ", titles[row.Job], of, at)
			whole, rest := r.errors(row.Name, which{true, of, half})
			add(claims.Of(name+"of the whole run time", "%", whole...).AtMost(goal).From(ofIssue), claims.Of(name+"of the time that remains", "%", rest...).From(ofIssue))
		}
		whole, _ := r.errors(row.Name, which{history: true})
		add(claims.Of(fmt.Sprintf("%s: the forecasts' errors at all marks, %s, with history, of the whole run time", titles[row.Job], at), "%", whole...).From(ofIssue))
		whole, _ = r.errors(row.Name, which{false, ofProgress, half})
		add(claims.Of(fmt.Sprintf("%s: the forecast's error at half of the progress, %s, without history, of the whole run time", titles[row.Job], at), "%", whole...).From(ofIssue))
	}
	add(r.intervals(true), r.intervals(false))
	same, profiled := []float64{}, map[int]int{}
	for run := 1; run <= experiment.MaxRuns; run++ {
		equal := 0
		for _, job := range Profiled {
			for _, t := range r.Of(profilePrefix + job) {
				if t.Run == run && t.Profile != nil {
					if profiled[run]++; slices.Equal(t.Profile.Intensive, paperClass[job]) {
						equal++
					}
				}
			}
		}
		if profiled[run] == len(Profiled) {
			same = append(same, float64(equal))
		}
	}
	add(claims.Of("applications with the class of Table II, of 6", "applications", same...).AtLeast(float64(len(Profiled))).From(ofPaper))
	for _, job := range Profiled {
		for _, resource := range []character.Resource{character.CPU, character.Memory, character.Disk} {
			var uses []float64
			for _, t := range r.Of(profilePrefix + job) {
				if t.Profile != nil {
					uses = append(uses, 100*t.Profile.Mean[resource])
				}
			}
			add(claims.Of(fmt.Sprintf("%s alone: mean use of %v", titles[job], resource), "%", uses...).From(ofFigure))
		}
	}
	return all
}

// KnownClaims returns the claims of an invented result. Their names, units and goals are those of the claims
// of every measurement.
func KnownClaims() []claims.Claim {
	r := Result{}
	for _, row := range rows {
		t := Turn{Row: row.Name, Run: 1, RuntimeS: 2, Forecasts: []Forecast{{Of: ofProgress, Mark: half, AtS: 1, ExpectedS: 2}, {Of: ofProgress, Mark: half, AtS: 1, ExpectedS: 2, Runs: 1}, {Of: ofWork, Mark: half, AtS: 1, ExpectedS: 2, Runs: 1}}}
		if row.Profile {
			t.Forecasts, t.Profile = nil, &character.Profile{}
		}
		r.Turns = append(r.Turns, t)
	}
	return r.claims()
}
