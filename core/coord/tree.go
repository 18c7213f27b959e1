package coord

import (
	"cmp"
	"slices"
	"time"
)

// Queues: every queue divides what it has on a device among its members, applications and
// queues, as the device divides what it gives among those at the root. So a queue's total is
// compared with its siblings', and a member's with those in its queue.

// group is the members of one queue on a device, as of one report.
type group struct {
	queue  int     // its place in the report's uses; of the root -1
	served float64 // what those who want more had together
	rest   float64 // what the others had
	parts  float64 // in force, of those who want more
}

// grow makes the tree of a period's uses: what queues had is added up, from the leaves, and
// then what is in each of them.
func (d *Device) grow(length time.Duration, uses []Use) (report, []group) {
	r := report{uses: make([]use, len(uses))}
	groups := append(d.groups[:0], group{queue: -1})
	d.index = d.index[:0]
	seconds, all := length.Seconds(), 0.0
	d.wanted = slices.Grow(d.wanted[:0], len(uses))[:len(uses)]
	for i, u := range uses {
		e := use{app: u.App, in: u.In}
		if at, known := slices.BinarySearchFunc(d.index, u.In, byQueue); known {
			e.group = d.index[at].group
		}
		d.wanted[i] = 0
		if u.App < 0 {
			at, _ := slices.BinarySearchFunc(d.index, u.App, byQueue)
			d.index = slices.Insert(d.index, at, place{u.App, len(groups)})
			e.opens = len(groups)
			groups = append(groups, group{queue: i})
		} else {
			e.own, d.wanted[i] = max(0, u.Served.Seconds()), u.Wanted
			all += e.own
		}
		r.uses[i] = e
	}
	// A device gives a second a second. What is booked in a lump, as after somebody's sync, or
	// at a cost that is not known well yet, counts no more than that.
	seconds = max(seconds, all)
	for i := len(uses) - 1; i >= 0; i-- {
		e := &r.uses[i]
		if q := groups[e.group].queue; q >= 0 { // members are behind their queue
			r.uses[q].own += e.own
			d.wanted[q] = min(length, d.wanted[q]+d.wanted[i])
		}
		e.own /= seconds
		e.wants = 2*d.wanted[i] >= length
	}
	for _, e := range r.uses {
		if g := &groups[e.group]; e.wants {
			g.served += e.own
			g.parts += d.part(e.app)
		} else {
			g.rest += e.own
		}
	}
	d.groups, r.groups = groups, len(groups)
	return r, groups
}

// place says which group a queue's members are.
type place struct{ queue, group int }

func byQueue(p place, queue int) int { return cmp.Compare(p.queue, queue) }
