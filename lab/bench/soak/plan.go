package soak

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The faults. A campaign's length is its number of kills.
const (
	KillDaemon   Kind = "kill-daemon"   // SIGKILL; started again when the fault is over
	KillDataNode Kind = "kill-datanode" // SIGKILL; started again when the fault is over
	StopDaemon   Kind = "stop-daemon"   // SIGSTOP, then SIGCONT
	StopDataNode Kind = "stop-datanode" // SIGSTOP, then SIGCONT
	Garbage      Kind = "garbage"       // a peer sends invalid data to the daemon
	HalfFrame    Kind = "half-frame"    // peers begin a frame and send nothing more
	Cut          Kind = "cut"           // an agent's connection breaks
	KillSwitch   Kind = "kill-switch"   // the kill switch goes on, and off again
	Weights      Kind = "weights"       // the weights file is changed or damaged, and restored
	SlowDisk     Kind = "slow-disk"     // one disk is ten times slower for a while
	Calm         Kind = "calm"          // no fault, for comparison with the others
)

// kill reports whether the fault counts as a kill.
func (k Kind) kill() bool { return k == KillDaemon || k == KillDataNode }

// Step is one fault of a plan.
type Step struct {
	Number  int           `json:"number"`   // from 1
	Pause   time.Duration `json:"pause_ns"` // after the end of the previous fault
	Kind    Kind          `json:"kind"`
	Lasts   time.Duration `json:"lasts_ns"` // until the fault is undone
	Node    int           `json:"node"`     // number of the DataNode, disk or connection: 0 or 1
	Variant int           `json:"variant"`  // selects the garbage or the weights; modulo the number of variants
	// In is the phase of a TeraSort in which the pause begins; empty: in any phase.
	In Phase `json:"in,omitempty"`
}

// Plan is a campaign's faults in order.
type Plan struct {
	Seed  uint64
	Kills int
	Steps []Step
}

// Nodes is the number of DataNodes, each with its own disk.
const Nodes = 2

// between lists the faults between kills. A fault with more entries is drawn more often.
var between = []Kind{
	StopDaemon, StopDaemon, StopDaemon, Garbage, Garbage, HalfFrame, Cut, Cut,
	StopDataNode, KillSwitch, Weights, SlowDisk, Calm, Calm, Calm,
}

// kinds are all faults, kills first.
var kinds = []Kind{KillDaemon, KillDataNode, StopDaemon, Garbage, HalfFrame, Cut, StopDataNode, KillSwitch, Weights, SlowDisk, Calm}

// Of every 60 kills (stride), the last 6 (quiet) are kills of DataNodes only, so that a daemon runs
// long enough to show a leak.
const (
	stride = 60
	quiet  = 6
)

// NewPlan draws the faults of a campaign with a number of kills, at least 1. The same seed and
// number give the same plan, with every release of Go.
func NewPlan(seed uint64, kills int) Plan {
	p := Plan{Seed: seed, Kills: kills}
	d := draw{rand.NewPCG(seed, 0x70656e73746f636b)}
	add := func(k Kind) {
		shortest, longest := k.lasts()
		p.Steps = append(p.Steps, Step{Number: len(p.Steps) + 1, Pause: d.duration(300*time.Millisecond, 1500*time.Millisecond),
			Kind: k, Lasts: d.duration(shortest, longest), Node: d.below(Nodes), Variant: d.below(1000)})
	}
	for n := range kills {
		if d.below(3) > 0 {
			add(between[d.below(len(between))])
		}
		if n%stride >= stride-quiet || d.below(8) == 0 {
			add(KillDataNode)
		} else {
			add(KillDaemon)
		}
	}
	return p
}

// NewPhasesPlan draws kills of the daemon in the phases of a TeraSort, one phase after another.
// Each kill comes shortly after the phase has begun, because the last phases are short.
func NewPhasesPlan(seed uint64, kills int) Plan {
	p := Plan{Seed: seed, Kills: kills}
	d := draw{rand.NewPCG(seed, 0x7068617365730a0a)}
	shortest, longest := KillDaemon.lasts()
	for range kills {
		p.Steps = append(p.Steps, Step{Number: len(p.Steps) + 1, Pause: d.duration(0, 1000*time.Millisecond),
			Kind: KillDaemon, Lasts: d.duration(shortest, longest), In: phases[len(p.Steps)%len(phases)]})
	}
	return p
}

// lasts returns the range of a fault's length.
func (k Kind) lasts() (shortest, longest time.Duration) {
	const ms = time.Millisecond
	switch k {
	case KillDaemon, KillDataNode: // time until it is restarted
		return 0, 2000 * ms
	case StopDaemon, Calm:
		return 200 * ms, 5000 * ms
	case StopDataNode, SlowDisk:
		return 1000 * ms, 4000 * ms
	case Garbage, Cut: // over at once
		return 0, 0
	}
	return 500 * ms, 2500 * ms
}

// draw draws numbers from a generator whose sequence no release of Go changes.
type draw struct{ pcg *rand.PCG }

// below returns a number from 0 to n-1; the bias of the modulo is negligible here.
func (d draw) below(n int) int { return int(d.pcg.Uint64() % uint64(n)) }

// duration returns a whole number of milliseconds, both bounds included.
func (d draw) duration(shortest, longest time.Duration) time.Duration {
	steps := int((longest-shortest)/time.Millisecond) + 1
	return shortest + time.Duration(d.below(steps))*time.Millisecond
}

// String describes the fault.
func (s Step) String() string {
	if s.In != "" {
		return fmt.Sprintf("kill -9 of the daemon %.1f s into the phase %s, started again after %.1f s", s.Pause.Seconds(), s.In, s.Lasts.Seconds())
	}
	what := map[Kind]string{
		KillDaemon:   "kill -9 of the daemon, started again after",
		KillDataNode: fmt.Sprintf("kill -9 of DataNode %d, started again after", s.Node),
		StopDaemon:   "the daemon is stopped for",
		StopDataNode: fmt.Sprintf("DataNode %d is stopped for", s.Node),
		HalfFrame:    "peers send half a frame and wait for",
		KillSwitch:   "the kill switch is on for",
		SlowDisk:     fmt.Sprintf("disk %d is ten times slower for", s.Node),
		Calm:         "no fault for",
	}[s.Kind]
	switch s.Kind {
	case Garbage:
		bad, err := badFrame(s.Variant, "/data")
		if err != nil {
			return "a peer sends garbage: " + err.Error()
		}
		return "a peer sends garbage: " + bad.Name
	case Cut:
		return fmt.Sprintf("agent connection %d is cut", s.Node)
	case Weights:
		what = "weights file: " + badWeights(s.Variant).name + ", for"
	}
	return fmt.Sprintf("%s %.1f s", what, s.Lasts.Seconds())
}

// Write prints the plan, one line per fault, with the time at which each begins if no fault takes
// longer than its length.
func (p Plan) Write(w io.Writer) error {
	at, kills := time.Duration(0), 0
	for _, s := range p.Steps {
		at += s.Pause
		count := ""
		if s.Kind.kill() {
			kills++
			count = fmt.Sprintf("kill %d", kills)
		}
		if _, err := fmt.Fprintf(w, "%4d %8.1f s  %-8s  %s\n", s.Number, at.Seconds(), count, s); err != nil {
			return err
		}
		at += s.Lasts
	}
	return nil
}
