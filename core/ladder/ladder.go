// Package ladder decides which mechanism of the kernel holds the I/O of a process, a container or a
// connection that the agents do not govern.
//
// Problem: several mechanisms can hold the same I/O, and each has gaps. The gate (fanotify
// pre-content events) holds reads and writes of any process, and gives the process a weight, a limit
// and a share of the device. A cgroup of version 2 has limits, also for writeback. A cgroup of
// version 1 does not hold buffered writes: the monitor-and-controller paper uses it, and its
// buffered writer ran at 28.0 MB/s under control and at 28.2 MB/s without. The freezer stops whole
// processes. If two of them held the same bytes, the application would get the smaller of two
// rates, and nobody could say why.
//
// Choice: a ladder, which is an ordered list of mechanisms, its rungs. The first rung that is available
// and can do what the policy asks for holds the I/O, and no other rung does. If an arbiter holds the
// bytes already, no rung does. Each rung that was passed over gives a reason, so that an operator can see
// what a newer kernel or another capability would change.
//
// The package is pure.
package ladder

import (
	"fmt"
	"strings"
)

// Mechanism is a rung of the ladder.
type Mechanism string

// The mechanisms, in the order in which they are tried.
const (
	Gate     Mechanism = "gate"      // fanotify pre-content events, scheduled by the device's arbiter
	CgroupV2 Mechanism = "cgroup v2" // io.max and io.weight
	CgroupV1 Mechanism = "cgroup v1" // blkio.throttle and blkio.bfq.weight
	// GateReads is the gate on kernels before 6.14, which hold reads only (FAN_ACCESS_PERM).
	GateReads Mechanism = "gate (reads)"
	Freezer   Mechanism = "freezer" // stops the processes for a part of the time
	Pacing    Mechanism = "pacing"  // SO_MAX_PACING_RATE
	Shaper    Mechanism = "shaper"  // HTB and IFB
)

var (
	fileRungs       = []Mechanism{Gate, CgroupV2, CgroupV1, GateReads, Freezer}
	connectionRungs = []Mechanism{Pacing, Shaper}
)

// All returns all mechanisms, in the ladder's order: those for files, then those for connections.
func All() []Mechanism { return append(append([]Mechanism{}, fileRungs...), connectionRungs...) }

// IsGate reports whether the mechanism is the gate, for reads and writes or for reads only.
func (m Mechanism) IsGate() bool { return m == Gate || m == GateReads }

// Machine has the mechanisms of a node. A mechanism that is not in it is not available.
type Machine map[Mechanism]Availability

// Availability says whether a mechanism can be used.
type Availability struct {
	OK  bool
	Why string // if the mechanism cannot be used: the reason, and what an operator can do
}

// Hold is what the policy asks for.
type Hold struct {
	Connection bool  // a TCP connection; otherwise file I/O on one device
	Weight     int   // 0: none
	Limit      int64 // bytes per second; 0: none

	// Arbiter is set if a device's arbiter holds the bytes already: then nothing else holds them.
	Arbiter bool
	// Marks is set if the file system supports the gate's marks. Otherwise WhyNot has the reason.
	Marks  bool
	WhyNot string
	// Cgroup is set if the processes have a cgroup that holds no other processes.
	Cgroup bool
	// Service is set if the I/O counts for the flow of a named service. Only the gate can charge it.
	Service bool
	// Writeback is set if limits of the cgroup hold buffered writes, too (cgroup v2 with its memory
	// controller).
	Writeback bool
	// Weights is set if the device can divide its time by the weights of cgroups (BFQ or iocost).
	Weights bool
	// Protected is set if one of the processes must never be stopped, such as a Hadoop daemon or Penstock.
	Protected bool
}

// Step is the decision about one rung.
type Step struct {
	Mechanism Mechanism
	Taken     bool
	Why       string // why the rung was passed over, or what the chosen rung does not do
}

// Choose returns the decisions about the rungs, up to the first rung that is taken. That rung holds the
// I/O. If no rung is taken, nothing holds it.
func Choose(h Hold, m Machine) []Step {
	rungs := fileRungs
	if h.Connection {
		rungs = connectionRungs
	}
	var steps []Step
	for _, r := range rungs {
		s := consider(r, h, m)
		steps = append(steps, s)
		if s.Taken {
			break
		}
	}
	return steps
}

// Taken returns the mechanism that was taken, which is that of the last step; ok is false if none was.
func Taken(steps []Step) (m Mechanism, ok bool) {
	if n := len(steps); n > 0 && steps[n-1].Taken {
		return steps[n-1].Mechanism, true
	}
	return "", false
}

func consider(r Mechanism, h Hold, m Machine) Step {
	pass := func(format string, args ...any) Step { return Step{r, false, fmt.Sprintf(format, args...)} }
	take := func(gap string) Step { return Step{r, true, gap} }
	switch {
	case h.Arbiter:
		return pass("the device's arbiter already holds these bytes")
	case h.Weight == 0 && h.Limit == 0:
		return pass("the policy sets neither a weight nor a limit")
	case !m[r].OK:
		if why := m[r].Why; why != "" {
			return pass("%s", why)
		}
		return pass("this node does not have the mechanism")
	}
	switch r {
	case Gate, GateReads:
		if !h.Marks {
			return pass("%s", h.WhyNot)
		}
		if r == GateReads {
			return take("writes are not held; Linux 6.14 or later holds them, too")
		}
		return take("")
	case Pacing, Shaper:
		if h.Limit == 0 {
			return pass("a connection can have a limit, but no weight")
		}
		return take("")
	}
	if h.Service {
		return pass("only the gate charges files to a service's flow; an entry without service can have a limit for a cgroup")
	}
	if !h.Cgroup {
		return pass("the processes share their cgroup with others; give them a cgroup of their own, for example a systemd unit")
	}
	weightless := h.Weight > 0 && !h.Weights
	switch {
	case r == Freezer && h.Limit == 0:
		return pass("the freezer can apply a limit, but no weight")
	case r == Freezer && h.Protected:
		return pass("one of the processes has an agent or belongs to Penstock, and such a process is never stopped")
	case r == Freezer:
		return take("the processes are stopped for up to 200 ms at a time, even when they do no I/O")
	case weightless && h.Limit == 0:
		return pass("the device ignores weights of cgroups; choose the I/O scheduler bfq, turn on iocost (cgroup v2), or set a limit")
	}
	var gaps []string
	if r == CgroupV1 || !h.Writeback {
		gaps = append(gaps, "buffered writes are not held")
	}
	if weightless {
		gaps = append(gaps, "the weight has no effect (neither bfq nor iocost)")
	}
	return take(strings.Join(gaps, "; "))
}

// Duty returns the part of the time for which processes may run, between least and 1, so that they read
// and write at most limit bytes per second. now is the present duty, and rate is the bytes per second
// that the processes have moved with it. The duty changes by at most a factor of two at a time, because
// the rate of one second says little about the next one.
func Duty(now, rate float64, limit int64, least float64) float64 {
	if rate <= 0 {
		return min(1, 2*now)
	}
	return min(max(least, min(max(now*float64(limit)/rate, now/2), 2*now)), 1)
}
