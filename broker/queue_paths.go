package broker

import (
	"fmt"
	"strings"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// queuePath is the path of queues from the root to a queue with applications. Nodes need the path
// to divide service among applications themselves.
type queuePath struct {
	levels []*cluster.Level
	text   string // the levels as text, for comparisons
}

// queuePaths holds the paths of one policy by their last level.
type queuePaths struct {
	policy *policy.Policy
	byLeaf map[string]*queuePath
}

// pathOf returns the path of a grant; nil for the root.
func (w *queuePaths) pathOf(p *policy.Policy, g policy.Grant) *queuePath {
	if w.policy != p {
		*w = queuePaths{policy: p, byLeaf: map[string]*queuePath{}}
	}
	leaf := g.Queue
	if g.Group != "" {
		leaf = policy.GroupLevel(g.Group)
	}
	if leaf == "" {
		return nil
	}
	found := w.byLeaf[leaf]
	if found == nil {
		found = &queuePath{}
		var text strings.Builder
		for _, l := range p.Levels(g) {
			found.levels = append(found.levels, &cluster.Level{Queue: l.Queue, Weight: float64(l.Weight)})
			fmt.Fprintf(&text, "%q %d ", l.Queue, l.Weight)
		}
		found.text = text.String()
		w.byLeaf[leaf] = found
	}
	return found
}

// same reports whether two rights mean the same to a node.
func (r right) same(o right) bool {
	if r.path != nil && o.path != nil && r.path.text == o.path.text {
		r.path = o.path
	}
	return r == o
}

func (w *queuePath) wireLevels() []*cluster.Level {
	if w == nil {
		return nil
	}
	return w.levels
}
