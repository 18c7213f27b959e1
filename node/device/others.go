package device

import (
	"time"

	"penstock/core/cost"
)

// Counters are what a device has done for everybody, reads and writes, since any
// moment in the past.
type Counters struct{ Requests, Bytes [2]int64 }

func (c *Counters) add(write bool, bytes int64) {
	c.Requests[direction(write)]++
	c.Bytes[direction(write)] += bytes
}

// others estimates what a device does for others than the loop, so that their
// load is not taken for slowness.
//
// The device counts a request when it ends and the loop a quantum when all of
// it has: what the device is ahead of the loop's account by is others' only as far
// as it is more than the loop has in flight, and what is left waits for the next
// second. Nothing is made of a difference of a few percent, such as the file system's own writes. A quantum becomes several
// requests, how many is not known; partBytes is a usual size, and there are
// never more requests of others than pages.
type others struct {
	begun     bool
	last, own Counters
	ahead     [2]float64 // bytes that the device is ahead of the loop's account
	asked     [2]float64 // requests, likewise
	bytes     [2]float64 // of others, smoothed, a second's
	requests  [2]float64
	device    [2]float64
	work      float64 // the loop's own, ns of the model, smoothed alike
}

const (
	othersGain = 0.3
	othersLess = 0.03 // of the device's bytes: not worth a cost
	partBytes  = 512 << 10
)

// cost is what the device did for others in the last second, and which part that
// is of all that it did, 0..1. Own is what the loop has had it do, flying what it
// is doing for the loop, and work the model's cost of the former in that second.
func (o *others) cost(m cost.Model, device, own, flying Counters, work time.Duration) (sum time.Duration, part float64) {
	last, lastOwn := o.last, o.own
	o.last, o.own = device, own
	o.work += othersGain * (float64(work) - o.work)
	if !o.begun {
		o.begun = true
		return 0, 0
	}
	for i := range 2 {
		bytes := float64(device.Bytes[i] - last.Bytes[i])
		mine := float64(own.Bytes[i] - lastOwn.Bytes[i])
		if bytes < 0 {
			return 0, 0 // another device under the same name
		}
		requests := float64(device.Requests[i]-last.Requests[i]) - max(mine/partBytes, float64(own.Requests[i]-lastOwn.Requests[i]))
		o.bytes[i] += othersGain * (beyond(&o.ahead[i], bytes-mine, float64(flying.Bytes[i])) - o.bytes[i])
		parts := max(float64(flying.Bytes[i])/partBytes, float64(flying.Requests[i]))
		o.requests[i] += othersGain * (beyond(&o.asked[i], requests, parts) - o.requests[i])
		o.device[i] += othersGain * (bytes - o.device[i])
		if o.bytes[i] <= othersLess*(o.device[0]+o.device[1]) {
			continue
		}
		n := int64(min(max(o.requests[i], 1), o.bytes[i]/pageBytes+1))
		sum += m.Of(i == 1, false, int64(o.bytes[i])) + time.Duration(n-1)*m.Of(i == 1, false, 0)
	}
	sum = min(sum, cost.Max)
	if sum > 0 {
		part = float64(sum) / (float64(sum) + max(o.work, 0))
	}
	return sum, part
}

// beyond adds more to what the device is ahead by, and takes off what is beyond what is
// in flight.
func beyond(ahead *float64, more, flying float64) float64 {
	*ahead += more
	others := max(0, *ahead-flying)
	*ahead = max(0, *ahead-others)
	return others
}
