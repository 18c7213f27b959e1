package isolation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// KernelSchedulers are the kernel's I/O schedulers that "native" stands for.
var KernelSchedulers = []string{"mq-deadline", "bfq", "none"}

// Aggressors are the three jobs of IBIS, Figure 3.
var Aggressors = []string{"teragen", "terasort", "teravalidate"}

// DefaultAggressor is the aggressor when none is named; docs/design/contention.md
// compares what the three do to WordCount.
const DefaultAggressor = "teragen"

// depthMax bounds the fixed depth of sfqd-<D>.
const depthMax = 64

const nativePrefix = "native-"

// Phase is one arrangement of the protected job, the aggressor and the disks.
type Phase struct {
	Name      string
	Against   bool   // the aggressor runs beside the protected job
	Elsewhere bool   // the aggressor's data lies on the other modelled disks
	Kernel    string // kernel I/O scheduler of every modelled disk; "" means the setup's
	Depth     int    // fixed depth under Penstock; 0 means none, or SFQ(D2)
	Governed  bool   // penstock node runs
}

// Native says that the two jobs meet on the same disks without Penstock.
func (p Phase) Native() bool { return p.Against && !p.Elsewhere && !p.Governed }

// Adaptive says that SFQ(D2) chooses the depth.
func (p Phase) Adaptive() bool { return p.Governed && p.Depth == 0 }

// ParsePhases turns names from the command line into phases, in the order
// given and each once. "native" stands for one phase per kernel scheduler and
// "penstock" for sfqd2.
func ParsePhases(names []string) ([]Phase, error) {
	var phases []Phase
	for _, name := range names {
		more, err := parsePhase(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		for _, p := range more {
			if !slices.ContainsFunc(phases, func(q Phase) bool { return q.Name == p.Name }) {
				phases = append(phases, p)
			}
		}
	}
	if len(phases) == 0 {
		return nil, fmt.Errorf("no phase named: choose from %s", phaseHelp)
	}
	return phases, nil
}

const phaseHelp = "alone, floor, native (native-mq-deadline, native-bfq, native-none), sfqd2, sfqd-<depth>"

func parsePhase(name string) ([]Phase, error) {
	switch {
	case name == "alone":
		return []Phase{{Name: name}}, nil
	case name == "floor":
		return []Phase{{Name: name, Against: true, Elsewhere: true}}, nil
	case name == "native":
		var all []Phase
		for _, k := range KernelSchedulers {
			all = append(all, native(k))
		}
		return all, nil
	case strings.HasPrefix(name, nativePrefix):
		if k := strings.TrimPrefix(name, nativePrefix); slices.Contains(KernelSchedulers, k) {
			return []Phase{native(k)}, nil
		}
	case name == "sfqd2" || name == "penstock":
		return []Phase{{Name: "sfqd2", Against: true, Governed: true}}, nil
	case strings.HasPrefix(name, "sfqd-"):
		depth, err := strconv.Atoi(strings.TrimPrefix(name, "sfqd-"))
		if err == nil && depth >= 1 && depth <= depthMax {
			return []Phase{{Name: "sfqd-" + strconv.Itoa(depth), Against: true, Governed: true, Depth: depth}}, nil
		}
		return nil, fmt.Errorf("phase %q: the depth must be a whole number from 1 to %d", name, depthMax)
	}
	return nil, fmt.Errorf("unknown phase %q: choose from %s", name, phaseHelp)
}

func native(kernel string) Phase {
	return Phase{Name: nativePrefix + kernel, Against: true, Kernel: kernel}
}

// Turn is one run of one phase.
type Turn struct {
	Phase Phase
	Run   int // from 1
}

// Interleave orders the turns: the first run of every phase, then the second
// of every phase, and so on.
func Interleave(phases []Phase, runs int) []Turn {
	turns := make([]Turn, 0, len(phases)*runs)
	for run := 1; run <= runs; run++ {
		for _, p := range phases {
			turns = append(turns, Turn{Phase: p, Run: run})
		}
	}
	return turns
}
