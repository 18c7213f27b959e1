package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestDiffersOutside(t *testing.T) {
	base := func() *Policy {
		return &Policy{Default: 1, Mode: ModeEnforce, Rules: []Rule{{User: "a", Weight: 2}}, Set: map[string]int{"x": 1},
			Queues: []Queue{{Path: "root.etl", Weight: 3}, {Path: "root.adhoc", Weight: 1}, {Path: "root.adhoc.x", Weight: 5}}}
	}
	roots := []string{"root.adhoc", "root.new"}
	inside := func(queue string) bool {
		return slices.ContainsFunc(roots, func(r string) bool { return strings.HasPrefix(queue, r+".") })
	}
	for name, test := range map[string]struct {
		change func(*Policy)
		want   string
	}{
		"nothing":                  {func(*Policy) {}, ""},
		"the order of the entries": {func(p *Policy) { slices.Reverse(p.Queues) }, ""},
		"a weight inside":          {func(p *Policy) { p.Queues[2].Weight = 9 }, ""},
		"more inside":              {func(p *Policy) { p.Queues = append(p.Queues, Queue{Path: "root.adhoc.x.y", Weight: 2}) }, ""},
		"less inside":              {func(p *Policy) { p.Queues = p.Queues[:2] }, ""},
		"an order inside":          {func(p *Policy) { p.Queues[2].Order = Shortest }, ""},
		"the own weight":           {func(p *Policy) { p.Queues[1].Weight = 9 }, "the queue root.adhoc"},
		"another queue":            {func(p *Policy) { p.Queues[0].Weight = 9 }, "the queue root.etl"},
		"a new queue elsewhere":    {func(p *Policy) { p.Queues = append(p.Queues, Queue{Path: "root.z", Weight: 2}) }, "the queue root.z"},
		"without another":          {func(p *Policy) { p.Queues = p.Queues[1:] }, "the queue root.etl"},
		"no weight above": {func(p *Policy) { p.Queues = append(p.Queues, Queue{Path: "root.new.a", Weight: 2}) },
			"the queue root.new.a, above which no queue of yours has a weight"},
		"a rule":      {func(p *Policy) { p.Rules[0].Weight = 9 }, "the rules"},
		"the default": {func(p *Policy) { p.Default = 9 }, "the default weight"},
		"the mode":    {func(p *Policy) { p.Mode = "" }, "the mode"},
		"the goal":    {func(p *Policy) { p.Goal = EqualSlowdown }, "the goal"},
		"set weights": {func(p *Policy) { p.Set = nil }, ""},
	} {
		p := base()
		test.change(p)
		if got := base().DiffersOutside(p, inside, roots); got != test.want {
			t.Errorf("%s: %q, not %q", name, got, test.want)
		}
	}
}
