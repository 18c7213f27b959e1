package shares

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/stand"
)

const mib = 1 << 20

// The disk of all tests: 12 MB/s with seeks, so slow that any machine keeps it busy with CPU time
// to spare. It is a slice of a disk of a common size. So the files of a test, side by side, are
// near each other for the disk's head. Its size is many times that of a test's files, because the NameNode takes room for
// each block that a killed writer of an earlier test had begun, in blocks of the present size and for up to 20 minutes.
var slow = disk.Model{BytesPerSecond: 12_000_000, SeekMin: 2 * time.Millisecond, SeekMax: 12 * time.Millisecond, CapacityBytes: 1e12}

// shared is a NameNode, a DataNode with the agent on a modelled disk, YARN, and the daemon.
var shared fixture.Stand

// Penstock allows 8 MiB of dirty data for each writer, which is far below this limit. So the
// kernel, whose writeback Penstock cannot schedule, does not start writeback by itself.
const dirtyLimit = 512 * mib

func dirtyLimits(bytes int64) []stand.Sysctl {
	return []stand.Sysctl{{Name: "vm/dirty_bytes", Value: strconv.FormatInt(bytes, 10)}, {Name: "vm/dirty_background_bytes", Value: strconv.FormatInt(bytes/2, 10)}}
}

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:    "shares",
		Sysctls: dirtyLimits(dirtyLimit),
		Disks:   []disk.Options{{Name: "disk", Size: 16 << 30, Scheduler: "mq-deadline"}},
		Nodes: func(*stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", More: daemon.Believe, Device: usual.device()}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{DataNodes: s.GovernedDataNodes("dfs"), Settings: fixture.LocalReads()}
		},
		ClientClasses: true,
		Agents:        []int{1},
	}, nil)
}

// cluster is the stand as a test sees it.
type cluster struct {
	*fixture.Stand
	disk *disk.Disk
	node *node
}

// start returns the running cluster, with the disk's rate off.
func start(t *testing.T) *cluster {
	t.Helper()
	shared.Begin(t, time.Hour)
	t.Cleanup(func() { fixture.Check(t, shared.SetModel(disk.Model{})) })
	return &cluster{Stand: &shared, disk: shared.Disks[0], node: &node{shared.Nodes[0]}}
}

// dataDir is the DataNode's volume.
func (c *cluster) dataDir() string { return filepath.Join(c.disk.Mount(), "dfs") }

// retune restarts the daemon with another device section, and more settings, for the rest of the test.
func (c *cluster) retune(t *testing.T, device tuning, more ...string) {
	t.Helper()
	t.Cleanup(func() { c.node.Daemon = shared.Nodes[0] }) // after Retune's own clean-up
	shared.Retune(t, func(o *daemon.Options) {
		o.Device = device.device()
		o.More += strings.Join(more, "")
	})
	c.node.Daemon = shared.Nodes[0]
}

// profile writes a profile of the disk of all tests, computed from the disk's model, and returns
// its name.
func (c *cluster) profile(t *testing.T) string {
	t.Helper()
	name, err := c.WriteProfile(c.disk, slow, 512<<10)
	fixture.Must(t, err)
	return name
}

// lowerDirtyLimits makes the kernel write back earlier for the rest of the test.
func (c *cluster) lowerDirtyLimits(t *testing.T, bytes int64) {
	t.Helper()
	t.Cleanup(func() { fixture.Check(t, shared.SetSysctls(context.Background(), dirtyLimits(dirtyLimit)...)) })
	low := dirtyLimits(bytes)
	slices.Reverse(low) // the background limit must stay below the other
	fixture.Must(t, shared.SetSysctls(t.Context(), low...))
}

// limit turns the disk's rate on for the rest of the test.
func (c *cluster) limit(t *testing.T, model disk.Model) {
	t.Helper()
	fixture.Must(t, c.disk.SetModel(model))
}

// write makes a file of one block, as fast as the machine can.
func (c *cluster) write(t *testing.T, path string, size int64) {
	t.Helper()
	c.create(t, path, zeros{}, size)
}

func (c *cluster) create(t *testing.T, path string, from io.Reader, size int64) {
	t.Helper()
	err := c.Hadoop.FS().Create(t.Context(), path, io.LimitReader(from, size), hadoop.CreateOptions{BlockSize: size})
	fixture.Must(t, err)
	c.remove(t, path)
}

// remove deletes a path when the test is over.
func (c *cluster) remove(t *testing.T, path string) {
	c.Stand.Remove(t, path)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// forget writes back and drops the cached pages of the disk's files. Pages of other disks stay,
// since other tests may be measuring on those.
func (c *cluster) forget(t *testing.T) {
	t.Helper()
	fixture.Must(t, c.disk.Forget())
}

// owners returns the owner of each block. paths has the HDFS paths that belong to each flow.
func (c *cluster) owners(t *testing.T, paths map[string][]string) judge.Owner {
	t.Helper()
	owner := map[string]string{}
	for flow, below := range paths {
		for _, path := range below {
			for _, b := range c.Blocks(t, path) {
				owner[b] = flow
			}
		}
	}
	return func(path string) string { return owner[hadoop.BlockName(path)] }
}

// judge returns every owner's service in each window.
func (c *cluster) judge(t *testing.T, owner judge.Owner, windows ...judge.Window) []judge.Account {
	t.Helper()
	return fixture.Judge(t, c.disk, owner, windows...)
}
