package soak

import (
	"fmt"
	"time"

	"penstock/lab/disk"
	"penstock/lab/hadoop"
)

// Setup is everything that may change a campaign's results. The journal keeps it, with the plan's
// seed and length.
type Setup struct {
	Seed   uint64 `json:"seed"`
	Kills  int    `json:"kills"`
	Hadoop string `json:"hadoop"` // version

	// With Phases only the daemon is killed, and only while a TeraSort runs. All of the TeraSort's
	// I/O is governed, also its tasks' local files and its shuffle.
	Phases bool `json:"phases,omitempty"`

	Disk       disk.Model `json:"disk"` // of each DataNode
	DiskBytes  int64      `json:"disk_bytes"`
	BlockBytes int64      `json:"block_bytes"`

	// Each round of TeraGen, TeraSort and TeraValidate sorts TeraBytes. Each round of TestDFSIO
	// writes and reads Tasks files of DFSIOBytes each; with DFSIOBytes 0 there is no TestDFSIO.
	TeraBytes  int64 `json:"tera_bytes"`
	DFSIOBytes int64 `json:"dfsio_bytes"`
	Tasks      int   `json:"tasks"`
}

const mib = 1 << 20

// DefaultSetup returns the set-up of a campaign for a machine with two cores. The disks are fast
// enough for a round of jobs in about a minute, and slow enough that writers reach their backlog
// limit and readers their mark.
//
// Disks are far larger than the data, because the NameNode reserves the space of a whole block for
// each block that was in transfer when a DataNode was killed, for 10 to 20 minutes. With
// disks of 4 GiB and blocks of 16 MiB, a dozen kills of one DataNode in that time left no space for
// a further replica.
func DefaultSetup(seed uint64, kills int) Setup {
	return Setup{Seed: seed, Kills: kills, Hadoop: hadoop.DefaultVersion,
		Disk:      disk.Model{BytesPerSecond: 80_000_000, SeekMin: 500 * time.Microsecond, SeekMax: 3 * time.Millisecond},
		DiskBytes: 12 << 30, BlockBytes: 8 * mib,
		TeraBytes: 128 * mib, DFSIOBytes: 64 * mib, Tasks: 2}
}

// PhasesSetup returns the set-up of a campaign that kills the daemon in the phases of TeraSorts.
// The maps' blocks are large enough for several spills.
func PhasesSetup(seed uint64, kills int) Setup {
	s := DefaultSetup(seed, kills)
	s.Phases, s.BlockBytes, s.TeraBytes, s.DFSIOBytes = true, 32*mib, 192*mib, 0
	return s
}

// Plan draws the campaign's faults.
func (s Setup) Plan() Plan {
	if s.Phases {
		return NewPhasesPlan(s.Seed, s.Kills)
	}
	return NewPlan(s.Seed, s.Kills)
}

// Validate returns an error for a setup that cannot be run.
func (s Setup) Validate() error {
	switch {
	case s.Kills < 1 || s.Kills > 100_000:
		return fmt.Errorf("%d kills: want 1 to 100000", s.Kills)
	case s.TeraBytes < hadoop.RowBytes:
		return fmt.Errorf("%d bytes to sort: at least %d", s.TeraBytes, hadoop.RowBytes)
	case s.DFSIOBytes < 0 || s.Tasks < 1:
		return fmt.Errorf("TestDFSIO with %d files of %d bytes: want at least 1 file and at least 0 bytes", s.Tasks, s.DFSIOBytes)
	case slow(s.Disk).BytesPerSecond < 4096:
		return fmt.Errorf("disks of %d bytes per second: a slow disk has a tenth of that, which is less than a page per second", s.Disk.BytesPerSecond)
	}
	return hadoop.CheckVersion(s.Hadoop)
}
