package hbase

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/hbase"
	"penstock/lab/poll"
	"penstock/lab/stand"
	"penstock/node/status"
)

// shared is a governed DataNode with an HBase.
var (
	shared fixture.Stand
	server *hbase.HBase
)

// flow is the flow of HBase's servers, which weights names.
const flow = "service:hbase"

// weights returns a weights file that names HBase's servers, which run as this user.
func weights() string {
	return fmt.Sprintf("default: 1\nservices:\n  - {name: hbase, user: \"%[1]d\", program: HRegionServer}\n  - {name: hbase, user: \"%[1]d\", program: HMaster}\n", os.Getuid())
}

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:      "hbase",
		ZooKeeper: true,
		Disks:     []disk.Options{{Name: "disk", Size: 4 << 30}},
		Nodes:     func(*stand.Stand) []daemon.Options { return []daemon.Options{{Mode: "enforce", Weights: weights()}} },
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{NoYARN: true, DataNodes: s.GovernedDataNodes("dfs"), Settings: hadoop.SmallDisks}
		},
		Agents: []int{1},
	}, func(ctx context.Context) error {
		lib, err := hbase.Fetch(ctx, shared.Spec.Cache, fixture.Say)
		if err != nil {
			return err
		}
		server, err = hbase.Start(ctx, hbase.Config{RunDir: shared.Path("hbase"), Lib: lib, Cluster: shared.Hadoop, ZooKeeper: shared.ZooKeeper.Address,
			Settings: map[string]string{
				"hbase.hregion.memstore.flush.size": "8388608",
				"hfile.block.cache.size":            "0.05",
			}, Progress: fixture.Say})
		return err
	})
}

// counters are the DataNode's own counters of bytes. HBase is its only client.
type counters struct{ BytesRead, BytesWritten int64 }

func count(t *testing.T) (c counters) {
	t.Helper()
	fixture.Bean(t, shared.Hadoop.DataNodeURL(0), "Hadoop:service=DataNode,name=DataNodeActivity-*", &c)
	return c
}

// quiet waits until nothing is to be read or written, and returns the daemon's status. The write-ahead log stays open.
func quiet(t *testing.T) *status.Document {
	t.Helper()
	fixture.Eventually(t, "the disk is idle", func() bool {
		return shared.Metric(t, "device_outstanding")+shared.Metric(t, "flow_queued_requests") == 0
	})
	return shared.Look(t)
}

// TestBytes writes and reads rows with PerformanceEvaluation. What the DataNode has moved for the RegionServer is
// attributed to the RegionServer's flow.
func TestBytes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const rows = 60_000 // of 1,000 bytes
	evaluate := func(e hbase.Evaluation) {
		fixture.Must(t, shared.Forget())
		times, err := server.Evaluate(ctx, e)
		fixture.Must(t, err)
		t.Logf("%s: %+v", e.Operation, times)
	}
	evaluate(hbase.Evaluation{Operation: hbase.RandomWrite, Rows: rows, Options: []string{"--presplit=4"}})
	evaluate(hbase.Evaluation{Operation: hbase.RandomRead, Rows: rows})
	doc := quiet(t)
	saw := fixture.Streamed(doc, flow, "persistent")
	var counted counters
	within, stop := context.WithTimeout(ctx, 15*time.Second) // the DataNode publishes its counters every 10 s
	defer stop()
	_ = poll.Until(within, 500*time.Millisecond, func() (bool, error) {
		counted = count(t)
		return alike(saw.Read, counted.BytesRead) && alike(saw.Written, counted.BytesWritten), nil
	})
	t.Logf("Penstock saw %+v, the DataNode %+v", saw, counted)
	if !alike(saw.Read, counted.BytesRead) || !alike(saw.Written, counted.BytesWritten) {
		t.Errorf("Penstock saw %+v, the DataNode %+v", saw, counted)
	}
	if saw.Read < rows*1000 || saw.Written < rows*1000 {
		t.Errorf("%d rows were written and read, but Penstock saw %+v", rows, saw)
	}
	// The DataNode counts the bytes of a scan when the RegionServer has closed the file, which may be long after.
	evaluate(hbase.Evaluation{Operation: hbase.Scan, Rows: rows})
	doc = quiet(t)
	if more := fixture.Streamed(doc, flow, "persistent").Read - saw.Read; more < rows*1000 {
		t.Errorf("%d rows were scanned, but Penstock saw %d bytes", rows, more)
	}
	if n := fixture.Streamed(doc, "unattributed", "persistent"); n.Read+n.Written > 0 {
		t.Errorf("unattributed: %+v", n)
	}
	// A file of some bytes may be written before the daemon has found out which process writes it.
	if n := fixture.Streamed(doc, "clients", "persistent"); (n.Read+n.Written)*1000 > saw.Written {
		t.Errorf("clients: %+v", n)
	}
}

// alike reports whether Penstock's count and the DataNode's differ by at most 1 %.
func alike(saw, counted int64) bool { return max(saw-counted, counted-saw)*100 <= counted }
