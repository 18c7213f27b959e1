package failure

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"penstock/e2e/internal/fixture"
	node "penstock/lab/daemon"
)

// daemon is a `penstock node` of a test. An error of the daemon fails the test.
type daemon struct{ *node.Daemon }

// daemons counts the started daemons, to name their files.
var daemons int

// device has quanta, bounds and reference latencies for disks of the usual speed.
const device = `  quantum: 1MiB
  backlog: 4MiB
  dirty: 32MiB
  run: 4MiB
  depth:
    read: {fixed: 10ms, per_mib: 50ms}
    write: {fixed: 10ms, per_mib: 50ms}
`

// startDaemon starts a daemon that ends with the test.
func startDaemon(t *testing.T, mode string) *daemon {
	t.Helper()
	daemons++
	return &daemon{shared.StartDaemon(t, node.Options{Base: filepath.Join(shared.Hadoop.LogDir(), fmt.Sprintf("node%d", daemons)),
		Socket: shared.Socket(0), Mode: mode, Device: device, More: node.Believe, LogLevel: "debug"})}
}

// startGoverning starts a daemon and waits until both DataNodes' agents are connected.
func startGoverning(t *testing.T) *daemon {
	t.Helper()
	d := startDaemon(t, "enforce")
	d.awaitAgents(t, nodes)
	return d
}

func (d *daemon) setWeights(t *testing.T, text string) {
	t.Helper()
	fixture.Must(t, d.SetWeights(text))
}

func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	fixture.Must(t, d.Signal(s))
}

// kill ends the daemon with -9.
func (d *daemon) kill(t *testing.T) {
	t.Helper()
	fixture.Must(t, d.Kill())
}

// state returns the process's state from /proc: R, S, T, ...
func (d *daemon) state(t *testing.T) string {
	t.Helper()
	state, err := d.State()
	fixture.Must(t, err)
	return state
}

// checkHealthy checks the daemon's report on its loops.
func (d *daemon) checkHealthy(t *testing.T) {
	t.Helper()
	if !d.Alive() {
		t.Fatal("the daemon has ended")
	}
	if _, err := d.Get(t.Context(), "/-/healthy"); err != nil {
		t.Fatal(err)
	}
}

// metric returns the sum of the metric's series with all the labels, such as flow="clients".
func (d *daemon) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return fixture.Metric(t, d.Daemon, name, labels...)
}

func (d *daemon) awaitMetric(t *testing.T, holds func(v float64) bool, name string, labels ...string) {
	t.Helper()
	last := 0.0
	fixture.Eventually(t, "the right value of the metric", func() bool {
		last = d.metric(t, name, labels...)
		return holds(last)
	}, func() string { return fmt.Sprintf("penstock_%s %v is %v", name, labels, last) })
}

func (d *daemon) awaitAgents(t *testing.T, n int) {
	t.Helper()
	d.awaitMetric(t, is(n), "agent_connections")
}

func is(n int) func(float64) bool          { return func(v float64) bool { return v == float64(n) } }
func atLeast(n float64) func(float64) bool { return func(v float64) bool { return v >= n } }
func flow(a application) string            { return `flow="` + a.flow() + `"` }
func onDevice(i int) string                { return `device="` + filepath.Base(shared.Disks[i].Device()) + `"` }

const (
	reads  = `direction="read"`
	writes = `direction="write"`
)
