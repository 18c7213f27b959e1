package coord

import (
	"cmp"
	"slices"
	"time"
)

// Use is what one member of a queue did on a device in one period. Members are applications
// and queues; the root is the queue that is in none.
type Use struct {
	// App is the caller's number of the member: 0 or more for an application, less for a queue.
	App int
	// In is the number of the queue that the member is in; 0: the root.
	In     int
	Served time.Duration // device time; of a queue: what its members had is counted, and not this
	Wanted time.Duration // how long something of it waited, up to the period's length; of a queue as Served
}

// Part is a member's weight in its queue on a device, on the scale of the weights there: a
// member that has no part yet fits in with its own weight.
type Part struct {
	App    int
	Weight float64
}

// Right is what the cluster says of a member: its weight in its queue, and its total.
type Right struct {
	Weight float64
	Total  Service
	// In is the queue that the member is in by now, as in Use. A member that was in another
	// one at the time of the report has no part until the next answer.
	In int
}

const (
	// keep is how many reports wait for an answer; an answer that is older than the
	// oldest is of no use.
	maxPending = 8
	// notice is the part of a deviation from what was due that is taken over in a period.
	// What a second shows of a slow disk is a handful of requests, the last of them cut
	// off: the deviation of a single period says little, a lasting one much.
	deviationGain = 0.1
	// home is how much of its correction a device spends on coming back to its local
	// shares. Many divisions have the same totals; without it the device would drift among
	// them, into ones where an application starves on one node and has all of another.
	localPull = 0.02
)

// Device is one device's side of the exchange: what it reports, and what parts it makes of
// the answer.
type Device struct {
	parts   []Part    // in force, by App
	bias    []bias    // by App
	waiting []report  // without an answer, oldest first
	out     []Service // of this report
	next    []float64
	groups  []group         // of this report
	index   []groupOf       // of the queues in it, by their number
	wanted  []time.Duration // of its uses
	needs   []need          // of the last answer's queues, by their number
}

type bias struct {
	app       int
	deviation float64 // of what is served from what is due, seconds a second
}

type report struct {
	sequence uint64
	uses     []use // group by group, in each by app
	groups   int
}

type use struct {
	app      int
	in       int // the queue that it is in
	group    int // its queue's
	ownGroup int // the group that it is the queue of; 0: none
	own      float64
	wants    bool
	need     need // that was reported of it
}

// Report makes of a period's uses what the node adds up over its devices and sends under
// that number: for each of them, in their order, the rate and the room. It is for the
// caller to use until the next one. uses has an App once at most, and each queue before
// its members; length is above 0.
//
// The rate is not what was served in this period but what was due, by the parts in force,
// and the usual deviation from it: see notice. What is due to a queue's members together is
// what is due to the queue.
func (d *Device) Report(sequence uint64, length time.Duration, uses []Use) []Service {
	r, groups := d.buildGroups(length, uses)
	r.sequence = sequence
	d.out = d.out[:0]
	for i := range r.uses {
		e := &r.uses[i]
		g := &groups[e.group]
		if q := g.queue; q >= 0 && r.uses[q].wants {
			g.served = max(0, r.uses[q].own-g.rest)
		}
		s := Service{Rate: int64(e.own * Second)}
		if e.wants {
			rate := e.own
			if part := d.part(e.app); part > 0 {
				due := g.served * part / g.parts
				b := d.biasOf(e.app)
				b.deviation += deviationGain * (e.own - due - b.deviation)
				e.own, rate = due, max(0, due+b.deviation)
			}
			s = Service{Rate: int64(rate * Second), Room: int64(g.served * Second)}
			if e.app < 0 {
				e.need = d.needOf(e.app)
				e.need.service(&s)
			}
		}
		d.out = append(d.out, s)
	}
	slices.SortFunc(r.uses, func(a, b use) int { return cmp.Compare(a.app, b.app) })
	d.bias = slices.DeleteFunc(d.bias, func(b bias) bool {
		_, used := slices.BinarySearchFunc(r.uses, b.app, func(u use, app int) int { return cmp.Compare(u.app, app) })
		return !used
	})
	slices.SortStableFunc(r.uses, func(a, b use) int { return cmp.Compare(a.group, b.group) })
	if len(d.waiting) == maxPending {
		d.waiting = slices.Delete(d.waiting, 0, 1)
	}
	d.waiting = append(d.waiting, r)
	return d.out
}

// Forget drops the reports that wait for an answer: with a new stream their numbers begin
// anew. The parts stay.
func (d *Device) Forget() { d.waiting = d.waiting[:0] }

// Drop forgets a member, whose number another may then have.
func (d *Device) Drop(app int) {
	d.parts = slices.DeleteFunc(d.parts, func(p Part) bool { return p.App == app })
	d.bias = slices.DeleteFunc(d.bias, func(b bias) bool { return b.app == app })
}

// Answer makes parts of the totals that answer the report of that number; right is asked
// for every member in it, and those that it does not know are left out. The parts are
// the device's until the next answer; the caller puts them into force at once. ok is false,
// and the parts in force stay, if the answer is to no report that waits.
func (d *Device) Answer(sequence uint64, right func(app int) (Right, bool)) (parts []Part, ok bool) {
	i := slices.IndexFunc(d.waiting, func(r report) bool { return r.sequence == sequence })
	if i < 0 {
		return d.parts, false
	}
	r := d.waiting[i]
	d.waiting = slices.Delete(d.waiting, 0, i+1)
	d.parts = d.parts[:0]
	shares := d.claim(r, right)
	d.raiseQueues(shares)
	for g := range shares {
		if !d.divide(shares, g) {
			d.parts = d.parts[:0]
			return d.parts, false
		}
	}
	slices.SortFunc(d.parts, func(a, b Part) int { return cmp.Compare(a.App, b.App) })
	return d.parts, true
}

// bringHome takes claims a little nearer to the local shares: what is added to one total
// is taken from others', in parts of the correction that the device can make.
func pullToLocal(claims []Claim) {
	gives, weights := 0.0, 0.0
	for _, c := range claims {
		if c.Wants {
			gives += c.Own
			weights += c.Weight
		}
	}
	for i := range claims {
		if c := &claims[i]; c.Wants {
			c.Total = max(0, c.Total-localPull*(gives*c.Weight/weights-c.Own))
		}
	}
}

// part is the weight in force, 0 if there is none.
func (d *Device) part(app int) float64 {
	i, ok := slices.BinarySearchFunc(d.parts, app, func(p Part, app int) int { return cmp.Compare(p.App, app) })
	if !ok {
		return 0
	}
	return d.parts[i].Weight
}

func (d *Device) biasOf(app int) *bias {
	i, ok := slices.BinarySearchFunc(d.bias, app, func(b bias, app int) int { return cmp.Compare(b.app, app) })
	if !ok {
		d.bias = slices.Insert(d.bias, i, bias{app: app})
	}
	return &d.bias[i]
}
