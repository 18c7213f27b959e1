package broker

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"penstock/core/policy"
)

// differsOutside describes a difference between two policies that is outside of some queues; empty: there is none. inside
// reports whether a queue is one of them. roots are the queues that must have a weight in both policies, so that the queues
// inside compete only with each other. Set is not compared.
func differsOutside(p, o *policy.Policy, inside func(queue string) bool, roots []string) string {
	switch {
	case p.Default != o.Default:
		return "the default weight"
	case p.Mode != o.Mode:
		return "the mode"
	case p.Goal != o.Goal:
		return "the goal"
	case !reflect.DeepEqual(p.Rules, o.Rules):
		return "the rules"
	}
	old, new := queuesOutside(p, inside), queuesOutside(o, inside)
	for _, path := range slices.Sorted(maps.Keys(old)) {
		if !reflect.DeepEqual(old[path], new[path]) {
			return "the queue " + path
		}
		delete(new, path)
	}
	for _, path := range slices.Sorted(maps.Keys(new)) {
		return "the queue " + path
	}
	for _, q := range o.Queues {
		if inside(q.Path) && !hasRoot(o, q.Path, roots) {
			return "the queue " + q.Path + ", above which no queue of yours has a weight"
		}
	}
	return ""
}

// queuesOutside returns the queues that are not inside, by path.
func queuesOutside(p *policy.Policy, inside func(queue string) bool) map[string]policy.Queue {
	all := map[string]policy.Queue{}
	for _, q := range p.Queues {
		if !inside(q.Path) {
			all[q.Path] = q
		}
	}
	return all
}

// hasRoot reports whether one of the roots that has a weight is above a queue.
func hasRoot(p *policy.Policy, queue string, roots []string) bool {
	return slices.ContainsFunc(p.Queues, func(q policy.Queue) bool {
		return slices.Contains(roots, q.Path) && strings.HasPrefix(queue, q.Path+".")
	})
}
