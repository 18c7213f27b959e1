package broker

import (
	"fmt"
	"strings"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// way is where applications stand: the queues from the root, which a node needs when it goes
// on by local shares.
type queuePath struct {
	levels []*cluster.Level
	text   string // the same, to compare
}

// ways has those of one policy, by the last level.
type queuePaths struct {
	policy *policy.Policy
	byLeaf map[string]*queuePath
}

// to finds the way to a grant; nil if it is the root's own.
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

// same tells whether a node that knows one right knows the other.
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
