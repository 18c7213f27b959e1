package hbase

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/hbase"
	"penstock/lab/stand"
)

// shared is a governed DataNode with an HBase.
var (
	shared fixture.Stand
	server *hbase.HBase
)

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:      "hbase",
		ZooKeeper: true,
		Disks:     []disk.Options{{Name: "disk", Size: 4 << 30}},
		Nodes:     func(*stand.Stand) []daemon.Options { return []daemon.Options{{Mode: "enforce"}} },
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

// counters are the RegionServer's own counters of bytes. They include what it read from HDFS in all ways.
type counters struct {
	Read int64 `json:"totalBytesRead"`
}

func count(t *testing.T) (c counters) {
	t.Helper()
	fixture.Bean(t, server.RegionServerURL(), "Hadoop:service=HBase,name=RegionServer,sub=Server", &c)
	return c
}

// TestBytes writes and reads rows with PerformanceEvaluation. The bytes that the RegionServer counts are attributed to its flow.
func TestBytes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const rows = 60_000
	load, err := server.Evaluate(ctx, hbase.Evaluation{Operation: hbase.RandomWrite, Rows: rows, Options: []string{"--presplit=4"}})
	fixture.Must(t, err)
	t.Logf("writes: %+v", load)
	fixture.Must(t, shared.Forget())
	before, own := shared.Settled(t), count(t)
	reads, err := server.Evaluate(ctx, hbase.Evaluation{Operation: hbase.RandomRead, Rows: rows / 4})
	fixture.Must(t, err)
	t.Logf("reads: %+v", reads)
	after := shared.Settled(t)
	for _, flow := range []string{"clients", "unattributed"} {
		p := fixture.StreamedBetween(before, after, flow, "persistent")
		t.Logf("%-12s %8.2f MB read, %8.2f MB written", flow, float64(p.Read)/1e6, float64(p.Written)/1e6)
	}
	t.Logf("HBase: %+v before, %+v after; logs in %s", own, count(t), filepath.Join(shared.Dir, "hadoop", "logs"))
}
