package policy

import "slices"

// Level is a queue or group on the path from the root to an application, with its weight among its
// siblings.
type Level struct {
	Queue  string
	Weight int
}

// MaxWay is the largest number of levels: the levels of a queue and a group in it.
const MaxWay = maxLevels + 1

// Levels returns the path from the root to a grant's application. The path has the queues with a
// weight, topmost first, and then the application's group. Grant.Weight applies among the members
// of the last level. An empty path means the root.
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
