package failure

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

const (
	nodes     = 2
	diskBytes = 1024 * fixture.MiB
)

// usual is the disks' speed unless a test sets another.
var usual = disk.Model{BytesPerSecond: 40e6, SeekMin: time.Millisecond, SeekMax: 4 * time.Millisecond}

// shared is a small HDFS. Each test starts its own daemon.
var shared fixture.Stand

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:  "failure",
		Disks: []disk.Options{{Name: "disk0", Size: diskBytes}, {Name: "disk1", Size: diskBytes}},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			cfg := hadoop.Config{DataNodes: s.GovernedDataNodes("data"), NoYARN: true, Settings: map[string]string{
				// Time until the NameNode retries a copy that met a stale replica from before a
				// DataNode's restart; the default is minutes.
				"dfs.namenode.reconstruction.pending.timeout-sec": "3",
				// A replica that was left unfinished, and reported while the block is still written
				// elsewhere, prevents a new copy until the next full report: by default, for hours.
				"dfs.blockreport.intervalMsec": "3000",
			}}
			maps.Copy(cfg.Settings, hadoop.SmallDisks)
			return cfg
		},
		Clients: true,
	}, func(context.Context) error { return shared.SetModel(usual) })
}

// begin gives a test its own folder in HDFS, which is removed with the test, and disks of the usual
// speed. At the test's end it checks the cluster's processes.
func begin(t *testing.T) (dir string) {
	t.Helper()
	started := time.Now()
	dir = "/" + t.Name()
	setModel(t, usual)
	for i := range nodes {
		fixture.Eventually(t, "the NameNode knows of room on the disks", func() bool { return dataNode(t, i).Remaining > diskBytes/2 })
	}
	t.Cleanup(func() {
		setModel(t, disk.Model{}) // so that dirty pages are written back quickly
		fixture.Check(t, shared.Hadoop.FS().Remove(context.Background(), dir))
		fixture.Check(t, shared.Hadoop.Check())
		t.Logf("%.1f s", time.Since(started).Seconds())
	})
	return dir
}

// setModel sets the disks' speed until the next test begins.
func setModel(t *testing.T, m disk.Model) {
	t.Helper()
	fixture.Must(t, shared.SetModel(m))
}

// eachBlockFile visits the files of blocks and of their checksums on a disk.
func eachBlockFile(t *testing.T, d *disk.Disk, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(d.Mount(), "data"), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && e.Type().IsRegular() && strings.HasPrefix(e.Name(), "blk_") {
			visit(path)
		}
		return err
	})
	fixture.Must(t, err)
}

// restartDataNode kills DataNode i with -9 unless that is done, and starts it.
func restartDataNode(t *testing.T, i int) {
	t.Helper()
	if shared.Hadoop.DataNodePID(i) != 0 {
		shared.Hadoop.KillDataNode(i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stand.Patience)
	defer cancel()
	fixture.Must(t, shared.Hadoop.StartDataNode(ctx, i))
}
