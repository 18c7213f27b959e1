package policy

import (
	"fmt"
	"strings"
)

// Groups collect applications that are in no queue, such as HDFS clients outside of YARN. All
// applications that match the rules of one group share the group's weight evenly. A group is a
// member of the root, like the topmost queues, or of one queue (GroupQueue).

// GroupLevel returns the name of a group as a level of the queue tree. Queues cannot have such
// names.
func GroupLevel(group string) string { return groupPrefix + group }

const groupPrefix = "group:"

func (r *Rule) validateGroup(add func(field, format string, args ...any)) {
	switch {
	case r.Group == "" && r.GroupQueue != "":
		add("group_queue", "group_queue %q without a group", clip(r.GroupQueue))
	case r.Group == "":
	case len(r.Group) > MaxPattern || strings.ContainsFunc(r.Group, func(c rune) bool { return c < ' ' || c == 0x7f }):
		add("group", "group %q: use 1 to %d bytes without control characters", clip(r.Group), MaxPattern)
	case r.MaxWeight > 0:
		add("max_weight", "group and max_weight: the applications of a group share its weight evenly, so none of them may ask for another weight")
	}
}

// validateGroups checks that all rules of a group give the same weight and queue.
func (p *Policy) validateGroups(add func(at, field, format string, args ...any)) {
	first := map[string]int{}
	listed := map[string]bool{}
	for _, q := range p.Queues {
		listed[q.Path] = true
	}
	for i, r := range p.Rules {
		if r.Group == "" {
			continue
		}
		at := fmt.Sprintf("rules[%d]", i)
		if r.GroupQueue != "" && !listed[r.GroupQueue] {
			add(at, "group_queue", "group_queue %q: give it a weight under queues", clip(r.GroupQueue))
		}
		j, known := first[r.Group]
		if !known {
			first[r.Group] = i
			continue
		}
		if o := p.Rules[j]; o.Weight != r.Weight || o.GroupQueue != r.GroupQueue {
			add(at, "group", "group %q has the weight %d and the queue %q here, and %d and %q in rules[%d]: all rules of a group must give the same weight and queue",
				clip(r.Group), r.Weight, clip(r.GroupQueue), o.Weight, clip(o.GroupQueue), j)
		}
	}
}
