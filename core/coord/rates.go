package coord

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"penstock/core/limit"
)

// A policy can guarantee a rate, or set a limit, for a whole application: in bytes per second over all
// devices of all nodes. The broker divides the rate among the nodes where the application reads and writes, and
// each node divides its part among its devices. Both use DivideRate.
//
// The division is max-min with lower bounds. A member without demand needs little, but keeps a lower bound, so
// that a task that moves there starts at once; the next exchange corrects the division. What nobody needs is
// divided evenly, because the whole rate must be available if demand grows. A guaranteed rate that is not used
// costs the others nothing.

const (
	// leastRatePart is the part of its even share that a member keeps without demand. What it keeps is missing where
	// the tasks are, for as long as the member is remembered: 30 reports, or 5 minutes at a device. With 0.1, an application
	// whose tasks move every 30 s reached 92 to 94 % of its guaranteed rate (lab/sim, guarantees-hundred).
	leastRatePart = 0.02
	// A member that could have moved more has an open demand if it moved at least usedPart of what it was given.
	// Otherwise something else holds it (a slow device, or other guaranteed rates), and more would be lost
	// there. The demand of such a member, and of one that could not have moved more, is headroom times what it
	// moved: enough to grow from one exchange to the next.
	usedPart = 0.7
	headroom = 1.5
)

// MaxBytesRate is the largest rate in bytes per second that one member can report for an application.
const MaxBytesRate = 1 << 44

// Demand is what one member of a division moved in its last period.
type Demand struct {
	Rate  int64 // bytes per second, 0 to MaxBytesRate
	Given int64 // the member's part in the last division; 0 for a new member
	// Before is the part that was in force while the member moved Rate, if that is not Given: a node has its part only from
	// its next answer on. 0: it is Given. Below 0: none was in force.
	Before int64
	// Hungry is set if the application could have moved more: requests waited for the device or for a limit.
	Hungry bool
}

// need returns the rate that the member can use; open reports whether it could use any rate.
func (d Demand) need() (rate float64, open bool) {
	moved := float64(min(max(d.Rate, 0), MaxBytesRate))
	if d.Hungry && moved >= usedPart*float64(cmp.Or(d.Before, d.Given)) {
		return 0, true
	}
	return headroom * moved, false
}

// steadyPart is the part of an even share by which each part must differ at most for an old division to stay.
// Otherwise the rates of a single second would move all parts in every exchange.
const steadyPart = 0.05

// DivideRate divides a rate of total bytes per second, 0 to limit.MaxRate, among members. The parts add up to
// total, and each is at least leastRatePart of an even share, rounded down. If the last division, in Given, is still
// a division of total and differs little (steadyPart), it stays. The slice parts is reused if it is large
// enough. Without members, nothing is divided.
func DivideRate(parts []int64, total int64, demands []Demand) []int64 {
	return DivideRateWithin(parts, total, demands, nil)
}

// DivideRateWithin divides like DivideRate, but no member has more than its entry in most, in bytes per second. If these
// add up to less than total, only their sum is divided. A nil most bounds nothing.
func DivideRateWithin(parts []int64, total int64, demands []Demand, most []int64) []int64 {
	n := len(demands)
	parts = slices.Grow(parts[:0], n)[:n]
	if n == 0 {
		return parts
	}
	total = min(max(total, 0), limit.MaxRate)
	mostOf := func(i int) int64 {
		if most == nil {
			return total
		}
		return min(max(most[i], 0), total)
	}
	if most != nil {
		sum := int64(0)
		for i := range most {
			sum = min(sum+mostOf(i), total)
		}
		total = sum
	}
	least := int64(leastRatePart * float64(total) / float64(n))
	left := total
	for i := range parts {
		parts[i] = min(least, mostOf(i))
		left -= parts[i]
	}
	// Those with the smallest need beyond the lower bound come first; each takes at most an even part of
	// what is left.
	order := make([]int, n)
	beyond := make([]int64, n) // need beyond the lower bound
	for i, d := range demands {
		order[i] = i
		beyond[i] = mostOf(i) - parts[i]
		if need, open := d.need(); !open {
			beyond[i] = min(max(int64(need)-parts[i], 0), beyond[i])
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(beyond[a], beyond[b]) })
	for k, i := range order {
		take := min(beyond[i], left/int64(n-k))
		parts[i] += take
		left -= take
	}
	if most != nil {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(mostOf(a)-parts[a], mostOf(b)-parts[b]) })
	}
	for k, i := range order { // what nobody needs
		take := left / int64(n-k)
		if most != nil {
			take = min(take, mostOf(i)-parts[i])
		}
		parts[i] += take
		left -= take
	}
	if steady(parts, total, demands) && !slices.ContainsFunc(order, func(i int) bool { return demands[i].Given > mostOf(i) || demands[i].Given < min(least, mostOf(i)) }) {
		for i, d := range demands {
			parts[i] = d.Given
		}
	}
	return parts
}

// steady reports whether the last division can stay.
func steady(parts []int64, total int64, demands []Demand) bool {
	most := int64(steadyPart * float64(total) / float64(len(parts)))
	sum := int64(0)
	for i, d := range demands {
		if d.Given < 0 || d.Given > total || max(parts[i]-d.Given, d.Given-parts[i]) > most {
			return false
		}
		sum += d.Given
	}
	return sum == total
}

// RateLease is the time for which a node keeps its part of a guaranteed total without an answer from the broker.
const RateLease = 30 * time.Second

// ReserveWithoutBroker returns what is left of a node's part of a guaranteed total, in bytes per second, when
// the broker has not answered for a time. The part stays for RateLease, and is then halved each RateLease,
// because the application may have moved to other nodes. Below limit.MinRate it is 0. A part of a total limit
// does not change: a limit that grew by itself would be passed.
func ReserveWithoutBroker(part int64, silence time.Duration) int64 {
	if late := silence - RateLease; late > 0 {
		part >>= min(uint64(late/RateLease)+1, bits.UintSize-1)
	}
	if part < limit.MinRate {
		return 0
	}
	return part
}
