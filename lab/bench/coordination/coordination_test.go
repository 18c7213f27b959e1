package coordination

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var measured = Result{Contest: Alike, Due: []float64{1, 1, 1}, WindowS: 16, Runs: []Run{
	{Alone: []float64{1, 3, 2}, With: Outcome{Totals: []float64{0.5, 1.5, 1}, Misplaced: 0.01}, Without: Outcome{Totals: []float64{0.4, 1, 1}, Misplaced: 0.2},
		SlowdownWith: []float64{2, 2, 2}, SlowdownWithout: []float64{2.5, 3, 2}},
	{Alone: []float64{1, 3, 2}, With: Outcome{Totals: []float64{0.5, 1.5, 1}, Misplaced: 0.03}, Without: Outcome{Totals: []float64{0.4, 1, 1}, Misplaced: 0.1},
		SlowdownWith: []float64{2, 2, 2}, SlowdownWithout: []float64{2.5, 4, 2.5}},
}}

func TestTableAndClaims(t *testing.T) {
	var table, page strings.Builder
	if err := measured.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 runs, windows of 16 s", "application 3, weight 2, reads on nodes [1 2]: disks", "application 1, weight 1, writes on nodes [0]: disks",
		"misplaced, % of the service", "2.00 (1.00 to 3.00)", "15.00 (10.00 to 20.00)", "1.38 (1.25 to 1.50)",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
	c := measured.claims()
	if len(c) != 5 || c[4].Value != 1.375 || c[4].Met == nil || !*c[4].Met || c[0].Value != 2 || c[1].Source != "IBIS, section 7.6" {
		t.Errorf("%+v", c)
	}
	if err := measured.Report().Write(&page, time.Unix(0, 0)); err != nil || !strings.Contains(page.String(), "at least 1.333") {
		t.Errorf("%v:\n%s", err, &page)
	}
	page.Reset()
	kills := SoakResult{Seed: 1, Rounds: []Kills{{Kills: 5, PauseMS: 900}}}
	if err := kills.Report().Write(&page, time.Unix(0, 0)); err != nil || !strings.Contains(page.String(), "longest pause of a task") {
		t.Errorf("%v:\n%s", err, &page)
	}
}

// A continued campaign draws the same moments as an uninterrupted one.
func TestMomentsAreTheSeeds(t *testing.T) {
	one, other := rand.New(rand.NewPCG(3, 0)), rand.New(rand.NewPCG(3, 0))
	for range 2 * killsOfRound {
		after, away := moment(one)
		if again, awayAgain := moment(other); again != after || awayAgain != away || after < 3*time.Second || after >= 8*time.Second || away >= 2*time.Second {
			t.Errorf("after %v for %v, and %v for %v", after, away, again, awayAgain)
		}
	}
}
