package sharedfs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
)

const (
	mib      = 1 << 20
	megabyte = 1_000_000

	minMiB, maxMiB = 32, 2048
	minHosts       = 2
	maxHosts       = 8
)

// Setup is everything that may change a figure.
type Setup struct {
	Machine    experiment.Machine `json:"machine"`
	Hosts      int                `json:"hosts"`
	Rate       int64              `json:"rate"`      // of each disk, bytes per second
	SizesMiB   []int              `json:"sizes_mib"` // of TeraSort's input
	Files      int                `json:"files"`     // of the input, and so the number of maps
	Reduces    int                `json:"reduces"`
	SortMB     int                `json:"sort_mb"` // the maps' buffer; smaller than a map's output, so maps spill and merge
	DirtyBytes int64              `json:"dirty_bytes"`
	Hadoop     string             `json:"hadoop"`
	Iterations int                `json:"pagerank_iterations"`
	YARN       Memory             `json:"yarn_memory"`
	Beside     Beside             `json:"beside"`
}

// Beside is the set-up of the rows in which storage clients use the file system beside TeraSorts.
type Beside struct {
	Sorts   int `json:"sorts"`   // TeraSorts
	AtOnce  int `json:"at_once"` // of them, the most that the queue runs at a time
	SortMiB int `json:"sort_mib"`
	Files   int `json:"files"`   // of each input, and so the number of maps
	EveryS  int `json:"every_s"` // from one submission to the next
	// Clients is the number of machines with storage clients. Each has one process for each server.
	Clients    int     `json:"clients"`
	PhaseS     int     `json:"phase_s"`  // of a process: it writes, reads, and pauses for twice as long
	Transfer   int64   `json:"transfer"` // bytes of a write or read
	FileMiB    int     `json:"file_mib"` // of each process
	ProbesHz   int     `json:"probes_hz"`
	Share      float64 `json:"storage_share"`
	Turn       int64   `json:"turn_bytes"` // the largest turn, and the quantum of the daemons
	Background int64   `json:"dirty_background_bytes"`
}

// DefaultSetup returns the set-up for this machine.
func DefaultSetup() Setup {
	return Setup{Machine: experiment.ThisMachine(), Hosts: 4, Rate: 3 * megabyte, SizesMiB: []int{32, 64, 128}, Files: 8, Reduces: 4, SortMB: 16,
		DirtyBytes: 32 * mib, Hadoop: hadoop.DefaultVersion, Iterations: 3, YARN: Memory{LessMiB: 1024, MoreMiB: 2048, OtherMiB: 512}, Beside: defaultBeside()}
}

// Validate returns an error for a set-up that cannot be measured.
func (s Setup) Validate() error {
	if s.Hosts < minHosts || s.Hosts > maxHosts {
		return fmt.Errorf("--hosts %d: use %d to %d", s.Hosts, minHosts, maxHosts)
	}
	if len(s.SizesMiB) == 0 {
		return fmt.Errorf("--sizes: give at least one size, such as 64")
	}
	for i, n := range s.SizesMiB {
		if n < minMiB || n > maxMiB || slices.Contains(s.SizesMiB[:i], n) {
			return fmt.Errorf("--sizes: %d: use different sizes from %d to %d MiB", n, minMiB, maxMiB)
		}
	}
	if s.Rate < megabyte || s.Rate > 100*megabyte {
		return fmt.Errorf("--rate: %d bytes per second of each disk: use 1 to 100 MB/s", s.Rate)
	}
	// The inputs and outputs of all TeraSorts stay until the end. GlusterFS does not fill all disks alike.
	if need, room := 2*int64(s.Beside.Sorts)*int64(s.Beside.SortMiB), int64(s.Hosts)*diskBytes/2/mib; need > room {
		return fmt.Errorf("--sorts %d of --sort-size %d: inputs and outputs have %d MiB, and the disks of %d hosts have room for %d", s.Beside.Sorts, s.Beside.SortMiB, need, s.Hosts, room)
	}
	return errors.Join(s.Beside.validate(), hadoop.CheckVersion(s.Hadoop))
}

func defaultBeside() Beside {
	// The transfers are those of IOR's defaults. The kernel begins to write early, because a large writeback would delay
	// the other requests of a disk, with and without daemons.
	return Beside{Sorts: 12, AtOnce: 6, SortMiB: 32, Files: 2, EveryS: 4, Clients: 2, PhaseS: 6, Transfer: 256 << 10, FileMiB: 32, ProbesHz: 5, Share: 0.99,
		Turn: 256 << 10, Background: 512 << 10}
}

const (
	maxSorts, maxAtOnce     = 100, 24
	minSortMiB              = 8
	leastShare, mostOfShare = 0.5, 0.99
	leastTurn, mostOfTurn   = 64 << 10, mib // as penstock-sharedfs.jar accepts them
)

// validate returns an error for values of flags that cannot be measured.
func (b Beside) validate() error {
	switch {
	case b.Sorts < 1 || b.Sorts > maxSorts:
		return fmt.Errorf("--sorts %d: use 1 to %d", b.Sorts, maxSorts)
	case b.AtOnce < 1 || b.AtOnce > maxAtOnce:
		return fmt.Errorf("--at-once %d: use 1 to %d", b.AtOnce, maxAtOnce)
	case b.SortMiB < minSortMiB || b.SortMiB > maxMiB:
		return fmt.Errorf("--sort-size %d: use %d to %d MiB", b.SortMiB, minSortMiB, maxMiB)
	case !(b.Share >= leastShare && b.Share <= mostOfShare): // also NaN
		return fmt.Errorf("--storage-share %v: use %v to %v", b.Share, leastShare, mostOfShare)
	case b.Turn < leastTurn || b.Turn > mostOfTurn:
		return fmt.Errorf("--turn-size %v: use %d to %d KiB", float64(b.Turn)/1024, leastTurn>>10, mostOfTurn>>10)
	}
	return nil
}

// largest returns the largest size of TeraSort's input, in MiB.
func (s Setup) largest() int { return slices.Max(s.SizesMiB) }

func (s Setup) model() disk.Model { return disk.HDD(s.Rate) }

// quantumTime returns the time that a disk takes for one turn, which is a quantum, at a random place.
func (s Setup) quantumTime() time.Duration {
	c := s.model()
	c.CapacityBytes = diskBytes
	cost := c.Cost(disk.Read, diskBytes)
	return cost.Fixed + cost.Seek + time.Duration(float64(cost.PerMiB)*float64(s.Beside.Turn)/mib)
}

// File systems.
const (
	Gluster = "gluster"
	Moose   = "moosefs"
)

// fileSystems are all file systems.
var fileSystems = []string{Gluster, Moose}

// way is how a job uses the file system.
type way struct {
	name   string
	shared bool // intermediate data is on the file system
	near   bool // maps are placed beside their data
	merge  bool // map outputs are merged where they lie
	about  string

	rank   bool   // the job is PageRank; else TeraSort
	part   part   // what YARN gets; zero: all
	beside string // floor, native or segregated: TeraSorts and storage clients run at the same time; "": one job runs alone
}

// ways are the paper's four cases, and Hadoop's own shuffle on the shared file system.
var ways = []way{
	{name: "local-any", about: "intermediate data on local disks, without locality"},
	{name: "local-near", near: true, about: "intermediate data on local disks, with locality"},
	{name: "shared-any", shared: true, merge: true, about: "intermediate data on the file system, merged in place, without locality"},
	{name: "shared-near", shared: true, near: true, merge: true, about: "intermediate data on the file system, merged in place, with locality"},
	{name: "stock-near", shared: true, near: true, about: "intermediate data on the file system, Hadoop's own shuffle, with locality"},
}

// What lies between TeraSorts and storage clients.
const (
	floor      = "floor"      // other disks
	native     = "native"     // nothing
	segregated = "segregated" // turns at the servers' disks
)

// besides are the rows with storage clients.
var besides = []string{floor, native, segregated}

// besideRow returns the name of a row with storage clients.
func besideRow(between string) string { return Gluster + "-clients-" + between }

// row is a file system that is used in a way.
type row struct {
	fs string
	way
}

func (r row) String() string { return r.fs + "-" + r.name }

func rows() (all []row) {
	for _, fs := range fileSystems {
		for _, w := range append(slices.Clone(ways), rankWays()...) {
			all = append(all, row{fs, w})
		}
	}
	for _, w := range partWays() {
		all = append(all, row{Gluster, w})
	}
	for _, between := range besides {
		all = append(all, row{Gluster, way{name: "clients-" + between, near: true, beside: between}})
	}
	return all
}

// sizes returns the sizes of the row's input, in MiB.
func (r row) sizes(s Setup) []int {
	switch {
	case r.rank:
		return []int{s.rankMiB()}
	case r.part != part{}:
		return []int{s.largest()}
	}
	return s.SizesMiB
}

// Jobs of the rows without storage clients.
const (
	teraSort = "TeraSort"
	pageRank = "PageRank"
)

// job returns the name of the row's job.
func (r row) job() string {
	if r.rank {
		return pageRank
	}
	return teraSort
}

// Rows returns the names of all rows.
func Rows() (names []string) {
	for _, r := range rows() {
		names = append(names, r.String())
	}
	return names
}
