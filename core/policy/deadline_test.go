package policy

import (
	"strings"
	"testing"
	"time"

	"penstock/core/reserve"
)

// TestDeadlines: a deadline is within its range, and excludes other sources of a guaranteed rate of the whole application.
func TestDeadlines(t *testing.T) {
	at := time.Date(2026, 11, 25, 18, 0, 0, 0, time.UTC).UnixMilli()
	for name, test := range map[string]struct {
		rule Rule
		want string
	}{
		"after":             {Rule{Deadline: Deadline{After: 2 * time.Hour}}, ""},
		"at":                {Rule{Deadline: Deadline{At: at}}, ""},
		"with limits":       {Rule{Deadline: Deadline{At: at}, Limit: 1 << 20, Total: Total{Limit: 1 << 24}}, ""},
		"too short":         {Rule{Deadline: Deadline{After: time.Second}}, "use 1m0s to 720h0m0s after the submission"},
		"before":            {Rule{Deadline: Deadline{After: -time.Hour}}, "use 1m0s to"},
		"too long":          {Rule{Deadline: Deadline{After: 1000 * time.Hour}}, "use 1m0s to"},
		"long ago":          {Rule{Deadline: Deadline{At: 1}}, "years 2020 to 2200"},
		"total_reserve":     {Rule{Deadline: Deadline{At: at}, Total: Total{Reserve: 1 << 24}}, "deadline and total_reserve"},
		"bandwidth":         {Rule{Deadline: Deadline{At: at}, Bandwidth: BandwidthReserve}, "deadline and bandwidth: reserve"},
		"bandwidth, weight": {Rule{Deadline: Deadline{At: at}, Bandwidth: BandwidthWeight}, ""},
		"reserve":           {Rule{Deadline: Deadline{At: at}, Reserve: reserve.Rate{Part: 0.5}}, "deadline and reserve"},
	} {
		test.rule.Weight = 1
		p := Policy{Default: 1, Rules: []Rule{test.rule}}
		err := p.Validate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && p.Grant(Facts{}).Deadline != test.rule.Deadline {
			t.Errorf("%s: not granted", name)
		}
	}
}

func TestDeadlineBy(t *testing.T) {
	if by, ok := (Deadline{After: time.Hour}).By(5000); by != 3_605_000 || !ok {
		t.Error(by, ok)
	}
	if _, ok := (Deadline{After: time.Hour}).By(0); ok {
		t.Error("known without the submission")
	}
	if by, ok := (Deadline{At: 7}).By(0); by != 7 || !ok {
		t.Error(by, ok)
	}
}
