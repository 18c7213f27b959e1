package isolation

import (
	"context"
	"time"
)

// Environment is the world a run happens in: modelled disks, a Hadoop cluster,
// the kernel's knobs, the daemon. The real one is in env.go. Methods are called
// from one goroutine, except Disks and Metrics, which the sampler calls while
// the jobs run.
type Environment interface {
	// Limit switches the modelled disks between their modelled rate and no limit
	// at all. Inputs are made, leftovers finished and outputs checked without it.
	Limit(ctx context.Context, on bool) error
	// Arrange puts everything in place for a phase: the kernel scheduler of every
	// modelled disk and, when the phase is governed, the daemon, ready.
	Arrange(ctx context.Context, p Phase) error
	// DropCaches writes out what is dirty and forgets what is cached. Where files come
	// and go, the judge watches them from then on.
	DropCaches(ctx context.Context) error
	// StartAggressor returns once the aggressor's tasks do I/O.
	StartAggressor(ctx context.Context, p Phase) (Job, error)
	// StartProtected returns once the protected job's application id is known.
	StartProtected(ctx context.Context, p Phase) (Job, error)
	// Weigh gives the daemon the phase's weights, now that the ids are known.
	// There are no aggressors in a governed phase without one.
	Weigh(ctx context.Context, protected string, aggressors []string) error
	// Disks reads the device counters of every modelled disk.
	Disks() ([]DiskCounters, error)
	// Metrics reads the daemon's metrics; only called in governed phases.
	Metrics(ctx context.Context) (Metrics, error)
	// Judge tells, from the modelled disks' request logs and file extents, whose
	// the device bytes of a window were. It is called after the window, before
	// outputs are deleted, with nil for a side that did not run. A nil verdict means
	// that nobody can tell.
	Judge(ctx context.Context, from, to time.Time, protected, aggressor Job) (*Verdict, error)
	// Release undoes Arrange: the daemon ends, the schedulers stay until the next
	// Arrange. It may be called without an Arrange before it.
	Release(ctx context.Context) error
}

// Job is one running job, or several that are looked at as one.
type Job interface {
	// Application is its YARN application id, or several with spaces between them.
	Application() string
	// Done is closed when the job has ended, well or not.
	Done() <-chan struct{}
	// Times are the start and finish that count, the ResourceManager's or a query's
	// own; an error says how the job failed. Only after Done.
	Times() (started, finished time.Time, err error)
	// Check compares the outputs with what they must be.
	Check(ctx context.Context) error
	// Discard deletes the outputs.
	Discard(ctx context.Context) error
	// Kill ends the job early; the outputs may be half there.
	Kill(ctx context.Context) error
}

// DiskCounters are a device's counters since it was made.
type DiskCounters struct {
	Name       string
	ReadBytes  int64
	WriteBytes int64
}

// Verdict is the independent judge's account of a window.
type Verdict struct {
	StepSeconds   float64              `json:"step_s"`
	MBps          map[string][]float64 `json:"mb_s,omitempty"` // by owner, MB/s per step
	Bytes         map[string]int64     `json:"bytes"`          // by owner, over the window
	Read          map[string]int64     `json:"read_bytes,omitempty"`
	Written       map[string]int64     `json:"write_bytes,omitempty"`
	LatencyP99MS  float64              `json:"latency_p99_ms"` // of device requests; 0 when there were none
	LatencyP50MS  float64              `json:"latency_p50_ms"`
	DeviceRequest int64                `json:"device_requests"`
}
