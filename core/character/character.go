// Package character describes what an application uses of its machines: averages and peaks of CPU,
// memory, disk and network, its phases, its class, and which applications go well side by side.
//
// Problem: "Understanding and Minimizing Disk Contention Effects" (section III, Table II and Figure 1)
// calls applications disk-, CPU- or memory-intensive by looking at plots, and suggests to run those
// side by side whose use of resources matches. An operator needs the same from figures, with rules
// that anybody can check. Choice: every use is a part of what the machines have, so that resources
// can be compared, and every rule is a threshold on a mean:
//
//   - An application is intensive in a resource if it uses, over its run, at least Thresholds of the
//     capacity of the nodes on which it ran. Means come from counters at the two ends of the run, so
//     the class does not depend on how often the counters were read.
//   - Its phases are the division of the run that minimises the squared distance to the phases' means
//     plus a penalty for each phase (optimal partitioning: Jackson and others, "An algorithm for optimal
//     partitioning of data on an interval", 2005).
//   - Two applications side by side are slowed down by the most contended resource (Pair).
package character

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Resource is a resource of a machine.
type Resource int

const (
	CPU Resource = iota
	Memory
	Disk
	Network
	Resources // their number
)

var names = [Resources]string{"CPU", "memory", "disk", "network"}

func (r Resource) String() string {
	if r < 0 || r >= Resources {
		return "unknown"
	}
	return names[r]
}

// Machine is what a node has. 0 stands for a capacity that is not known; the use of it is then 0.
type Machine struct {
	Cores   int
	Memory  int64 // bytes
	Disks   int   // devices whose time is counted
	Network int64 // bytes per second in one direction
}

// Sample is what an application had used on one node since the profile began. All but Memory are
// counters.
type Sample struct {
	At            time.Duration // since the profile began
	CPU           time.Duration // CPU time
	Memory        int64         // bytes, resident at that time
	Read, Written int64         // bytes of the disks
	Disk          time.Duration // device time
	Network       int64         // bytes sent and received
}

// Node is one node's part of a profile. Samples are in order of time, and counters do not decrease.
type Node struct {
	Name    string
	Machine Machine
	Samples []Sample
}

// Use has a figure for each resource: a part of the machines' capacity, 0 to 1, or a little more where
// the kernel's and the scheduler's figures are not exact.
type Use [Resources]float64

// Amount has absolute figures over all nodes: means over a time.
type Amount struct {
	Cores         float64 // CPU seconds per second
	Memory        float64 // bytes
	Read, Written float64 // bytes of the disks per second
	Disk          float64 // device seconds per second
	Network       float64 // bytes per second
}

// Phase is a part of the run with steady use.
type Phase struct {
	From, To  time.Duration
	Use       Use // mean
	Amount    Amount
	Intensive []Resource
}

// Point is the use in one step of the grid.
type Point struct {
	From, To time.Duration
	Use      Use
}

// Profile describes an application.
type Profile struct {
	From, To  time.Duration // from its first to its last use of CPU, disk or network
	Nodes     int           // on which it used something
	Capacity  Machine       // of these nodes together
	Mean      Use
	Peak      Use // the highest mean of a step of the grid
	Amount    Amount
	Total     Sample // what it used in all; Memory is the highest mean of a step
	Phases    []Phase
	Intensive []Resource // over the whole run
	Points    []Point
}

// Thresholds are the parts of capacity from which an application is intensive in a resource. Above 0.
type Thresholds Use

// DefaultThresholds are chosen so that a job that alone keeps half of a resource busy counts: a second
// one like it would fill the resource.
var DefaultThresholds = Thresholds{CPU: 0.5, Memory: 0.5, Disk: 0.5, Network: 0.5}

const (
	// Step is the length of a step of the grid, in which points, peaks and phases are computed: several
	// readings of the processes' figures by the daemon. A run has at most mostPoints steps; those of a
	// long run are multiples of Step.
	Step       = 5 * time.Second
	mostPoints = 600
)

// at returns what the samples say of a moment, between two of them by linear interpolation.
func at(all []Sample, t time.Duration) Sample {
	i, _ := slices.BinarySearchFunc(all, t, func(s Sample, t time.Duration) int { return cmp.Compare(s.At, t) })
	switch {
	case len(all) == 0:
		return Sample{}
	case i == 0:
		return all[0]
	case i == len(all):
		return all[i-1]
	}
	a, b := all[i-1], all[i]
	part := float64(t-a.At) / float64(b.At-a.At)
	between := func(x, y int64) int64 { return x + int64(math.Round(part*float64(y-x))) }
	return Sample{t, time.Duration(between(int64(a.CPU), int64(b.CPU))), between(a.Memory, b.Memory), between(a.Read, b.Read),
		between(a.Written, b.Written), time.Duration(between(int64(a.Disk), int64(b.Disk))), between(a.Network, b.Network)}
}

// same reports whether two samples have the same counters.
func same(a, b Sample) bool {
	return a.CPU == b.CPU && a.Read == b.Read && a.Written == b.Written && a.Disk == b.Disk && a.Network == b.Network
}

// run returns the time from the first to the last use of a counter on one node. ok is false if there
// was none.
func run(all []Sample) (from, to time.Duration, ok bool) {
	if len(all) == 0 || same(all[0], all[len(all)-1]) {
		return 0, 0, false
	}
	first := slices.IndexFunc(all, func(s Sample) bool { return !same(s, all[0]) })
	last := slices.IndexFunc(all, func(s Sample) bool { return same(s, all[len(all)-1]) })
	return all[first-1].At, all[last].At, true
}

// memory returns the mean memory between two moments of one node.
func memory(all []Sample, from, to time.Duration) float64 {
	if to <= from {
		return 0
	}
	area, last := 0.0, at(all, from)
	add := func(s Sample) {
		area += float64(s.At-last.At) * (float64(s.Memory) + float64(last.Memory)) / 2
		last = s
	}
	last.At = from
	for _, s := range all {
		if s.At > from && s.At < to {
			add(s)
		}
	}
	end := at(all, to)
	end.At = to
	add(end)
	return area / float64(to-from)
}

// New returns the profile of an application. It returns an error if the samples show no use.
func New(nodes []Node, thresholds Thresholds) (*Profile, error) {
	p := &Profile{}
	var used []Node
	for _, n := range nodes {
		from, to, ok := run(n.Samples)
		if !ok {
			continue
		}
		if len(used) == 0 {
			p.From, p.To = from, to
		}
		used = append(used, n)
		p.From, p.To = min(p.From, from), max(p.To, to)
		c := &p.Capacity
		c.Cores, c.Memory, c.Disks, c.Network = c.Cores+n.Machine.Cores, c.Memory+n.Machine.Memory, c.Disks+n.Machine.Disks, c.Network+n.Machine.Network
	}
	if p.Nodes = len(used); p.Nodes == 0 || p.To <= p.From {
		return nil, fmt.Errorf("the application has used nothing on %d nodes: profile it while it runs, and name the nodes on which it runs", len(nodes))
	}
	p.Amount, p.Total = amount(used, p.From, p.To)
	p.Mean = p.Capacity.parts(p.Amount)
	p.Intensive = thresholds.intensive(p.Mean)
	step := Step
	for (p.To-p.From)/step >= mostPoints {
		step += Step
	}
	for from := p.From; from < p.To; from += step {
		to := min(from+step, p.To)
		if p.To-to < step/2 {
			to = p.To // no short step at the end
		}
		mean, _ := amount(used, from, to)
		use := p.Capacity.parts(mean)
		p.Points = append(p.Points, Point{from, to, use})
		p.Total.Memory = max(p.Total.Memory, int64(mean.Memory))
		for r := range use {
			p.Peak[r] = max(p.Peak[r], use[r])
		}
		if to == p.To {
			break
		}
	}
	for _, cut := range divide(p.Points) {
		from, to := p.Points[cut[0]].From, p.Points[cut[1]-1].To
		mean, _ := amount(used, from, to)
		use := p.Capacity.parts(mean)
		p.Phases = append(p.Phases, Phase{from, to, use, mean, thresholds.intensive(use)})
	}
	return p, nil
}

// amount returns the means of a time over all nodes, and the sums.
func amount(nodes []Node, from, to time.Duration) (mean Amount, total Sample) {
	seconds := (to - from).Seconds()
	for _, n := range nodes {
		a, b := at(n.Samples, from), at(n.Samples, to)
		total.CPU, total.Disk = total.CPU+b.CPU-a.CPU, total.Disk+b.Disk-a.Disk
		total.Read, total.Written, total.Network = total.Read+b.Read-a.Read, total.Written+b.Written-a.Written, total.Network+b.Network-a.Network
		mean.Memory += memory(n.Samples, from, to)
	}
	mean.Cores, mean.Disk = total.CPU.Seconds()/seconds, total.Disk.Seconds()/seconds
	mean.Read, mean.Written, mean.Network = float64(total.Read)/seconds, float64(total.Written)/seconds, float64(total.Network)/seconds
	return mean, total
}

// parts returns amounts as parts of a capacity.
func (m Machine) parts(a Amount) Use {
	part := func(x, capacity float64) float64 {
		if capacity <= 0 {
			return 0
		}
		return x / capacity
	}
	return Use{CPU: part(a.Cores, float64(m.Cores)), Memory: part(a.Memory, float64(m.Memory)),
		Disk: part(a.Disk, float64(m.Disks)), Network: part(a.Network, float64(m.Network))}
}

func (t Thresholds) intensive(u Use) (all []Resource) {
	for r := range Resources {
		if u[r] >= t[r] {
			all = append(all, r)
		}
	}
	return all
}

// Class returns the name of a class, such as "disk/memory-intensive" as in the paper's Table II, or
// "not intensive".
func Class(intensive []Resource) string {
	if len(intensive) == 0 {
		return "not intensive"
	}
	var all []string
	for _, r := range intensive {
		all = append(all, r.String())
	}
	return strings.Join(all, "/") + "-intensive"
}
