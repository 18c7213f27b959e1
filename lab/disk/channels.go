package disk

import "slices"

// channels is a solid-state disk on a virtual clock: n channels serve one queue in parallel. A
// request is divided into up to n parts of at least partBytes. In order of arrival, each part goes
// to the channel that is free first. The time of a part is the latency of its operation plus its
// transfer at 1/n of the disk's rate. The request ends when its last part ends.
//
// This gives the known behaviour of flash. Small requests that are submitted one at a time use only
// one channel and reach a fraction of the rate. Throughput grows with the number of requests in
// flight, up to a knee at n requests; beyond the knee only latency grows. A large request keeps all
// channels busy by itself. Small requests never reach the whole rate, because each has a latency.
// Writes take longer than reads and use the same channels, so a read behind a write waits for the
// write. There is no seek, so random access is as fast as sequential access.
//
// Real disks place data on channels by address, so requests collide and the knee is round. Some
// disks let reads overtake writes, collect garbage, or absorb writes in a cache until it is full.
// The model omits all of this, because it would make the figures less exact.
//
// channels has no clock, goroutine or lock. No request overtakes another, so a request's end is
// known when it arrives. A late server costs no throughput as long as requests wait.
type channels struct {
	model Model
	free  []int64 // ns: when each channel will have finished its requests
}

// partBytes is the smallest part of a request that gets its own channel. It is about the size of a
// page over all planes of a flash chip.
const partBytes = 64 << 10

func newChannels(m Model) channels {
	return channels{model: m, free: make([]int64, m.Channels)}
}

// submit passes a request to the disk, and sets the request's end and service. The service is the
// request's fraction of the time of all channels together, so the sum of all services is at most
// the time that passes. Requests must come in order of arrival.
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

// underway contains the requests whose end is known, in order of their ends.
type underway []*request

func (u *underway) add(r *request) {
	i, _ := slices.BinarySearchFunc(*u, r, func(a, b *request) int {
		if a.ended <= b.ended {
			return -1 // the older of two requests with equal ends goes first
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
