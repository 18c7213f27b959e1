package policy

import (
	"strings"
	"testing"
)

func TestMode(t *testing.T) {
	for _, mode := range []string{"", ModeOff, ModeObserve, ModeEnforce} {
		if err := (&Policy{Default: 1, Mode: mode}).Validate(); err != nil {
			t.Errorf("%q: %v", mode, err)
		}
	}
	if err := (&Policy{Default: 1, Mode: "watch"}).Validate(); err == nil || !strings.Contains(err.Error(), `mode "watch": use off, observe or enforce`) {
		t.Errorf("a mode that does not exist: %v", err)
	}
}

func TestCatchAll(t *testing.T) {
	for _, test := range []struct {
		rule Rule
		want bool
	}{
		{Rule{}, false},
		{Rule{Limit: MinLimit}, true},
		{Rule{Total: Total{Limit: 1 << 20}}, true},
		{Rule{Limit: MinLimit, Flow: "*", User: "**"}, true},
		{Rule{Limit: MinLimit, Flow: "application_*"}, true},
		{Rule{Limit: MinLimit, Queue: "root.*"}, true},
		{Rule{Limit: MinLimit, User: "application_*"}, false},
		{Rule{Limit: MinLimit, User: "?*"}, false},
		{Rule{Limit: MinLimit, Flow: "*", Queue: "root.adhoc"}, false},
		{Rule{Limit: MinLimit, Tag: "gold"}, false},
		{Rule{Weight: 3, Flow: "*"}, false},
	} {
		if got := test.rule.CatchAll(); got != test.want {
			t.Errorf("%+v: %v", test.rule, got)
		}
	}
}

func TestClusterWide(t *testing.T) {
	for want, p := range map[string]*Policy{
		"":                   {Rules: []Rule{{Limit: MinLimit, Group: "g", Latency: 1}}, Queues: []Queue{{Path: "root", Weight: 1}}, Mode: ModeObserve},
		"goal":               {Goal: EqualSlowdown},
		"order":              {Queues: []Queue{{Path: "root", Order: Shortest}}},
		"total_reserve":      {Rules: []Rule{{Total: Total{Reserve: 1}}}},
		"total_limit":        {Rules: []Rule{{Total: Total{Limit: 1}}}},
		"deadline":           {Rules: []Rule{{Deadline: Deadline{At: 1}}}},
		"bandwidth: reserve": {Rules: []Rule{{Bandwidth: BandwidthReserve}}},
	} {
		if got := p.ClusterWide(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
