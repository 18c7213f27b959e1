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
	var down []Level
	for _, q := range p.Queues {
		if rest, in := strings.CutPrefix(g.Queue, q.Path); in && (rest == "" || rest[0] == '.') {
			down = append(down, Level{q.Path, q.Weight})
		}
	}
	slices.SortFunc(down, func(a, b Level) int { return len(a.Queue) - len(b.Queue) })
	if g.Group != "" {
		down = append(down, Level{GroupLevel(g.Group), g.GroupWeight})
	}
	return down
}
