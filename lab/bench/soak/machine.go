package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/experiment/progress"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

// Options are the paths of a campaign; they do not affect its results.
type Options struct {
	RunDir   string // private folder; an absolute and short path, because a Unix socket's path must be short
	CacheDir string // downloads; kept between campaigns
	AgentJar string // penstock-agent.jar
	Binary   string // penstock itself, for the node daemon
	Progress *progress.Log
}

// machine is the real environment of a campaign: disks, Hadoop, the daemon, clients.
type machine struct {
	*stand.Stand
	setup Setup
}

func (m *machine) daemon() *daemon.Daemon { return m.Nodes[0] }

// dataDir returns the data directory of DataNode i.
func (m *machine) dataDir(i int) string { return filepath.Join(m.Disks[i].Mount(), "data") }

// startMachine starts everything, with the daemon in enforce mode. On an error, and when ctx ends,
// it undoes everything.
func startMachine(ctx context.Context, s Setup, o Options) (*machine, error) {
	up, err := stand.Up(ctx, spec(s, o))
	if err != nil {
		return nil, err
	}
	m := &machine{Stand: up, setup: s}
	if err := errors.Join(m.compileWaits(ctx), m.SetModel(s.Disk), m.awaitAgents(ctx, "enforce")); err != nil {
		return nil, errors.Join(err, m.Down())
	}
	return m, nil
}

// spec describes the stand of a campaign.
func spec(s Setup, o Options) stand.Spec {
	spec := stand.Spec{
		Dir: o.RunDir, Binary: o.Binary, AgentJar: o.AgentJar, Cache: o.CacheDir, Progress: o.Progress.Printf,
		// Quanta and bounds for disks of some 100 MB/s, with a backlog limit that writers reach, so
		// that streams wait at their marks.
		Nodes: func(*stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "enforce", Weights: goodWeights, More: daemon.Believe,
				Device: "  quantum: 1MiB\n  backlog: 4MiB\n  dirty: 32MiB\n  run: 4MiB\n"}}
		},
		Clients: true,
	}
	for i := range Nodes {
		spec.Disks = append(spec.Disks, disk.Options{Name: fmt.Sprintf("disk%d", i), Size: s.DiskBytes})
	}
	spec.Hadoop = func(on *stand.Stand) hadoop.Config {
		cfg := hadoop.Config{
			Version: s.Hadoop, DataNodes: on.DataNodes("data"), Replication: Nodes, BlockSize: s.BlockBytes,
			Settings: map[string]string{
				// After this time, the NameNode repeats a block's copy from another DataNode, if
				// the source of the copy has died. The default is minutes. An unfinished replica
				// prevents a new copy until the DataNode's next full report.
				"dfs.namenode.reconstruction.pending.timeout-sec": "1",
				"dfs.blockreport.intervalMsec":                    "3000",
				// The default is ten replicas, which are impossible with two DataNodes.
				"mapreduce.client.submit.file.replication": fmt.Sprint(Nodes),
				// The only replica of an unfinished file may be on the DataNode that is killed.
				// Hadoop then runs the task again, or the ApplicationMaster.
				"yarn.resourcemanager.am.max-attempts": "4",
				"mapreduce.am.max-attempts":            "4",
				"mapreduce.map.maxattempts":            "8",
				"mapreduce.reduce.maxattempts":         "8",
				// Tasks yield the CPU to daemons and DataNodes, because the delay by a dead daemon
				// is to be measured, and not the delay by a busy CPU.
				"yarn.nodemanager.container-executor.os.sched.priority.adjustment": "10",
			},
		}
		maps.Copy(cfg.Settings, hadoop.SmallDisks)
		for i := range cfg.DataNodes {
			if s.Phases {
				cfg.LocalDirs = append(cfg.LocalDirs, filepath.Join(on.Disks[i].Mount(), "local"))
			} else {
				cfg.DataNodes[i].JVMArgs = on.AgentArgs(0)
			}
		}
		if s.Phases {
			cfg.Governed = on.Governed(0)
		}
		return cfg
	}
	return spec
}

// awaitAgents waits until the agents of all running servers (machine.agents) are connected and know
// the mode.
func (m *machine) awaitAgents(ctx context.Context, mode string) error {
	return m.await(ctx, "the agents are connected, mode "+mode, func(ctx context.Context) (bool, error) {
		if !m.daemon().Alive() {
			return false, fmt.Errorf("%w: see %s", errGone, m.daemon().Log)
		}
		for i := range m.agents() {
			if i < Nodes && m.Hadoop.DataNodePID(i) == 0 {
				continue
			}
			g, err := m.gates(ctx, i)
			if err != nil || !g.Connected || g.Mode != mode {
				return false, err
			}
		}
		return true, nil
	})
}

// errGone reports that the daemon has ended; every wait for the daemon then ends, too.
var errGone = errors.New("penstock node has ended by itself")

// await calls Await. After a timeout, the error lists the files with the DataNodes' stacks.
func (m *machine) await(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	var gone error
	err := m.Await(ctx, what, func(ctx context.Context) (bool, error) {
		ok, err := holds(ctx)
		if errors.Is(err, errGone) {
			gone = err
			return true, nil
		}
		return ok, err
	})
	switch {
	case gone != nil:
		return gone
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("%w\n%s", err, m.stacks())
	}
	return err
}

// gates holds the counters of the agent in a server since the start of the server's JVM.
type gates struct {
	State, Mode                            string
	Connected                              bool
	GateWaits, GateBackstops, FailedOpen   int64
	Reconnects, Suppressed                 int64
	OrphanedWaits, OrphanedWaitNanosLatest int64 // without a daemon
}

// agents returns the number of servers with an agent: the DataNodes and, after them, the
// NodeManager if it is governed.
func (m *machine) agents() int {
	if m.setup.Phases {
		return Nodes + 1
	}
	return Nodes
}

func (m *machine) gates(ctx context.Context, i int) (g gates, err error) {
	url := m.Hadoop.NodeManagerURL(0)
	if i < Nodes {
		url = m.Hadoop.DataNodeURL(i)
	}
	err = hadoop.Bean(ctx, url, "penstock:type=Agent", &g)
	return g, err
}

// redundant waits until every block of a finished file is on both DataNodes. It uses fsck, which
// counts the replicas, and not the NameNode's metrics, because these include copies of deleted
// blocks for many seconds.
func (m *machine) redundant(ctx context.Context) error {
	return m.await(ctx, "every block is on both DataNodes", func(ctx context.Context) (bool, error) {
		err := m.checkFileSystem(ctx)
		if err != nil {
			err = errors.Join(err, experiment.Pause(ctx, 200*time.Millisecond))
		}
		return true, err
	})
}
