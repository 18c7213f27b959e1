package monitor

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/hadoop"
)

const (
	mib      = 1 << 20
	megabyte = 1_000_000 // disks' rates are in decimal megabytes
)

// Bounds of a request.
const (
	MinInput = 16 * mib
	MaxInput = 2048 * mib
	// MaxFioJobs bounds the threads of a local activity.
	MaxFioJobs = 64
)

// JobSetup describes a Spark job. All of its executors together run Slots tasks at a time.
type JobSetup struct {
	InputBytes int64 `json:"input_bytes"`
	Files      int   `json:"files"` // number of input files; each has one block, and one task reads it
	WordBytes  int   `json:"word_bytes"`
	Slots      int   `json:"slots"`
	CPU        int   `json:"cpu"`
}

// Setup is everything that may change a figure.
type Setup struct {
	Machine   experiment.Machine `json:"machine"`
	WordCount JobSetup           `json:"wordcount"`
	TeraSort  JobSetup           `json:"terasort"`
	// BackgroundBytes is the size of the local file and of the HDFS file of the background.
	BackgroundBytes int64  `json:"background_bytes"`
	BackgroundCPU   int    `json:"background_cpu"`
	FioJobs         int    `json:"fio_jobs"`  // threads of the reader and of the writer of local files
	Scheduler       string `json:"scheduler"` // I/O scheduler of the contested disk
	// AlonePart is the part of the disk's rate at which WordCount alone reads. LimitPart is the part
	// that a controlled background may use.
	AlonePart float64 `json:"alone_part"`
	LimitPart float64 `json:"limit_part"`
	// Preference is the weight of the preferred job of Experiment 1; the other job has weight 1.
	Preference int     `json:"preference"`
	SettlingS  float64 `json:"settling_s"` // how long the background runs before the jobs start
	// Dirty limits of the kernel, in seconds of the disk's rate.
	DirtyS           float64 `json:"dirty_s"`
	DirtyBackgroundS float64 `json:"dirty_background_s"`
	Quantum          int64   `json:"quantum_bytes"`
	Hadoop           string  `json:"hadoop"`
}

// DefaultSetup returns the set-up for a machine with two CPUs. A round of all rows takes about ten
// minutes. The parts are the paper's: 44.76 and 20 of about 100 MB/s.
func DefaultSetup() Setup {
	return Setup{
		Machine:         experiment.ThisMachine(),
		WordCount:       JobSetup{InputBytes: 240 * mib, Files: 12, WordBytes: 10, Slots: 3, CPU: 0},
		TeraSort:        JobSetup{InputBytes: 144 * mib, Files: 6, WordBytes: 8, Slots: 3, CPU: 1},
		BackgroundBytes: 1536 * mib, BackgroundCPU: 1, FioJobs: 8, Scheduler: "mq-deadline",
		AlonePart: 0.45, LimitPart: 0.2, Preference: 8, SettlingS: 5,
		DirtyS: 3, DirtyBackgroundS: 1.5, Quantum: mib,
		Hadoop: hadoop.DefaultVersion,
	}
}

// Validate returns an error for a set-up that cannot be measured.
func (s Setup) Validate() error {
	for flag, bytes := range map[string]int64{"wordcount-size": s.WordCount.InputBytes, "terasort-size": s.TeraSort.InputBytes} {
		if bytes < MinInput || bytes > MaxInput {
			return fmt.Errorf("--%s: %d bytes: use %dM to %dM", flag, bytes, MinInput/mib, MaxInput/mib)
		}
	}
	if s.FioJobs < 1 || s.FioJobs > MaxFioJobs {
		return fmt.Errorf("--fio-jobs %d: use 1 to %d", s.FioJobs, MaxFioJobs)
	}
	if !slices.Contains([]string{"bfq", "mq-deadline", "kyber", "none"}, s.Scheduler) {
		return fmt.Errorf("--scheduler %q: use bfq, mq-deadline, kyber or none", s.Scheduler)
	}
	if s.Machine.CPUs < 2 {
		return errors.New("this machine has fewer than two CPUs: with one CPU, WordCount and the background would also wait for each other at the CPU; use a machine with two or more")
	}
	return hadoop.CheckVersion(s.Hadoop)
}

// Disk is the contested disk, whose rate follows from WordCount's run on a disk without a limit.
type Disk struct {
	Rate  int64 `json:"rate"`  // bytes per second
	Limit int64 `json:"limit"` // limit of a controlled background, in bytes per second
}

// disk returns the contested disk. Its rate is such that WordCount alone, at its speed on a disk without a
// limit, uses the part AlonePart of it. The fastest of several runs counts, because other load on the machine
// can only slow a run down.
func (s Setup) disk(fullSpeed []Turn) (Disk, error) {
	read := 0.0
	for _, t := range fullSpeed {
		if t.WordCount != nil {
			read = max(read, t.WordCount.ReadMBps)
		}
	}
	if !(read > 0) {
		return Disk{}, errors.New("measure WordCount on a disk without a limit: the disk's log shows no reads of its input")
	}
	const digits = 10 // tenths of a megabyte
	rate := math.Round(digits*read/s.AlonePart) / digits * megabyte
	return Disk{Rate: int64(rate), Limit: int64(math.Round(rate * s.LimitPart))}, nil
}

// deviceSettings returns the section device of the daemon's settings. A quantum is 1 MiB, as for the
// other hard disks of this laboratory. The reference latencies are the time of two quanta plus a rotation; at
// depth 2 this just keeps the disk busy. The bound on the backlog is below the amount of dirty pages at which
// the kernel itself begins to write.
func (s Setup) deviceSettings(d Disk) string {
	perMiB := time.Duration(2.1 * float64(mib) / float64(d.Rate) * float64(time.Second)).Round(time.Millisecond)
	line := fmt.Sprintf("{fixed: 20ms, per_mib: %v}", perMiB)
	backlog := int64(s.DirtyBackgroundS * float64(d.Rate) / 3)
	return fmt.Sprintf("  quantum: %d\n  ahead: 4\n  backlog: %d\n  dirty: %d\n  depth: {start: 2, read: %s, write: %s}\n",
		s.Quantum, max(backlog, 2*s.Quantum), max(2*backlog, 4*s.Quantum), line, line)
}
