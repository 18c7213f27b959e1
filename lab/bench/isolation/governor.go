package isolation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"penstock/lab/daemon"

	"go.yaml.in/yaml/v3"
)

const daemonPatience = 20 * time.Second

// govern starts the daemon of a governed phase and returns when it is ready. Like its users it
// configures the daemon with two files, and changes the weights while the daemon runs.
func (m *Machine) govern(ctx context.Context, p Phase) error {
	o, err := daemonOptions(m.setup().Penstock, p, m.request.Profile)
	if err != nil {
		return err
	}
	o.Base = m.Path("node-" + p.Name)
	return m.StartNode(ctx, 0, func(was *daemon.Options) { *was = o })
}

// endGovernor ends the daemon, if there is one. It returns an error if the daemon had died before:
// the run was then not governed to its end.
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
	text, err := weightsFile(m.setup().Penstock, protected, aggressors)
	if err != nil {
		return err
	}
	return m.Stand.SetWeights(ctx, 0, text)
}

// Metrics scrapes the daemon.
func (m *Machine) Metrics(ctx context.Context) (daemon.Metrics, error) { return m.Nodes[0].Scrape(ctx) }

// daemonOptions returns the daemon's settings for a phase.
func daemonOptions(s PenstockSetup, p Phase, profile string) (o daemon.Options, err error) {
	o = daemon.Options{Mode: "enforce", Patience: daemonPatience, Peer: p.Peer()}
	section, err := yaml.Marshal(deviceSettings(s, p, profile))
	if err != nil {
		return o, err
	}
	for line := range strings.Lines(string(section)) {
		o.Device += "  " + line
	}
	o.Weights, err = weightsFile(s, "", nil)
	return o, err
}

// deviceSettings returns the settings of every device. A profile gives the costs and the
// reference latencies; without one the set-up's lines do.
func deviceSettings(s PenstockSetup, p Phase, profile string) map[string]any {
	millis := func(ms float64) string { return time.Duration(ms * float64(time.Millisecond)).String() }
	line := func(l LatencySetup) map[string]any {
		return map[string]any{"fixed": millis(l.FixedMillis), "per_mib": millis(l.PerMiBMillis)}
	}
	depth := map[string]any{}
	device := map[string]any{"algorithm": p.Algorithm, "quantum": bytesIn(s.QuantumBytes), "ahead": s.Ahead, "depth": depth}
	if s.BacklogBytes > 0 {
		device["backlog"], device["dirty"] = bytesIn(s.BacklogBytes), bytesIn(s.BacklogBytes) // together less than the kernel's limit
	}
	if profile != "" {
		device["profile"] = profile
	} else {
		depth["read"], depth["write"] = line(s.ReferenceRead), line(s.ReferenceWrite)
	}
	if p.Adaptive() {
		depth["min"], depth["max"], depth["start"], depth["gain"] = s.DepthMin, s.DepthMax, s.DepthStart, s.DepthGain
	} else {
		depth["fixed"] = p.Depth
	}
	return device
}

func bytesIn(n int64) string {
	if n%mib == 0 {
		return fmt.Sprintf("%dMiB", n/mib)
	}
	return fmt.Sprintf("%d", n)
}

// weightsFile is its text; "" and nil before the applications are known.
func weightsFile(s PenstockSetup, protected string, aggressors []string) (string, error) {
	type rule struct {
		Application string `yaml:"application,omitempty"`
		Flow        string `yaml:"flow,omitempty"`
		Weight      int    `yaml:"weight"`
	}
	var rules []rule
	if protected != "" {
		rules = append(rules, rule{Application: protected, Weight: s.ProtectedWeight})
	}
	for _, aggressor := range aggressors {
		rules = append(rules, rule{Application: aggressor, Weight: s.AggressorWeight})
	}
	rules = append(rules, rule{Flow: "clients", Weight: s.ClientsWeight})
	b, err := yaml.Marshal(map[string]any{"default": s.AggressorWeight, "rules": rules})
	return string(b), err
}
