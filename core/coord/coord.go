// Package coord divides the service of all devices of a cluster: an application is entitled to a
// part of the total, not to a part of each device (IBIS, section 5).
//
// Tasks and replicas are spread unevenly. One application may have data on all nodes, and another
// one of equal weight on only a few. Equal parts of each device then give them unequal parts of the
// whole. The goal is the weighted max-min fair division: no application's total can increase unless
// another total decreases that is no larger in proportion to its weight. An application's level is
// its total service divided by its weight. The goal is reached when all applications that a device
// serves have the same level, and all other applications with a backlog there have a higher level.
//
// IBIS uses DSFQ: a request's start tag is delayed by the cost of the service that other nodes have
// given to its flow since its previous request. Tags then account for totals, and totals are right
// over tens of seconds. But nodes learn about each other's service only once a period, and each
// node corrects the whole difference. With n nodes, a difference is corrected up to n times, and
// shares oscillate from second to second (TestSwingsOfDelays in lab/sim has figures).
//
// Here, each device corrects only its part of a difference. This part is the device's own service
// divided by the service of all devices that could give the application more service. The parts add
// up to one correction. A device computes its part from its own service at the time of its report,
// which is also the service that the totals contain. So late messages slow the convergence down but
// do not distort the division. The result is a set of weights for the device's scheduler until the
// next exchange. The scheduler is work-conserving: service that a flow does not use goes to other
// flows at once.
//
// Nodes and broker exchange rates, not sums since the start. So a node or broker that restarts has
// no state to recover, a node can misreport only its last period, and a flow that returns after a
// long absence has no debt. Every flow keeps a minimum part of each device (LeastPart), so no flow
// starves because of its service elsewhere.
//
// If applications are in queues, the division is done at every level: a queue's total is compared
// with the totals of its siblings, and its service on a device is divided among its members
// (tree.go).
//
// The package is pure, like all of core. Rates are in seconds of device time per second, over all
// devices.
package coord

import (
	"errors"
	"fmt"
	"slices"
)

// LeastPart is the part of its local share that a flow keeps on a device, whatever service its
// application gets elsewhere. So the flow's demand stays visible, and the flow is served now and
// then. A larger value distorts the totals: on 1,500 simulated nodes, 0.003, 0.01 and 0.03
// misallocated 0.6, 0.7 and 1.2 % of the service. A smaller value gains little, and on a slow disk
// a flow would wait longer for its turn than a stream can wait.
const LeastPart = 0.01

// epsilon is a rate below the resolution of any clock, a thousandth of a nanosecond per second.
// Anything smaller is a rounding error.
const epsilon = 1e-12

// Claim is the state of one member of a queue on a device, as of the last totals. The service of
// the root is the device's whole service.
type Claim struct {
	Weight float64 // in its queue, above 0
	Own    float64 // rate of service here, as included in Total
	Total  float64 // rate of service on all devices
	// Room is the total rate of service, for all flows, of the devices where the application has a
	// backlog. The device corrects a part of each difference: its own service divided by Room. If
	// Room is below the device's own service, the device's own service is used instead.
	Room float64
	// Wants is set if the application had a backlog here. An application without a backlog gets all
	// the service that it requests, and takes no part in the division.
	Wants bool
}

// ErrClaim is returned for a claim with a weight of 0 or less, or with negative or NaN rates.
var ErrClaim = errors.New("coord: a claim needs a weight above 0 and rates of 0 or more")

// Divide returns the part of the device's service that each claim is entitled to. All parts are
// above 0, and only their ratios matter. The slice parts is reused if it is large enough. If Divide
// returns ErrClaim, no part has changed.
func Divide(parts []float64, claims []Claim) ([]float64, error) {
	return divide(parts, claims, LeastPart)
}

// divide is Divide with least, up to 1, as the minimum part of the local share.
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
		// No member was served, or all demand was met: keep the ratio of the weights.
		for i, c := range claims {
			parts[i] = c.Weight
		}
		return parts, nil
	}
	level, sum := targetLevel(claims, gives, weights, least), 0.0
	for i, c := range claims {
		low := localShare(c, least*gives, weights)
		if !c.Wants {
			// The part applies if the member becomes backlogged before the next exchange.
			c.Room += gives
			low = max(c.Own, localShare(c, least*gives, weights+c.Weight))
		}
		parts[i] = max(low, c.Own+correctionPart(c, gives)*(c.Weight*level-c.Total))
		if c.Wants {
			sum += parts[i]
		}
	}
	// The parts add up to gives, except for rounding errors. These are large if a total is large
	// compared with the service here.
	for i := range parts {
		parts[i] *= gives / sum
	}
	return parts, nil
}

// targetLevel returns the level, total service divided by weight, toward which the device moves its
// flows. At this level, the flows' parts add up to the device's service. A flow gets its minimum
// part up to some level; above that level, its part grows linearly.
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

// localShare returns the claim's share of the device's service, in proportion to its weight.
func localShare(c Claim, gives, weights float64) float64 { return gives * c.Weight / weights }
