package isolation

import (
	"context"
	"time"

	"penstock/lab/contest"
	"penstock/lab/daemon"
	"penstock/lab/experiment/counters"
)

// Environment provides what a run needs: modelled disks, a Hadoop cluster, the kernel's
// parameters and the daemon. Machine is the real environment. Methods are called from one
// goroutine, except Counters and Metrics, which the sampler calls while the jobs run.
type Environment interface {
	// Limit switches the modelled rate of the disks on or off. The rate is off while inputs are
	// written and while outputs are checked.
	Limit(ctx context.Context, on bool) error
	// Arrange prepares a phase: it sets the kernel scheduler of every modelled disk and,
	// in a governed phase, starts the daemon and waits until it is ready.
	Arrange(ctx context.Context, p Phase) error
	// DropCaches writes dirty pages out and empties the page cache. If intermediate files
	// are judged, it begins to watch them.
	DropCaches(ctx context.Context) error
	// StartAggressor returns once the aggressor's tasks do I/O.
	StartAggressor(ctx context.Context, p Phase) (*contest.Job, error)
	// StartProtected returns once the protected job's application id is known.
	StartProtected(ctx context.Context, p Phase) (*contest.Job, error)
	// SetWeights gives the daemon the applications' weights. It is called after both jobs have
	// started, because their ids are not known before.
	SetWeights(ctx context.Context, protected string, aggressors []string) error
	// Counters reads the device counters of every modelled disk, by its name.
	Counters() (map[string]counters.Bytes, error)
	// Metrics reads the daemon's metrics. It is called only in governed phases.
	Metrics(ctx context.Context) (daemon.Metrics, error)
	// Judge attributes the device bytes of a window to the jobs, by the modelled disks'
	// request logs and file extents. It is called after the window, before outputs are
	// deleted, with nil for a side that did not run. The verdict is nil if there are no
	// request logs.
	Judge(ctx context.Context, from, to time.Time, protected, aggressor *contest.Job) (*contest.Verdict, error)
	// Release undoes Arrange, except that the kernel schedulers stay as they are until the next
	// Arrange. It ends the daemon. It may be called without an Arrange before it.
	Release(ctx context.Context) error
}
