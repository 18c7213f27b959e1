package traffic

import (
	"fmt"
	"testing"
	"time"

	"penstock/lab/disk"
)

// balancer is the flow of what HDFS's balancer has DataNodes copy.
const balancer = "balancer"

// TestBalancer: a DataNode comes back empty, and the balancer fills it. What it has
// copied is a flow of its own, on the disks that are read and on the one that is written.
func TestBalancer(t *testing.T) {
	const bytes = 480 * mib // a twelfth of a disk: the others are 4 % above the mean
	ctx := begin(t, 5*time.Minute)
	remove(t, "/unbalanced")
	// What an earlier test has removed would count for the DataNodes as used.
	deleted := func() bool { return state(ctx, t).PendingDeletionBlocks == 0 }
	eventually(t, "what was removed is deleted", deleted)
	bed.cluster.KillDataNode(0)
	eventually(t, "the NameNode has given the DataNode up", func() bool { return live(ctx, t) == dataNodes-1 })
	err := do(ctx, "put", fmt.Sprintf("path=/unbalanced seed=6 bytes=%d block=%d replication=2", bytes, block))
	again(ctx, t, 0)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "what was removed is deleted there as well", deleted)
	for _, d := range bed.disks {
		if err := d.Forget(); err != nil { // what is copied is read from the disk
			t.Fatal(err)
		}
	}
	before := look(t)
	_, wroteBefore, err := bed.disks[0].Counters()
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.cluster.Balance(ctx, 1); err != nil {
		t.Fatal(err)
	}
	moved := func(d *disk.Disk) (read, written int64) {
		was, is := flow(device(t, before, d), balancer).Bytes, flow(device(t, look(t), d), balancer).Bytes
		return is.Read - was.Read, is.Written - was.Written
	}
	var written, read int64
	eventually(t, "all that was copied is at the disk", func() bool {
		_, written = moved(bed.disks[0])
		return written >= 64*mib && flow(device(t, look(t), bed.disks[0]), balancer).BacklogBytes == 0
	})
	for _, d := range bed.disks[1:] {
		r, _ := moved(d)
		read += r
	}
	_, wrote, err := bed.disks[0].Counters()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the balancer's flow wrote %.1f MB to the empty disk, which wrote %.1f, and read %.1f MB from the others", mb(written), mb(wrote-wroteBefore), mb(read))
	if off := float64(read)/float64(written) - 1; off < -0.05 || off > 0.05 {
		t.Errorf("the balancer's flow read %d bytes and wrote %d", read, written)
	}
	if off := float64(written) / float64(wrote-wroteBefore); off < 0.9 || off > 1.02 {
		t.Errorf("the balancer's flow wrote %d bytes of %d that the disk did", written, wrote-wroteBefore)
	}
	if n := flow(device(t, look(t), bed.disks[0]), "unattributed").Bytes.Written - flow(device(t, before, bed.disks[0]), "unattributed").Bytes.Written; n > mib {
		t.Errorf("%d bytes are unattributed", n)
	}
}
