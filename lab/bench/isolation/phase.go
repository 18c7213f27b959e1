package isolation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"penstock/lab/blkio"
	"penstock/settings"
)

// KernelSchedulers are the kernel's I/O schedulers of the phases that "native" stands for.
var KernelSchedulers = []string{"mq-deadline", "bfq", "none"}

// depthMax bounds the fixed depth of sfqd-<D> and drr-<D>, capMax the throttler's
// cap in MB/s.
const (
	depthMax = 64
	capMax   = 10_000
)

// fixedDepths are the depths of the phases that "sfqd" stands for: IBIS, Figure 6, compares
// SFQ(D2) with these, from no concurrency to the maximum of its controller.
var fixedDepths = []int{1, 2, 4, 8, 12}

// drrDepth is the depth of "drr". SFQ(D2) settles at the same depth on these disks
// (docs/design/isolation.md): the comparison is of the order of requests, not of their number.
const drrDepth = 2

const (
	nativePrefix    = "native-"
	throttlerPrefix = "throttler-"
	sfqdPrefix      = "sfqd-"
	drrPrefix       = "drr-"
	weightsPrefix   = "cgroup-weights-"
	capsPrefix      = "cgroup-caps-"
	aggressorAlone  = "aggressor-alone"
)

// Phase is one arrangement of the protected job, the aggressor and the disks.
type Phase struct {
	Name        string
	Against     bool   // the aggressor runs
	Unprotected bool   // the protected job does not
	Elsewhere   bool   // the aggressor's data lies on the other modelled disks
	Kernel      string // kernel I/O scheduler of every modelled disk; "" means the setup's
	Cap         int    // of each DataNode's own throttler, MB/s; 0 means none
	GroupWeight int    // of the protected job's cgroup, the aggressor's having 1; 0 means none
	GroupCap    int    // of the aggressor's cgroup on each disk, MB/s read and as many written; 0 means none
	Governed    bool   // penstock node runs
	Unlimited   bool   // the disks' rate is not limited
	Algorithm   string // the daemon's; "" when it does not run
	Depth       int    // fixed depth under Penstock; 0 means none, or SFQ(D2)
}

// Native reports whether the two jobs share disks without any control but the kernel's.
func (p Phase) Native() bool {
	return p.Against && !p.Unprotected && !p.Elsewhere && !p.Governed && p.Cap == 0 && !p.Grouped()
}

// Grouped reports whether the two sides' containers are in cgroups.
func (p Phase) Grouped() bool { return p.GroupWeight > 0 || p.GroupCap > 0 }

// Peer reports whether the daemon's scheduler is one that it is compared with.
func (p Phase) Peer() bool { return p.Algorithm == "drr" }

// Adaptive reports whether SFQ(D2) chooses the depth.
func (p Phase) Adaptive() bool { return p.Algorithm == "sfqd2" }

// ParsePhases returns the phases with the given names, in this order and each once. Some
// names stand for several phases: "native" for all kernel schedulers, "sfqd" for several
// depths, "throttler" for caps that follow from the set-up, and "all" for everything.
func ParsePhases(names []string, s Setup) ([]Phase, error) {
	var phases []Phase
	for _, name := range names {
		more, err := parsePhase(strings.TrimSpace(name), s)
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

const phaseHelp = "all, alone, aggressor-alone, floor, native (native-mq-deadline, native-bfq, native-none), " +
	"throttler (throttler-<MB/s>), cgroup (cgroup-weights-<N>, cgroup-caps-<MB/s>), drr (drr-<depth>), sfqd (sfqd-<depth>), sfqd2 (or penstock)"

func parsePhase(name string, s Setup) ([]Phase, error) {
	switch {
	case name == "all":
		return ParsePhases(s.allPhases(), s)
	case name == "alone":
		return []Phase{{Name: name}}, nil
	case name == aggressorAlone:
		return []Phase{{Name: name, Against: true, Unprotected: true}}, nil
	case name == "floor":
		return []Phase{{Name: name, Against: true, Elsewhere: true}}, nil
	case name == "native":
		return each(KernelSchedulers, native), nil
	case strings.HasPrefix(name, nativePrefix):
		if k := strings.TrimPrefix(name, nativePrefix); slices.Contains(KernelSchedulers, k) {
			return []Phase{native(k)}, nil
		}
	case name == "throttler":
		return each(s.caps(), throttled), nil
	case strings.HasPrefix(name, throttlerPrefix):
		return numbered(name, throttlerPrefix, "cap in MB/s", capMax, throttled)
	case strings.HasPrefix(name, "cgroup"):
		return parseGrouped(name, s)
	case name == "sfqd2" || name == "penstock":
		return []Phase{{Name: "sfqd2", Against: true, Governed: true, Algorithm: "sfqd2"}}, nil
	case name == "sfqd":
		return each(fixedDepths, sfqd), nil
	case strings.HasPrefix(name, sfqdPrefix):
		return numbered(name, sfqdPrefix, "depth", depthMax, sfqd)
	case name == "drr":
		return []Phase{drr(drrDepth)}, nil
	case strings.HasPrefix(name, drrPrefix):
		return numbered(name, drrPrefix, "depth", depthMax, drr)
	}
	return nil, unknownPhase(name)
}

// allPhases are what "all" stands for.
func (s Setup) allPhases() []string {
	all := []string{"alone"}
	if s.Both {
		all = append(all, aggressorAlone)
	}
	all = append(all, "floor", "native", "throttler")
	if s.Intermediate {
		all = append(all, "cgroup")
	}
	return append(all, "drr", "sfqd", "sfqd2")
}

// Weight and cap of the phases that "cgroup" stands for are those of IBIS, section 7.4, where
// the cap of 1 MB/s is on a faster disk.
const (
	groupWeight = 100
	groupCap    = 1
)

func unknownPhase(name string) error {
	names := []string{"all", "alone", aggressorAlone, "floor", "native", "throttler", "cgroup", "cgroup-weights", "cgroup-caps", "drr", "sfqd", "sfqd2", "penstock"}
	for _, k := range KernelSchedulers {
		names = append(names, nativePrefix+k)
	}
	if near := settings.Suggestion(name, names); near != "" {
		return fmt.Errorf("unknown phase %q: did you mean %s?", name, near)
	}
	return fmt.Errorf("unknown phase %q: choose from %s", name, phaseHelp)
}

func parseGrouped(name string, s Setup) ([]Phase, error) {
	if !s.Intermediate {
		return nil, fmt.Errorf("phase %q: cgroups control only the I/O of tasks, which is not on the contested disks: add --intermediate", name)
	}
	switch {
	case name == "cgroup":
		return []Phase{groupWeights(groupWeight), groupCaps(groupCap)}, nil
	case strings.HasPrefix(name, weightsPrefix):
		return numbered(name, weightsPrefix, "weight", blkio.WeightMax, groupWeights)
	case strings.HasPrefix(name, capsPrefix):
		return numbered(name, capsPrefix, "cap in MB/s", capMax, groupCaps)
	}
	return nil, unknownPhase(name)
}

// numbered parses the number behind the prefix of a phase's name.
func numbered(name, prefix, what string, most int, phase func(int) Phase) ([]Phase, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, prefix))
	if err != nil || n < 1 || n > most {
		return nil, fmt.Errorf("phase %q: the %s must be a whole number from 1 to %d", name, what, most)
	}
	return []Phase{phase(n)}, nil
}

func each[T any](values []T, phase func(T) Phase) []Phase {
	var all []Phase
	for _, v := range values {
		all = append(all, phase(v))
	}
	return all
}

func sfqd(depth int) Phase {
	return Phase{Name: sfqdPrefix + strconv.Itoa(depth), Against: true, Governed: true, Algorithm: "sfqd", Depth: depth}
}

func drr(depth int) Phase {
	return Phase{Name: drrPrefix + strconv.Itoa(depth), Against: true, Governed: true, Algorithm: "drr", Depth: depth}
}

func throttled(mbps int) Phase {
	return Phase{Name: throttlerPrefix + strconv.Itoa(mbps), Against: true, Cap: mbps}
}

// groupWeights needs bfq, the only kernel scheduler with weights.
func groupWeights(weight int) Phase {
	return Phase{Name: weightsPrefix + strconv.Itoa(weight), Against: true, Kernel: "bfq", GroupWeight: weight}
}

func groupCaps(mbps int) Phase {
	return Phase{Name: capsPrefix + strconv.Itoa(mbps), Against: true, GroupCap: mbps}
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
