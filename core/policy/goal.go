package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// EqualSlowdown is the value of Queue.Goal and Policy.Goal with which the weights of a queue's applications move until
// these are slowed down in proportion (package slowdown).
const EqualSlowdown = "equal-slowdown"

// Range of Rule.Slowdown. Weights change by a factor of at most slowdown.MaxFactor, so larger goals are out of reach.
const (
	MinSlowdown = 0.1
	MaxSlowdown = 10
)

func (p *Policy) validateGoals(add func(at, field, format string, args ...any)) {
	some := p.Goal != ""
	if p.Goal != "" {
		if hint := goalHint(p.Goal); hint != "" {
			add("goal", "", "goal %q: %s", clip(p.Goal), hint)
		} else if len(p.Queues) > 0 {
			add("goal", "", "the goal at the top applies to a policy without queues, because queues keep their weights: give the goal to a queue")
		}
		for i, r := range p.Rules {
			if r.Group != "" && r.GroupQueue == "" {
				add("goal", "", "rules[%d] has the group %q, and a group has no slowdown: put it into a queue, and give the goal to another one", i, clip(r.Group))
				break
			}
		}
	}
	for i, q := range p.Queues {
		at := "queues[" + strconv.Itoa(i) + "]"
		if q.Goal == "" {
			continue
		}
		some = true
		if hint := goalHint(q.Goal); hint != "" {
			add(at, "goal", "goal %q of queue %q: %s", clip(q.Goal), clip(q.Path), hint)
			continue
		}
		if q.Order != "" {
			add(at, "goal", "order and goal of queue %q: the order gives slices to applications and the goal moves their weights, and a queue can have only one of them", clip(q.Path))
		}
		for _, o := range p.Queues {
			if strings.HasPrefix(o.Path, q.Path+".") {
				add(at, "goal", "goal of queue %q: queue %q is below it, and only a queue without listed queues below it can have a goal: give the goal to %q", clip(q.Path), clip(o.Path), clip(o.Path))
				break
			}
		}
		for k, r := range p.Rules {
			if r.Group != "" && r.GroupQueue == q.Path {
				add(at, "goal", "goal of queue %q: rules[%d] puts the group %q into it, and a group has no slowdown: use another group_queue", clip(q.Path), k, clip(r.Group))
				break
			}
		}
	}
	for i, r := range p.Rules {
		if at := fmt.Sprintf("rules[%d]", i); r.Slowdown != 0 && !some {
			add(at, "slowdown", "slowdown applies in a queue with a goal only: add \"goal: %s\" to a queue", EqualSlowdown)
		}
	}
}

// goalHint returns what is wrong with a goal; empty: nothing.
func goalHint(goal string) string {
	if goal == EqualSlowdown {
		return ""
	}
	if word := strings.ToLower(goal); strings.Contains(word, "equal") || strings.Contains(word, "slow") || strings.Contains(word, "fair") {
		return "did you mean " + EqualSlowdown + "?"
	}
	return "use " + EqualSlowdown
}

func (r *Rule) validateSlowdown(add func(field, format string, args ...any)) {
	switch {
	case r.Slowdown == 0:
	case !(r.Slowdown >= MinSlowdown && r.Slowdown <= MaxSlowdown):
		add("slowdown", "slowdown: use %v to %v: the application's performance in proportion to those of its queue, 1 by default", MinSlowdown, MaxSlowdown)
	case r.Group != "":
		add("slowdown", "group and slowdown: the applications of a group share its weight evenly, so none of them has a goal")
	}
}

// GoalOf returns the goal of a grant's application among those of its queue: performance, the inverse of slowdown,
// is in proportion to it. It reports false if the queue has no goal.
func (p *Policy) GoalOf(g Grant) (goal float64, has bool) {
	if g.Group != "" || !p.HasGoal(g.Queue) {
		return 0, false
	}
	if g.Rule >= 0 && g.Rule < len(p.Rules) && p.Rules[g.Rule].Slowdown > 0 {
		return p.Rules[g.Rule].Slowdown, true
	}
	return 1, true
}

// HasGoal reports whether the applications of the queue with this path are slowed down in proportion; the empty path
// is for those in no queue.
func (p *Policy) HasGoal(path string) bool {
	if path == "" {
		return p.Goal != ""
	}
	return p.goals[path]
}
