package overhead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Sample holds the figures of one operation of one variant. CPU times are seconds over the
// operation. For streams and for jobs within the client, the DataNode's CPU time leaves out the
// compilers of its JVM, and the daemon's CPU time is counted until the device has all written data.
// For a job on YARN, CPU times are counted from the submission until the last container has ended
// and the disk has all written data.
type Sample struct {
	Bytes          int64   `json:"bytes,omitempty"`           // none for a job on YARN
	Seconds        float64 `json:"seconds"`                   // a job on YARN: by the ResourceManager
	SyncSeconds    float64 `json:"sync_seconds,omitempty"`    // for a write, from its end until the device has all data
	SettledSeconds float64 `json:"until_settled_s,omitempty"` // for a job on YARN, the interval of its CPU times
	DataNodeCPU    float64 `json:"datanode_cpu_s"`
	DaemonCPU      float64 `json:"daemon_cpu_s"`

	// Only for a job on YARN.
	NodeManagerCPU float64 `json:"nodemanager_cpu_s,omitempty"` // of the NodeManager itself, with its shuffle service
	TasksCPU       float64 `json:"tasks_cpu_s,omitempty"`       // of all containers
	// MachineCPU is the CPU time of everything on the machine: also of the disk's server, of the
	// client, of the other cluster, and of the kernel's writeback, which natively does the daemon's
	// work.
	MachineCPU float64 `json:"machine_cpu_s,omitempty"`
}

// CPU returns the CPU time of all processes that contain parts of Penstock.
func (s Sample) CPU() float64 { return s.DataNodeCPU + s.NodeManagerCPU + s.TasksCPU + s.DaemonCPU }

// Measured holds the figures of one variant in one round.
type Measured struct {
	Samples    map[Operation]Sample `json:"samples"`
	DaemonPeak int64                `json:"daemon_peak_bytes,omitempty"` // largest resident size
}

// Round is one finished round, as the journal keeps it.
type Round struct {
	Number   int                  `json:"round"`
	Build    string               `json:"build"`
	Started  time.Time            `json:"started"`
	Seconds  float64              `json:"seconds"`
	Agent    int                  `json:"agent_place"` // the DataNode that had the agent, if it moves
	Order    []Variant            `json:"order"`
	Variants map[Variant]Measured `json:"variants"`
}

// Environment performs the operations of rounds. Machine and YARNMachine are the real environments.
// The methods are called from one goroutine.
type Environment interface {
	// Begin prepares a round in which the agent is at a place, 0 or 1.
	Begin(ctx context.Context, agent int) error
	// Arrange starts the variant's daemon, or makes sure that there is none.
	Arrange(ctx context.Context, v Variant) error
	// Do performs and measures an operation of a variant at a place.
	Do(ctx context.Context, v Variant, place int, op Operation) (Sample, error)
	// Release undoes Arrange, also when ctx has ended. It returns the largest resident size of the
	// daemon so far in bytes, 0 if there was none.
	Release(ctx context.Context) (peak int64, err error)
	// Stop undoes everything.
	Stop() error
}

// Experiment performs rounds.
type Experiment struct {
	Variants   []Variant
	Operations []Operation
	// WarmUp, if not "", is performed in each variant before the first round. After that, a further
	// round is performed and discarded, because the JVMs of Hadoop's daemons still compile.
	WarmUp Operation
	Env    Environment
	Build  string
	Say    func(format string, args ...any)
}

// agentPlace changes with each round, so that neither disk nor port favours a variant.
func agentPlace(round int) int { return round % 2 }

// order rotates the variants by one with each round, and reverses every second order, so that no
// variant is always measured first, or always after the same other variant.
func order(variants []Variant, round int) []Variant {
	n := len(variants)
	out := make([]Variant, n)
	for i := range variants {
		out[i] = variants[(i+round)%n]
	}
	if round/n%2 == 1 {
		slices.Reverse(out)
	}
	return out
}

// Round performs round n, counted from 0.
func (x *Experiment) Round(ctx context.Context, n int) (r Round, err error) {
	if x.WarmUp != "" {
		if err := x.warm(ctx, n); err != nil {
			return r, err
		}
		x.WarmUp = ""
	}
	return x.round(ctx, n)
}

func (x *Experiment) warm(ctx context.Context, n int) error {
	for _, v := range x.Variants {
		x.Say("warm-up: %s", v)
		if _, err := x.Env.Do(ctx, v, placeOf(v, agentPlace(n)), x.WarmUp); err != nil {
			return fmt.Errorf("warm-up: %s: %w", v, err)
		}
	}
	x.Say("a round that is discarded")
	if _, err := x.round(ctx, n); err != nil {
		return fmt.Errorf("the discarded round: %w", err)
	}
	return nil
}

func placeOf(v Variant, agent int) int {
	if v.agent() {
		return agent
	}
	return 1 - agent
}

func (x *Experiment) round(ctx context.Context, n int) (r Round, err error) {
	r = Round{Number: n + 1, Build: x.Build, Started: time.Now().UTC(), Agent: agentPlace(n),
		Order: order(x.Variants, n), Variants: map[Variant]Measured{}}
	if err := x.Env.Begin(ctx, r.Agent); err != nil {
		return r, err
	}
	for _, v := range r.Order {
		m, err := x.variant(ctx, v, placeOf(v, r.Agent))
		if err != nil {
			return r, fmt.Errorf("%s: %w", v, err)
		}
		r.Variants[v] = m
		x.Say("  %-8s %s", v, m)
	}
	r.Seconds = time.Since(r.Started).Seconds()
	return r, nil
}

func (x *Experiment) variant(ctx context.Context, v Variant, place int) (m Measured, err error) {
	m.Samples = map[Operation]Sample{}
	if err := x.Env.Arrange(ctx, v); err != nil {
		return m, err
	}
	defer func() {
		peak, released := x.Env.Release(ctx)
		m.DaemonPeak = peak
		err = errors.Join(err, released)
	}()
	for _, op := range x.Operations {
		s, err := x.Env.Do(ctx, v, place, op)
		if err != nil {
			return m, fmt.Errorf("%s: %w", op, err)
		}
		m.Samples[op] = s
	}
	return m, nil
}

// String returns the variant's line of progress: CPU seconds per GB of the DataNode and seconds of
// the jobs, or the account of a job on YARN.
func (m Measured) String() string {
	if s, ok := m.Samples[YARNSort]; ok {
		return fmt.Sprintf("%.2f s; CPU %.2f s: DataNode %.2f, NodeManager %.2f, containers %.2f, daemon %.2f; machine %.2f s",
			s.Seconds, s.CPU(), s.DataNodeCPU, s.NodeManagerCPU, s.TasksCPU, s.DaemonCPU, s.MachineCPU)
	}
	text := "DataNode CPU s/GB:"
	for _, op := range Paced {
		text += fmt.Sprintf(" %s %.3f", op, perGB(m.Samples[op].DataNodeCPU, m.Samples[op]))
	}
	for _, op := range Jobs {
		if s, ok := m.Samples[op]; ok {
			text += fmt.Sprintf("; %s %.2f s", op, s.Seconds)
		}
	}
	return text
}

func perGB(seconds float64, s Sample) float64 { return seconds / (float64(s.Bytes) / gb) }
