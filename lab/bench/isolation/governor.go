package isolation

import (
	"context"
	"fmt"
	"time"

	"penstock/lab/contest"
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
	device := contest.Device{Algorithm: p.Algorithm, QuantumBytes: s.QuantumBytes, Ahead: s.Ahead, BacklogBytes: s.BacklogBytes,
		Depth: p.Depth, DepthMin: s.DepthMin, DepthMax: s.DepthMax, DepthStart: s.DepthStart, DepthGain: s.DepthGain,
		Profile: profile, ReferenceRead: s.ReferenceRead, ReferenceWrite: s.ReferenceWrite}
	return daemon.Options{Mode: "enforce", Patience: daemonPatience, Peer: p.Peer(),
		Device: device.Settings(), Weights: weightsFile(s, "", nil)}
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
