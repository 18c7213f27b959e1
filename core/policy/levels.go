package policy

import (
	"slices"
	"strings"
)

// Level is a queue, or a group, on the way from the root to an application, with its weight
// among its siblings.
type Level struct {
	Queue  string
	Weight int
}

// MaxWay is how many levels there may be: those of a queue, and a group in it.
const MaxWay = maxLevels + 1

// Levels is the way from the root to what a grant is in, the topmost queue that has a weight
// first; empty: it is the root's own. Grant.Weight counts in the last one.
func (p *Policy) Levels(g Grant) []Level {
	var up []Level
	if g.Group != "" {
		up = append(up, Level{GroupLevel(g.Group), g.GroupWeight})
	}
	weights := map[string]int{}
	for _, q := range p.Queues {
		weights[q.Path] = q.Weight
	}
	for q := g.Queue; q != ""; q = q[:max(strings.LastIndexByte(q, '.'), 0)] {
		if w := weights[q]; w > 0 {
			up = append(up, Level{q, w})
		}
	}
	slices.Reverse(up)
	return up
}
