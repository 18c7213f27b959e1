package failure

import (
	"fmt"
	"testing"

	"penstock/e2e/internal/fixture"
)

// TestRollingRestart: an operator stops and starts the DataNodes and the daemon one after the other, while one application
// writes and another one reads. No operation fails, nothing is lost, and everything is governed after each restart.
func TestRollingRestart(t *testing.T) {
	dir := begin(t)
	d := startGoverning(t)
	old := transfer{app: newApplication(), path: dir + "/read", bytes: 48 * fixture.MiB, seed: 90, replication: nodes}
	put(t, old).endIntact(t, old)
	dataNode := func(i int) func() {
		return func() {
			t.Cleanup(func() { // also when this test fails
				if shared.Hadoop.DataNodePID(i) == 0 {
					restartDataNode(t, i)
				}
			})
			shared.Hadoop.StopDataNode(i)
			d.awaitAgents(t, nodes-1)
			restartDataNode(t, i)
		}
	}
	steps := []struct {
		name    string
		restart func()
	}{
		{"DataNode 0", dataNode(0)},
		{"the daemon", func() {
			fixture.Must(t, d.Stop())
			d = startGoverning(t)
		}},
		{"DataNode 1", dataNode(1)},
	}
	for i, s := range steps {
		fixture.Must(t, shared.Forget())
		old.app, old.limit = newApplication(), 8*fixture.MiB
		fresh := transfer{app: newApplication(), path: fmt.Sprintf("%s/written-%d", dir, i), bytes: 48 * fixture.MiB, seed: int64(91 + i), replication: nodes, limit: 16 * fixture.MiB}
		reader, writer := get(t, old), put(t, fresh)
		reader.awaitStop(t, old.limit)
		writer.awaitStop(t, fresh.limit)
		reader.to(-1)
		writer.to(-1)
		writer.awaitProgress(t, fresh.limit+fixture.MiB)
		if at := writer.at(); at >= fresh.bytes {
			t.Errorf("the writer has ended before the restart of %s", s.name)
		}
		s.restart()
		d.awaitAgents(t, nodes)
		reader.endIntact(t, old)
		writer.endIntact(t, fresh)
		replicated(t, fresh)
		fresh.app = newApplication()
		readBack(t, fresh)
		d.awaitMetric(t, atLeast(float64(fresh.bytes)), "flow_bytes_total", flow(fresh.app), reads)
		last := transfer{app: newApplication(), path: fmt.Sprintf("%s/after-%d", dir, i), bytes: 8 * fixture.MiB, seed: int64(95 + i), replication: nodes}
		put(t, last).endIntact(t, last)
		for k := range nodes {
			d.awaitMetric(t, atLeast(float64(last.bytes)), "flow_bytes_total", flow(last.app), writes, onDevice(k))
		}
		d.checkHealthy(t)
		t.Logf("%s was restarted", s.name)
	}
}
