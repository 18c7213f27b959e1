package guarantees

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/core/reserve"
	"penstock/lab/contenders"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/poll"
	"penstock/lab/stand"
	"penstock/node/status"
	"penstock/ops/operate"
	"penstock/wire/cluster"
)

// The nodes: three with a hard disk each, and one with a solid-state disk.
const (
	hardDisks = 3
	solid     = 3
)

// diskBytes is the size of each disk. The data of a turn must fit twice.
const diskBytes = 8 << 30

// sysctls are the kernel's parameters, as the operator's guide recommends: the kernel writes dirty pages by itself only
// above the daemons' bounds, and not after 30 s. The kernel divides the first two among the machine's disks by what they have written
// recently, and these disks belong to several nodes.
var sysctls = []stand.Sysctl{{Name: "vm/dirty_bytes", Value: "2147483648"}, {Name: "vm/dirty_background_bytes", Value: "1073741824"}, {Name: "vm/dirty_expire_centisecs", Value: "12000"}}

// machine is the machine of the experiments: a broker, and DataNodes with a modelled disk and a node
// daemon each.
type machine struct {
	*stand.Stand
	setup    Setup
	files    *contenders.Field // of files that last for seconds
	moving   *contenders.Field // of small files, so that tasks can end soon
	operator *operate.Client
}

// start starts a machine in the folder dir. On an error it undoes everything.
func start(ctx context.Context, q Request, dir string) (_ *machine, err error) {
	m := &machine{setup: q.Setup}
	spec := stand.Spec{
		Name: "guarantees", Dir: dir, Binary: q.Binary, AgentJar: q.AgentJar, Cache: q.Cache, Progress: q.Progress,
		Sysctls: sysctls,
		Broker:  func(s *stand.Stand) []string { return []string{"--policy", s.PolicyFile()} },
		Clients: true, NodesLater: true,
		Nodes: func(*stand.Stand) []daemon.Options { return make([]daemon.Options, hardDisks+1) },
		Hadoop: func(s *stand.Stand) hadoop.Config {
			cfg := hadoop.Config{Version: q.Setup.Hadoop, NoYARN: true, DataNodes: s.DataNodes("dfs"), Governed: s.Governed(0), Settings: hadoop.SmallDisks}
			for i := range cfg.DataNodes {
				cfg.DataNodes[i].Socket = s.Socket(i)
			}
			return cfg
		},
	}
	for i := range hardDisks {
		spec.Disks = append(spec.Disks, disk.Options{Name: fmt.Sprintf("hard%d", i), Size: diskBytes})
	}
	spec.Disks = append(spec.Disks, disk.Options{Name: "solid", Size: diskBytes, RequestKB: 128})
	if m.Stand, err = stand.Up(ctx, spec); err != nil {
		return nil, err
	}
	m.files, m.moving = contenders.On(m.Stand, 16*mib, 32*mib), contenders.On(m.Stand, 4*mib, 4*mib)
	if m.operator, err = operate.New([]string{m.BrokerAddress()}, nil); err == nil {
		err = m.startNodes(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.down())
	}
	return m, nil
}

func (m *machine) down() error {
	if m.operator != nil {
		m.operator.Close()
	}
	return m.Down()
}

func (m *machine) startNodes(ctx context.Context) error {
	for i, d := range m.Disks {
		row := Row{SSD: i == solid}
		profile, err := m.WriteProfile(d, m.setup.model(row), m.setup.Quantum)
		if err != nil {
			return err
		}
		// The clients only claim the names of applications, so the daemons must not verify names. The
		// dirty limits are small, because the daemons share one kernel.
		if err := m.StartNode(ctx, i, func(o *daemon.Options) {
			*o = daemon.Options{Mode: "enforce",
				Device: fmt.Sprintf("  profile: %q\n  quantum: %d\n  ahead: 4\n  dirty: 32MiB\n  depth: {start: 2, max: 8}\n", profile, m.setup.Quantum),
				More:   fmt.Sprintf("%sbroker: {addresses: [%q], node: node%d}\n", daemon.Believe, m.BrokerAddress(), i)}
		}); err != nil {
			return err
		}
	}
	return m.ready(ctx)
}

// ready waits until all agents and the broker are connected.
func (m *machine) ready(ctx context.Context) error {
	for i := range m.Nodes {
		if err := m.AwaitAgents(ctx, i, 1); err != nil {
			return err
		}
	}
	return m.files.InForce(ctx, 0, true)
}

// limit turns the models of nodes' disks on.
func (m *machine) limit(nodes ...int) error {
	var errs []error
	for _, i := range nodes {
		errs = append(errs, m.SetModel(m.setup.model(Row{SSD: i == solid}), m.Disks[i]))
	}
	return errors.Join(errs...)
}

func (m *machine) unlimited() error { return m.SetModel(disk.Model{}) }

// window waits and returns the time in which it waited.
func window(ctx context.Context, length time.Duration) (w judge.Window, err error) {
	w.From = disk.Monotonic()
	err = experiment.Pause(ctx, length)
	w.To = disk.Monotonic()
	return w, err
}

// promise returns the broker's verdict on an application's guaranteed total rate.
func (m *machine) promise(ctx context.Context, application int) (*cluster.Promise, error) {
	states, err := m.operator.Applications(ctx, contenders.Flow(application))
	if err != nil {
		return nil, err
	}
	for _, s := range states {
		if s.Promise != nil {
			return s.Promise, nil
		}
	}
	return nil, fmt.Errorf("the broker has no promise of %s", contenders.Flow(application))
}

// awaitPromise waits until the broker's verdict on an application's guaranteed total rate is the given one.
func (m *machine) awaitPromise(ctx context.Context, application int, state reserve.State) (p *cluster.Promise, err error) {
	err = m.Await(ctx, fmt.Sprintf("the guaranteed total rate is %v", state), func(ctx context.Context) (bool, error) {
		p, err = m.promise(ctx, application)
		if err == nil && p.State != state.String() {
			err = fmt.Errorf("it is %s, of which %.2f is granted", p.State, p.Granted)
		}
		return err == nil, err
	})
	return p, err
}

// reserved returns a node's account of an application's guaranteed rate.
func (m *machine) reserved(ctx context.Context, node, application int) (r status.Reserve, depth int, err error) {
	doc, err := m.Status(ctx, node)
	if err != nil {
		return r, 0, err
	}
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			if f.Name == contenders.Flow(application) {
				return f.Reserve, d.Depth, nil
			}
		}
	}
	return r, 0, fmt.Errorf("node %d does not know %s", node, contenders.Flow(application))
}

// awaitReserve waits until a condition on a node's account of an application's guaranteed rate holds, and returns for how
// long it waited.
func (m *machine) awaitReserve(ctx context.Context, node, application int, what string, holds func(status.Reserve) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, stand.Patience)
	defer cancel()
	begun := time.Now()
	err := poll.Until(ctx, 100*time.Millisecond, func() (bool, error) {
		r, _, err := m.reserved(ctx, node, application)
		return err == nil && holds(r), err
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return time.Since(begun), nil
}
