package failure

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/node/status"
)

// A volume that `hdfs dfsadmin -reconfig` adds to a running DataNode is governed. When it is removed, its disk can be
// unmounted at once. Mounted and added again, it is governed again. Neither the DataNode nor the daemon is restarted.
func TestHotSwappedVolume(t *testing.T) {
	dir := begin(t)
	ctx := context.Background()
	spare, err := disk.Start(ctx, disk.Options{Name: "spare", RunDir: shared.Dir, Size: 256 * fixture.MiB})
	fixture.Must(t, err)
	d := startGoverning(t)
	pid := shared.Hadoop.DataNodePID(0)
	volume := filepath.Join(spare.Mount(), "data")
	device := `device="` + filepath.Base(spare.Device()) + `"`
	volumes := func(more ...hadoop.Volume) {
		t.Helper()
		fixture.Must(t, shared.Hadoop.ReconfigureDataNode(ctx, 0, map[string]string{"dfs.datanode.data.dir": shared.Hadoop.DataDirs(0, more...)}))
	}
	added := false
	t.Cleanup(func() {
		if added {
			volumes()
		}
		fixture.Check(t, shared.Hadoop.ConfigureDataNode(0, nil))
		fixture.Check(t, spare.Stop())
	})
	governed := func() bool {
		doc, err := status.Fetch(ctx, d.Address)
		return err == nil && slices.ContainsFunc(doc.Devices, func(s status.Device) bool { return slices.Contains(s.Directories, volume) })
	}

	app := newApplication()
	written := 0.0
	use := func(name string, seed int64) {
		t.Helper()
		volumes(hadoop.Volume{Dir: volume})
		added = true
		fixture.Eventually(t, "the volume is governed", governed)
		// The DataNode takes its volumes in turn.
		const each = 8 * fixture.MiB
		for i := range int64(2) {
			f := transfer{app: app, path: dir + "/" + name + string('0'+rune(i)), bytes: each, seed: seed + i}
			put(t, f).endIntact(t, f)
			fixture.Must(t, shared.Forget())
			readBack(t, f)
		}
		written += each
		d.awaitMetric(t, atLeast(written), "flow_bytes_total", flow(app), writes, device)
	}
	use("first", 50)
	fixture.Must(t, shared.Hadoop.FS().Remove(ctx, dir))
	volumes()
	added = false
	fixture.Eventually(t, "the volume is not governed", func() bool { return !governed() })
	d.awaitAgents(t, nodes)
	// What was written is drained first, and Hadoop closes its files in the background.
	var busy error
	fixture.Eventually(t, "the disk can be unmounted", func() bool { busy = unix.Unmount(spare.Mount(), 0); return busy == nil },
		func() string { return busy.Error() })
	fixture.Must(t, unix.Mount(spare.Device(), spare.Mount(), "ext4", unix.MS_NOATIME, "discard"))
	use("again", 60)
	if now := shared.Hadoop.DataNodePID(0); now != pid || !d.Alive() {
		t.Errorf("DataNode %d is now %d; the daemon runs: %v", pid, now, d.Alive())
	}
}
