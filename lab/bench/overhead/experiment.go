package overhead

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Sample is one operation of one variant. CPU times are seconds over the
// operation, the DataNode's without its JVM's compilers, the daemon's also until
// the device had all that was written.
type Sample struct {
	Bytes       int64   `json:"bytes"`
	Seconds     float64 `json:"seconds"`
	SyncSeconds float64 `json:"sync_seconds,omitempty"` // a write's, from its end until the device has all
	DataNodeCPU float64 `json:"datanode_cpu_s"`
	DaemonCPU   float64 `json:"daemon_cpu_s"`
}

// Measured is one variant in one round.
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
	Agent    int                  `json:"agent_place"` // the DataNode that had the agent
	Order    []Variant            `json:"order"`
	Variants map[Variant]Measured `json:"variants"`
}

// Environment is the world in which rounds happen; env.go has the real one. Its
// methods are called from one goroutine.
type Environment interface {
	// Begin restarts both DataNodes, the one at place agent (0 or 1) with the
	// agent, and warms both.
	Begin(ctx context.Context, agent int) error
	// Arrange brings about the variant's daemon, or that there is none.
	Arrange(ctx context.Context, v Variant) error
	// Do performs an operation on the DataNode at a place.
	Do(ctx context.Context, v Variant, place int, op Operation) (Sample, error)
	// Release ends the daemon, also when ctx has ended, and deletes what has been
	// written. It tells the daemon's peak; 0 if there was none.
	Release(ctx context.Context) (peak int64, err error)
}

// Experiment performs rounds.
type Experiment struct {
	Setup Setup
	Env   Environment
	Build string
	Say   func(format string, args ...any)
}

// places: the agent changes its place with each round, so that neither disk nor
// port favours a variant.
func agentPlace(round int) int { return round % 2 }

// order turns the variants by one with each round, and runs every second turn
// backwards, so that none is always measured first, or always after the same one.
func order(variants []Variant, round int) []Variant {
	n := len(variants)
	out := make([]Variant, n)
	for i := range variants {
		out[i] = variants[(i+round)%n]
	}
	if round/n%2 == 1 {
		for i := range n / 2 {
			out[i], out[n-1-i] = out[n-1-i], out[i]
		}
	}
	return out
}

// Round performs round n, counted from 0.
func (x *Experiment) Round(ctx context.Context, n int) (r Round, err error) {
	r = Round{Number: n + 1, Build: x.Build, Started: time.Now().UTC(), Agent: agentPlace(n),
		Order: order(x.Setup.Variants, n), Variants: map[Variant]Measured{}}
	if err := x.Env.Begin(ctx, r.Agent); err != nil {
		return r, err
	}
	for _, v := range r.Order {
		place := r.Agent
		if v == Native {
			place = 1 - r.Agent
		}
		m, err := x.variant(ctx, v, place)
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
	for _, op := range x.operations() {
		s, err := x.Env.Do(ctx, v, place, op)
		if err != nil {
			return m, fmt.Errorf("%s: %w", op, err)
		}
		m.Samples[op] = s
	}
	return m, nil
}

func (x *Experiment) operations() []Operation {
	if x.Setup.JobBytes == 0 {
		return Streams
	}
	return append(append([]Operation(nil), Streams...), Jobs...)
}

// String is the variant's line of progress: CPU seconds per GB of the DataNode,
// and seconds of the jobs.
func (m Measured) String() string {
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
