// Package foreign estimates what others than the caller do on a device: other
// processes, file systems' own blocks, pages that the kernel writes out for them.
//
// The kernel counts requests and bytes of a device for everybody together; the
// caller knows what it had the device do. The difference in bytes is others'. How
// much of the device's time those took is not known: 70 requests of 64 KiB a
// second are 0.4 s on a disk of 12 MB/s if they follow each other, and 1.1 s if
// each goes to a new place, and the counters are the same. A single number would
// be wrong for one of its two uses, so there are two.
//
// Accounts take Cost, the most that is possible: each request goes to a new place,
// but all of them together take no more than the time that passed less the
// caller's own. Cost tells load from slowness (cost.Tracker), where too little
// makes a healthy disk look slow; and where the device is busy all the time, the
// bound is the truth.
//
// The depth takes Part, the least that is plausible: what others are said to take
// is taken off the latency that the depth controls, so too much lets the governed
// requests queue up inside the device, out of the scheduler's reach. Only requests
// that must be small count as random there: n requests of b bytes hold at least
// n - b/64 KiB that are smaller than 64 KiB. Streams' requests are larger, since the
// kernel reads ahead and merges; and of larger ones at random places the transfer
// is a good part of the time, and that counts.
//
// The kernel counts a request when it ends, the caller a quantum when all of it
// has. So what the counters are ahead by is others' only as far as it is more than
// the caller has in flight; the rest waits for a later look. No byte is missed that
// way, but few bytes beside many in flight are found late: 30 pages a second beside
// two quanta of 1 MiB after a quarter of a minute. And a quantum becomes several
// requests. How many is learnt from looks at which the device did next to nothing
// for others.
package foreign

import (
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
)

// Counters are requests and bytes, of reads and of writes, since any moment in the
// past.
type Counters struct{ Requests, Bytes [2]int64 }

// Add counts a request.
func (c *Counters) Add(write bool, bytes int64) {
	c.Requests[index(write)]++
	c.Bytes[index(write)] += bytes
}

// Result is what others did.
type Result struct {
	// Cost is the model's cost of it since the last look, rather too much than too
	// little: 0 to the time that passed less the cost of the caller's own. What the
	// kernel moved for the caller's flows (Moved) is the caller's own, so a
	// cost.Tracker hears of it beside Cost.
	Cost time.Duration
	// Part is the part of the device's busy time that it takes, over the last
	// seconds, rather too little than too much: 0 to depth.OthersMax.
	Part float64
	// Bytes are those found since the last look, reads and writes.
	Bytes [2]int64
}

const (
	smoothing  = 7.0 / 3 * float64(time.Second) // at a look a second, rates take over 0.3 of the last one
	negligible = 0.03                           // of the device's work: as little is not worth a cost
	workMax    = time.Duration(1 << 61)         // two of them can be added
)

// Estimate is what is known of one device. It belongs to one caller at a time.
type Estimate struct {
	model cost.Model
	scale float64 // 0: not known

	begun       bool
	now         time.Duration
	device, own Counters
	moved       [2]float64    // bytes, since the last look
	work        time.Duration // the caller's own, since the last look

	directions [2]directionEstimate
	busy       float64 // the caller's own: cost a time
	excess     float64 // what the last look's bound left of Cost: own work comes in lumps
}

// New returns an estimate of a device whose requests cost what the model says.
func New(model cost.Model) *Estimate {
	return &Estimate{model: model, scale: 1, directions: [2]directionEstimate{newDirectionEstimate(), newDirectionEstimate()}}
}

// Correct says how many times the model's cost the healthy device takes, which the
// bounds by time that has passed need. It is 1 until the first call and holds until
// the next; 0 or less, or NaN, says that it is not known: there are no such bounds
// then, as any would be wrong by as much.
func (e *Estimate) Correct(scale float64) {
	if !(scale > 0) {
		scale = 0
	}
	e.scale = scale
}

// Moved counts bytes that the kernel moved for the caller's flows beside its
// requests, such as what it read ahead or wrote out by itself: they are the
// caller's, and cost as one request at a new place. Bytes that a look has called
// others' before are left out of later Results instead.
func (e *Estimate) Moved(write bool, bytes int64) {
	if bytes <= 0 {
		return
	}
	e.moved[index(write)] += float64(bytes)
	e.add(e.model.Of(write, false, bytes))
}

// add adds to the work of the caller's own.
func (e *Estimate) add(work time.Duration) {
	e.work = min(e.work+min(max(work, 0), workMax), workMax)
}

// Observe looks at the device: its counters, what the caller has had it do, both
// since any moment and not falling, and what it has in flight for the caller. Work
// is the cost of the caller's requests that ended since the last look. To be called
// every second or so. The first look and one at counters that have fallen, or risen
// as no disk's do, find nothing and begin again: another device has the name.
func (e *Estimate) Observe(now time.Duration, device, own, flying Counters, work time.Duration) Result {
	e.add(work)
	elapsed := now - e.now
	if !e.begun || device.below(e.device) || own.below(e.own) || elapsed > 0 && device.leapt(e.device, elapsed) {
		*e = Estimate{model: e.model, scale: e.scale, begun: true, now: now, device: device, own: own, directions: [2]directionEstimate{newDirectionEstimate(), newDirectionEstimate()}}
		return Result{}
	}
	if elapsed <= 0 {
		return Result{Part: e.part()}
	}
	var r Result
	gain := float64(elapsed) / (float64(elapsed) + smoothing)
	for i := range e.directions {
		bytes, requests := e.directions[i].update(interval{
			deviceBytes: difference(device.Bytes[i], e.device.Bytes[i]), deviceRequests: difference(device.Requests[i], e.device.Requests[i]),
			ownBytes: difference(own.Bytes[i], e.own.Bytes[i]) + e.moved[i], ownRequests: difference(own.Requests[i], e.own.Requests[i]),
			flyingBytes: float64(max(flying.Bytes[i], 0)), flyingRequests: float64(max(flying.Requests[i], 0)),
		})
		r.Bytes[i] = e.directions[i].claim(bytes)
		e.directions[i].byteRate += float64(gain * (bytes/float64(elapsed) - e.directions[i].byteRate))
		e.directions[i].rate += float64(gain * (requests/float64(elapsed) - e.directions[i].rate))
	}
	e.busy += float64(gain * (float64(e.work)/float64(elapsed) - e.busy))
	r.Cost, r.Part = e.cost(elapsed), e.part()
	e.now, e.device, e.own, e.moved, e.work = now, device, own, [2]float64{}, 0
	return r
}

// cost returns the most that others can have taken of a time.
func (e *Estimate) cost(elapsed time.Duration) time.Duration {
	most := e.directions[0].upperCost(&e.model.Read) + e.directions[1].upperCost(&e.model.Write)
	if most <= negligible*(most+e.busy) {
		e.excess = 0
		return 0
	}
	sum := float64(most*float64(elapsed)) + e.excess
	bound := float64(cost.Max)
	if e.scale > 0 {
		bound = min(bound, max(0, float64(elapsed)/e.scale-float64(e.work)))
	}
	e.excess = min(max(0, sum-bound), float64(elapsed))
	return time.Duration(min(sum, bound))
}

// part returns the least that others plausibly take, as part of the busy time.
func (e *Estimate) part() float64 {
	least := e.directions[0].lowerCost(&e.model.Read) + e.directions[1].lowerCost(&e.model.Write)
	if e.scale > 0 {
		least = min(least, 1/e.scale-e.busy)
	}
	if all := least + e.busy; least > negligible*all {
		return min(least/all, depth.OthersMax)
	}
	return 0
}

// below reports whether a counter is less than it was.
func (c Counters) below(before Counters) bool {
	for i := range 2 {
		if c.Bytes[i] < before.Bytes[i] || c.Requests[i] < before.Requests[i] {
			return true
		}
	}
	return false
}

// leapt reports whether there are more bytes than any disk moves in a time.
func (c Counters) leapt(before Counters, elapsed time.Duration) bool {
	most := float64(elapsed) / float64(cost.PerMiBMin) * (1 << 20)
	return difference(c.Bytes[0], before.Bytes[0]) > most || difference(c.Bytes[1], before.Bytes[1]) > most
}

// less returns a difference of counters. They may be any, so it is one of floats.
func difference(a, b int64) float64 { return float64(a) - float64(b) }

func index(write bool) int {
	if write {
		return 1
	}
	return 0
}
