package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

const (
	dataNodes = 3
	block     = 16 * fixture.MiB
)

// The rate of the DataNodes' disks, in bytes per second, and the reference latency for it. With one
// application on such a disk, D becomes 3 to 4.
const (
	rate      = 20_000_000
	reference = "{fixed: 40ms, per_mib: 160ms}"
)

// shared is one node: three DataNodes with a modelled disk each, and one more disk for YARN's
// local directories, prepared by `penstock install`.
var shared fixture.Stand

// foreignFile is used by a program beside Hadoop, on the second DataNode's disk.
var foreignFile string

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:   "node",
		Public: true, // containers run as other users and must reach the disk
		// The kernel's own writeback would depend on the machine.
		Sysctls: stand.LateWriteback,
		Disks: []disk.Options{
			{Name: "disk0", Size: 6 << 30}, {Name: "disk1", Size: 6 << 30}, {Name: "disk2", Size: 6 << 30}, {Name: "local", Size: 4 << 30},
		},
		Prepare: func(_ context.Context, s *stand.Stand) (err error) {
			foreignFile, err = makeFile(s.Disks[1])
			return err
		},
		Nodes: func(s *stand.Stand) []daemon.Options {
			// The clients here are tasks by name only, and the daemon must not refute the names.
			more := &strings.Builder{}
			fmt.Fprint(more, daemon.Believe, "control: {mode: enforce, mechanisms: [pacing]}\ndevices:\n")
			for _, d := range s.Disks[:dataNodes] {
				fmt.Fprintf(more, "  %s: {quantum: 1MiB, ahead: 4, depth: {start: 4, read: %s, write: %s}}\n", stand.KernelName(d), reference, reference)
			}
			return []daemon.Options{{Mode: "enforce", More: more.String(), Weights: "default: 1\n"}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			settings := fixture.LocalReads()
			// A DataNode is dead after twice this and ten heartbeats, of a second each.
			settings["dfs.namenode.heartbeat.recheck-interval"] = "500"
			return hadoop.Config{
				DataNodes: s.DataNodes("dfs", s.Disks[:dataNodes]...), BlockSize: block,
				LocalDirs: []string{filepath.Join(s.Disks[dataNodes].Mount(), "yarn")},
				Governed:  s.Governed(0),
				Settings:  settings,
			}
		},
		Clients: true,
		Agents:  []int{dataNodes + 1},
	}, nil, useIfChild)
}

// dataDisks returns the disks of the DataNodes.
func dataDisks() []*disk.Disk { return shared.Disks[:dataNodes] }

// restartDataNode starts a DataNode that has ended, and waits for it and its agent.
func restartDataNode(ctx context.Context, t *testing.T, i int) {
	t.Helper()
	fixture.Must(t, shared.Hadoop.StartDataNode(ctx, i))
	fixture.Eventually(t, "all DataNodes live", func() bool { return live(ctx, t) == dataNodes })
	fixture.Must(t, shared.AwaitAgents(ctx, 0, dataNodes+1))
}

func live(ctx context.Context, t *testing.T) int {
	t.Helper()
	n, _, err := shared.Hadoop.LiveDataNodes(ctx)
	fixture.Must(t, err)
	return n
}

// slow turns on the rate of the DataNodes' disks for the rest of the test.
func slow(t *testing.T) {
	t.Helper()
	shared.Model(t, disk.HDD(rate), shared.Disks[:dataNodes]...)
}
