package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
)

// reconstruction is the flow of HDFS's reconstruction of erasure-coded stripes.
const reconstruction = "reconstruction"

// TestReconstruction: a DataNode loses its disk's contents, and with them a part of each stripe of
// an erasure-coded file. The bytes that HDFS reads and writes to reconstruct these parts are a flow
// of their own on all disks.
func TestReconstruction(t *testing.T) {
	const bytes = 64 * fixture.MiB // half of that on each of the three disks: two with data, one with parity
	ctx := shared.Begin(t, 3*time.Minute)
	shared.Remove(t, "/striped")
	hdfs := shared.Hadoop.FS()
	fixture.Must(t, hdfs.Mkdir(ctx, "/striped"))
	fixture.Must(t, hdfs.SetErasureCoding(ctx, "/striped", "XOR-2-1-1024k"))
	fixture.Must(t, do(ctx, "put", fmt.Sprintf("path=/striped/file seed=9 bytes=%d block=%d", bytes, block)))
	shared.Hadoop.KillDataNode(0)
	fixture.Eventually(t, "the NameNode has given the DataNode up", func() bool { return live(ctx, t) == dataNodes-1 })
	fixture.Must(t, os.RemoveAll(dataDir(shared.Disks[0])))
	for _, d := range dataDisks() {
		if err := d.Forget(); err != nil { // so that the reconstruction reads from the disks
			t.Fatal(err)
		}
	}
	before := shared.Look(t)
	restartDataNode(ctx, t, 0)
	moved := func(d *disk.Disk, name string) (read, written int64) {
		was, is := fixture.Flow(fixture.Device(t, before, d), name).Bytes, fixture.Flow(fixture.Device(t, shared.Look(t), d), name).Bytes
		return is.Read - was.Read, is.Written - was.Written
	}
	fixture.Eventually(t, "the lost parts are on the disk again", func() bool {
		_, written := moved(shared.Disks[0], reconstruction)
		return written >= bytes/2
	})
	_, written := moved(shared.Disks[0], reconstruction)
	t.Logf("the flow wrote %.1f MB to the empty disk", mb(written))
	if written > bytes/2+bytes/20 {
		t.Errorf("the flow wrote %d bytes for %d", written, bytes/2)
	}
	for i, d := range dataDisks()[1:] {
		read, _ := moved(d, reconstruction)
		t.Logf("and read %.1f MB from disk %d", mb(read), i+1)
		if read < bytes/2-bytes/20 || read > bytes/2+bytes/20 {
			t.Errorf("the flow read %d bytes of disk %d for %d", read, i+1, bytes/2)
		}
	}
	fixture.Check(t, do(ctx, "get", fmt.Sprintf("path=/striped/file seed=9 bytes=%d", bytes)))
}

// dataDir returns the DataNode's directory on a disk.
func dataDir(d *disk.Disk) string { return filepath.Join(d.Mount(), "dfs") }
