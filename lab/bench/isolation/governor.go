package isolation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"penstock/lab/daemon"

	"go.yaml.in/yaml/v3"
)

// governor is the daemon of a governed phase. Like its users it configures the daemon with
// two files, and changes the weights while the daemon runs.
type governor struct {
	*daemon.Daemon
	setup PenstockSetup
}

const (
	daemonPatience = 20 * time.Second
	reloadPatience = 10 * time.Second
)

// startGovernor returns when the daemon is ready.
func startGovernor(ctx context.Context, m *Machine, p Phase) (*governor, error) {
	m.jobSeq++
	o, err := daemonOptions(m.setup.Penstock, p, m.options.Profile)
	if err != nil {
		return nil, err
	}
	o.Book, o.Binary, o.Socket = m.Book, m.options.Binary, m.Socket(0)
	o.Base = m.Path(fmt.Sprintf("node-%s-%d", p.Name, m.jobSeq))
	d, err := daemon.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return &governor{Daemon: d, setup: m.setup.Penstock}, nil
}

// daemonOptions returns the daemon's settings for a phase.
func daemonOptions(s PenstockSetup, p Phase, profile string) (o daemon.Options, err error) {
	o = daemon.Options{Mode: "enforce", LogLevel: "info", Patience: daemonPatience, Peer: p.Peer()}
	if o.Device, err = sectionOf(deviceSettings(s, p, profile)); err != nil {
		return o, err
	}
	o.Weights, err = weightsFile(s, "", nil)
	return o, err
}

// sectionOf returns a section of the settings file, indented.
func sectionOf(settings map[string]any) (string, error) {
	b, err := yaml.Marshal(settings)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		out.WriteString("  " + line)
	}
	return out.String(), nil
}

// deviceSettings returns the settings of every device. A profile gives the costs and the
// reference latencies; without one the set-up's lines do.
func deviceSettings(s PenstockSetup, p Phase, profile string) map[string]any {
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

func millis(ms float64) string { return time.Duration(ms * float64(time.Millisecond)).String() }

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

// setWeights writes the weights and waits until the daemon uses them.
func (g *governor) setWeights(ctx context.Context, protected string, aggressors []string) error {
	before, err := g.scrape(ctx)
	if err != nil {
		return err
	}
	text, err := weightsFile(g.setup, protected, aggressors)
	if err != nil {
		return err
	}
	if err := g.SetWeights(text); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reloadPatience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := g.scrape(ctx)
		if err == nil && now.Reloads > before.Reloads {
			return nil
		}
		select {
		case <-tick.C:
		case <-g.Exited():
			return fmt.Errorf("penstock node ended: see %s", g.Log)
		case <-ctx.Done():
			return fmt.Errorf("penstock node did not load the new weights: %w: see %s", errors.Join(err, ctx.Err()), g.Log)
		}
	}
}

func (g *governor) scrape(ctx context.Context) (Metrics, error) {
	m, err := g.Scrape(ctx)
	if err != nil {
		return Metrics{}, err
	}
	return newMetrics(m), nil
}

// stop ends the daemon. It returns an error if the daemon had died before: the run was then
// not governed to its end.
func (g *governor) stop() error {
	if !g.Alive() {
		return fmt.Errorf("penstock node had ended before it was stopped: see %s", g.Log)
	}
	return g.Stop()
}
