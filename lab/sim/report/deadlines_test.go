package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"penstock/lab/sim"
)

// TestDeadlinesAreShown: the table and the page show each job with a deadline, its end in each way, and what was decided.
func TestDeadlinesAreShown(t *testing.T) {
	result := &sim.Result{Title: "deadlines", Good: true, Summaries: []sim.Summary{{Way: "coordinated", Of: "average"}, {Way: "deadline", Of: "average"}}, Jobs: []sim.Job{
		{Name: "kept", Coordinated: 120, Deadline: 99.5, Due: &sim.Deadline{After: 100, Decisions: []sim.Decision{{State: "refused"}, {State: "granted", Rate: 3e9}, {State: "granted", Rate: 2e9}}}},
		{Name: "hopeless", Coordinated: 120, Due: &sim.Deadline{After: 60, Decisions: []sim.Decision{{State: "refused"}, {State: "missed"}}}},
		{Name: "plain", Coordinated: 20, Deadline: 30}}}
	for range 2 * mostDeadlines {
		result.Jobs = append(result.Jobs, sim.Job{Name: "more", Due: &sim.Deadline{After: 60}})
	}
	r := Report{result}
	var table, page bytes.Buffer
	if err := errors.Join(r.WriteTable(&table), r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kept", "100.0 s", "120.0 s, late", "99.5 s", "3000 MB/s", "refused, then granted", "hopeless", "not ended", "none", "refused, then missed", "ended deadline"} {
		if !strings.Contains(table.String(), want) || !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing:\n%s", want, table.String())
		}
	}
	if strings.Contains(table.String(), "plain") {
		t.Errorf("a job without a deadline is in the table:\n%s", table.String())
	}
	if n := strings.Count(table.String(), "more"); n != mostDeadlines-2 {
		t.Errorf("%d further rows", n)
	}
}
