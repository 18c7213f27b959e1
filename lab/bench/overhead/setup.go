package overhead

import (
	"fmt"
	"slices"
	"strings"

	"penstock/lab/hadoop"
)

const (
	mib = 1 << 20
	gb  = 1e9 // figures are per decimal gigabyte, as disks are sold
)

// Variant is one way to run Hadoop's daemons.
type Variant string

// The variants, in the order of Penstock's activity.
const (
	Native  Variant = "native"  // no agent
	Absent  Variant = "absent"  // the agent without a daemon
	Observe Variant = "observe" // the daemon only counts I/O
	Enforce Variant = "enforce" // the daemon holds streams at their marks
	// Marked has no agent. Kernel control marks the file systems of both DataNodes for a process that does not exist.
	Marked Variant = "marked"
)

// Every round measures Native, because ratios refer to it. Marked is measured only on request. On
// YARN, one cluster runs without Penstock and the other one with all of it.
var (
	Variants     = []Variant{Native, Absent, Observe, Enforce}
	allVariants  = append(slices.Clone(Variants), Marked)
	YARNVariants = []Variant{Native, Enforce}
)

// ParseVariants returns the variants with the given names and Native, each once, Native first.
func ParseVariants(names []string) ([]Variant, error) {
	wanted := map[Variant]bool{Native: true}
	for _, n := range names {
		v := Variant(strings.TrimSpace(n))
		if !slices.Contains(allVariants, v) {
			return nil, fmt.Errorf("variant %q: choose from native, absent, observe, enforce, marked", n)
		}
		wanted[v] = true
	}
	if len(wanted) == 1 {
		return nil, fmt.Errorf("variant native alone has nothing to be compared with: add enforce, for example")
	}
	return slices.DeleteFunc(slices.Clone(allVariants), func(v Variant) bool { return !wanted[v] }), nil
}

// governed reports whether a daemon runs.
func (v Variant) governed() bool { return v == Observe || v == Enforce || v == Marked }

// agent reports whether the DataNode has the agent.
func (v Variant) agent() bool { return v != Native && v != Marked }

// Operation is a measured operation.
type Operation string

// The operations of one variant in one round, in their order. The streams in Paced have a limited
// rate. At full speed, which is bounded by the CPU, the cost of a packet depends on the number of
// packets that a DataNode's thread finds when it wakes, which is random. So only throughput is
// measured at full speed. A job's figure is its run time.
const (
	Write     Operation = "write"
	Cold      Operation = "cold read"
	Cached    Operation = "cached read"
	FullWrite Operation = "write, full speed"
	FullCold  Operation = "cold read, full speed"
	TeraGen   Operation = "teragen"
	TeraSort  Operation = "terasort"

	// YARNSort is a TeraSort on YARN. YARNCheck is a TeraSort, followed by checks of its output and
	// of whether the daemon governed it.
	YARNSort  Operation = "terasort on YARN"
	YARNCheck Operation = "validated terasort on YARN"
)

// Paced lists the operations with a reported CPU time, FullSpeed those with a reported throughput,
// and Jobs those with a reported run time.
var (
	Paced     = []Operation{Write, Cold, Cached}
	FullSpeed = []Operation{FullWrite, FullCold}
	Streams   = slices.Concat(Paced, FullSpeed)
	Jobs      = []Operation{TeraGen, TeraSort}
)

// Conditions is the common part of both measurements' setups.
type Conditions struct {
	BlockBytes           int64    `json:"block_bytes"`
	HeapMB               int      `json:"datanode_heap_mb"`
	DiskBytes            int64    `json:"disk_bytes"` // of each DataNode's disk
	DirtyBytes           int64    `json:"dirty_bytes"`
	DirtyBackgroundBytes int64    `json:"dirty_background_bytes"`
	Hadoop               string   `json:"hadoop"`
	KernelRelease        string   `json:"kernel_release"`
	CPUs                 int      `json:"cpus"`
	MemoryBytes          int64    `json:"memory_bytes"`
	Notes                []string `json:"notes,omitempty"`
}

// Setup is everything that may change a figure. The journal contains the set-up, and a journal with
// another set-up is refused. The number of rounds is not part of the set-up.
type Setup struct {
	StreamBytes int64     `json:"stream_bytes"` // of one write, and of each read of the written file
	StreamRate  int64     `json:"stream_rate"`  // bytes per second of streams that are not at full speed
	WarmBytes   int64     `json:"warm_bytes"`   // written, and read twice, on each DataNode before a round
	JobBytes    int64     `json:"job_bytes"`    // bytes that TeraGen writes and TeraSort sorts; 0: no jobs
	Variants    []Variant `json:"variants"`
	Loopback    bool      `json:"loopback,omitempty"` // the agent uses the daemon's loopback port, as on Java before 16
	Conditions
	Modelled bool `json:"block_device"` // false: see Notes
	// If the kernel moves the threads of a DataNode and its client between CPUs, the CPU time of
	// the DataNode for the same read varies by a factor of two, natively too.
	ClientCPU   string `json:"client_cpu"` // "": any
	DataNodeCPU string `json:"datanode_cpu"`
}

// DefaultSetup returns the set-up for a machine with two CPUs. Eight rounds take a quarter of an
// hour and move 21 GB in each variant. The DataNode's heap is that of a small node. The kernel
// writes back early, as on a node that has been writing for a long time: with a large machine's own
// limits, no data would reach the disk natively.
func DefaultSetup() Setup {
	return Setup{StreamBytes: 512 * mib, StreamRate: 250e6, WarmBytes: 3072 * mib, JobBytes: 128 * mib, Variants: Variants,
		Conditions: Conditions{BlockBytes: 128 * mib, HeapMB: 512, DiskBytes: 6 << 30, DirtyBytes: 512 * mib, DirtyBackgroundBytes: 64 * mib}}
}

// atOnce returns the largest number of bytes on a disk at a time. The output of a variant or a
// warm-up is deleted before the next one begins.
func (s Setup) atOnce() int64 { return max(2*s.StreamBytes, s.WarmBytes+s.StreamBytes) + 2*s.JobBytes }

func (s Setup) operations() []Operation {
	if s.JobBytes == 0 {
		return Streams
	}
	return slices.Concat(Streams, Jobs)
}

// Validate returns an error that names the flag to change if the set-up cannot be measured.
func (s Setup) Validate() error {
	switch {
	case s.StreamBytes < 16*mib:
		return fmt.Errorf("--bytes: %d bytes for one stream of one round: at least 16 MiB; give more bytes or fewer rounds", s.StreamBytes)
	case s.StreamRate < 1e6:
		return fmt.Errorf("--rate %d: at least 1000000 bytes per second", s.StreamRate)
	case s.WarmBytes < 16*mib:
		return fmt.Errorf("--warm %d: at least 16 MiB", s.WarmBytes)
	case s.JobBytes != 0 && s.JobBytes < mib:
		return fmt.Errorf("--job-bytes %d: at least 1 MiB, or 0 for no jobs", s.JobBytes)
	case s.atOnce() > s.DiskBytes/10*8:
		return fmt.Errorf("--bytes, --warm, --job-bytes: a variant or a warm-up writes %d MiB, on a disk of %d MiB: give fewer bytes or more rounds",
			s.atOnce()/mib, s.DiskBytes/mib)
	case len(s.Variants) < 2 || s.Variants[0] != Native:
		return fmt.Errorf("variants %v: native and at least one other", s.Variants)
	case s.DirtyBackgroundBytes <= 0 || s.DirtyBytes <= s.DirtyBackgroundBytes:
		return fmt.Errorf("dirty_bytes %d must be above dirty_background_bytes %d, both above 0", s.DirtyBytes, s.DirtyBackgroundBytes)
	}
	return nil
}

// StreamBytesFor returns the bytes of one stream in one round, in whole MiB, rounded up. total is
// the number of bytes that a variant's streams move in all rounds.
func StreamBytesFor(total int64, rounds int) int64 {
	parts := int64(len(Streams) * rounds)
	return (total + parts*mib - 1) / (parts * mib) * mib
}

// YARNSetup is everything that may change a figure of TeraSort on YARN.
type YARNSetup struct {
	Bytes       int64 `json:"bytes"` // bytes to sort; a map's input is a block
	Reduces     int   `json:"reduces"`
	SortMB      int   `json:"io_sort_mb"` // a map's buffer: small, so that maps spill several times and merge
	TaskSlots   int   `json:"task_slots"` // tasks that run at a time
	TaskHeapMB  int   `json:"task_heap_mb"`
	NetworkRate int64 `json:"network_rate"` // bytes per second, more than the shuffle can use
	Conditions
}

// DefaultYARNSetup returns the set-up for a sort of the given bytes. With 1 GiB, a round takes
// about three minutes on a machine with two CPUs.
func DefaultYARNSetup(bytes int64) YARNSetup {
	s := DefaultSetup()
	return YARNSetup{Bytes: bytes, Reduces: 2, SortMB: 32, TaskSlots: 2, TaskHeapMB: 400, NetworkRate: 16 << 30,
		Conditions: Conditions{BlockBytes: s.BlockBytes, HeapMB: s.HeapMB, DiskBytes: (max(8*bytes, 4<<30) + mib - 1) / mib * mib}}
}

// Validate returns an error that names the flag to change if the set-up cannot be measured.
func (s YARNSetup) Validate() error {
	const most = 64 << 30
	if s.Bytes < 64*mib || s.Bytes > most {
		return fmt.Errorf("--yarn: %d bytes to sort: from 64M to 64G", s.Bytes)
	}
	if need := s.Bytes * 3; s.MemoryBytes > 0 && need > s.MemoryBytes/2 {
		return fmt.Errorf("--yarn: sorting %d MiB on disks in memory takes %d MiB of memory; this machine has %d MiB: give fewer bytes",
			s.Bytes/mib, need*2/mib, s.MemoryBytes/mib)
	}
	return nil
}

// maps returns the number of input files, each of one block.
func (s YARNSetup) maps() int {
	return int((s.rows()*hadoop.RowBytes + s.BlockBytes - 1) / s.BlockBytes)
}

func (s YARNSetup) rows() int64 { return s.Bytes / hadoop.RowBytes }
