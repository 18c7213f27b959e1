package versions

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

const nodes = 2

// settings make writers and readers wait on a disk of 12 MB/s.
const settings = `  quantum: 1MiB
  backlog: 4MiB
  dirty: 8MiB
  run: 4MiB
` + fixture.HDDTarget

// cluster is a small cluster of one version, for one test.
type cluster struct {
	fixture.Stand
	rate int64 // bytes per second, once limit was called
}

// fetch returns the folder of a version's jars.
func fetch(t *testing.T, version string) string {
	t.Helper()
	lib, err := hadoop.Fetch(t.Context(), filepath.Join("..", "..", ".cache"), version, t.Logf)
	fixture.Must(t, err)
	lib, err = filepath.Abs(lib)
	fixture.Must(t, err)
	return lib
}

// start starts a version of Hadoop with a DataNode on ext4 and one on xfs, clients, and a daemon.
func start(t *testing.T, version, lib string) *cluster {
	t.Helper()
	return up(t, stand.Spec{Disks: []disk.Options{{Name: "disk0", Size: 512 * fixture.MiB}, {Name: "disk1", Size: 512 * fixture.MiB, FileSystem: "xfs"}},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{Version: version, Lib: lib, NoYARN: true, Replication: nodes, DataNodes: s.GovernedDataNodes("dfs"), Settings: hadoop.SmallDisks}
		},
		Agents: []int{nodes}})
}

// up completes the specification of a stand, and starts the stand for one test.
func up(t *testing.T, spec stand.Spec) *cluster {
	t.Helper()
	spec.Name, spec.Clients, spec.Progress = "versions", true, t.Logf
	spec.Nodes = func(*stand.Stand) []daemon.Options {
		return []daemon.Options{{Mode: "enforce", LogLevel: "debug", Device: settings, More: daemon.Believe}}
	}
	up, err := stand.Up(t.Context(), spec)
	fixture.Must(t, err)
	t.Cleanup(func() {
		fixture.Check(t, up.Down())
		if t.Failed() {
			t.Logf("logs are kept in %s", up.Dir)
		} else {
			fixture.Check(t, os.RemoveAll(up.Dir))
		}
	})
	return &cluster{Stand: fixture.Stand{Stand: up}}
}

// limit gives the disks their speed.
func (c *cluster) limit(t *testing.T) {
	t.Helper()
	c.rate = disk.HDDRate
	fixture.Must(t, c.SetModel(disk.HDD(c.rate)))
}

// transfer is an application that writes or reads a file.
type transfer struct {
	app, file int
	dir       string // "": the root
}

func (f transfer) path() string { return fmt.Sprintf("%s/file-%d", f.dir, f.file) }

// all runs transfers at once, with more as further arguments of the operation. It waits until all
// have succeeded, with the right bytes.
func (c *cluster) all(t *testing.T, operation, more string, transfers ...transfer) {
	t.Helper()
	failed := make(chan error, len(transfers))
	for _, f := range transfers {
		want := client.Sum(int64(f.file), fileBytes)
		args := fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d %s", f.path(), client.Attempt(f.app), fileBytes, f.file, more)
		c.Clients.Do(operation, strings.TrimSpace(args), func(event, value string) {
			switch {
			case event == "done" && value == want:
				failed <- nil
			case event == "done" || event == "error":
				failed <- fmt.Errorf("%s of %s by application %d: %s (the checksum should be %s)", operation, f.path(), f.app, value, want)
			}
		})
	}
	late := time.After(stand.Patience)
	for range transfers {
		select {
		case err := <-failed:
			fixture.Must(t, err)
		case <-late:
			t.Fatalf("%s of %v has not ended after %v", operation, transfers, stand.Patience)
		}
	}
}

// settle waits until all written data is on the disks, so that all of it is accounted for.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	fixture.Eventually(t, "everything at rest", func() bool {
		return c.Metric(t, "device_outstanding")+c.Metric(t, "device_backlog_bytes")+
			c.Metric(t, "flow_queued_requests")+c.Metric(t, "flow_streams") == 0
	})
}

// agent is the MBean of the agent in a DataNode.
type agent struct {
	State         string
	WovenMethods  []string
	Missing       []string
	Connected     bool
	Mode          string
	GateWaits     int64
	GateBackstops int64
	FailedOpen    int64
	FramesDropped int64
	Suppressed    int64
}

func (c *cluster) agent(t *testing.T, i int) (a agent) {
	t.Helper()
	fixture.Bean(t, c.Hadoop.DataNodeURL(i), "penstock:type=Agent", &a)
	return a
}
