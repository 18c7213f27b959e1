package isolation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"penstock/lab/daemon"
)

const daemonPatience = 20 * time.Second

// govern starts the daemon of a governed phase and returns when it is ready. As operators do, the
// experiment configures the daemon with two files and changes the weights while the daemon runs.
func (m *Machine) govern(ctx context.Context, p Phase) error {
	o := daemonOptions(m.setup().Penstock, p, m.request.Profile)
	o.Base = m.Path("node-" + p.Name)
	return m.StartNode(ctx, 0, func(was *daemon.Options) { *was = o })
}

// endGovernor ends the daemon, if there is one. It returns an error if the daemon had died earlier,
// because then the run was not governed to its end.
func (m *Machine) endGovernor() error {
	if len(m.Nodes) == 0 || m.Nodes[0] == nil {
		return nil
	}
	d := m.Nodes[0]
	m.Nodes[0] = nil
	if !d.Alive() {
		return fmt.Errorf("penstock node had ended before it was stopped: see %s", d.Log)
	}
	return d.Stop()
}

// SetWeights gives the daemon the applications' weights and waits until it uses them.
func (m *Machine) SetWeights(ctx context.Context, protected string, aggressors []string) error {
	return m.Stand.SetWeights(ctx, 0, weightsFile(m.setup().Penstock, protected, aggressors))
}

// Metrics scrapes the daemon.
func (m *Machine) Metrics(ctx context.Context) (daemon.Metrics, error) { return m.Nodes[0].Scrape(ctx) }

// daemonOptions returns the daemon's settings for a phase. The costs and the reference latencies
// are those of the profile; without a profile, the set-up has the reference latencies.
func daemonOptions(s PenstockSetup, p Phase, profile string) daemon.Options {
	line := func(l LatencySetup) string {
		millis := func(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
		return fmt.Sprintf("{fixed: %v, per_mib: %v}", millis(l.FixedMillis), millis(l.PerMiBMillis))
	}
	device := []string{"algorithm: " + p.Algorithm, fmt.Sprintf("quantum: %d", s.QuantumBytes), fmt.Sprintf("ahead: %d", s.Ahead)}
	if s.BacklogBytes > 0 { // the sum over all disks is less than the kernel's limit
		device = append(device, fmt.Sprintf("backlog: %d", s.BacklogBytes), fmt.Sprintf("dirty: %d", s.BacklogBytes))
	}
	depth := fmt.Sprintf("fixed: %d", p.Depth)
	if p.Adaptive() {
		depth = fmt.Sprintf("min: %v, max: %v, start: %v, gain: %v", s.DepthMin, s.DepthMax, s.DepthStart, s.DepthGain)
	}
	if profile != "" {
		device = append(device, fmt.Sprintf("profile: %q", profile))
	} else {
		depth += ", read: " + line(s.ReferenceRead) + ", write: " + line(s.ReferenceWrite)
	}
	device = append(device, "depth: {"+depth+"}")
	return daemon.Options{Mode: "enforce", Patience: daemonPatience, Peer: p.Peer(),
		Device: "  " + strings.Join(device, "\n  ") + "\n", Weights: weightsFile(s, "", nil)}
}

// weightsFile returns the text of the weights file. Before the applications are known, protected is
// "" and aggressors is nil.
func weightsFile(s PenstockSetup, protected string, aggressors []string) string {
	text := fmt.Sprintf("default: %d\nrules:\n", s.AggressorWeight)
	if protected != "" {
		text += fmt.Sprintf("- {application: %s, weight: %d}\n", protected, s.ProtectedWeight)
	}
	for _, aggressor := range aggressors {
		text += fmt.Sprintf("- {application: %s, weight: %d}\n", aggressor, s.AggressorWeight)
	}
	return text + fmt.Sprintf("- {flow: clients, weight: %d}\n", s.ClientsWeight)
}
