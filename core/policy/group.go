package policy

import (
	"errors"
	"fmt"
	"strings"
)

// Groups put applications together that no queue holds, such as HDFS clients outside of
// YARN: all that rules with one group match weigh together what the rules say, and share
// that evenly. A group stands at the root, beside the topmost queues, or in one queue, and
// is there what a queue is.

// GroupLevel is what a group is called on the way from the root to an application; no
// queue has such a name.
func GroupLevel(group string) string { return groupPrefix + group }

const groupPrefix = "group:"

func (r *Rule) validateGroup() error {
	switch {
	case r.Group == "" && r.GroupQueue != "":
		return fmt.Errorf("group_queue %q without a group", clip(r.GroupQueue))
	case r.Group == "":
		return nil
	case len(r.Group) > MaxPattern || strings.ContainsFunc(r.Group, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return fmt.Errorf("group %q: use 1 to %d bytes without control characters", clip(r.Group), MaxPattern)
	case r.MaxWeight > 0:
		return errors.New("group and max_weight: a group's applications share its weight evenly, so none may ask for another")
	}
	return nil
}

// validateGroups holds the rules of a group against each other.
func (p *Policy) validateGroups() error {
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
			return &Error{at, fmt.Sprintf("group_queue %q: give it a weight under queues", clip(r.GroupQueue))}
		}
		j, known := first[r.Group]
		if !known {
			first[r.Group] = i
			continue
		}
		if o := p.Rules[j]; o.Weight != r.Weight || o.GroupQueue != r.GroupQueue {
			return &Error{at, fmt.Sprintf("group %q has the weight %d and the queue %q here, and %d and %q in rule %d: they are of the group as a whole, so give each of its rules the same",
				clip(r.Group), r.Weight, clip(r.GroupQueue), o.Weight, clip(o.GroupQueue), j+1)}
		}
	}
	return nil
}
