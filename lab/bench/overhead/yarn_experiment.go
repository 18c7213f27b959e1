package overhead

import (
	"context"
	"fmt"
	"time"
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

// YARNExperiment performs rounds.
type YARNExperiment struct {
	Env    YARNEnvironment
	Build  string
	Say    func(format string, args ...any)
	warmed bool
}

// Round performs round n, counted from 0. Before the first one it warms both clusters, and
// performs a round that does not count: the JVMs of Hadoop's daemons still compile then.
func (x *YARNExperiment) Round(ctx context.Context, n int) (YARNRound, error) {
	if !x.warmed {
		for _, v := range YARNVariants {
			x.Say("warm-up: %s", v)
			if err := x.Env.Warm(ctx, v); err != nil {
				return YARNRound{}, fmt.Errorf("warm-up: %s: %w", v, err)
			}
		}
		x.Say("a round that does not count")
		if _, err := x.round(ctx, n); err != nil {
			return YARNRound{}, fmt.Errorf("the round that does not count: %w", err)
		}
		x.warmed = true
	}
	return x.round(ctx, n)
}

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
