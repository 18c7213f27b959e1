package disk

import "slices"

// channels is a solid-state disk on a virtual clock: n channels that serve one queue in parallel. A
// request is cut into up to n parts of at least partBytes; the parts go, in order of arrival, to
// the channel that is free first. A part takes its operation's latency, and its transfer at 1/n of
// the disk's rate. The request ends with its last part.
//
// This results in the known behaviour of flash. One small request at a time uses one channel and
// gets a fraction of the rate; throughput grows with the requests in flight up to a knee at n of
// them, beyond which only latency grows; a large request keeps all channels busy by itself; small
// requests never reach the whole rate, since each has a latency. Writes take longer than reads, and
// as both share the channels, reads behind writes wait as long as these. There is no seek, so
// random is as good as sequential.
//
// Real disks place data on channels by address, so that requests collide and the knee is round; and
// some let reads overtake writes, collect garbage, or absorb writes in a cache until it is full.
// The model leaves this out, because it would make the figures of the model less exact.
//
// It has no clock, goroutine or lock. As no request overtakes another, a request's end is known
// when it arrives; a late server costs no throughput as long as requests wait.
type channels struct {
	model Model
	free  []int64 // ns: when each channel has finished its requests
}

// partBytes is the smallest part of a request that gets its own channel: about the size of a page
// over all planes of a flash chip.
const partBytes = 64 << 10

func newChannels(m Model) channels {
	return channels{model: m, free: make([]int64, m.Channels)}
}

// submit gives the disk a request and sets its end and its service: its part of
// the time of all channels together, so that the service of everything adds up
// to no more than the time that passes. Requests come in order of arrival.
func (c *channels) submit(r *request) {
	n := int64(len(c.free))
	parts := min(max((r.length+partBytes-1)/partBytes, 1), n)
	latency := c.model.ReadLatency
	if r.op == Write {
		latency = c.model.WriteLatency
	}
	took := int64(latency) + n*int64(c.model.transfer(r.op, r.length))/parts
	for range parts {
		first := 0
		for i, free := range c.free {
			if free < c.free[first] {
				first = i
			}
		}
		c.free[first] = max(c.free[first], r.arrived) + took
		r.ended = max(r.ended, c.free[first])
	}
	r.service = parts * took / n
}

// underway contains requests with a known end, the first to end in front.
type underway []*request

func (u *underway) add(r *request) {
	i, _ := slices.BinarySearchFunc(*u, r, func(a, b *request) int {
		if a.ended <= b.ended {
			return -1 // the older of equal requests stays in front
		}
		return 1
	})
	*u = slices.Insert(*u, i, r)
}

// take removes and returns the requests that have ended by now.
func (u *underway) take(now int64) []*request {
	n := 0
	for n < len(*u) && (*u)[n].ended <= now {
		n++
	}
	ended := slices.Clone((*u)[:n])
	*u = slices.Delete(*u, 0, n)
	return ended
}
