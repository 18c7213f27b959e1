package failure

import (
	"net"
	"path/filepath"
	"testing"

	"penstock/e2e/internal/fixture"
	node "penstock/lab/daemon"
	"penstock/lab/stand"
	"penstock/node/ipc"
	"penstock/wire"
)

// While a job writes, other peers send invalid data to the daemon.
func TestBadFrames(t *testing.T) {
	dir := begin(t)
	d := startGoverning(t)
	f := transfer{app: newApplication(), path: dir + "/beside", bytes: 64 * fixture.MiB, seed: 8, replication: 2, limit: 8 * fixture.MiB}
	writer := put(t, f)
	writer.awaitStop(t, 8*fixture.MiB)

	data := filepath.Join(shared.Disks[0].Mount(), "data")
	hello, err := node.Hello(data)
	fixture.Must(t, err)
	bad, err := node.BadFrames(data)
	fixture.Must(t, err)
	before := d.metric(t, "agent_bad_frames_total")
	for _, b := range bad {
		if err := node.Refused(shared.Socket(0), b.Bytes, stand.Patience); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	d.awaitMetric(t, atLeast(before+float64(len(bad))), "agent_bad_frames_total")

	// Half frames: one peer disconnects, others stay connected and send nothing more.
	for range 3 {
		c := dial(t)
		c.Write(hello[:len(hello)/2])
		c.Close()
	}
	for range 3 {
		c := dial(t)
		c.Write(append(append([]byte(nil), hello...), 0, 12, 4, 1, 0, 0)) // of a PROGRESS
		c = dial(t)
		c.Write(hello[:3])
	}
	// If a peer names files of another user, none is opened, and its connection stays.
	before = d.metric(t, "agent_open_errors_total")
	c := dial(t)
	c.Write(hello)
	paths := []string{"/etc/passwd", data + "/../../ledger.jsonl", data + "/VERSION-that-is-not-there", data, "/dev/zero"}
	for i, p := range paths {
		open, err := wire.Append(nil, wire.Open{Stream: uint32(i), Direction: wire.Read, Flow: f.app.flow(), Path: p, To: 1 << 40})
		fixture.Must(t, err)
		c.Write(open)
	}
	d.awaitMetric(t, is(int(before)+len(paths)), "agent_open_errors_total")
	// More peers than the daemon accepts.
	before = d.metric(t, "agent_connections_refused_total")
	for range ipc.MaxServers {
		dial(t).Write(hello)
	}
	d.awaitMetric(t, func(v float64) bool { return v > before }, "agent_connections_refused_total")

	// The other peers are served all the time.
	writer.to(-1)
	writer.endIntact(t, f)
	d.checkHealthy(t)
	for i := range nodes {
		d.awaitMetric(t, atLeast(float64(f.bytes)), "flow_bytes_total", flow(f.app), writes, onDevice(i))
	}
	readBack(t, f)
}

// dial connects to the daemon for as long as the test lasts.
func dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", shared.Socket(0))
	fixture.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
