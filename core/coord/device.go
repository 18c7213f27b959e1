package coord

import (
	"cmp"
	"slices"
	"time"
)

// Use is what one application did on a device in one period.
type Use struct {
	App    int           // the caller's number for it
	Served time.Duration // device time
	Wanted time.Duration // how long something of it waited, up to the period's length
}

// Part is an application's weight on a device, on the scale of the weights: a flow that
// has no part yet fits in with its own weight.
type Part struct {
	App    int
	Weight float64
}

// Right is what the cluster says of an application: its weight there, and its total.
type Right struct {
	Weight float64
	Total  Service
}

const (
	// keep is how many reports wait for an answer; an answer that is older than the
	// oldest is of no use.
	keep = 8
	// notice is the part of a deviation from what was due that is taken over in a period.
	// What a second shows of a slow disk is a handful of requests, the last of them cut
	// off: the deviation of a single period says little, a lasting one much.
	notice = 0.1
	// home is how much of its correction a device spends on coming back to its local
	// shares. Many divisions have the same totals; without it the device would drift among
	// them, into ones where an application starves on one node and has all of another.
	home = 0.02
)

// Device is one device's side of the exchange: what it reports, and what parts it makes of
// the answer.
type Device struct {
	parts   []Part    // in force, by App
	bias    []bias    // by App
	waiting []report  // without an answer, oldest first
	out     []Service // of this report
	claims  []Claim
	next    []float64
}

type bias struct {
	app int
	off float64 // of what is served from what is due, seconds a second
}

type report struct {
	sequence uint64
	uses     []use
}

type use struct {
	app   int
	own   float64
	wants bool
}

// Report makes of a period's uses what the node adds up over its devices and sends under
// that number: for each of them, in their order, the rate and the room. It is for the
// caller to use until the next one. uses has an App once at most; length is above 0.
//
// The rate is not what was served in this period but what was due, by the parts in force,
// and the usual deviation from it: see notice.
func (d *Device) Report(sequence uint64, length time.Duration, uses []Use) []Service {
	seconds := length.Seconds()
	r := report{sequence: sequence}
	served, parts, all := 0.0, 0.0, 0.0
	for _, u := range uses {
		all += max(0, u.Served.Seconds())
	}
	// A device gives a second a second. What is booked in a lump, as after somebody's sync, or
	// at a cost that is not known well yet, counts no more than that.
	seconds = max(seconds, all)
	for _, u := range uses {
		e := use{app: u.App, own: max(0, u.Served.Seconds()/seconds), wants: 2*u.Wanted >= length}
		if e.wants {
			served += e.own
			parts += d.part(u.App)
		}
		r.uses = append(r.uses, e)
	}
	d.out = d.out[:0]
	for i := range r.uses {
		e := &r.uses[i]
		if !e.wants {
			d.out = append(d.out, Service{Rate: int64(e.own * Second)})
			continue
		}
		rate := e.own
		if part := d.part(e.app); part > 0 {
			due := served * part / parts
			b := d.biasOf(e.app)
			b.off += notice * (e.own - due - b.off)
			e.own, rate = due, max(0, due+b.off)
		}
		d.out = append(d.out, Service{Rate: int64(rate * Second), Room: int64(served * Second)})
	}
	d.bias = slices.DeleteFunc(d.bias, func(b bias) bool {
		return !slices.ContainsFunc(uses, func(u Use) bool { return u.App == b.app })
	})
	slices.SortFunc(r.uses, func(a, b use) int { return cmp.Compare(a.app, b.app) })
	if len(d.waiting) == keep {
		d.waiting = slices.Delete(d.waiting, 0, 1)
	}
	d.waiting = append(d.waiting, r)
	return d.out
}

// Forget drops the reports that wait for an answer: with a new stream their numbers begin
// anew. The parts stay.
func (d *Device) Forget() { d.waiting = d.waiting[:0] }

// Drop forgets an application, whose number another may then have.
func (d *Device) Drop(app int) {
	d.parts = slices.DeleteFunc(d.parts, func(p Part) bool { return p.App == app })
	d.bias = slices.DeleteFunc(d.bias, func(b bias) bool { return b.app == app })
}

// Answer makes parts of the totals that answer the report of that number; right is asked
// for every application in it, and those that it does not know are left out. The parts are
// the device's until the next answer; the caller puts them into force at once. ok is false,
// and the parts in force stay, if the answer is to no report that waits.
func (d *Device) Answer(sequence uint64, right func(app int) (Right, bool)) (parts []Part, ok bool) {
	i := slices.IndexFunc(d.waiting, func(r report) bool { return r.sequence == sequence })
	if i < 0 {
		return d.parts, false
	}
	r := d.waiting[i]
	d.waiting = slices.Delete(d.waiting, 0, i+1)
	d.claims = d.claims[:0]
	d.parts = d.parts[:0]
	weights := 0.0
	for _, u := range r.uses {
		rt, known := right(u.app)
		if !known || !(rt.Weight > 0) {
			continue
		}
		d.claims = append(d.claims, Claim{Weight: rt.Weight, Own: u.own, Wants: u.wants,
			Total: max(u.own, float64(rt.Total.Rate)/Second), Room: float64(rt.Total.Room) / Second})
		d.parts = append(d.parts, Part{App: u.app})
		weights += rt.Weight
	}
	bringHome(d.claims)
	next, err := Divide(d.next, d.claims)
	if err != nil { // the rates come from sums within bounds, and the weights are above 0
		d.parts = d.parts[:0]
		return d.parts, false
	}
	d.next = next
	sum := 0.0
	for _, p := range next {
		sum += p
	}
	for i, p := range next {
		d.parts[i].Weight = p / sum * weights
	}
	return d.parts, true
}

// bringHome takes claims a little nearer to the local shares: what is added to one total
// is taken from others', in parts of the correction that the device can make.
func bringHome(claims []Claim) {
	gives, weights := 0.0, 0.0
	for _, c := range claims {
		if c.Wants {
			gives += c.Own
			weights += c.Weight
		}
	}
	for i := range claims {
		if c := &claims[i]; c.Wants {
			c.Total = max(0, c.Total-home*(gives*c.Weight/weights-c.Own))
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
