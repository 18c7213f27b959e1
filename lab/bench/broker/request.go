package broker

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a request.
const (
	MaxNodes        = 20_000
	MaxApplications = 4000
	Windows         = 5 // of the steady load; the least that shows a spread
	MaxStorms       = 100
	// perProcess is the largest number of nodes that one generator emulates.
	perProcess = 5000
)

// Request is one benchmark with the options of the command line.
type Request struct {
	Nodes        int           `json:"nodes"`        // 1 to MaxNodes
	Applications int           `json:"applications"` // of the cluster, 1 to MaxApplications
	Served       float64       `json:"served"`       // mean part of the applications that a node serves, above 0 to 1
	Changes      float64       `json:"changes"`      // part of a node's entries that are new in a report, 0 to 1
	Period       time.Duration `json:"period_ns"`    // 100ms to 30s
	Duration     time.Duration `json:"duration_ns"`  // of the steady load, in Windows parts
	Storms       int           `json:"storms"`       // number of times that the broker is killed and started again
	Seed         uint64        `json:"seed"`

	Binary   string                           `json:"-"` // penstock
	RunDir   string                           `json:"-"` // "": a new one, removed after success
	Resume   string                           `json:"-"` // journal; "": in memory only
	Profile  string                           `json:"-"` // file for a CPU profile of the broker; may be ""
	Progress func(format string, args ...any) `json:"-"`
}

// Validate returns an error for a request that cannot be measured.
func (q Request) Validate() error {
	switch {
	case q.Nodes < 1 || q.Nodes > MaxNodes:
		return fmt.Errorf("--nodes %d: use 1 to %d", q.Nodes, MaxNodes)
	case q.Applications < 1 || q.Applications > MaxApplications:
		return fmt.Errorf("--applications %d: use 1 to %d", q.Applications, MaxApplications)
	case !(q.Served > 0 && q.Served <= 1):
		return fmt.Errorf("--served %v: use a part, above 0 to 1", q.Served)
	case !(q.Changes >= 0 && q.Changes <= 1):
		return fmt.Errorf("--changes %v: use a part, 0 to 1", q.Changes)
	case q.Period < 100*time.Millisecond || q.Period > 30*time.Second:
		return fmt.Errorf("--period %v: use 100ms to 30s", q.Period)
	case q.Duration < Windows*q.Period:
		return fmt.Errorf("--duration %v: use at least %d periods", q.Duration, Windows)
	case q.Storms < 0 || q.Storms > MaxStorms:
		return fmt.Errorf("--storms %d: use 0 to %d", q.Storms, MaxStorms)
	}
	return nil
}

// enoughFiles raises this process's limit on open files, which its children inherit, to the number
// that the broker and the largest generator need.
func (q Request) enoughFiles() error {
	need := uint64(q.Nodes + 500)
	var has unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &has); err != nil {
		return fmt.Errorf("read the limit on open files: %w", err)
	}
	if has.Cur >= need {
		return nil
	}
	if has.Max < need {
		return fmt.Errorf("%d nodes need %d open files in one process, and the hard limit here is %d: raise it (ulimit -Hn %d as root, or LimitNOFILE of the service), or use fewer --nodes",
			q.Nodes, need, has.Max, need)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: need, Max: has.Max}); err != nil {
		return errors.Join(fmt.Errorf("raise the limit on open files to %d", need), err)
	}
	return nil
}
