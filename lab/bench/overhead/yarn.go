package overhead

import (
	"fmt"

	"penstock/lab/disk"
	"penstock/lab/hadoop"
)

// YARNSetup is everything that may change a figure of TeraSort on YARN.
type YARNSetup struct {
	Bytes       int64 `json:"bytes"`       // that it sorts
	BlockBytes  int64 `json:"block_bytes"` // a map's input, and a block of the output
	Reduces     int   `json:"reduces"`
	SortMB      int   `json:"io_sort_mb"` // a map's buffer: small, so that maps spill several times and merge
	TaskSlots   int   `json:"task_slots"` // tasks that run at a time
	TaskHeapMB  int   `json:"task_heap_mb"`
	HeapMB      int   `json:"datanode_heap_mb"`
	DiskBytes   int64 `json:"disk_bytes"`   // of each cluster's disk
	NetworkRate int64 `json:"network_rate"` // bytes per second, more than the shuffle can use
	// The kernel's own proportions, a fifth and a tenth of the memory: what of spills
	// never reaches a disk natively is part of what is compared.
	DirtyBytes           int64    `json:"dirty_bytes"`
	DirtyBackgroundBytes int64    `json:"dirty_background_bytes"`
	Hadoop               string   `json:"hadoop"`
	KernelRelease        string   `json:"kernel_release"`
	CPUs                 int      `json:"cpus"`
	MemoryBytes          int64    `json:"memory_bytes"`
	Notes                []string `json:"notes,omitempty"`
}

// YARNVariants are a cluster without anything of Penstock, and one with all of it.
var YARNVariants = []Variant{Native, Enforce}

// DefaultYARNSetup sorts so many bytes; with 1 GiB a round takes some three minutes
// on a machine of two CPUs.
func DefaultYARNSetup(bytes int64) YARNSetup {
	s := DefaultSetup()
	return YARNSetup{Bytes: bytes, BlockBytes: 128 * mib, Reduces: 2, SortMB: 32, TaskSlots: 2, TaskHeapMB: 400,
		HeapMB: s.HeapMB, DiskBytes: (max(8*bytes, 4<<30) + mib - 1) / mib * mib, NetworkRate: 16 << 30}
}

// Validate rejects what cannot be measured, naming the flag to change.
func (s YARNSetup) Validate() error {
	const most = 64 << 30
	if s.Bytes < 64*mib || s.Bytes > most {
		return fmt.Errorf("--yarn: %d bytes to sort: from 64M to 64G", s.Bytes)
	}
	if need := s.Bytes * 3; s.MemoryBytes > 0 && need > s.MemoryBytes/2 {
		return fmt.Errorf("--yarn: to sort %d MiB on disks in memory takes %d MiB of it; this machine has %d: give fewer bytes",
			s.Bytes/mib, need*2/mib, s.MemoryBytes/mib)
	}
	return nil
}

// ProbeYARN completes a setup with what the machine is. It is an error where there
// can be no disks in memory: other disks' speed would be most of a job's run time.
func ProbeYARN(s YARNSetup) (YARNSetup, error) {
	if err := disk.Available(); err != nil {
		return s, fmt.Errorf("no disks in memory: %w", err)
	}
	m := Probe(Setup{})
	s.KernelRelease, s.CPUs, s.MemoryBytes, s.Notes = m.KernelRelease, m.CPUs, m.MemoryBytes, m.Notes
	s.DirtyBytes, s.DirtyBackgroundBytes = s.MemoryBytes/5/mib*mib, s.MemoryBytes/10/mib*mib
	return s, nil
}

// maps is the number of input files, each of one block.
func (s YARNSetup) maps() int {
	return int((s.rows()*hadoop.RowBytes + s.BlockBytes - 1) / s.BlockBytes)
}

func (s YARNSetup) rows() int64 { return s.Bytes / hadoop.RowBytes }
