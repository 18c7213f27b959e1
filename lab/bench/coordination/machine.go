package coordination

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/ports"
	"penstock/node/status"
)

// Nodes are the machine's DataNodes.
const Nodes = 3

const (
	mib   = 1 << 20
	block = 16 * mib
	// rate of the disks, bytes a second; a quantum of a MiB takes 50 ms and a seek.
	rate     = 20_000_000
	patience = 2 * time.Minute // bounds every wait for an event
)

// Machine is a cluster to measure: a broker, and DataNodes with a modelled disk and a node
// daemon each.
type Machine struct {
	Daemons [Nodes]*daemon.Daemon
	Broker  *daemon.Daemon

	dir     string
	binary  string
	book    *ledger.Ledger
	disks   [Nodes]*disk.Disk
	address string // of the broker
	policy  string // its policy file
	cluster *hadoop.Cluster
	clients *client.JVM
	placed  map[place][]file // what there is to read
}

// Place says where a machine's parts are.
type Place struct {
	Dir      string // of the run
	Binary   string // penstock
	AgentJar string
	Cache    string // of Hadoop's jars
	Progress func(format string, args ...any)
}

// Start starts a machine. What it has started is to be stopped also if it fails.
func Start(ctx context.Context, p Place) (m *Machine, err error) {
	m = &Machine{dir: p.Dir, binary: p.Binary, policy: filepath.Join(p.Dir, "policy.yaml"), placed: map[place][]file{}}
	if err := disk.Available(); err != nil {
		return m, fmt.Errorf("modelled disks are needed: %w", err)
	}
	for _, file := range []string{p.Binary, p.AgentJar} {
		if _, err := os.Stat(file); err != nil {
			return m, fmt.Errorf("run make build first: %w", err)
		}
	}
	if m.book, err = ledger.Open(m.dir); err != nil {
		return m, err
	}
	wait, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, p := range []struct{ name, value string }{
		{"vm/dirty_bytes", "2147483648"}, {"vm/dirty_background_bytes", "1073741824"}, {"vm/dirty_expire_centisecs", "3000"},
	} {
		if _, err := ledger.SetSysctl(wait, m.book, p.name, p.value); err != nil {
			return m, fmt.Errorf("the kernel's dirty limits: %w", err)
		}
	}
	lib, err := hadoop.Fetch(ctx, p.Cache, hadoop.DefaultVersion, p.Progress)
	if err != nil {
		return m, err
	}
	if err := m.SetPolicy("default: 1\n"); err != nil {
		return m, err
	}
	if m.address, err = ports.Address(); err != nil {
		return m, err
	}
	if err := m.StartBroker(ctx); err != nil {
		return m, err
	}
	var dataNodes []hadoop.DataNode
	for i := range m.disks {
		name := fmt.Sprintf("node%d", i)
		if m.disks[i], err = disk.Start(ctx, disk.Options{Name: name, RunDir: m.dir, Size: 6 << 30}); err != nil {
			return m, err
		}
		base := filepath.Join(m.dir, "daemon-"+name)
		if m.Daemons[i], err = m.startDaemon(ctx, name, base); err != nil {
			return m, err
		}
		dataNodes = append(dataNodes, hadoop.DataNode{Socket: base + ".sock", Volumes: []hadoop.Volume{{Dir: filepath.Join(m.disks[i].Mount(), "dfs")}}})
	}
	m.cluster, err = hadoop.Start(ctx, hadoop.Config{
		RunDir: filepath.Join(m.dir, "hadoop"), Lib: lib, Progress: p.Progress, NoYARN: true,
		DataNodes: dataNodes, BlockSize: block,
		Governed: &hadoop.Governed{AgentJar: p.AgentJar, Socket: filepath.Join(m.dir, "daemon-node0.sock")},
	})
	if err != nil {
		return m, err
	}
	classes := filepath.Join(m.dir, "classes")
	if err := client.Compile(ctx, lib, classes); err != nil {
		return m, err
	}
	m.clients, err = client.Start(client.Options{Book: m.book, Lib: lib, Classes: classes, Conf: m.cluster.ClientConfDir(),
		Temp: m.dir, Log: filepath.Join(m.dir, "clients.log")})
	if err != nil {
		return m, err
	}
	return m, m.Await(ctx, "an agent at each daemon", func(_ int, doc *status.Document) bool { return len(doc.Agents) > 0 })
}

// StartBroker starts the broker, or another one after it was killed.
func (m *Machine) StartBroker(ctx context.Context) (err error) {
	m.Broker, err = daemon.Start(ctx, daemon.Options{Book: m.book, Binary: m.binary, Base: filepath.Join(m.dir, "broker"),
		Broker: []string{"--listen", m.address, "--policy", m.policy}, Patience: patience})
	return err
}

// startDaemon starts a node's. The clients are applications by name only, which nobody is
// to refute. What may be dirty is little: the three daemons share one kernel, which begins to
// write by itself, in no order of theirs, once all of them together have as much dirty as each of
// them thinks that it may have.
func (m *Machine) startDaemon(ctx context.Context, name, base string) (*daemon.Daemon, error) {
	return daemon.Start(ctx, daemon.Options{
		Book: m.book, Binary: m.binary, Base: base, Socket: base + ".sock", Mode: "enforce", LogLevel: "info", Patience: patience,
		Device: "  quantum: 1MiB\n  ahead: 4\n  dirty: 32MiB\n  depth: {start: 2, read: {fixed: 20ms, per_mib: 105ms}, write: {fixed: 20ms, per_mib: 105ms}}\n",
		More:   fmt.Sprintf("%sbroker: {addresses: [%q], node: %s}\n", daemon.Believe, m.address, name),
	})
}

// SetPolicy replaces the policy file as an editor does.
func (m *Machine) SetPolicy(text string) error {
	if err := os.WriteFile(m.policy+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(m.policy+".new", m.policy)
}

// Slow turns the disks' rate on, or off again.
func (m *Machine) Slow(on bool) (err error) {
	model := disk.Model{}
	if on {
		model = disk.HDD(rate)
	}
	for _, d := range m.disks {
		err = errors.Join(err, d.SetModel(model))
	}
	return err
}

// Await waits until something holds of every daemon.
func (m *Machine) Await(ctx context.Context, what string, holds func(node int, doc *status.Document) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, d := range m.Daemons {
		for {
			doc, err := status.Fetch(ctx, d.Address)
			if err == nil && holds(i, doc) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("not within %v: %s (node %d: %w)", patience, what, i, errors.Join(err, ctx.Err()))
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// InForce waits until the totals are in force on every node, with a policy of the broker's
// at least this new; or until they are in force on none.
func (m *Machine) InForce(ctx context.Context, policy uint64, want bool) error {
	return m.Await(ctx, fmt.Sprintf("totals in force: %v", want), func(_ int, doc *status.Document) bool {
		c := doc.Cluster
		return c.InForce == want && (!want || c.Policy >= policy)
	})
}

// Stop stops what runs and puts everything back.
func (m *Machine) Stop() error {
	var errs []error
	if m.clients != nil {
		m.clients.Stop()
	}
	if m.cluster != nil {
		errs = append(errs, m.cluster.Stop())
	}
	for _, d := range append(m.Daemons[:], m.Broker) {
		if d != nil && d.Alive() {
			errs = append(errs, d.Stop())
		}
	}
	for _, d := range m.disks {
		if d != nil {
			errs = append(errs, d.Stop())
		}
	}
	if m.book != nil {
		errs = append(errs, m.book.Close())
	}
	return errors.Join(errs...)
}
