package sharedfs

import (
	"fmt"
	"slices"

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
}

// DefaultSetup returns the set-up for this machine.
func DefaultSetup() Setup {
	return Setup{Machine: experiment.ThisMachine(), Hosts: 4, Rate: 6 * megabyte, SizesMiB: []int{64, 128, 256}, Files: 8, Reduces: 4, SortMB: 16,
		DirtyBytes: 32 * mib, Hadoop: hadoop.DefaultVersion, Iterations: 3, YARN: Memory{LessMiB: 1024, MoreMiB: 2048, OtherMiB: 512}}
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
	return hadoop.CheckVersion(s.Hadoop)
}

// largest returns the largest size of TeraSort's input, in MiB.
func (s Setup) largest() int { return slices.Max(s.SizesMiB) }

func (s Setup) model() disk.Model { return disk.HDD(s.Rate) }

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

	rank bool // the job is PageRank; else TeraSort
	part part // what YARN gets; zero: all
}

// ways are the paper's four cases, and Hadoop's own shuffle on the shared file system.
var ways = []way{
	{name: "local-any", about: "intermediate data on local disks, without locality"},
	{name: "local-near", near: true, about: "intermediate data on local disks, with locality"},
	{name: "shared-any", shared: true, merge: true, about: "intermediate data on the file system, merged in place, without locality"},
	{name: "shared-near", shared: true, near: true, merge: true, about: "intermediate data on the file system, merged in place, with locality"},
	{name: "stock-near", shared: true, near: true, about: "intermediate data on the file system, Hadoop's own shuffle, with locality"},
}

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

// job returns the name of the row's job.
func (r row) job() string {
	if r.rank {
		return "PageRank"
	}
	return "TeraSort"
}

// Rows returns the names of all rows.
func Rows() (names []string) {
	for _, r := range rows() {
		names = append(names, r.String())
	}
	return names
}
