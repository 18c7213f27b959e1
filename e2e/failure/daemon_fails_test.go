package failure

import (
	"syscall"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
)

// heldUpMax is the longest stop of a client after the daemon's end. The promise is a second; a busy
// machine needs more for any operation.
const heldUpMax = 5 * time.Second

// Agents that start before any daemon let all I/O pass, and are governed as soon as there is a
// daemon.
func TestAgentStartsWithoutDaemon(t *testing.T) {
	dir := begin(t)
	if daemons > 0 { // these agents have seen a daemon: start new ones
		for i := range nodes {
			restartDataNode(t, i)
		}
	}
	f := transfer{app: newApplication(), path: dir + "/before", bytes: 24 * fixture.MiB, seed: 1, replication: 2}
	put(t, f).endIntact(t, f)
	readBack(t, f)

	d := startGoverning(t)
	readBack(t, f)
	d.awaitMetric(t, atLeast(float64(f.bytes)), "flow_bytes_total", flow(f.app), reads)
	f = transfer{app: newApplication(), path: dir + "/after", bytes: 24 * fixture.MiB, seed: 2, replication: 2}
	put(t, f).endIntact(t, f)
	for i := range nodes {
		d.awaitMetric(t, atLeast(float64(f.bytes)), "flow_bytes_total", flow(f.app), writes, onDevice(i))
	}
	readBack(t, f)
}

// The daemon is killed with -9 while one application reads and one writes, and
// started again before they end.
func TestDaemonKilledMidReadAndMidWrite(t *testing.T) {
	dir := begin(t)
	old := transfer{app: newApplication(), path: dir + "/read", bytes: 96 * fixture.MiB, seed: 3}
	put(t, old).endIntact(t, old)
	fixture.Must(t, shared.Forget())

	d := startGoverning(t)
	old.app, old.limit = newApplication(), 16*fixture.MiB
	fresh := transfer{app: newApplication(), path: dir + "/written", bytes: 96 * fixture.MiB, seed: 4, replication: 2, limit: 16 * fixture.MiB}
	reader, writer := get(t, old), put(t, fresh)
	both := []*operation{reader, writer}
	for _, o := range both {
		o.awaitStop(t, 16*fixture.MiB)
	}
	for _, a := range []application{old.app, fresh.app} {
		d.awaitMetric(t, atLeast(1), "flow_streams", flow(a))
		d.awaitMetric(t, atLeast(8*fixture.MiB), "flow_bytes_total", flow(a))
	}

	// At work, and not at a stop.
	for _, o := range both {
		o.to(64 * fixture.MiB)
	}
	for _, o := range both {
		o.awaitProgress(t, 17*fixture.MiB)
	}
	for _, o := range both {
		o.watch()
		if at := o.at(); at >= 64*fixture.MiB {
			t.Fatalf("%s: at its stop before the daemon is killed", o.what)
		}
	}
	d.kill(t)
	for _, o := range both {
		if held := o.heldUp(t); held > heldUpMax {
			t.Errorf("%s: held up for %v by a dead daemon", o.what, held)
		}
	}
	for _, o := range both {
		o.awaitStop(t, 64*fixture.MiB)
	}

	d = startGoverning(t)
	d.awaitMetric(t, atLeast(1), "flow_streams", flow(fresh.app))
	for _, o := range both {
		o.to(-1)
	}
	reader.endIntact(t, old)
	writer.endIntact(t, fresh)
	// The new daemon governs all bytes after its start, except those that the reader's socket had
	// already buffered.
	d.awaitMetric(t, atLeast(8*fixture.MiB), "flow_bytes_total", flow(old.app), reads)
	for i := range nodes {
		d.awaitMetric(t, atLeast(16*fixture.MiB), "flow_bytes_total", flow(fresh.app), writes, onDevice(i))
	}
	d.awaitMetric(t, is(0), "flow_streams")
	replicated(t, fresh)
	readBack(t, fresh)
}

// The daemon is stopped: it keeps its connections, but sends nothing. Operations end while it is
// stopped. When it continues, it governs again.
func TestDaemonStopped(t *testing.T) {
	dir := begin(t)
	old := transfer{app: newApplication(), path: dir + "/read", bytes: 64 * fixture.MiB, seed: 5}
	put(t, old).endIntact(t, old)
	fixture.Must(t, shared.Forget())

	d := startGoverning(t)
	old.app, old.limit = newApplication(), 16*fixture.MiB
	fresh := transfer{app: newApplication(), path: dir + "/written", bytes: 64 * fixture.MiB, seed: 6, replication: 2, limit: 16 * fixture.MiB}
	reader, writer := get(t, old), put(t, fresh)
	both := []*operation{reader, writer}
	for _, o := range both {
		o.awaitStop(t, 16*fixture.MiB)
		o.to(-1)
	}
	for _, o := range both {
		o.awaitProgress(t, 18*fixture.MiB)
	}
	d.signal(t, syscall.SIGSTOP)
	fixture.Eventually(t, "the daemon is stopped", func() bool { return d.state(t) == "T" })
	for _, o := range both {
		o.watch()
	}
	for _, o := range both {
		if held := o.heldUp(t); held > heldUpMax {
			t.Errorf("%s: held up for %v by a stopped daemon", o.what, held)
		}
	}
	reader.endIntact(t, old)
	writer.endIntact(t, fresh)
	if s := d.state(t); s != "T" {
		t.Fatalf("the daemon's state is %s: this test has shown nothing", s)
	}

	d.signal(t, syscall.SIGCONT)
	d.awaitAgents(t, nodes)
	d.awaitMetric(t, is(0), "flow_streams")
	replicated(t, fresh)
	fresh.app = newApplication()
	readBack(t, fresh)
	d.awaitMetric(t, atLeast(float64(fresh.bytes)*3/4), "flow_bytes_total", flow(fresh.app), reads)
	last := transfer{app: newApplication(), path: dir + "/after", bytes: 16 * fixture.MiB, seed: 7}
	put(t, last).endIntact(t, last)
	d.awaitMetric(t, atLeast(float64(last.bytes)), "flow_bytes_total", flow(last.app), writes)
}

// The daemon is stopped by SIGTERM while a client writes, and started again, as in an upgrade. The client goes on in
// between, and is governed afterwards.
func TestDaemonRestarted(t *testing.T) {
	dir := begin(t)
	d := startGoverning(t)
	f := transfer{app: newApplication(), path: dir + "/written", bytes: 64 * fixture.MiB, seed: 8, replication: 2, limit: 8 * fixture.MiB}
	writer := put(t, f)
	writer.awaitStop(t, 8*fixture.MiB)
	writer.to(32 * fixture.MiB)
	writer.awaitProgress(t, 9*fixture.MiB)
	writer.watch()
	fixture.Must(t, d.Stop())
	if held := writer.heldUp(t); held > heldUpMax {
		t.Errorf("held up for %v by the end of the daemon", held)
	}
	writer.awaitStop(t, 32*fixture.MiB)
	d = startGoverning(t)
	d.awaitMetric(t, atLeast(1), "flow_streams", flow(f.app))
	writer.to(-1)
	writer.endIntact(t, f)
	for i := range nodes {
		d.awaitMetric(t, atLeast(24*fixture.MiB), "flow_bytes_total", flow(f.app), writes, onDevice(i))
	}
	replicated(t, f)
}
