package policy

import "slices"

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
	for queue := g.Queue; queue != ""; queue = above(queue) {
		if w, listed := p.weightOf(queue); listed {
			down = append(down, Level{queue, w})
		}
	}
	slices.Reverse(down)
	if g.Group != "" {
		down = append(down, Level{GroupLevel(g.Group), g.GroupWeight})
	}
	return down
}
