package failure

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/node/blockfile"
)

// The disks run full in the middle of a block: the client gets HDFS's error, the daemon and the
// DataNodes survive, and all continues when there is space again.
func TestDiskFull(t *testing.T) {
	dir := begin(t)
	d := startGoverning(t)
	f := transfer{app: newApplication(), path: dir + "/too-large", bytes: 64 * fixture.MiB, seed: 9, limit: 16 * fixture.MiB}
	writer := put(t, f)
	writer.awaitStop(t, 16*fixture.MiB)
	pids := [nodes]int{shared.Hadoop.DataNodePID(0), shared.Hadoop.DataNodePID(1)}

	// Earlier tests' blocks are deleted in the background. This must not make room once the disks
	// are full.
	fixture.Eventually(t, "all other blocks are deleted", func() bool {
		files := 0
		for _, d := range shared.Disks {
			eachBlockFile(t, d, func(string) { files++ })
		}
		return files == 2 // the block and its checksums
	})

	var ballast []string
	t.Cleanup(func() {
		for _, path := range ballast {
			os.Remove(path)
		}
	})
	for _, disk := range shared.Disks {
		path := filepath.Join(disk.Mount(), "ballast")
		ballast = append(ballast, path)
		leave(t, path, 8*fixture.MiB)
	}
	writer.to(-1)
	t.Logf("the client's error: %s", writer.fails(t))

	d.awaitMetric(t, is(0), "flow_streams")
	d.awaitMetric(t, is(0), "device_backlog_bytes")
	d.awaitMetric(t, is(0), "device_outstanding")
	d.checkHealthy(t)
	for i, pid := range pids {
		if now := shared.Hadoop.DataNodePID(i); now != pid {
			t.Errorf("DataNode %d: process %d is now %d", i, pid, now)
		}
	}

	for i := range nodes { // the NameNode learns it with a heartbeat
		fixture.Eventually(t, "the NameNode knows that there is no room", func() bool { return dataNode(t, i).Remaining < diskBytes/2 })
	}
	for _, path := range ballast {
		fixture.Must(t, os.Remove(path))
	}
	for i := range nodes {
		fixture.Eventually(t, "the NameNode knows that there is room", func() bool { return dataNode(t, i).Remaining > diskBytes/2 })
	}
	again := transfer{app: newApplication(), path: dir + "/fits", bytes: 32 * fixture.MiB, seed: 10, replication: 2}
	put(t, again).endIntact(t, again)
	for i := range nodes {
		d.awaitMetric(t, atLeast(float64(again.bytes)), "flow_bytes_total", flow(again.app), writes, onDevice(i))
	}
	replicated(t, again)
	readBack(t, again)
}

// leave fills the file system until the given number of bytes is free.
func leave(t *testing.T, path string, bytes int64) {
	t.Helper()
	f, err := os.Create(path)
	fixture.Must(t, err)
	defer f.Close()
	// Deleted space is free when the journal has been committed.
	fixture.Must(t, unix.Syncfs(int(f.Fd())))
	var st unix.Statfs_t
	fixture.Must(t, unix.Fstatfs(int(f.Fd()), &st))
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-bytes); err != nil {
		t.Fatalf("ballast: %v", err)
	}
}

// A DataNode is killed and restarted while clients write and read. The daemon stays.
func TestDataNodeKilledUnderLoad(t *testing.T) {
	dir := begin(t)
	d := startGoverning(t)
	old := transfer{app: newApplication(), path: dir + "/read", bytes: 48 * fixture.MiB, seed: 11, replication: 2}
	put(t, old).endIntact(t, old)
	fixture.Must(t, shared.Forget())

	old.app, old.limit = newApplication(), 8*fixture.MiB
	first := transfer{app: newApplication(), path: dir + "/first", bytes: 48 * fixture.MiB, seed: 12, replication: 2, limit: 16 * fixture.MiB, node: 0}
	second := transfer{app: newApplication(), path: dir + "/second", bytes: 48 * fixture.MiB, seed: 13, replication: 2, limit: 16 * fixture.MiB, node: 1}
	reader, writer, other := get(t, old), put(t, first), put(t, second)
	all := []*operation{reader, writer, other}
	reader.awaitStop(t, 8*fixture.MiB)
	writer.awaitStop(t, 16*fixture.MiB)
	other.awaitStop(t, 16*fixture.MiB)
	d.awaitMetric(t, atLeast(2), "flow_streams", onDevice(1))
	for _, o := range all {
		o.to(-1)
	}
	for _, o := range []*operation{writer, other} {
		o.awaitProgress(t, 17*fixture.MiB)
	}
	shared.Hadoop.KillDataNode(1)
	t.Cleanup(func() { // also when this test fails
		if shared.Hadoop.DataNodePID(1) == 0 {
			restartDataNode(t, 1)
		}
	})
	d.awaitAgents(t, nodes-1)
	d.awaitMetric(t, is(0), "flow_streams", onDevice(1))
	d.awaitMetric(t, is(0), "device_outstanding", onDevice(1))
	restartDataNode(t, 1)
	d.awaitAgents(t, nodes)

	reader.endIntact(t, old)
	writer.endIntact(t, first)
	other.endIntact(t, second)
	for _, f := range []transfer{old, first, second} {
		replicated(t, f)
		readBack(t, f)
	}
	last := transfer{app: newApplication(), path: dir + "/after", bytes: 16 * fixture.MiB, seed: 14, replication: 2}
	put(t, last).endIntact(t, last)
	d.awaitMetric(t, atLeast(float64(last.bytes)), "flow_bytes_total", flow(last.app), writes, onDevice(1))
	d.checkHealthy(t)
}

// Clients that open a block and then do nothing hold no slot of the device. Another client beside
// them has its full rate.
func TestClientStalls(t *testing.T) {
	dir := begin(t)
	d := startGoverning(t)
	f := transfer{app: newApplication(), path: dir + "/read", bytes: 48 * fixture.MiB, seed: 15}
	other := transfer{app: newApplication(), path: dir + "/dawdled", bytes: 48 * fixture.MiB, seed: 16}
	for _, f := range []transfer{f, other} {
		put(t, f).endIntact(t, f)
	}
	timed := func() time.Duration {
		fixture.Must(t, shared.Forget())
		f.app = newApplication()
		begin := time.Now()
		get(t, f).endIntact(t, f)
		return time.Since(begin)
	}
	timed() // the JVMs compile
	alone := timed()

	fixture.Must(t, shared.Forget())
	other.limit = fixture.MiB
	var stalled []*operation
	for range 3 {
		other.app = newApplication()
		stalled = append(stalled, get(t, other))
	}
	dawdler := transfer{app: newApplication(), path: dir + "/written", bytes: 8 * fixture.MiB, seed: 17, limit: fixture.MiB}
	stalled = append(stalled, put(t, dawdler))
	for _, o := range stalled {
		o.awaitStop(t, fixture.MiB)
	}
	since := time.Now()
	device := onDevice(0)
	d.awaitMetric(t, is(len(stalled)), "flow_streams", device)
	d.awaitMetric(t, is(0), "device_outstanding", device)
	beside := []time.Duration{timed(), timed()}
	if got := d.metric(t, "flow_streams", device); got != float64(len(stalled)) {
		t.Errorf("%v streams are open, want the %d that stall", got, len(stalled))
	}
	d.awaitMetric(t, is(0), "device_outstanding", device)
	t.Logf("48 MiB: alone %v, beside %d clients that stall for %v: %v", alone, len(stalled), time.Since(since), beside)
	if best := min(beside[0], beside[1]); best > 2*alone+time.Second {
		t.Errorf("48 MiB take %v beside clients that stall, %v alone", best, alone)
	}
	for _, o := range stalled {
		o.to(-1)
	}
	for _, o := range stalled[:3] {
		o.endIntact(t, other)
	}
	stalled[3].endIntact(t, dawdler)
	readBack(t, dawdler)
}

// Both DataNodes copy blocks to each other while clients write to both.
func TestReplicationBothWaysUnderLoad(t *testing.T) {
	dir := begin(t)
	d := startGoverning(t)
	app := newApplication()
	var copied []transfer
	for i := range 6 {
		copied = append(copied, transfer{app: app, path: fmt.Sprintf("%s/copied%d", dir, i), bytes: 12 * fixture.MiB, seed: int64(20 + i), node: i % nodes})
	}
	var writing []*operation
	for _, f := range copied {
		writing = append(writing, put(t, f))
	}
	for i, o := range writing {
		o.endIntact(t, copied[i])
	}
	fixture.Must(t, shared.Forget())

	var fresh []transfer
	for i := range nodes {
		fresh = append(fresh, transfer{app: newApplication(), path: fmt.Sprintf("%s/fresh%d", dir, i), bytes: 48 * fixture.MiB, seed: int64(30 + i), replication: 2, node: i, limit: 4 * fixture.MiB})
	}
	writing = nil
	for _, f := range fresh {
		writing = append(writing, put(t, f))
	}
	for _, o := range writing {
		o.awaitStop(t, 4*fixture.MiB)
	}
	for _, f := range copied {
		run(t, "setrep", "replication=2 path="+f.path).end(t)
	}
	for _, o := range writing {
		o.to(-1)
	}
	for i, o := range writing {
		o.endIntact(t, fresh[i])
	}
	for _, f := range append(copied, fresh...) {
		replicated(t, f)
	}
	for i := range nodes {
		for _, direction := range []string{reads, writes} {
			d.awaitMetric(t, atLeast(12*fixture.MiB), "flow_bytes_total", `flow="replication"`, direction, onDevice(i))
		}
		d.awaitMetric(t, atLeast(2*48*fixture.MiB/nodes), "flow_bytes_total", flow(fresh[i].app), writes)
	}
	d.awaitMetric(t, is(0), "flow_streams")
	d.awaitMetric(t, is(0), "device_backlog_bytes")
}

// hsync: when it returns, the data is visible to others and on the disk, even while the daemon
// holds the writer back and drains its data.
func TestHsync(t *testing.T) {
	dir := begin(t)
	setModel(t, disk.Model{BytesPerSecond: 10e6})
	d := startGoverning(t)
	at := int64(12 * fixture.MiB)
	f := transfer{app: newApplication(), path: dir + "/synced", bytes: 24 * fixture.MiB, seed: 40, limit: at, hsync: true}
	rival := transfer{app: newApplication(), path: dir + "/rival", bytes: 24 * fixture.MiB, seed: 41}
	beside := put(t, rival)
	writer := put(t, f)
	writer.awaitStop(t, at)
	onDisk(t, f, at)
	part := f
	part.app, part.bytes, part.limit = newApplication(), at, 0
	get(t, part).endIntact(t, part) // by a second client, while the file is open

	writer.to(at + 4*fixture.MiB)
	writer.awaitStop(t, at+4*fixture.MiB)
	onDisk(t, f, at+4*fixture.MiB)
	writer.to(-1)
	writer.endIntact(t, f)
	beside.endIntact(t, rival)
	d.awaitMetric(t, atLeast(float64(f.bytes)), "flow_bytes_total", flow(f.app), writes)
	fixture.Must(t, shared.Hadoop.Check())
	readBack(t, f)
	if _, err := shared.Hadoop.FS().Checksum(context.Background(), f.path); err != nil {
		t.Error(err)
	}
}

// onDisk checks that no page of the file waits to be written. The file has one block, so far of the
// given length.
func onDisk(t *testing.T, f transfer, length int64) {
	t.Helper()
	all, _ := replicas(t, f.path)
	if len(all) != 1 {
		t.Fatalf("%s: replicas %v, want one", f.path, all)
	}
	root := filepath.Join(shared.Disks[f.node].Mount(), "data")
	dir, err := blockfile.OpenDir(root, "/sys")
	fixture.Must(t, err)
	defer dir.Close()
	eachBlockFile(t, shared.Disks[f.node], func(path string) {
		if filepath.Base(path) != all[0].block {
			return
		}
		file, err := dir.Open(path)
		fixture.Must(t, err)
		defer file.Close()
		if size, err := file.Size(); err != nil || size != length {
			t.Errorf("after hsync of %d bytes the block file has %d (%v)", length, size, err)
		}
		if pages, err := file.Query(0, length); err != nil || pages.Unsaved != 0 {
			t.Errorf("after hsync %d bytes are not on the disk (%v)", pages.Unsaved, err)
		}
	})
}

// crawl is a disk that hangs. To make it answer outstanding requests, a test must set the zero model.
var crawl = disk.Model{BytesPerSecond: 4096, Channels: 1}

// hangLength returns how long a disk hangs: PENSTOCK_HANG, such as 20s, or 6 s. After 12 s, the daemon counts the disk as stuck.
func hangLength(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("PENSTOCK_HANG"), "6s"))
	if err != nil || d < time.Second || d > time.Minute {
		t.Fatalf("PENSTOCK_HANG is %q: use a time from 1s to 1m (%v)", os.Getenv("PENSTOCK_HANG"), err)
	}
	return d
}

// A disk hangs for a while in the middle of a write and a read, without a daemon and with one. A file on the other disk is
// read meanwhile. Nothing is lost, and after the hang the daemon delays the writer and the reader by no more than usual.
func TestDiskHangs(t *testing.T) {
	const (
		otherMax = 6 * time.Second // for the file on the other disk
		limit    = 8 * fixture.MiB
	)
	hang := hangLength(t)
	dir := begin(t)
	// scene returns how long after the hang the writer and the reader ended.
	scene := func(name string, seed int64, d *daemon) (after [2]time.Duration) {
		t.Helper()
		other := transfer{app: newApplication(), path: dir + "/other-" + name, bytes: 16 * fixture.MiB, seed: seed, node: 1}
		old := transfer{app: newApplication(), path: dir + "/read-" + name, bytes: 48 * fixture.MiB, seed: seed + 1, node: 0}
		for _, f := range []transfer{other, old} {
			put(t, f).endIntact(t, f)
		}
		fixture.Must(t, shared.Forget())
		f := transfer{app: newApplication(), path: dir + "/written-" + name, bytes: 48 * fixture.MiB, seed: seed + 2, replication: 2, limit: limit}
		old.app, old.limit = newApplication(), limit
		both := []*operation{put(t, f), get(t, old)}
		for _, o := range both {
			o.awaitStop(t, limit)
		}
		fixture.Must(t, shared.SetModel(crawl, shared.Disks[0]))
		begin := time.Now()
		for _, o := range both {
			o.to(-1)
		}
		other.app = newApplication()
		get(t, other).endIntact(t, other)
		read := time.Since(begin)
		if read > otherMax {
			t.Errorf("%s: 16 MiB of the other disk took %v", name, read)
		}
		time.Sleep(time.Until(begin.Add(hang)))
		if d != nil && hang >= 15*time.Second { // see hangLength
			d.awaitMetric(t, atLeast(1), "device_stuck", onDevice(0))
		}
		if at := both[1].at(); at >= old.bytes {
			t.Errorf("%s: the reader has %d bytes of %d: this test has shown nothing", name, at, old.bytes)
		}
		fixture.Must(t, shared.SetModel(disk.Model{}, shared.Disks[0]))
		fixture.Must(t, shared.SetModel(usual, shared.Disks[0]))
		begin = time.Now()
		for i, f := range []transfer{f, old} {
			both[i].endIntact(t, f)
			after[i] = both[i].took(begin)
		}
		t.Logf("%s: a hang of %v; the other disk's file was read in %v; after the hang the writer ended in %v, the reader in %v", name, hang, read, after[0], after[1])
		replicated(t, f)
		readBack(t, f)
		return after
	}
	native := scene("native", 70, nil)
	d := startGoverning(t)
	governed := scene("governed", 80, d)
	for i, what := range []string{"writer", "reader"} {
		// Natively, a writer may end during the hang, because its bytes stay in the page cache.
		if governed[i] > max(native[i], 0)+heldUpMax {
			t.Errorf("the %s ended %v after the hang, natively %v", what, governed[i], native[i])
		}
	}
	d.awaitMetric(t, is(0), "flow_streams")
	d.awaitMetric(t, is(0), "device_stuck")
	d.checkHealthy(t)
}
