package policy

import (
	"penstock/core/limit"
	"penstock/core/reserve"
)

// Bandwidth is the use that a rule makes of a resource (IBIS, section 6). An application requests MB/s from its
// cluster manager, like CPU and memory, and is admitted only if they are available in the cluster. As a weight,
// the allocated amount divides a device among admitted applications in the promised ratio, and unused service goes to the
// others. As a rate, it is guaranteed to the application over the whole cluster.
type Bandwidth uint8

const (
	BandwidthUnused  Bandwidth = iota
	BandwidthWeight            // the allocated MB/s are the application's weight
	BandwidthReserve           // the allocated MB/s are the application's Total.Reserve
)

// megabyte is the number of bytes of the cluster manager's unit.
const megabyte = 1_000_000

// bandwidthWeight returns the weight for an application's allocated bandwidth. If the rule does not
// use bandwidth as a weight or none is allocated, ok is false and the rule's weight applies.
func (r *Rule) bandwidthWeight(f Facts) (weight int, ok bool) {
	if r.Bandwidth != BandwidthWeight || f.Bandwidth <= 0 {
		return 0, false
	}
	return int(min(f.Bandwidth, MaxWeight)), true
}

// total returns the rates of a whole application.
func (r *Rule) total(f Facts) Total {
	t := r.Total
	if r.Bandwidth == BandwidthReserve && f.Bandwidth > 0 {
		t.Reserve = max(min(f.Bandwidth, limit.MaxRate/megabyte)*megabyte, MinTotal)
		if t.Limit > 0 {
			t.Reserve = min(t.Reserve, t.Limit)
		}
	}
	return t
}

func (r *Rule) validateBandwidth(add func(field, format string, args ...any)) {
	if r.Bandwidth == BandwidthWeight && r.MaxWeight > 0 {
		add("max_weight", "bandwidth and max_weight: the weight comes from the allocated bandwidth or from a tag, not from both")
	}
	if r.Bandwidth == BandwidthWeight && r.Group != "" {
		add("group", "bandwidth and group: a group shares its rule's weight evenly")
	}
	if r.Bandwidth == BandwidthReserve {
		switch {
		case r.Total.Reserve > 0:
			add("total_reserve", "bandwidth: reserve and total_reserve: the rate comes from the allocated bandwidth or from the rule, not from both")
		case r.Reserve != (reserve.Rate{}):
			add("reserve", "reserve and bandwidth: reserve: guarantee a rate of each device or of the whole cluster, not both")
		}
	}
}
