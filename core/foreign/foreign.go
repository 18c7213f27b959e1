// Package foreign estimates the foreign I/O on a device: the I/O of other processes, of file
// systems for their own blocks, and of the kernel's writeback for other processes.
//
// The kernel counts the requests and bytes of a device for all its users together, and the caller
// counts its own requests and bytes. The difference in bytes is foreign, but the device time of the
// foreign bytes is not known. For example, 70 requests of 64 KiB a second take 0.4 s of a disk of
// 12 MB/s if they are sequential and 1.1 s if they are random, with equal counters. The package
// makes two estimates, because its two users, cost.Tracker and the depth controller, tolerate
// errors in opposite directions.
//
// Cost is an upper estimate. It assumes that each foreign request is random. It is bounded by the
// elapsed time minus the time of the caller's own requests. cost.Tracker uses Cost to distinguish
// load from slowness; a value that is too small would make a healthy disk look slow. On a device
// that is always busy, the bound is exact.
//
// Part is a lower estimate. The depth controller subtracts the time of foreign I/O from the
// latency. With a value that is too large, governed requests would queue up inside the device, out
// of the scheduler's reach. Only requests that must be small count as random: among n requests of b
// bytes in all, at least n - b/64 KiB are smaller than 64 KiB. Requests of streams are larger,
// because the kernel reads ahead and merges. Larger requests at random places count by their
// transfer time, which is a good part of their whole time.
//
// The kernel counts a request when it ends. The caller counts a quantum when all of it has ended.
// So the kernel's counter of bytes can lead the caller's counter. Only the part of the lead beyond
// the caller's bytes in flight counts as foreign; the rest is decided later. No byte is lost that
// way, but a few foreign bytes beside many in flight are found late: 30 pages a second beside two
// quanta of 1 MiB are found after a quarter of a minute. A quantum becomes several requests of the
// kernel. Their number is learnt from intervals without relevant foreign I/O.
package foreign

import (
	"time"

	"penstock/core/cost"
	"penstock/core/depth"
)

// Counters are requests and bytes, of reads and of writes, since any fixed moment.
type Counters struct{ Requests, Bytes [2]int64 }

// Add counts a request.
func (c *Counters) Add(write bool, bytes int64) {
	c.Requests[index(write)]++
	c.Bytes[index(write)] += bytes
}

// Result is the foreign I/O of an interval.
type Result struct {
	// Cost is the upper estimate of the cost of foreign I/O since the last call of Observe, by the
	// model. It is at least 0 and at most the elapsed time minus the cost of the caller's own
	// requests. The kernel's work for the caller's flows (Moved) counts as the caller's own and is
	// not in Cost; a cost.Tracker must be given both.
	Cost time.Duration
	// Part is the lower estimate of the part of the device's busy time that foreign I/O took in the
	// last seconds, 0 to depth.OthersMax.
	Part float64
	// Bytes are the foreign bytes found since the last call, of reads and of writes.
	Bytes [2]int64
}

const (
	smoothing  = 7.0 / 3 * float64(time.Second) // with one call a second, the new rate enters the average by 0.3
	negligible = 0.03                           // foreign I/O below this part of the device's work is ignored
	workMax    = time.Duration(1 << 61)         // the sum of two does not overflow
)

// Estimate is the state for one device. It is not safe for concurrent use.
type Estimate struct {
	model cost.Model
	scale float64 // 0 if unknown

	begun       bool
	now         time.Duration
	device, own Counters
	moved       [2]float64    // bytes, since the last call of Observe
	work        time.Duration // the caller's own, since the last call of Observe

	directions [2]directionEstimate
	busy       float64 // cost per time of the caller's own requests
	excess     float64 // cost that the bound cut off at the last call; it is carried over because own work is uneven
}

// New returns an estimate for a device with the model's costs.
func New(model cost.Model) *Estimate {
	return &Estimate{model: model, scale: 1, directions: [2]directionEstimate{newDirectionEstimate(), newDirectionEstimate()}}
}

// Correct sets the scale: the cost of requests on the healthy device, divided by the model's cost.
// The bounds by elapsed time use it. It is 1 until the first call. A scale of 0, a negative scale
// or NaN means that the scale is unknown; these bounds then do not apply.
func (e *Estimate) Correct(scale float64) {
	if !(scale > 0) {
		scale = 0
	}
	e.scale = scale
}

// Moved counts bytes that the kernel moved for the caller's flows outside of its requests, for
// example by readahead and writeback. They are the caller's own, at the cost of one random request.
// Bytes that were reported as foreign before are subtracted from later Results.
func (e *Estimate) Moved(write bool, bytes int64) {
	if bytes <= 0 {
		return
	}
	e.moved[index(write)] += float64(bytes)
	e.add(e.model.Of(write, false, bytes))
}

// add adds the cost of work to the caller's own work.
func (e *Estimate) add(work time.Duration) {
	e.work = min(e.work+min(max(work, 0), workMax), workMax)
}

// Observe evaluates the interval since the last call. It should be called about once a second.
// device and own are the counters of the device and of the caller; they must not decrease. flying
// counts the caller's requests in flight. work is the cost of the caller's requests that ended in
// the interval. The first call finds no foreign I/O. If counters have decreased, or increased by
// more than any disk can do, another device has taken the name, and the estimate restarts.
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

// cost returns the upper estimate for an interval.
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

// part returns the lower estimate as a part of the busy time.
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

// below reports whether any counter is smaller than before.
func (c Counters) below(before Counters) bool {
	for i := range 2 {
		if c.Bytes[i] < before.Bytes[i] || c.Requests[i] < before.Requests[i] {
			return true
		}
	}
	return false
}

// leapt reports whether bytes have increased by more than any disk can move in the elapsed time.
func (c Counters) leapt(before Counters, elapsed time.Duration) bool {
	most := float64(elapsed) / float64(cost.PerMiBMin) * (1 << 20)
	return difference(c.Bytes[0], before.Bytes[0]) > most || difference(c.Bytes[1], before.Bytes[1]) > most
}

// difference returns a-b as a float, because counters may have any value.
func difference(a, b int64) float64 { return float64(a) - float64(b) }

func index(write bool) int {
	if write {
		return 1
	}
	return 0
}
