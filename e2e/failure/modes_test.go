package failure

import (
	"os"
	"testing"

	"penstock/testbed/disk"
)

// crawl is slow enough that a writer who is not held is done long before the
// disk has what it wrote, on any machine.
var crawl = disk.Model{BytesPerSecond: 2e6}

// ahead is how far a file's writer may be ahead of a disk that is governed:
// the backlog's bound and what clients have on their way.
const ahead = 16 * mib

// TestObserveAndKillSwitch walks through the modes while applications write to a
// slow disk. Whether a writer is held is seen in what the disk has been given
// by the time that the client is done.
func TestObserveAndKillSwitch(t *testing.T) {
	dir := begin(t)
	setModel(t, crawl)
	d := startDaemon(t, "observe")
	d.awaitAgents(t, nodes)
	d.setWeights(t, "default: 1000\nrules:\n- {application: \"application_*\", weight: 1}\n")
	d.awaitMetric(t, atLeast(1), "weights_reloads_total", `result="taken"`)

	free := transfer{app: newApplication(), path: dir + "/observed", bytes: 64 * mib, seed: 50}
	before := written(t, small.disks[0])
	put(t, free).endIntact(t, free)
	if given := written(t, small.disks[0]) - before; given > free.bytes-ahead {
		t.Errorf("observe: the disk had %d of %d bytes when the client was done: it was held", given, free.bytes)
	}
	setModel(t, disk.Model{}) // the wait ends, and is then accounted for
	d.awaitMetric(t, func(v float64) bool { return v > 0 }, "flow_would_wait_seconds_total", flow(free.app))
	d.awaitMetric(t, is(0), "device_backlog_bytes")
	setModel(t, crawl)

	// The same weights file switches to enforcing, live.
	d.setWeights(t, "mode: enforce\n")
	d.awaitMetric(t, is(2), "mode")
	held := transfer{app: newApplication(), path: dir + "/held", bytes: 64 * mib, seed: 51}
	before = written(t, small.disks[0])
	writer := put(t, held)
	d.awaitMetric(t, atLeast(1), "flow_waits_total", flow(held.app))
	d.awaitMetric(t, atLeast(2*mib), "flow_bytes_total", flow(held.app), writes)
	if given, at := written(t, small.disks[0])-before, writer.at(); at > given+ahead {
		t.Errorf("enforce: the client is at %d and the disk has %d: it was not held", at, given)
	}

	// The kill switch lets it go, at once.
	kill := small.socket + ".off"
	t.Cleanup(func() { os.Remove(kill) })
	if err := os.WriteFile(kill, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d.awaitMetric(t, is(0), "mode")
	writer.endIntact(t, held)
	if given := written(t, small.disks[0]) - before; given > held.bytes-ahead {
		t.Errorf("kill switch: the disk had %d of %d bytes when the client was done: it was held", given, held.bytes)
	}
	setModel(t, usual)
	if err := os.Remove(kill); err != nil {
		t.Fatal(err)
	}
	d.awaitMetric(t, is(2), "mode")
	for _, f := range []transfer{free, held} {
		f.app = newApplication()
		readBack(t, f)
		d.awaitMetric(t, atLeast(float64(f.bytes)*3/4), "flow_bytes_total", flow(f.app), reads)
	}
}

// at is where the client is.
func (o *operation) at() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.progress
}
