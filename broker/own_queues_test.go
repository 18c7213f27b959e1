package broker

import (
	"slices"
	"strings"
	"testing"

	"penstock/core/policy"
)

func TestDiffersOutside(t *testing.T) {
	base := func() *policy.Policy {
		return &policy.Policy{Default: 1, Mode: policy.ModeEnforce, Rules: []policy.Rule{{User: "a", Weight: 2}}, Set: map[string]int{"x": 1},
			Queues: []policy.Queue{{Path: "root.etl", Weight: 3}, {Path: "root.adhoc", Weight: 1}, {Path: "root.adhoc.x", Weight: 5}}}
	}
	roots := []string{"root.adhoc", "root.new"}
	inside := func(queue string) bool {
		return slices.ContainsFunc(roots, func(r string) bool { return strings.HasPrefix(queue, r+".") })
	}
	for name, test := range map[string]struct {
		change func(*policy.Policy)
		want   string
	}{
		"nothing":                  {func(*policy.Policy) {}, ""},
		"the order of the entries": {func(p *policy.Policy) { slices.Reverse(p.Queues) }, ""},
		"a weight inside":          {func(p *policy.Policy) { p.Queues[2].Weight = 9 }, ""},
		"more inside":              {func(p *policy.Policy) { p.Queues = append(p.Queues, policy.Queue{Path: "root.adhoc.x.y", Weight: 2}) }, ""},
		"less inside":              {func(p *policy.Policy) { p.Queues = p.Queues[:2] }, ""},
		"an order inside":          {func(p *policy.Policy) { p.Queues[2].Order = policy.Shortest }, ""},
		"the own weight":           {func(p *policy.Policy) { p.Queues[1].Weight = 9 }, "the queue root.adhoc"},
		"another queue":            {func(p *policy.Policy) { p.Queues[0].Weight = 9 }, "the queue root.etl"},
		"a new queue elsewhere":    {func(p *policy.Policy) { p.Queues = append(p.Queues, policy.Queue{Path: "root.z", Weight: 2}) }, "the queue root.z"},
		"without another":          {func(p *policy.Policy) { p.Queues = p.Queues[1:] }, "the queue root.etl"},
		"no weight above": {func(p *policy.Policy) { p.Queues = append(p.Queues, policy.Queue{Path: "root.new.a", Weight: 2}) },
			"the queue root.new.a, above which no queue of yours has a weight"},
		"a rule":      {func(p *policy.Policy) { p.Rules[0].Weight = 9 }, "the rules"},
		"the default": {func(p *policy.Policy) { p.Default = 9 }, "the default weight"},
		"the mode":    {func(p *policy.Policy) { p.Mode = "" }, "the mode"},
		"the goal":    {func(p *policy.Policy) { p.Goal = policy.EqualSlowdown }, "the goal"},
		"set weights": {func(p *policy.Policy) { p.Set = nil }, ""},
	} {
		p := base()
		test.change(p)
		if got := differsOutside(base(), p, inside, roots); got != test.want {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
}
