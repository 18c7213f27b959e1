package overhead

import (
	"context"
	"fmt"
	"time"

	"penstock/lab/experiment/journal"
)

// YARNSample is one TeraSort. CPU times are seconds from the submission until the
// last container has ended and the disk has all that was written.
type YARNSample struct {
	Seconds        float64 `json:"run_time_s"`      // by the ResourceManager
	SettledSeconds float64 `json:"until_settled_s"` // of the CPU times
	DataNodeCPU    float64 `json:"datanode_cpu_s"`
	NodeManagerCPU float64 `json:"nodemanager_cpu_s"` // itself, with its shuffle service
	TasksCPU       float64 `json:"tasks_cpu_s"`       // all containers
	DaemonCPU      float64 `json:"daemon_cpu_s"`
	// MachineCPU is that of everything on the machine: also of the kernel's
	// writeback, which natively does what the daemon does here, of the disk's
	// server, of the client and of the other cluster.
	MachineCPU float64 `json:"machine_cpu_s"`
}

// CPU is that of all processes which Penstock is in.
func (s YARNSample) CPU() float64 {
	return s.DataNodeCPU + s.NodeManagerCPU + s.TasksCPU + s.DaemonCPU
}

// YARNRound is one finished round, as the journal keeps it.
type YARNRound struct {
	Number     int                    `json:"round"`
	Build      string                 `json:"build"`
	Started    time.Time              `json:"started"`
	Order      []Variant              `json:"order"`
	Samples    map[Variant]YARNSample `json:"samples"`
	DaemonPeak int64                  `json:"daemon_peak_bytes"` // largest resident size so far
}

// YARNJournal of rounds.
type YARNJournal = journal.Journal[YARNSetup, YARNRound]

// OpenYARNJournal opens or starts a journal; "" keeps rounds in memory.
func OpenYARNJournal(path string, s YARNSetup) (*YARNJournal, error) {
	return journal.Open[YARNSetup, YARNRound](path, "overhead-yarn", s)
}

// YARNEnvironment is the world of these rounds; yarn_env.go has the real one. Its
// methods are called from one goroutine.
type YARNEnvironment interface {
	// Warm does a job on the variant's cluster and checks its output, and that
	// Penstock was where it should be.
	Warm(ctx context.Context, v Variant) error
	// Sort does a job and accounts for it.
	Sort(ctx context.Context, v Variant) (YARNSample, error)
	// DaemonPeak is the daemon's largest resident size so far, in bytes.
	DaemonPeak() (int64, error)
}

// YARNExperiment runs the rounds that the journal lacks.
type YARNExperiment struct {
	Rounds  int
	Env     YARNEnvironment
	Journal *YARNJournal
	Build   string
	Say     func(format string, args ...any)
}

// Run warms both clusters and performs rounds until the journal has as many as
// asked for. One that is performed before them counts for nothing: the daemons'
// JVMs still compile.
func (x *YARNExperiment) Run(ctx context.Context) error {
	for _, v := range YARNVariants {
		x.Say("warm-up: %s", v)
		if err := x.Env.Warm(ctx, v); err != nil {
			return fmt.Errorf("warm-up: %s: %w", v, err)
		}
	}
	x.Say("a round that does not count")
	if _, err := x.round(ctx, len(x.Journal.Entries())); err != nil {
		return fmt.Errorf("the first round: %w", err)
	}
	for n := len(x.Journal.Entries()); n < x.Rounds; n++ {
		x.Say("round %d of %d", n+1, x.Rounds)
		r, err := x.round(ctx, n)
		if err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
		if err := x.Journal.Append(r); err != nil {
			return err
		}
	}
	return nil
}

// round performs round n, counted from 0.
func (x *YARNExperiment) round(ctx context.Context, n int) (r YARNRound, err error) {
	r = YARNRound{Number: n + 1, Build: x.Build, Started: time.Now().UTC(), Order: order(YARNVariants, n),
		Samples: map[Variant]YARNSample{}}
	for _, v := range r.Order {
		s, err := x.Env.Sort(ctx, v)
		if err != nil {
			return r, fmt.Errorf("%s: %w", v, err)
		}
		r.Samples[v] = s
		x.Say("  %-8s %s", v, s)
	}
	r.DaemonPeak, err = x.Env.DaemonPeak()
	return r, err
}

// String is the sample's line of progress.
func (s YARNSample) String() string {
	return fmt.Sprintf("%.2f s; CPU %.2f s: DataNode %.2f, NodeManager %.2f, containers %.2f, daemon %.2f; machine %.2f s",
		s.Seconds, s.CPU(), s.DataNodeCPU, s.NodeManagerCPU, s.TasksCPU, s.DaemonCPU, s.MachineCPU)
}
