package coordination

import (
	"context"
	"errors"
	"fmt"

	"penstock/lab/contenders"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

// Nodes is the number of the machine's DataNodes.
const Nodes = 3

const (
	mib   = 1 << 20
	block = 16 * mib
	// rate of the disks, bytes per second; a quantum of 1 MiB takes 50 ms and a seek.
	rate = 20_000_000
)

// Machine is a cluster for measurements: a broker, and DataNodes with a modelled disk and a node
// daemon each.
type Machine struct {
	*contenders.Field
}

// Place holds the paths of a machine's parts.
type Place struct {
	Dir      string // of the run
	Binary   string // penstock
	AgentJar string
	Cache    string // of Hadoop's jars
	Progress func(format string, args ...any)
}

// start starts a machine in a folder and puts the weights of a contest in force. On an error it
// undoes everything.
func (p Place) start(ctx context.Context, dir string, applications []Application) (*Machine, error) {
	spec := Spec()
	spec.Dir, spec.Binary, spec.AgentJar, spec.Cache, spec.Progress = dir, p.Binary, p.AgentJar, p.Cache, p.Progress
	s, err := stand.Up(ctx, spec)
	if err != nil {
		return nil, err
	}
	m := On(s)
	if err := m.Apply(ctx, Policy(applications)); err != nil {
		return nil, errors.Join(err, m.Down())
	}
	return m, nil
}

// On returns the machine of a stand that was started as Spec describes.
func On(s *stand.Stand) *Machine { return &Machine{contenders.On(s, block, fileBytes)} }

// Spec returns the description of a machine's stand.
func Spec() stand.Spec {
	spec := stand.Spec{
		Sysctls: stand.LateWriteback,
		Broker:  func(s *stand.Stand) []string { return []string{"--policy", s.PolicyFile()} },
		Clients: true,
	}
	for i := range Nodes {
		spec.Disks = append(spec.Disks, disk.Options{Name: fmt.Sprintf("node%d", i), Size: 6 << 30})
		spec.Agents = append(spec.Agents, 1)
	}
	// The clients only claim the names of applications, so the daemons must not verify names. The
	// dirty limits are small, because the three daemons share one kernel. If each daemon allowed as
	// much dirty data as on a machine of its own, the kernel would write data out by itself, in its
	// own order.
	spec.Nodes = func(s *stand.Stand) (nodes []daemon.Options) {
		for i := range Nodes {
			nodes = append(nodes, daemon.Options{Mode: "enforce",
				Device: "  quantum: 1MiB\n  ahead: 4\n  dirty: 32MiB\n  depth: {start: 2, read: {fixed: 20ms, per_mib: 105ms}, write: {fixed: 20ms, per_mib: 105ms}}\n",
				More:   fmt.Sprintf("%sbroker: {addresses: [%q], node: node%d}\n", daemon.Believe, s.BrokerAddress(), i)})
		}
		return nodes
	}
	spec.Hadoop = func(s *stand.Stand) hadoop.Config {
		cfg := hadoop.Config{NoYARN: true, DataNodes: s.DataNodes("dfs"), BlockSize: block, Governed: s.Governed(0)}
		for i := range cfg.DataNodes {
			cfg.DataNodes[i].Socket = s.Socket(i)
		}
		return cfg
	}
	return spec
}

// Slow turns the disks' modelled rate on or off.
func (m *Machine) Slow(on bool) error {
	if on {
		return m.SetModel(disk.HDD(rate))
	}
	return m.SetModel(disk.Model{})
}
