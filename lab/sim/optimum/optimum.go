// Package optimum computes the division that an ideal scheduler would reach: the weighted max-min
// division of the devices' service among applications that can use only some of the devices. The
// simulator and the experiments on real clusters judge shares by it. It is independent of package
// coord: coord corrects shares step by step on each device, and this package computes the division
// of all devices at once.
//
// An application's level is its total divided by its weight. The computation looks for the highest
// level that all applications can reach together, which is the highest level for which a flow from
// the applications to the devices exists (Dinic's algorithm). It begins with a level that is too
// high. For such a level, the minimum cut shows which applications are short, and the level that
// their devices can serve is tried next (Dinkelbach's iteration). At the level that is found, the
// applications that cannot get more are fixed, and the others are raised further in the same way
// (Megiddo 1974, lexicographically optimal flows).
package optimum

import (
	"fmt"
	"math"
	"slices"
)

// Seeker is an application that seeks service.
type Seeker struct {
	Weight float64 // above 0
	// Demand is the most service that the application can use in total; 0: no limit.
	Demand  float64
	Devices []int // devices that the application can use
}

const (
	eps = 1e-9
	inf = math.MaxFloat64
)

// Totals returns each seeker's total service from all devices. It returns an error for a weight
// that is not above 0, a negative capacity or demand, and an unknown device.
func Totals(seekers []Seeker, capacity []float64) ([]float64, error) {
	for d, c := range capacity {
		if !(c >= 0) {
			return nil, fmt.Errorf("optimum: device %d gives %v", d, c)
		}
	}
	for i, s := range seekers {
		if !(s.Weight > 0) || !(s.Demand >= 0) {
			return nil, fmt.Errorf("optimum: seeker %d has weight %v and demand %v", i, s.Weight, s.Demand)
		}
		for _, d := range s.Devices {
			if d < 0 || d >= len(capacity) {
				return nil, fmt.Errorf("optimum: seeker %d names device %d of %d", i, d, len(capacity))
			}
		}
	}
	n := newNetwork(seekers, capacity)
	total := make([]float64, len(seekers))
	frozen := make([]bool, len(seekers))
	for i, s := range seekers {
		frozen[i] = len(s.Devices) == 0
	}
	for slices.Contains(frozen, false) {
		// No level is higher than the service of all devices divided by the smallest weight.
		level := 0.0
		for _, c := range capacity {
			level += c
		}
		least := inf
		for i, s := range seekers {
			if !frozen[i] {
				least = min(least, s.Weight)
			}
		}
		level = level/least + 1
		var short []bool
		for {
			for i, s := range seekers {
				n.want(i, target(s, frozen[i], total[i], level))
			}
			n.augment()
			var all bool
			if short, all = n.short(); all {
				break
			}
			next := raise(seekers, frozen, total, short, n.give(short))
			if !(next < level) {
				break // levels are equal up to rounding
			}
			level = next
		}
		stuck := n.stuck()
		some := false
		for i, s := range seekers {
			if frozen[i] {
				continue
			}
			total[i] = target(s, false, 0, level)
			if stuck[i] || s.Demand > 0 && total[i] >= s.Demand*(1-eps) {
				frozen[i], some = true, true
			}
		}
		if !some { // rounding: every seeker could be raised only in the last digits
			for i := range frozen {
				frozen[i] = true
			}
		}
	}
	return total, nil
}

func target(s Seeker, frozen bool, total, level float64) float64 {
	if frozen {
		return total
	}
	if t := s.Weight * level; s.Demand == 0 || t < s.Demand {
		return t
	}
	return s.Demand
}

// raise returns the level at which the total demand of the seekers that are short equals give, the
// amount that their devices can serve.
func raise(seekers []Seeker, frozen []bool, total []float64, short []bool, give float64) float64 {
	type bound struct{ at, weight, demand float64 }
	var bounds []bound
	weight := 0.0
	for i, s := range seekers {
		switch {
		case !short[i]:
		case frozen[i]:
			give -= total[i]
		default:
			weight += s.Weight
			at := inf
			if s.Demand > 0 {
				at = s.Demand / s.Weight
			}
			bounds = append(bounds, bound{at, s.Weight, s.Demand})
		}
	}
	slices.SortFunc(bounds, func(a, b bound) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	for _, b := range bounds {
		if weight*b.at >= give || weight <= 0 {
			break
		}
		give -= b.demand
		weight -= b.weight
	}
	if weight <= 0 {
		return inf
	}
	return max(0, give/weight)
}

// network is the flow network. Node 0 is the source and node 1 the sink; the seekers' nodes follow,
// then the devices' nodes.
type network struct {
	head   []int // node -> first edge, or -1
	edges  []edge
	seeker []int // edge from the source, by seeker
	first  int   // node of device 0
	level  []int
	at     []int
	queue  []int
}

type edge struct {
	to, next int
	free     float64 // remaining capacity; edge i^1 is the reverse of edge i
}

func newNetwork(seekers []Seeker, capacity []float64) *network {
	n := &network{first: 2 + len(seekers)}
	nodes := n.first + len(capacity)
	n.head = make([]int, nodes)
	for i := range n.head {
		n.head[i] = -1
	}
	n.level, n.at = make([]int, nodes), make([]int, nodes)
	for i, s := range seekers {
		n.seeker = append(n.seeker, n.link(0, 2+i, 0))
		for _, d := range s.Devices {
			n.link(2+i, n.first+d, inf)
		}
	}
	for d, c := range capacity {
		n.link(n.first+d, 1, c)
	}
	return n
}

func (n *network) link(from, to int, free float64) int {
	at := len(n.edges)
	n.edges = append(n.edges, edge{to, n.head[from], free}, edge{from, n.head[to], 0})
	n.head[from], n.head[to] = at, at+1
	return at
}

// want sets a seeker's demand. It removes existing flow above the demand.
func (n *network) want(seeker int, much float64) {
	e := n.seeker[seeker]
	flows := n.edges[e^1].free
	if over := flows - much; over > 0 {
		n.back(2+seeker, over)
		n.edges[e].free, n.edges[e^1].free = 0, much
		return
	}
	n.edges[e].free = much - flows
}

// back removes an amount of flow from a seeker to its devices.
func (n *network) back(node int, over float64) {
	for e := n.head[node]; e >= 0 && over > 0; e = n.edges[e].next {
		if n.edges[e].to < n.first {
			continue
		}
		take := min(over, n.edges[e^1].free)
		if take <= 0 {
			continue
		}
		n.edges[e^1].free -= take
		for s := n.head[n.edges[e].to]; s >= 0; s = n.edges[s].next {
			if n.edges[s].to == 1 {
				n.edges[s].free += take
				n.edges[s^1].free -= take
			}
		}
		over -= take
	}
}

// augment raises the flow to its maximum.
func (n *network) augment() {
	for n.reach(0, func(e int) bool { return n.edges[e].free > eps }) && n.level[1] >= 0 {
		copy(n.at, n.head)
		for n.push(0, inf) > eps {
		}
	}
}

// reach sets the levels of the nodes that are reachable from a node. It always returns true.
func (n *network) reach(from int, open func(e int) bool) bool {
	for i := range n.level {
		n.level[i] = -1
	}
	n.level[from] = 0
	n.queue = append(n.queue[:0], from)
	for i := 0; i < len(n.queue); i++ {
		node := n.queue[i]
		for e := n.head[node]; e >= 0; e = n.edges[e].next {
			if to := n.edges[e].to; n.level[to] < 0 && open(e) {
				n.level[to] = n.level[node] + 1
				n.queue = append(n.queue, to)
			}
		}
	}
	return true
}

func (n *network) push(node int, much float64) float64 {
	if node == 1 {
		return much
	}
	done := 0.0
	for ; n.at[node] >= 0 && much-done > eps; n.at[node] = n.edges[n.at[node]].next {
		e := n.at[node]
		to := n.edges[e].to
		if n.edges[e].free <= eps || n.level[to] != n.level[node]+1 {
			continue
		}
		d := n.push(to, min(much-done, n.edges[e].free))
		n.edges[e].free -= d
		n.edges[e^1].free += d
		done += d
		if much-done <= eps {
			break
		}
	}
	return done
}

// short returns the seekers on the source's side of the cut, and whether there are none. If there
// are none, all demands are met.
func (n *network) short() (side []bool, none bool) {
	n.reach(0, func(e int) bool { return n.edges[e].free > eps })
	side, none = make([]bool, len(n.seeker)), true
	for i := range side {
		if n.level[2+i] >= 0 {
			side[i], none = true, false
		}
	}
	return side, none
}

// give returns the total service of the devices of the seekers that are short. It must be called
// right after short, because it uses the levels that short has set.
func (n *network) give([]bool) float64 {
	sum := 0.0
	for node := n.first; node < len(n.head); node++ {
		if n.level[node] < 0 {
			continue
		}
		for e := n.head[node]; e >= 0; e = n.edges[e].next {
			if n.edges[e].to == 1 {
				sum += n.edges[e].free + n.edges[e^1].free
			}
		}
	}
	return sum
}

// stuck returns the seekers that cannot get more: they cannot reach a device with free capacity,
// not even by moving the flows of other seekers.
func (n *network) stuck() []bool {
	n.reach(1, func(e int) bool { return n.edges[e^1].free > eps }) // in reverse direction
	stuck := make([]bool, len(n.seeker))
	for i := range stuck {
		stuck[i] = n.level[2+i] < 0
	}
	return stuck
}
