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

// Largest depth and largest cap in a phase's name.
const (
	depthMax = 64
	capMax   = 10_000 // MB/s
)

// fixedDepths are the depths of the phases that "sfqd" stands for: IBIS, Figure 6, compares
// SFQ(D2) with these, from no concurrency to the maximum of its controller.
var fixedDepths = []int{1, 2, 4, 8, 12}

// drrDepth is the depth of "drr". SFQ(D2) settles at the same depth on these disks
// (docs/design/isolation.md). So the two phases differ in the order of requests, but not in the
// number of requests in flight.
const drrDepth = 2

// The phases that "cgroup" stands for have the weight and the cap of IBIS, section 7.4. The paper's
// cap of 1 MB/s applies to a faster disk.
const (
	groupWeight = 100
	groupCap    = 1
)

const (
	nativePrefix   = "native-"
	aggressorAlone = "aggressor-alone"
)

// family is a group of phases that differ only in the number at the end of their names. SFQ(D2) is
// compared with the best phase of each family.
type family struct {
	prefix string
	number string // meaning of the number
	most   int    // largest number; the smallest is 1
	set    func(p *Phase, n int)
	plain  string // name for a reader who does not know Penstock's terms
	role   string // reason to compare SFQ(D2) with the best of the family
}

var (
	sfqd = family{"sfqd-", "depth", depthMax, func(p *Phase, n int) { p.Governed, p.Algorithm, p.Depth = true, "sfqd", n },
		"SFQ(D), depth %s", "the best fixed depth"}
	throttled = family{"throttler-", "cap in MB/s", capMax, func(p *Phase, n int) { p.Cap = n },
		"DataNode throttler, %s MB/s", "the best cap of the DataNodes' own throttler"}
	// bfq is the only kernel scheduler with weights.
	groupWeights = family{"cgroup-weights-", "weight", blkio.WeightMax, func(p *Phase, n int) { p.Kernel, p.GroupWeight = "bfq", n },
		"cgroup weights, %s:1", "the best weights of cgroups"}
	groupCaps = family{"cgroup-caps-", "cap in MB/s", capMax, func(p *Phase, n int) { p.GroupCap = n },
		"cgroup cap, %s MB/s", "the best cap of cgroups"}
	drr = family{"drr-", "depth", depthMax, func(p *Phase, n int) { p.Governed, p.Algorithm, p.Depth = true, "drr", n },
		"DRR, depth %s", "deficit round robin"}

	families = []family{sfqd, throttled, groupWeights, groupCaps, drr}
)

// has reports whether the phase with this name is in the family.
func (f family) has(phase string) bool { return strings.HasPrefix(phase, f.prefix) }

func (f family) phases(numbers ...int) (all []Phase) {
	for _, n := range numbers {
		p := Phase{Name: f.prefix + strconv.Itoa(n), Against: true}
		f.set(&p, n)
		all = append(all, p)
	}
	return all
}

// parse returns the phase with the given name, which begins with the family's prefix.
func (f family) parse(name string) ([]Phase, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, f.prefix))
	if err != nil || n < 1 || n > f.most {
		return nil, fmt.Errorf("phase %q: the %s must be a whole number from 1 to %d", name, f.number, f.most)
	}
	return f.phases(n), nil
}

// Phase is one arrangement of the protected job, the aggressor and the disks.
type Phase struct {
	Name        string
	Against     bool   // the aggressor runs
	Unprotected bool   // the protected job does not run
	Elsewhere   bool   // the aggressor's data lies on the other modelled disks
	Kernel      string // kernel I/O scheduler of every modelled disk; "" means the setup's
	Cap         int    // of each DataNode's own throttler, MB/s; 0 means none
	GroupWeight int    // weight of the protected job's cgroup, against 1 for the aggressor's; 0 means no cgroups
	GroupCap    int    // of the aggressor's cgroup on each disk, MB/s for reads and the same for writes; 0 means none
	Governed    bool   // penstock node runs
	Unlimited   bool   // the disks' rate is not limited
	Algorithm   string // the daemon's; "" if no daemon runs
	Depth       int    // fixed depth under Penstock; 0: no daemon runs, or SFQ(D2) chooses the depth
}

// Native reports whether the two jobs share disks under the kernel's control alone.
func (p Phase) Native() bool {
	return p.Against && !p.Unprotected && !p.Elsewhere && !p.Governed && p.Cap == 0 && !p.Grouped()
}

// Grouped reports whether the two sides' containers are in cgroups.
func (p Phase) Grouped() bool { return p.GroupWeight > 0 || p.GroupCap > 0 }

// Peer reports whether the daemon runs another scheduler, for comparison with SFQ(D2).
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
	if strings.HasPrefix(name, "cgroup") && !s.Intermediate {
		return nil, fmt.Errorf("phase %q: cgroups control only the I/O of tasks, which is not on the contested disks: add --intermediate", name)
	}
	switch name {
	case "all":
		return ParsePhases(s.allPhases(), s)
	case "alone":
		return []Phase{{Name: name}}, nil
	case aggressorAlone:
		return []Phase{{Name: name, Against: true, Unprotected: true}}, nil
	case "floor":
		return []Phase{{Name: name, Against: true, Elsewhere: true}}, nil
	case "native":
		var all []Phase
		for _, kernel := range KernelSchedulers {
			all = append(all, native(kernel))
		}
		return all, nil
	case "throttler":
		return throttled.phases(s.caps()...), nil
	case "cgroup":
		return append(groupWeights.phases(groupWeight), groupCaps.phases(groupCap)...), nil
	case "sfqd2", "penstock":
		return []Phase{{Name: "sfqd2", Against: true, Governed: true, Algorithm: "sfqd2"}}, nil
	case "sfqd":
		return sfqd.phases(fixedDepths...), nil
	case "drr":
		return drr.phases(drrDepth), nil
	}
	if kernel, ok := strings.CutPrefix(name, nativePrefix); ok && slices.Contains(KernelSchedulers, kernel) {
		return []Phase{native(kernel)}, nil
	}
	for _, f := range families {
		if f.has(name) {
			return f.parse(name)
		}
	}
	return nil, unknownPhase(name)
}

func native(kernel string) Phase {
	return Phase{Name: nativePrefix + kernel, Against: true, Kernel: kernel}
}

// allPhases returns the names of the phases that "all" stands for.
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

// Turn is one run of one phase.
type Turn struct {
	Phase Phase
	Run   int // from 1
}

func (t Turn) String() string { return fmt.Sprintf("%s, run %d", t.Phase.Name, t.Run) }

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
