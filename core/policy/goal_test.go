package policy_test

import (
	"math"
	"strings"
	"testing"

	"penstock/core/policy"
	"penstock/core/reserve"
)

func equal(path string) policy.Queue {
	return policy.Queue{Path: path, Weight: 1, Goal: policy.EqualSlowdown}
}

func TestGoalOfAQueue(t *testing.T) {
	p := &policy.Policy{Default: 1, Queues: []policy.Queue{equal("root.batch"), {Path: "root", Weight: 1}},
		Rules: []policy.Rule{{User: "alice", Weight: 2, Slowdown: 2}, {Flow: "g", Weight: 1, Group: "g"}}, Set: map[string]int{"set": 7}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		facts policy.Facts
		want  float64
	}{
		{policy.Facts{Queue: "root.batch.x"}, 1},
		{policy.Facts{Queue: "root.batch", User: "alice"}, 2},
		{policy.Facts{Queue: "root.batch", User: "alice", Flow: "set"}, 2},
		{policy.Facts{Queue: "root.other", User: "alice"}, 0},
		{policy.Facts{Queue: "root.batch", Flow: "g"}, 0},
		{policy.Facts{}, 0},
	} {
		if goal, has := p.GoalOf(p.Grant(test.facts)); goal != test.want || has != (test.want > 0) {
			t.Errorf("%+v: %v, %v", test.facts, goal, has)
		}
	}
	if !p.HasGoal("root.batch") || p.HasGoal("root") || p.HasGoal("") {
		t.Error("root.batch is the only queue with a goal")
	}
	top := &policy.Policy{Default: 1, Goal: policy.EqualSlowdown, Rules: []policy.Rule{{Weight: 1, Slowdown: 0.5}}}
	if err := top.Validate(); err != nil {
		t.Fatal(err)
	}
	if goal, has := top.GoalOf(top.Grant(policy.Facts{Queue: "root.any"})); goal != 0.5 || !has {
		t.Errorf("at the top: %v, %v", goal, has)
	}
}

func TestMistakesInGoals(t *testing.T) {
	change := func(f func(*policy.Queue)) policy.Queue {
		q := equal("a")
		f(&q)
		return q
	}
	rule := func(slowdown float64) []policy.Rule { return []policy.Rule{{Weight: 1, Slowdown: slowdown}} }
	for name, test := range map[string]struct {
		policy policy.Policy
		want   string
	}{
		"an unknown goal":        {policy.Policy{Queues: []policy.Queue{change(func(q *policy.Queue) { q.Goal = "fast" })}}, `queues[0]: goal "fast" of queue "a": use equal-slowdown`},
		"a misspelt goal":        {policy.Policy{Queues: []policy.Queue{change(func(q *policy.Queue) { q.Goal = "equal_slowdown" })}}, "did you mean equal-slowdown?"},
		"an order too":           {policy.Policy{Queues: []policy.Queue{{Path: "a", Weight: 1, Order: policy.Shortest, Slices: ordered("a").Slices, Goal: policy.EqualSlowdown}}}, `order and goal of queue "a"`},
		"a queue below it":       {policy.Policy{Queues: []policy.Queue{equal("a"), {Path: "a.b", Weight: 1}}}, `queue "a.b" is below it`},
		"a group in it":          {policy.Policy{Queues: []policy.Queue{equal("a")}, Rules: []policy.Rule{{Weight: 1, Group: "g", GroupQueue: "a"}}}, `rules[0] puts the group "g" into it`},
		"a group elsewhere":      {policy.Policy{Queues: []policy.Queue{equal("a"), {Path: "b", Weight: 1}}, Rules: []policy.Rule{{Weight: 1, Group: "g", GroupQueue: "b"}}}, ""},
		"at the top, and queues": {policy.Policy{Goal: policy.EqualSlowdown, Queues: []policy.Queue{{Path: "a", Weight: 1}}}, "goal: the goal at the top applies to a policy without queues"},
		"at the top, misspelt":   {policy.Policy{Goal: "Equal"}, "goal: goal \"Equal\": did you mean equal-slowdown?"},
		"at the top, and groups": {policy.Policy{Goal: policy.EqualSlowdown, Rules: []policy.Rule{{Weight: 1, Group: "g"}}}, `rules[0] has the group "g"`},
		"a rule without a goal":  {policy.Policy{Rules: rule(2)}, `rules[0]: slowdown applies in a queue with a goal only`},
		"a small slowdown":       {policy.Policy{Queues: []policy.Queue{equal("a")}, Rules: rule(0.09)}, "rules[0]: slowdown: use 0.1 to 10"},
		"a large slowdown":       {policy.Policy{Queues: []policy.Queue{equal("a")}, Rules: rule(10.1)}, "use 0.1 to 10"},
		"no number":              {policy.Policy{Queues: []policy.Queue{equal("a")}, Rules: rule(math.NaN())}, "use 0.1 to 10"},
		"a slowdown of a group":  {policy.Policy{Queues: []policy.Queue{equal("a")}, Rules: []policy.Rule{{Weight: 1, Slowdown: 2, Group: "g"}}}, "group and slowdown"},
		"a strict reserve":       {policy.Policy{Queues: []policy.Queue{equal("a")}, Rules: []policy.Rule{{Weight: 1, Slowdown: 2, Reserve: reserve.Rate{Part: 0.2, Strict: true}}}}, ""},
	} {
		test.policy.Default = 1
		err := test.policy.Validate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
