package coord

import (
	"cmp"
	"slices"
	"time"
)

// Use is the activity of one member of a queue on a device in one period. Members are applications
// and queues.
type Use struct {
	// App is the caller's number of the member: 0 or more for an application, negative for a queue.
	App int
	// In is the number of the member's queue, or 0 for the root.
	In     int
	Served time.Duration // device time; ignored for a queue, whose service is the sum of its members' service
	Wanted time.Duration // time with a backlog, at most the period's length; ignored for a queue
}

// Part is a member's weight in its queue on a device, on the scale of the policy's weights there.
// So a new member that has no part yet can use its weight from the policy.
type Part struct {
	App    int
	Weight float64
}

// Right is a member's cluster-wide state: its weight in its queue, and its total.
type Right struct {
	Weight float64
	Total  Service
	// In is the member's present queue, as in Use. A member that has changed its queue since the
	// report gets no part until the next answer.
	In int
}

const (
	// maxPending is the number of reports that can wait for an answer. Answers to older reports are
	// ignored.
	maxPending = 8
	// deviationGain is the part of each period's deviation from the entitlement that enters the
	// average deviation. A slow disk completes only a few requests per second, and the end of the
	// period cuts off the last one. So the deviation of a single period says little, and a lasting
	// deviation says much.
	deviationGain = 0.1
	// localPull is the part of the difference between a flow's local share and its service by which
	// the device moves the flow toward the local share in each exchange. Many divisions have the
	// same totals. Without localPull, the device would drift into a division where an application
	// starves on one node and gets all service on another.
	localPull = 0.02
)

// Device is a device's side of the exchange with the broker: it makes reports, and turns answers
// into parts.
type Device struct {
	parts   []Part    // in force, sorted by App
	bias    []bias    // sorted by app
	waiting []report  // reports without an answer, oldest first
	out     []Service // result of the last Report
	next    []float64
	groups  []group         // of the last report
	index   []groupOf       // groups of the last report's queues, sorted by queue
	wanted  []time.Duration // in the last report, in the order of its uses
	needs   []need          // of the queues in the last answer, sorted by queue
}

type bias struct {
	app       int
	deviation float64 // average difference between service and entitlement, in seconds per second
}

type report struct {
	sequence uint64
	uses     []use // sorted by group, then by app
	groups   int
}

type use struct {
	app      int
	in       int // the number of its queue
	group    int // the group of its queue
	ownGroup int // the group of its members if it is a queue, otherwise 0
	own      float64
	wants    bool
	need     need // as reported
}

// Report converts the uses of a period to rates and rooms, in the order of uses. The node adds them
// up over its devices and sends them under the sequence number. The result is valid until the next
// call. Each App must occur at most once in uses, and each queue must come before its members.
// length must be above 0.
//
// The reported rate is not the service of this period. It is the entitlement according to the
// parts in force, plus the service's average deviation from that entitlement (deviationGain). The
// entitlements of a queue's members add up to the queue's own service.
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

// Forget drops the reports that wait for an answer. It is called for a new stream, whose sequence
// numbers begin at 1 again. The parts in force stay.
func (d *Device) Forget() { d.waiting = d.waiting[:0] }

// Drop forgets a member. The caller can then reuse its number.
func (d *Device) Drop(app int) {
	d.parts = slices.DeleteFunc(d.parts, func(p Part) bool { return p.App == app })
	d.bias = slices.DeleteFunc(d.bias, func(b bias) bool { return b.app == app })
}

// Answer computes parts from the totals in the answer to the report with this sequence number. It
// calls right for each member of the report, and leaves out members that right does not know. The
// caller puts the parts in force at once; they are valid until the next answer. If no such report
// is pending, ok is false and the parts in force stay.
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

// pullToLocal moves claims slightly toward the local shares. It lowers the totals of members with
// less than their local share and raises the others; the changes add up to 0 unless a total would
// fall below 0.
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

// part returns the part in force, or 0 if the member has none.
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
