package node

import (
	"fmt"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
)

// balancer is the flow of the copies that HDFS's balancer makes DataNodes do.
const balancer = "balancer"

// TestBalancer: a DataNode comes back empty, and the balancer fills it. The copies are a flow of
// their own, on the disks that are read and on the disk that is written.
func TestBalancer(t *testing.T) {
	const bytes = 480 * fixture.MiB // a twelfth of a disk: the others are 4 % above the mean
	ctx := shared.Begin(t, 5*time.Minute)
	shared.Remove(t, "/unbalanced")
	// Files that an earlier test has removed would count as used space of the DataNodes.
	deleted := func() bool { return state(t).PendingDeletionBlocks == 0 }
	fixture.Eventually(t, "removed files are deleted", deleted)
	shared.Hadoop.KillDataNode(0)
	fixture.Eventually(t, "the NameNode has given the DataNode up", func() bool { return live(ctx, t) == dataNodes-1 })
	err := do(ctx, "put", fmt.Sprintf("path=/unbalanced seed=6 bytes=%d block=%d replication=2", bytes, block))
	restartDataNode(ctx, t, 0)
	fixture.Must(t, err)
	fixture.Eventually(t, "removed files are deleted there as well", deleted)
	for _, d := range dataDisks() {
		if err := d.Forget(); err != nil { // so that the copied blocks are read from the disk
			t.Fatal(err)
		}
	}
	before := shared.Look(t)
	_, wroteBefore, err := shared.Disks[0].Counters()
	fixture.Must(t, err)
	fixture.Must(t, shared.Hadoop.Balance(ctx, 1))
	moved := func(d *disk.Disk) (read, written int64) {
		was, is := fixture.Flow(fixture.Device(t, before, d), balancer).Bytes, fixture.Flow(fixture.Device(t, shared.Look(t), d), balancer).Bytes
		return is.Read - was.Read, is.Written - was.Written
	}
	var written, read int64
	fixture.Eventually(t, "all copies are on the disk", func() bool {
		_, written = moved(shared.Disks[0])
		return written >= 64*fixture.MiB && fixture.Flow(fixture.Device(t, shared.Look(t), shared.Disks[0]), balancer).BacklogBytes == 0
	})
	for _, d := range dataDisks()[1:] {
		r, _ := moved(d)
		read += r
	}
	_, wrote, err := shared.Disks[0].Counters()
	fixture.Must(t, err)
	t.Logf("the balancer's flow wrote %.1f MB to the empty disk, which wrote %.1f, and read %.1f MB from the others", mb(written), mb(wrote-wroteBefore), mb(read))
	if off := float64(read)/float64(written) - 1; off < -0.05 || off > 0.05 {
		t.Errorf("the balancer's flow read %d bytes and wrote %d", read, written)
	}
	if off := float64(written) / float64(wrote-wroteBefore); off < 0.9 || off > 1.02 {
		t.Errorf("the balancer's flow wrote %d bytes of %d that the disk did", written, wrote-wroteBefore)
	}
	if n := fixture.Flow(fixture.Device(t, shared.Look(t), shared.Disks[0]), "unattributed").Bytes.Written - fixture.Flow(fixture.Device(t, before, shared.Disks[0]), "unattributed").Bytes.Written; n > fixture.MiB {
		t.Errorf("%d bytes are unattributed", n)
	}
}
