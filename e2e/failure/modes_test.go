package failure

import (
	"os"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
)

// TestObserveAndKillSwitch switches through the modes while applications write faster than the
// disks can. The agent's count of waits shows whether a writer is held back. Durations would depend
// on the machine as much as on the mode.
func TestObserveAndKillSwitch(t *testing.T) {
	dir := begin(t)
	crawl := disk.Model{BytesPerSecond: 4e6}
	setModel(t, crawl)
	d := startDaemon(t, "observe")
	d.awaitAgents(t, nodes)
	d.setWeights(t, "default: 1000\nrules:\n- {application: \"application_*\", weight: 1}\n")
	d.awaitMetric(t, atLeast(1), "weights_reloads_total", `result="taken"`)
	awaitMode(t, "observe")

	before := agentGates(t, 0)
	free := transfer{app: newApplication(), path: dir + "/observed", bytes: 32 * fixture.MiB, seed: 50}
	put(t, free).endIntact(t, free)
	if got := agentGates(t, 0).GateWaits; got != before.GateWaits {
		t.Errorf("observe: the writer has waited %d times", got-before.GateWaits)
	}
	// The backlog is drained, and the wait that enforce mode would have caused ends.
	setModel(t, disk.Model{})
	d.awaitMetric(t, func(v float64) bool { return v > 0 }, "flow_would_wait_seconds_total", flow(free.app))
	d.awaitMetric(t, atLeast(float64(free.bytes)), "flow_bytes_total", flow(free.app), writes)
	setModel(t, crawl)

	// The same weights file switches to enforcing, live.
	d.setWeights(t, "mode: enforce\n")
	awaitMode(t, "enforce")
	before = agentGates(t, 0)
	held := transfer{app: newApplication(), path: dir + "/held", bytes: 48 * fixture.MiB, seed: 51, limit: 16 * fixture.MiB}
	writer := put(t, held)
	fixture.Eventually(t, "enforce: the writer waits", func() bool { return agentGates(t, 0).GateWaits > before.GateWaits })
	writer.awaitStop(t, 16*fixture.MiB)
	d.awaitMetric(t, atLeast(8*fixture.MiB), "flow_bytes_total", flow(held.app), writes)

	// The kill switch releases the writer.
	kill := shared.Socket(0) + ".off"
	t.Cleanup(func() { os.Remove(kill) })
	fixture.Must(t, os.WriteFile(kill, nil, 0o644))
	awaitMode(t, "off")
	before = agentGates(t, 0)
	writer.to(-1)
	writer.endIntact(t, held)
	if got := agentGates(t, 0).GateWaits; got != before.GateWaits {
		t.Errorf("kill switch: the writer has waited %d times since", got-before.GateWaits)
	}
	setModel(t, usual)
	fixture.Must(t, os.Remove(kill))
	awaitMode(t, "enforce")
	for _, f := range []transfer{free, held} {
		f.app = newApplication()
		readBack(t, f)
		d.awaitMetric(t, atLeast(float64(f.bytes)*3/4), "flow_bytes_total", flow(f.app), reads)
	}
}

// awaitMode waits until the agents know the mode.
func awaitMode(t *testing.T, mode string) {
	t.Helper()
	for i := range nodes {
		fixture.Eventually(t, "mode "+mode, func() bool { return agentGates(t, i).Mode == mode })
	}
}

// at returns the client's position, in bytes.
func (o *operation) at() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.progress
}
