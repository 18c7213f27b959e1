package broker

import (
	"fmt"
	"strings"

	"penstock/core/policy"
	"penstock/wire/cluster"
)

// way is where applications stand: the queues from the root, which a node needs when it goes
// on by local shares.
type way struct {
	levels []*cluster.Level
	text   string // the same, to compare
}

// ways has those of one policy, by the last level.
type ways struct {
	of     *policy.Policy
	byLeaf map[string]*way
}

// to finds the way to a grant; nil if it is the root's own.
func (w *ways) to(p *policy.Policy, g policy.Grant) *way {
	if w.of != p {
		*w = ways{of: p, byLeaf: map[string]*way{}}
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
		found = &way{}
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
	if r.way != nil && o.way != nil && r.way.text == o.way.text {
		r.way = o.way
	}
	return r == o
}

func (w *way) queues() []*cluster.Level {
	if w == nil {
		return nil
	}
	return w.levels
}
