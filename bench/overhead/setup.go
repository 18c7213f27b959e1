package overhead

import (
	"fmt"
	"slices"
	"strings"
)

const (
	mib = 1 << 20
	gb  = 1e9 // figures are per decimal gigabyte, as disks are sold
)

// Variant is one way to run the DataNode.
type Variant string

// The variants, in the order of what Penstock does.
const (
	Native  Variant = "native"  // no agent
	Absent  Variant = "absent"  // the agent without a daemon
	Observe Variant = "observe" // the daemon accounts and holds nobody
	Enforce Variant = "enforce" // the daemon holds streams at their marks
)

// Variants are all of them. Native is measured in every round: ratios are to it.
var Variants = []Variant{Native, Absent, Observe, Enforce}

// ParseVariants turns names into variants, Native first and each once.
func ParseVariants(names []string) ([]Variant, error) {
	wanted := map[Variant]bool{Native: true}
	for _, n := range names {
		v := Variant(strings.TrimSpace(n))
		if !slices.Contains(Variants, v) {
			return nil, fmt.Errorf("variant %q: choose from native, absent, observe, enforce", n)
		}
		wanted[v] = true
	}
	if len(wanted) == 1 {
		return nil, fmt.Errorf("variant native alone has nothing to be compared with: add enforce, for example")
	}
	return slices.DeleteFunc(slices.Clone(Variants), func(v Variant) bool { return !wanted[v] }), nil
}

// governed says that a daemon runs.
func (v Variant) governed() bool { return v == Observe || v == Enforce }

// Operation is what one figure is of.
type Operation string

// The operations of one variant in one round, in their order. A job's figure is
// its run time.
const (
	Write    Operation = "write"
	Cold     Operation = "cold read"
	Cached   Operation = "cached read"
	TeraGen  Operation = "teragen"
	TeraSort Operation = "terasort"
)

// Streams are the operations whose CPU time is told.
var Streams = []Operation{Write, Cold, Cached}

// repeats is how often an operation is done for one sample. A read from the page
// cache is over in a tenth of a second.
func repeats(op Operation) int {
	if op == Cached {
		return 4
	}
	return 1
}

// streamed is how many times a stream's bytes move in one variant of one round.
func streamed() (times int) {
	for _, op := range Streams {
		times += repeats(op)
	}
	return times
}

// Jobs are the operations whose run time is told.
var Jobs = []Operation{TeraGen, TeraSort}

// Setup is everything that may change a figure. The journal holds it, and is
// refused with another one; how many rounds there are is no part of it.
type Setup struct {
	StreamBytes int64     `json:"stream_bytes"` // of one write, and of each read of it
	WarmBytes   int64     `json:"warm_bytes"`   // written, and read twice, on each DataNode before a round
	JobBytes    int64     `json:"job_bytes"`    // that TeraGen writes and TeraSort sorts; 0: no jobs
	Variants    []Variant `json:"variants"`
	BlockBytes  int64     `json:"block_bytes"`
	HeapMB      int       `json:"datanode_heap_mb"`
	DiskBytes   int64     `json:"disk_bytes"` // of each DataNode's disk
	// The kernel writes back early, as on a node that has been writing for long:
	// with a large machine's own limits nothing would reach the disk natively.
	DirtyBytes           int64  `json:"dirty_bytes"`
	DirtyBackgroundBytes int64  `json:"dirty_background_bytes"`
	Hadoop               string `json:"hadoop"`
	Modelled             bool   `json:"block_device"` // false: see Notes
	// Where the kernel moves a DataNode's and its client's threads about, the
	// same read takes the DataNode once or twice the CPU time, natively too.
	ClientCPU     string   `json:"client_cpu"` // "": any
	DataNodeCPU   string   `json:"datanode_cpu"`
	KernelRelease string   `json:"kernel_release"`
	CPUs          int      `json:"cpus"`
	MemoryBytes   int64    `json:"memory_bytes"`
	Notes         []string `json:"notes,omitempty"`
}

// DefaultSetup is for a machine of two CPUs on which HDFS moves 1 GB/s: ten rounds
// take a quarter of an hour and move 64 GB in each variant. With a third of a GB a
// stream, and 1.5 GB to warm up, a figure was 0.4 or 0.8 by whether the JVM's
// compiler was still at work. The DataNode's heap is a small node's.
func DefaultSetup() Setup {
	return Setup{StreamBytes: 1024 * mib, WarmBytes: 4096 * mib, JobBytes: 128 * mib, Variants: Variants,
		BlockBytes: 128 * mib, HeapMB: 512, DiskBytes: 6 << 30,
		DirtyBytes: 512 * mib, DirtyBackgroundBytes: 64 * mib}
}

// atOnce is how many bytes a disk holds at a time: what a variant writes is
// deleted before the next one.
func (s Setup) atOnce() int64 { return s.StreamBytes + 2*s.JobBytes }

// Validate rejects what cannot be measured, naming the flag to change.
func (s Setup) Validate() error {
	switch {
	case s.StreamBytes < 16*mib:
		return fmt.Errorf("--bytes: %d bytes for one stream of one round: at least 16 MiB; give more bytes or fewer rounds", s.StreamBytes)
	case s.WarmBytes < 16*mib:
		return fmt.Errorf("--warm %d: at least 16 MiB", s.WarmBytes)
	case s.JobBytes != 0 && s.JobBytes < mib:
		return fmt.Errorf("--job-bytes %d: at least 1 MiB, or 0 for no jobs", s.JobBytes)
	case s.atOnce() > s.DiskBytes/10*8:
		return fmt.Errorf("--bytes, --job-bytes: a variant writes %d MiB in a round, on a disk of %d MiB: give fewer bytes or more rounds",
			s.atOnce()/mib, s.DiskBytes/mib)
	case len(s.Variants) < 2 || s.Variants[0] != Native:
		return fmt.Errorf("variants %v: native and at least one other", s.Variants)
	case s.DirtyBackgroundBytes <= 0 || s.DirtyBytes <= s.DirtyBackgroundBytes:
		return fmt.Errorf("dirty_bytes %d must be above dirty_background_bytes %d, both above 0", s.DirtyBytes, s.DirtyBackgroundBytes)
	}
	return nil
}

// StreamBytesFor divides what a variant is to move in all, written and read
// several times, over the rounds; whole MiB, rounded up.
func StreamBytesFor(total int64, rounds int) int64 {
	parts := int64(streamed() * rounds)
	return (total + parts*mib - 1) / (parts * mib) * mib
}
