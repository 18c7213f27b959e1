package sfq

import (
	"fmt"
	"slices"
	"strings"
)

// String formats the state of the scheduler in a few lines, for tests and debugging.
func (s *Scheduler) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sfq: v %s, outstanding %d, ready %d\n", s.queues[0].v, s.Outstanding(), s.waiting)
	for f := range s.flows {
		fl := &s.flows[f]
		if fl.weight == 0 {
			continue
		}
		fmt.Fprintf(&b, "flow %d: weight %d", f, fl.weight)
		if fl.parent > 0 {
			fmt.Fprintf(&b, ", in %s", s.path(fl.parent))
		}
		b.WriteString(s.tags(Flow(f)))
		if fl.cost > 0 {
			fmt.Fprintf(&b, ", next costs %d", fl.cost)
		}
		fmt.Fprintf(&b, ", outstanding %d\n", fl.outstanding)
	}
	for q := range s.queues {
		at := &s.queues[q]
		if q == 0 || at.weight == 0 {
			continue
		}
		fmt.Fprintf(&b, "queue %s: weight %d, v %s%s, outstanding %d, members %d\n",
			s.path(int32(q)), at.weight, at.v, s.tags(^Flow(q)), at.outstanding, at.members)
	}
	return b.String()
}

// tags formats a member's start tag if it is ready, otherwise its finish tag, and the part of the
// lead that charges have caused.
func (s *Scheduler) tags(id Flow) string {
	m := *s.member(id)
	q := &s.queues[m.parent]
	if m.busyPeriod != q.busyPeriod {
		return ", tags void"
	}
	out := ", F " + m.finish().String()
	if s.ready(id) {
		out = ", S " + m.start().String()
	}
	if m.fade(q.v); m.charged != (tag{}) {
		out += ", by charges " + m.charged.String()
	}
	return out
}

// path returns the names of a queue's path from the root.
func (s *Scheduler) path(q int32) string {
	var names []string
	for ; q > 0; q = s.queues[q].parent {
		names = append(names, s.queues[q].name)
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}
