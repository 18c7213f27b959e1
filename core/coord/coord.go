// Package coord shares out what all devices of a cluster give: an application is due its
// part of the total, not of each device (IBIS, section 5).
//
// Tasks and replicas lie unevenly. Two applications of one weight, one with data on all
// nodes and one with data on a few, get equal parts of those few and unequal parts of the
// whole. What is wanted is the weighted max-min division: no application's total can be
// raised but by taking from one that has no more for its weight. It is reached when on
// every device all applications that are served there have one level, total by weight,
// and those that are not served have a higher one.
//
// IBIS follows DSFQ: a request's start tag is put back by the cost of what other nodes have
// served its flow since its previous request. Tags so add up whole totals, and over tens of
// seconds the totals are right. But a node learns of the others once a period, and every node
// then makes up for the whole difference: with n nodes it is made up for up to n times, and
// from second to second the shares swing (TestSwingsOfDelays in package sim has figures). Here
// every device makes up for its part of a difference: what it gives, of what all devices give
// that serve the application and could serve it more. The parts add up to one correction. Each
// is held against the device's own service as it was in the very totals that it answers, so
// messages that are late make the division slow but not wrong. The outcome is weights for the
// device's scheduler, which hold until the next exchange; what a flow does not use, others get
// at once, from the scheduler.
//
// Rates are exchanged, not sums since the beginning: a node or a broker that starts again
// has nothing to remember, one that lies has nothing to lie about but the last period, and
// a flow that returns from a long stay elsewhere has no debt. On each device a flow keeps a
// least part, so nobody starves for what it gets elsewhere.
//
// Where applications are in queues, all this is done at every level: a queue's total is held
// against its siblings', and what it has on a device is divided among its members (tree.go).
//
// The package is pure, as all of core/ is. Rates are in device time: seconds of service a
// second, over all devices.
package coord

import (
	"errors"
	"fmt"
	"slices"
)

// LeastPart is what a flow keeps of its local share on a device, however much its
// application gets elsewhere: it must be seen to want more, and be served now and then. More
// weighs in the total: on 1,500 simulated nodes 0.003, 0.01 and 0.03 left 0.6, 0.7 and 1.2 %
// of the service misplaced. Less gains little, and on a slow disk a flow's turn then comes
// later than a stream may wait.
const LeastPart = 0.01

// nothing is a rate that no clock shows, a thousandth of a nanosecond a second: in less, only
// what is left of rounding would be divided.
const epsilon = 1e-12

// Claim is one member's claim to what its queue has on a device, as of the last totals; of the root that
// is what the device gives.
type Claim struct {
	Weight float64 // in the queue, above 0
	Own    float64 // rate of service here, as it went into Total
	Total  float64 // rate of service on all devices
	// Room is the sum of what the devices give, all flows together, that have more to do
	// for the application than they get done: this one's part of a correction is what it
	// gives by Room. It is forced to at least what this device gives.
	Room float64
	// Wants says that something of the application waited here. Another one gets what it
	// asks for and has no part in the division.
	Wants bool
}

// ErrClaim is returned for a claim that is no number, is negative or weighs nothing.
var ErrClaim = errors.New("coord: a claim needs a weight above 0 and rates of 0 or more")

// Divide returns what each claim is due of the device's service, as parts that only their
// ratios count of. Each is above 0. parts is used again if it is large enough. Errors:
// ErrClaim, and then nobody's part has changed.
func Divide(parts []float64, claims []Claim) ([]float64, error) {
	return divide(parts, claims, LeastPart)
}

// divide divides as Divide, with another least part of the local share, up to 1.
func divide(parts []float64, claims []Claim, least float64) ([]float64, error) {
	gives, weights := 0.0, 0.0
	for i, c := range claims {
		if !(c.Weight > 0 && c.Own >= 0 && c.Total >= 0 && c.Room >= 0) || c.Weight+c.Own+c.Total+c.Room > 1e300 {
			return parts, fmt.Errorf("claim %d, %+v: %w", i, c, ErrClaim)
		}
		if c.Wants {
			gives += c.Own
			weights += c.Weight
		}
	}
	parts = slices.Grow(parts[:0], len(claims))[:len(claims)]
	if gives < epsilon {
		// Nobody was served, or all were in full: the weights as they are.
		for i, c := range claims {
			parts[i] = c.Weight
		}
		return parts, nil
	}
	level, sum := targetLevel(claims, gives, weights, least), 0.0
	for i, c := range claims {
		low := localShare(c, least*gives, weights)
		if !c.Wants {
			// What it would be due if it began to want more now.
			c.Room += gives
			low = max(c.Own, localShare(c, least*gives, weights+c.Weight))
		}
		parts[i] = max(low, c.Own+correctionPart(c, gives)*(c.Weight*level-c.Total))
		if c.Wants {
			sum += parts[i]
		}
	}
	// They add up but for rounding, which is large where a total is, against what is given here.
	for i := range parts {
		parts[i] *= gives / sum
	}
	return parts, nil
}

// level finds the total by weight that the device brings its flows nearer to, such that
// their parts add up to what it gives. A flow gets more than the least from that level on
// where its correction reaches so far; from there its part grows with the level.
func targetLevel(claims []Claim, gives, weights, least float64) float64 {
	type rise struct{ from, slope float64 }
	var rises []rise
	need := gives
	for _, c := range claims {
		if !c.Wants {
			continue
		}
		low, g := localShare(c, least*gives, weights), correctionPart(c, gives)
		rises = append(rises, rise{from: (c.Total - (c.Own-low)/g) / c.Weight, slope: g * c.Weight})
		need -= low
	}
	slices.SortFunc(rises, func(a, b rise) int {
		switch {
		case a.from < b.from:
			return -1
		case a.from > b.from:
			return 1
		}
		return 0
	})
	at, slope := rises[0].from, 0.0
	for i, r := range rises {
		slope += r.slope
		at = r.from
		if i+1 == len(rises) || need <= slope*(rises[i+1].from-at) {
			break
		}
		need -= slope * (rises[i+1].from - at)
	}
	return at + need/slope
}

func correctionPart(c Claim, gives float64) float64 { return gives / max(c.Room, gives) }

// local is the claim's share by weight of what the device gives.
func localShare(c Claim, gives, weights float64) float64 { return gives * c.Weight / weights }
