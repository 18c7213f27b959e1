package versions

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	stand.Recover()
	os.Exit(m.Run())
}

const (
	fileBytes = 24 * fixture.MiB
	blockSize = 8 * fixture.MiB
	// HDFS keeps 4 bytes of checksum for each 512.
	stored = fileBytes * (1 + 4./512)
)

// TestHadoop runs the same scenario on every version that runs on the machine's Java and that no other suite uses,
// each in its own cluster, in parallel. Package java has older versions. 3.4.3, which is near the default version, is in
// `make soak` only.
func TestHadoop(t *testing.T) {
	for _, version := range hadoop.Versions {
		if version == hadoop.DefaultVersion || !hadoop.RunsOn(version, 17) {
			continue
		}
		t.Run(version, func(t *testing.T) {
			lib := fetch(t, version) // one after another, because Maven's folder is shared
			t.Parallel()
			scenario(t, start(t, version, lib))
		})
	}
}

func scenario(t *testing.T, c *cluster) {
	for i := range nodes {
		a := c.agent(t, i)
		if a.State != "woven" || len(a.WovenMethods) != 17 || !a.Connected || a.Mode != "enforce" {
			t.Fatalf("the agent in DataNode %d is not at work: %+v", i, a)
		}
	}
	c.limit(t)

	// Two applications write at the same time, each block to both disks.
	writers := []transfer{{app: 1, file: 1}, {app: 2, file: 2}}
	c.all(t, "put", fmt.Sprintf("replication=%d block=%d", nodes, blockSize), writers...)
	c.settle(t)
	for _, w := range writers {
		app := w.app
		c.replicated(t, w.path())
		for i := range nodes {
			c.moved(t, app, "write", stored, onDevice(c.Disks[i]))
		}
		c.moved(t, app, "read", 0)
		c.held(t, app)
	}

	// Two other applications read these files from the disks.
	fixture.Must(t, c.Forget())
	readers := []transfer{{app: 3, file: 1}, {app: 4, file: 2}}
	c.all(t, "get", "", readers...)
	c.settle(t)
	for _, r := range readers {
		c.moved(t, r.app, "read", stored)
		c.moved(t, r.app, "write", 0)
		c.held(t, r.app)
	}

	for i := range nodes {
		a := c.agent(t, i)
		if a.GateWaits == 0 || a.GateBackstops != 0 || a.FailedOpen != 0 || a.Suppressed != 0 || a.FramesDropped != 0 {
			t.Errorf("the agent in DataNode %d has held back no stream, or has let one through by itself: %+v", i, a)
		}
	}
	for _, flow := range []string{"unattributed", "replication", "balancer", "scanner", "clients"} {
		if n := c.Metric(t, "flow_bytes_total", fmt.Sprintf("flow=%q", flow)); n > 0 {
			t.Errorf("%.0f bytes are charged to %s, which did no I/O", n, flow)
		}
	}

	// One replica is enough.
	c.Hadoop.StopDataNode(0)
	c.all(t, "get", "", transfer{app: 5, file: 1})
}

func onDevice(d *disk.Disk) string { return fmt.Sprintf("device=%q", filepath.Base(d.Device())) }

func flow(app int) string { return fmt.Sprintf("flow=%q", client.Application(app)) }

// moved compares the bytes attributed to an application with those that HDFS must have moved for
// it, within 2 %: file systems move whole pages.
func (c *cluster) moved(t *testing.T, app int, direction string, want float64, labels ...string) {
	t.Helper()
	got := c.Metric(t, "flow_bytes_total", append(labels, flow(app), fmt.Sprintf("direction=%q", direction))...)
	t.Logf("application %d, %s %v: %.2f MiB, expected %.2f", app, direction, labels, got/fixture.MiB, want/fixture.MiB)
	if math.Abs(got-want) > want*0.02 {
		t.Errorf("application %d, %s %v: %.0f bytes are charged, %.0f were moved", app, direction, labels, got, want)
	}
}

// held fails the test unless the application has waited at its mark and continued because the mark
// rose.
func (c *cluster) held(t *testing.T, app int) {
	t.Helper()
	if c.Metric(t, "flow_waits_total", flow(app)) == 0 {
		t.Errorf("application %d was never held back on a disk of %d bytes/s", app, c.rate)
	}
	if n := c.Metric(t, "flow_forced_total", flow(app)); n > 0 {
		t.Errorf("application %d was let through %.0f times after the longest wait", app, n)
	}
}

// replicated fails the test unless every block of a file is complete and on every DataNode.
func (c *cluster) replicated(t *testing.T, path string) {
	t.Helper()
	blocks, err := c.Hadoop.FS().Blocks(t.Context(), path)
	fixture.Must(t, err)
	if len(blocks) != fileBytes/blockSize {
		t.Errorf("%s has %d blocks", path, len(blocks))
	}
	for _, b := range blocks {
		if b.Length != blockSize || len(b.DataNodes) != nodes {
			t.Errorf("a block of %s has %d bytes on %v", path, b.Length, b.DataNodes)
		}
	}
}
