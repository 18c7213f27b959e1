package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/wire"
)

// TestAClaimOfTerabytes: after a PROGRESS of a sparse file's size, only the space that the file
// occupies on the disk is charged.
func TestAClaimOfTerabytes(t *testing.T) {
	n := startNode(t, options{})
	setModel(t, 0, usual)
	r := readOn(t, n, 0)
	watch(t, n)
	path := filepath.Join(attackersDir(0), "sparse")
	f, err := os.Create(path)
	fixture.Must(t, err)
	t.Cleanup(func() {
		f.Close()
		os.Remove(path)
	})
	const claim, written = 4 << 40, 3 * mib
	fixture.Must(t, f.Truncate(claim))
	if _, err := f.WriteAt(make([]byte, written), 0); err != nil {
		t.Fatal(err)
	}
	var a *agent
	r.keepsItsRate(t, func() func() {
		if a, err = connect(n.socket, task(attackersDir(0))); err != nil {
			t.Fatal(err)
		}
		for i, kind := range []wire.Kind{wire.Persistent, wire.Intermediate} {
			open := wire.Open{Stream: uint32(i), Direction: wire.Write, Kind: kind, Flow: attacker, Path: path}
			fixture.Must(t, a.tell(open, wire.Progress{Stream: uint32(i), Position: claim}))
		}
		return func() {}
	})
	flow := fmt.Sprintf("flow=%q", attacker)
	if got := n.metric(t, "flow_backlog_bytes", flow); got > 2*(written+mib) {
		t.Errorf("a backlog of %.0f bytes", got)
	}
	for stream := range uint32(2) {
		fixture.Must(t, a.tell(wire.Close{Stream: stream, Position: claim}))
	}
	fixture.EventuallyWithin(t, "the streams are closed", patience, func() bool { return n.metric(t, "flow_streams", flow) == 0 })
	time.Sleep(time.Second)
	moved, requests := n.metric(t, "flow_bytes_total", flow), n.metric(t, "flow_requests_total", flow)
	streamed := n.metric(t, "flow_streamed_bytes_total", flow)
	t.Logf("two claims of 4 TiB, %d bytes written of each: %.0f bytes count as written, %.0f were moved in %.0f requests, %.0f are backlog",
		written, streamed, moved, requests, n.metric(t, "flow_backlog_bytes", flow))
	if most := 2.0 * (written + 64*kib); moved > most || streamed > most {
		t.Errorf("%.0f bytes charged and %.0f counted, want at most %.0f", moved, streamed, most)
	}
	if requests > 2*(written/mib+2) {
		t.Errorf("%.0f requests", requests)
	}
	a.close()
}

// TestALargeMetaFile: a meta file of any size is read only as far as its block needs, in quanta.
// However long that takes, the disk does not count as stuck.
func TestALargeMetaFile(t *testing.T) {
	n := startNode(t, options{stuck: "2s"})
	const block = 32 * mib
	path := cold(t, filepath.Join(dataDir(0), "blk_77"), block, 0)
	meta := cold(t, filepath.Join(dataDir(0), "blk_77_1001.meta"), 128*mib, 0)
	setModel(t, 0, disk.Model{BytesPerSecond: 1_500_000}) // a quantum takes 0.7 s, the whole meta file 90 s
	watch(t, n)
	a, err := connect(n.socket, wire.Hello{Role: wire.RoleDataNode, Directories: []string{dataDir(0)}})
	fixture.Must(t, err)
	defer a.close()
	fixture.Must(t, a.tell(wire.Open{Stream: 1, Direction: wire.Read, Flow: neighbour, Path: path, Meta: meta, To: block}))
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if n.metric(t, "device_stuck") > 0 {
			t.Fatal("the disk counts as stuck")
		}
	}
	mark, opened := a.await(1, 0, patience)
	if opened || mark == wire.Unlimited {
		t.Error("the gate is open")
	}
	got, most := resident(t, meta), int64(block/512*4+4096+128*kib)
	t.Logf("%d KiB of the meta file were staged, the block's mark is at %d KiB", got/kib, mark/kib)
	if got > most {
		t.Errorf("%d bytes of the meta file, want at most %d", got, most)
	}
}

// TestAnotherUsersFile: no frame makes the daemon open or stage a file of another user for a task,
// neither as its block, nor as its meta file, nor by a name that leads there.
func TestAnotherUsersFile(t *testing.T) {
	n := startNode(t, options{})
	setModel(t, 0, usual)
	secret := cold(t, filepath.Join(localDir(0), "blk_5"), 4*mib, 0)
	meta := cold(t, filepath.Join(localDir(0), "blk_5_1001.meta"), 4*mib, 0)
	hdfs := cold(t, filepath.Join(dataDir(0), "blk_6"), 4*mib, 0)
	secrets := []string{secret, meta, hdfs}
	own := cold(t, filepath.Join(attackersDir(0), "blk_5"), mib, nobody)
	ownMeta := cold(t, filepath.Join(attackersDir(0), "blk_5_1001.meta"), mib, nobody)
	for _, link := range []struct{ to, at string }{{secret, "link"}, {localDir(0), "up"}} {
		at := filepath.Join(attackersDir(0), link.at)
		fixture.Must(t, os.Symlink(link.to, at))
		t.Cleanup(func() { os.Remove(at) })
	}
	hard := filepath.Join(attackersDir(0), "hard")
	fixture.Must(t, os.Link(secret, hard))
	t.Cleanup(func() { os.Remove(hard) })
	watch(t, n)
	c := run(t, plan{Attack: "others", User: nobody, Socket: n.socket, Dir: localDir(0), Path: attackersDir(0)}).end(t)
	t.Logf("%d opens, %d of them let through and not governed", c["opens"], c["let"])
	if c["governed"] != 1 || c["let"] != c["opens"]-1 {
		t.Errorf("%v: want one governed stream, of the attacker's own file", c)
	}
	for _, path := range append(secrets, ownMeta) {
		if got := resident(t, path); got > 0 {
			t.Errorf("%d bytes of %s were staged", got, path)
		}
	}
	if resident(t, own) == 0 {
		t.Error("the attacker's own file was not staged: this test has shown nothing")
	}
	if got := n.metric(t, "agent_open_errors_total"); got != float64(c["let"]) {
		t.Errorf("%.0f open errors are counted, want %d", got, c["let"])
	}
}
