package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/client"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
)

// replication is the flow of the copies that HDFS makes by itself.
const replication = "replication"

// TestLostDataNode: a DataNode is killed while an application fills the others' disks. The copies
// that HDFS makes then get their share while the application wants the disks, and all of the disks
// afterwards. At the end no block is missing.
func TestLostDataNode(t *testing.T) {
	const (
		bytes  = 160 * fixture.MiB
		length = 12 * time.Second
		due    = 1.0 / 5 // 4 : 1
	)
	ctx := shared.Begin(t, 5*time.Minute)
	shared.Remove(t, "/lost")
	// New blocks go to the emptier disks. If an earlier test has just filled the lost DataNode's
	// disk, it gets none at first.
	fixture.Eventually(t, "the lost DataNode shares blocks with each of the others", func() bool {
		fixture.Must(t, do(ctx, "put", fmt.Sprintf("path=/lost/file seed=5 bytes=%d block=%d replication=2", bytes, block)))
		return sharedBlocks(ctx, t, "/lost/file", 0, 1) >= 2 && sharedBlocks(ctx, t, "/lost/file", 0, 2) >= 2
	})
	lost := shared.Blocks(t, "/lost")
	// Cold, as data on disks usually are, so that the copied blocks are read from the disk.
	for _, d := range dataDisks() {
		fixture.Must(t, d.Forget())
	}
	shared.Weights(t, fmt.Sprintf("default: 1\nrules:\n  - {application: %s, weight: 4}\n  - {flow: %s, weight: 1}\n", client.Application(31), replication))
	w := write(ctx, t, 31, 6, 2)
	slow(t)
	shared.Hadoop.KillDataNode(0)
	t.Cleanup(func() {
		fixture.Check(t, shared.Hadoop.StartDataNode(ctx, 0))
	})
	left := dataDisks()[1:]
	fixture.Eventually(t, "the NameNode has given the DataNode up, and the others copy", func() bool {
		doc := shared.Look(t)
		for _, d := range left {
			if fixture.Flow(fixture.Device(t, doc, d), replication).Queued == 0 {
				return false
			}
		}
		return true
	})

	before, from := shared.Look(t), disk.Monotonic()
	idle := watch(t, length, left, w.flow, replication)
	after, to := shared.Look(t), disk.Monotonic()
	for _, d := range left {
		name := filepath.Base(d.Device())
		service := func(flowName string) float64 {
			return float64(fixture.Flow(fixture.Device(t, after, d), flowName).ServiceNS - fixture.Flow(fixture.Device(t, before, d), flowName).ServiceNS)
		}
		share := service(replication) / (service(replication) + service(w.flow))
		a := account(t, d, lost, judge.Window{From: from, To: to})
		copies, others := a.Owners[replication], a.Owners["application"]
		judged := copies.Service.Seconds() / (copies.Service + others.Service).Seconds()
		t.Logf("%s: copying has %.3f of the service by Penstock's account, %.3f by the disk's log (%.1f MB read, %.1f MB written), due %.3f; idle %v", name,
			share, judged, mb(copies.ReadBytes), mb(copies.WriteBytes), due, idle[name])
		// Each of the application's blocks goes to both disks, so the slower disk holds the writers
		// back on the faster one. The copies may have the service that the application does not
		// request.
		if idle[name][w.flow] > 0.15 {
			t.Errorf("%s: the application had nothing queued for %.2f of the time: its share has no meaning", name, idle[name][w.flow])
		}
		for _, s := range []float64{share, judged} {
			if s > due*1.25 || s < due*0.6 {
				t.Errorf("%s: copying has %.3f of the service, due %.3f", name, s, due)
			}
		}
	}

	w.stop()
	fixture.Eventually(t, "every block has its replicas again", func() bool {
		s := state(t)
		return s.UnderReplicatedBlocks == 0 && s.PendingReplicationBlocks == 0 && s.MissingBlocks == 0
	})
	if n := live(ctx, t); n != dataNodes-1 {
		t.Errorf("%d DataNodes live, want %d", n, dataNodes-1)
	}
	fixture.Check(t, do(ctx, "get", fmt.Sprintf("path=/lost/file seed=5 bytes=%d", bytes)))
}

// sharedBlocks returns the number of a file's blocks that have replicas on both of two DataNodes.
func sharedBlocks(ctx context.Context, t *testing.T, path string, a, b int) (n int) {
	t.Helper()
	blocks, err := shared.Hadoop.FS().Blocks(ctx, path)
	fixture.Must(t, err)
	for _, block := range blocks {
		if slices.Contains(block.DataNodes, shared.Hadoop.DataNodeAddress(a)) && slices.Contains(block.DataNodes, shared.Hadoop.DataNodeAddress(b)) {
			n++
		}
	}
	return n
}

// watch returns, by device and flow, the part of the time in which the flow had nothing queued.
func watch(t *testing.T, length time.Duration, disks []*disk.Disk, flows ...string) map[string]map[string]float64 {
	t.Helper()
	idle := map[string]map[string]float64{}
	for _, d := range disks {
		idle[filepath.Base(d.Device())] = map[string]float64{}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	looks := 0.0
	for end := time.Now().Add(length); time.Now().Before(end); <-tick.C {
		doc := shared.Look(t)
		looks++
		for _, d := range disks {
			for _, name := range flows {
				if fixture.Flow(fixture.Device(t, doc, d), name).Queued == 0 {
					idle[filepath.Base(d.Device())][name]++
				}
			}
		}
	}
	for _, of := range idle {
		for name := range of {
			of[name] /= looks
		}
	}
	return idle
}

// account returns the service of the copies and of the application on a disk, from the disk's
// request log. Only the copies use the blocks of the lost file.
func account(t *testing.T, d *disk.Disk, lost []string, window judge.Window) judge.Account {
	t.Helper()
	return fixture.Judge(t, d, func(path string) string {
		switch name := hadoop.BlockName(path); {
		case slices.Contains(lost, name):
			return replication
		case name != "":
			return "application"
		}
		return ""
	}, window)[0]
}

// nameNodeState is the NameNode's report on all blocks.
type nameNodeState struct {
	UnderReplicatedBlocks, PendingReplicationBlocks, MissingBlocks, PendingDeletionBlocks int64
}

func state(t *testing.T) (s nameNodeState) {
	t.Helper()
	fixture.Bean(t, shared.Hadoop.NameNodeURL(), "Hadoop:service=NameNode,name=FSNamesystem", &s)
	return s
}
