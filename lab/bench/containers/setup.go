package containers

import (
	"fmt"
	"slices"
	"strings"

	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
	"penstock/lab/netns"
	"penstock/ops/network"
)

const (
	mib      = 1 << 20
	megabyte = 1_000_000

	minBytes, maxBytes = 32 * mib, 512 * mib
	minRate, maxRate   = 1 * megabyte, 100 * megabyte
	// maxNodes is the paper's greatest number of containers. The network has one more, for the probe.
	maxNodes = 32
	// A node has two JVMs and at most two containers of YARN; the masters and a job's client have three JVMs.
	nodeMemory, otherMemory = 3 << 29, 3 << 30
)

var _ [netns.MaxMachines - maxNodes - 1]struct{} // a network can have that many

// Setup is everything that may change a figure.
type Setup struct {
	Machine      experiment.Machine `json:"machine"`
	BridgeFilter bool               `json:"bridge_netfilter"` // the kernel has br_netfilter, so addresses between containers are translated
	Nodes        []int              `json:"nodes"`            // numbers of containers, each with a DataNode, a NodeManager and a disk
	Rate         int64              `json:"rate"`             // of each disk, bytes per second
	Bytes        int64              `json:"bytes"`            // that each job writes, reads, generates or sorts, with any number of containers
	BlockBytes   int64              `json:"block_bytes"`
	DirtyEach    int64              `json:"dirty_bytes_per_node"` // the kernel's limit of dirty pages; it begins to write at half of that
	ProbeEveryMS int                `json:"probe_every_ms"`       // from one measured round trip to the next
	LookEveryMS  int                `json:"look_every_ms"`        // from one look at the accounts of the containers' threads to the next
	Hadoop       string             `json:"hadoop"`
}

// DefaultSetup returns the set-up for this machine.
func DefaultSetup() Setup {
	return Setup{Machine: experiment.ThisMachine(), BridgeFilter: network.HasBridgeFilter(), Nodes: []int{1, 2, 4, 6, 8}, Rate: 8 * megabyte,
		Bytes: 256 * mib, BlockBytes: 16 * mib, DirtyEach: 8 * mib, ProbeEveryMS: 50, LookEveryMS: 2000, Hadoop: hadoop.DefaultVersion}
}

// Validate returns an error for a set-up that cannot be measured.
func (s Setup) Validate() error {
	if len(s.Nodes) == 0 || !slices.IsSorted(s.Nodes) || len(slices.Compact(slices.Clone(s.Nodes))) != len(s.Nodes) {
		return fmt.Errorf("--nodes %s: give different numbers in ascending order, such as 1,2,4", strings.Trim(fmt.Sprint(s.Nodes), "[]"))
	}
	if first, last := s.Nodes[0], s.Nodes[len(s.Nodes)-1]; first < 1 || last > maxNodes {
		return fmt.Errorf("--nodes from %d to %d: use 1 to %d", first, last, maxNodes)
	}
	if last := int64(s.Nodes[len(s.Nodes)-1]); otherMemory+last*nodeMemory > s.Machine.MemoryBytes {
		return fmt.Errorf("--nodes %d: they may need %d MiB of memory, and this machine has %d MiB; use at most %d", last, (otherMemory+last*nodeMemory)/mib,
			s.Machine.MemoryBytes/mib, max(0, (s.Machine.MemoryBytes-otherMemory)/nodeMemory))
	}
	if s.Rate < minRate || s.Rate > maxRate {
		return fmt.Errorf("a rate of %d bytes per second of each disk: use %d to %d", s.Rate, minRate, maxRate)
	}
	if s.Bytes < minBytes || s.Bytes > maxBytes {
		return fmt.Errorf("%d bytes of each job: use %d to %d", s.Bytes, minBytes, maxBytes)
	}
	return hadoop.CheckVersion(s.Hadoop)
}

func (s Setup) model() disk.Model { return disk.HDD(s.Rate) }

// replication returns the number of replicas: 2 as in the paper, and 1 if there is only one DataNode.
func replication(nodes int) int { return min(nodes, 2) }

// Names of set-ups.
const (
	NAT    = "nat"    // the router translates addresses between containers
	Joined = "joined" // the same, with the two sockets of connections joined
)

// SetUps are the names of all set-ups.
var SetUps = []string{NAT, Joined}

// Row is a number of containers that is measured with a set-up.
type Row struct {
	Nodes int
	SetUp string
}

// Name returns the name of the row.
func (r Row) Name() string { return fmt.Sprintf("%d-%s", r.Nodes, r.SetUp) }

// rows returns all rows. Those with the same number of containers follow each other, because they are compared.
func (s Setup) rows() (all []Row) {
	for _, n := range s.Nodes {
		for _, setUp := range SetUps {
			all = append(all, Row{n, setUp})
		}
	}
	return all
}

// Rows returns the names of all rows.
func (s Setup) Rows() (names []string) {
	for _, r := range s.rows() {
		names = append(names, r.Name())
	}
	return names
}

// work is one of the paper's jobs.
type work struct {
	kind  hadoop.Kind
	title string
	paper string // what the paper says about Figure 6
}

// works are the jobs in the order in which they are measured. A job that reads follows the one that wrote.
var works = []work{
	{hadoop.TestDFSIOWrite, "TestDFSIO write", "the time falls with more containers, but not linearly"},
	{hadoop.TestDFSIORead, "TestDFSIO read", "the time falls with more containers"},
	{hadoop.TeraGen, "TeraGen", "the time falls with more containers, but not linearly"},
	{hadoop.TeraSort, "TeraSort", "the time falls with more containers"},
}

// paperVirtual is what the paper says about Figure 8, for all jobs.
const paperVirtual = "throughput is linear up to 16 containers and degrades from the 20th on, while context switches take longer"
