package shares

import (
	"context"
	"fmt"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
)

// device is the daemon's device section. It is the one of the isolation experiment
// (lab/bench/isolation), except for the quantum. A window of 10 s holds some 55 quanta of 2 MiB,
// and an application with a quarter gets 14 of them. One quantum more or less at the window's ends
// is 7 % of its share, so no scheduler could keep a bound of 5 % in every window. With 512 KiB it
// is below 2 %, apart from the several quanta that are in flight at that time. The amount staged
// ahead of a reader equals a writer's permitted backlog. So clients that wait for a CPU leave
// neither flow's queue empty. Tests that need another device section restart the daemon with it
// (retune).
const device = `  profile: %q
  algorithm: sfqd2
  quantum: %s
  ahead: 16
  backlog: 8MiB
  dirty: %s
  max_flows: 8192
  depth:
    min: 1
    max: 12
    start: 2
    gain: 0.5
    read: %s
    write: %s
`

// tuning has the settings of the device section that differ between tests.
type tuning struct{ profile, quantum, dirty, read, write string }

var usual = tuning{quantum: "512KiB", dirty: "16MiB", read: "{fixed: 20ms, per_mib: 180ms}", write: "{fixed: 20ms, per_mib: 180ms}"}

func (d tuning) device() string {
	return fmt.Sprintf(device, d.profile, d.quantum, d.dirty, d.read, d.write)
}

// node is a running `penstock node`.
type node struct{ *daemon.Daemon }

// await scrapes the metrics until they have the wanted values.
func (n *node) await(ctx context.Context, what string, wanted func(metrics) error) error {
	return shared.Await(ctx, "penstock node is "+what, func(ctx context.Context) (bool, error) {
		m, err := n.scrape(ctx)
		if err == nil {
			err = wanted(m)
		}
		return err == nil, err
	})
}

// weigh puts weights into force.
func (n *node) weigh(t *testing.T, weights map[string]int) {
	t.Helper()
	var rules []string
	for application, weight := range weights {
		rules = append(rules, fmt.Sprintf("{application: %s, weight: %d}", application, weight))
	}
	n.rule(t, rules...)
}

// rule replaces the weights file, as an editor would, and waits until its rules are in force.
func (n *node) rule(t *testing.T, rules ...string) {
	t.Helper()
	text := "default: 1\nrules:\n"
	for _, rule := range rules {
		text += "  - " + rule + "\n"
	}
	fixture.Must(t, shared.SetWeights(t.Context(), 0, text))
}

// metrics are the result of one scrape.
type metrics struct{ daemon.Metrics }

func (n *node) scrape(ctx context.Context) (metrics, error) {
	m, err := n.Scrape(ctx)
	return metrics{m}, err
}

// flow returns the sum of a metric of one flow over devices and directions.
func (m metrics) flow(name, flow string) float64 { return m.Sum("flow_"+name, "flow="+flow) }
