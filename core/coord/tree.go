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
func (d *Device) buildGroups(length time.Duration, uses []Use) (report, []group) {
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
			d.index = slices.Insert(d.index, at, groupOf{u.App, len(groups)})
			e.ownGroup = len(groups)
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
type groupOf struct{ queue, group int }

func byQueue(p groupOf, queue int) int { return cmp.Compare(p.queue, queue) }

// share is one queue's division of what it has here, as of an answer.
type share struct {
	queue   int // its number
	members []use
	totals  []Service
	claims  []Claim
	in, at  int     // the share that the queue has a claim in, and which one; below 0: none
	scarce  float64 // by how much the queue gets less than its local share; 1 or more
	need    need
	raise   float64 // what it is to have more, for its members' sake
}

// need is what those of a queue's members who want more have of its total, 0 to 1, and weigh, by the
// part of a correction that the device makes for each of them. Over all devices it comes to what they
// have, and weigh, together. It is of the total as of the same answer, so that one that goes up and down
// moves nothing.
type need struct {
	queue       int
	had, weight float64
}

// unit is all of a queue's total in Service.Had, weightUnit a weight of 1 in Service.Weight.
const (
	needUnit   = 1_000_000_000
	weightUnit = 1_000_000
)

// service adds a need to what is reported of a queue. What is beyond the bound counts less,
// as only the ratio of the two says how much is due to a weight.
func (n need) service(s *Service) {
	fit := min(1, float64(MaxNeed)/max(n.had*needUnit, n.weight*weightUnit, 1))
	s.Had, s.Weight = int64(n.had*fit*needUnit), int64(n.weight*fit*weightUnit)
}

// claim makes the claims to all queues of a report.
func (d *Device) claim(r report, right func(app int) (Right, bool)) []share {
	shares := make([]share, r.groups)
	for g := range shares {
		shares[g] = share{in: -1, at: -1, scarce: 1}
	}
	for _, u := range r.uses {
		if u.ownGroup > 0 {
			shares[u.ownGroup].queue = u.app
		}
		rt, known := right(u.app)
		if !known || !(rt.Weight > 0) || rt.In != u.in {
			continue
		}
		s := &shares[u.group]
		if u.ownGroup > 0 {
			shares[u.ownGroup].in, shares[u.ownGroup].at = u.group, len(s.claims)
		}
		s.members, s.totals = append(s.members, u), append(s.totals, rt.Total)
		s.claims = append(s.claims, Claim{Weight: rt.Weight, Own: u.own, Wants: u.wants,
			Total: max(u.own, float64(rt.Total.Rate)/Second), Room: float64(rt.Total.Room) / Second})
	}
	return shares
}

const (
	// steer is the part of what a queue lacks here for its members that it is to get with an answer.
	// With more of it queues' totals swing for longer when a member comes or goes, as the devices
	// report that one after another.
	raiseGain = 0.25
	// steerMost bounds that, as a part of the queue's total. Many divisions have the same totals of
	// queues, and few of them are right for their members; but the queues' own come first, and
	// where both cannot be had they are off by no more than this. With 0, 0.02, 0.05 and 0.1 it is 2.2, 1.4,
	// 1.1 and 0.9 % that are misplaced on a hundred devices after thirty exchanges.
	maxRaise = 0.05
)

// lift finds what queues are to have more here than their totals say, for their members' sake: two
// that are on different devices have what is due to them only where their queue has.
func (d *Device) raiseQueues(shares []share) {
	d.needs = d.needs[:0]
	for g := len(shares) - 1; g > 0; g-- { // members come behind their queue
		s := &shares[g]
		if s.at < 0 {
			continue
		}
		up := &shares[s.in]
		c, all := &up.claims[s.at], up.totals[s.at]
		if gives := wantedService(s.claims); gives >= epsilon && c.Total >= epsilon {
			for _, m := range s.claims {
				if part := correctionPart(m, gives); m.Wants {
					s.need.had += part * m.Total / c.Total
					s.need.weight += part * m.Weight
				}
			}
		}
		s.need.queue = s.queue
		d.needs = append(d.needs, s.need)
		if all.Weight > 0 {
			was := up.members[s.at].need
			s.raise += c.Total * (was.weight*float64(all.Had)/needUnit/(float64(all.Weight)/weightUnit) - was.had)
		}
		up.raise += s.raise // if that one has too little here, so has the queue that it is in
		if gives := wantedService(up.claims); c.Wants && gives >= epsilon {
			most := maxRaise * c.Total
			c.Total -= min(max(raiseGain*s.raise/correctionPart(*c, gives), -most), most)
		}
	}
	slices.SortFunc(d.needs, func(a, b need) int { return cmp.Compare(a.queue, b.queue) })
}

// given is what those who want more have together.
func wantedService(claims []Claim) (gives float64) {
	for _, c := range claims {
		if c.Wants {
			gives += c.Own
		}
	}
	return gives
}

// divide adds the parts of one queue's members.
func (d *Device) divide(shares []share, group int) bool {
	s := &shares[group]
	pullToLocal(s.claims)
	next, err := divide(d.next, s.claims, min(1, LeastPart*s.scarce))
	if err != nil { // the rates come from sums within bounds, and the weights are above 0
		return false
	}
	d.next = next
	sum, weights := 0.0, 0.0
	for i, p := range next {
		sum += p
		weights += s.claims[i].Weight
	}
	for i, p := range next {
		part := Part{App: s.members[i].app, Weight: p / sum * weights}
		d.parts = append(d.parts, part)
		if o := s.members[i].ownGroup; o > 0 {
			// Its members keep by as much more at least as it gets less, or one with the least part of a
			// queue with the least part would have next to nothing.
			shares[o].scarce = max(1, s.scarce*s.claims[i].Weight/part.Weight)
		}
	}
	return true
}

func (d *Device) needOf(queue int) need {
	i, ok := slices.BinarySearchFunc(d.needs, queue, func(n need, queue int) int { return cmp.Compare(n.queue, queue) })
	if !ok {
		return need{}
	}
	return d.needs[i]
}
