package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
)

// Options say where a campaign runs; nothing in them changes what it does.
type Options struct {
	RunDir   string // private folder, absolute; short, since a Unix socket's path is
	CacheDir string // downloads; kept between campaigns
	AgentJar string // penstock-agent.jar
	Binary   string // penstock itself, for the node daemon
	Progress *Progress
}

// machine is the real world of a campaign: disks, Hadoop, the daemon, clients.
// Everything that it changes is in the run folder's ledger before it is changed.
type machine struct {
	options Options
	setup   Setup
	book    *ledger.Ledger
	disks   []*disk.Disk
	cluster *hadoop.Cluster
	clients *client.JVM
	daemon  *daemon.Daemon
	daemons int // how many there have been
	web     http.Client
}

// patience bounds every wait for something that must happen. A busy machine needs
// a part of it.
const patience = 90 * time.Second

// socketPathMax is sun_path, less the final zero.
const socketPathMax = 107

func (m *machine) socket() string     { return filepath.Join(m.options.RunDir, "agent.sock") }
func (m *machine) killSwitch() string { return m.socket() + ".off" }

// dataDir is the data directory of DataNode i.
func (m *machine) dataDir(i int) string { return filepath.Join(m.disks[i].Mount(), "data") }

// startMachine brings everything up, with the daemon enforcing. On an error, and
// when ctx ends, everything is put back.
func startMachine(ctx context.Context, s Setup, o Options) (_ *machine, err error) {
	m := &machine{options: o, setup: s, web: http.Client{Timeout: 10 * time.Second}}
	if n := len(m.socket()); n > socketPathMax {
		return nil, fmt.Errorf("run folder %s: the agent's socket in it would have a path of %d bytes, the kernel allows %d: choose a shorter --run-dir",
			o.RunDir, n, socketPathMax)
	}
	if err := disk.Available(); err != nil {
		return nil, fmt.Errorf("a campaign needs modelled disks: %w", err)
	}
	if m.book, err = ledger.Open(o.RunDir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.stop())
		}
	}()
	lib, err := hadoop.Fetch(ctx, o.CacheDir, s.Hadoop, o.Progress.Printf)
	if err != nil {
		return nil, err
	}
	compiled, classes := make(chan error, 1), filepath.Join(o.RunDir, "client")
	go func() { compiled <- errors.Join(client.Compile(ctx, lib, classes), m.compileWaits(ctx)) }()
	if err := errors.Join(m.startCluster(ctx, lib), <-compiled); err != nil {
		return nil, err
	}
	m.clients, err = client.Start(client.Options{Book: m.book, Lib: lib, Classes: classes, Conf: m.cluster.ClientConfDir(),
		Temp: filepath.Join(m.cluster.RunDir(), "tmp"), Log: filepath.Join(m.cluster.LogDir(), "clients.log")})
	if err != nil {
		return nil, err
	}
	for _, d := range m.disks {
		if err := d.SetModel(s.Disk); err != nil {
			return nil, err
		}
	}
	return m, m.startDaemon(ctx)
}

func (m *machine) startCluster(ctx context.Context, lib string) error {
	cfg := hadoop.Config{
		RunDir: filepath.Join(m.options.RunDir, "hadoop"), Lib: lib, Version: m.setup.Hadoop,
		Replication: Nodes, BlockSize: m.setup.BlockBytes, Progress: m.options.Progress.Printf,
		Settings: map[string]string{
			// By default a volume takes no block once it has less than 1 GiB left.
			"dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": "0",
			// A replica that was to come from a DataNode that is dead now is made
			// elsewhere after this, not after minutes; and one left unfinished stands
			// in a new copy's way until the next full report.
			"dfs.namenode.reconstruction.pending.timeout-sec": "1",
			"dfs.blockreport.intervalMsec":                    "3000",
			// By default ten replicas, which two DataNodes never have.
			"mapreduce.client.submit.file.replication": fmt.Sprint(Nodes),
			// A killed DataNode may take the only replica of an unfinished file with
			// it; Hadoop then runs the attempt again, the ApplicationMaster's too.
			"yarn.resourcemanager.am.max-attempts": "4",
			"mapreduce.am.max-attempts":            "4",
			"mapreduce.map.maxattempts":            "8",
			"mapreduce.reduce.maxattempts":         "8",
			// Tasks yield the CPU to daemons and DataNodes: what is measured is how
			// long a dead daemon delays, not how long a busy CPU does.
			"yarn.nodemanager.container-executor.os.sched.priority.adjustment": "10",
		},
	}
	if m.setup.Phases {
		cfg.Governed = &hadoop.Governed{AgentJar: m.options.AgentJar, Socket: m.socket()}
	}
	for i := range Nodes {
		d, err := disk.Start(ctx, disk.Options{Name: fmt.Sprintf("disk%d", i), RunDir: m.options.RunDir, Size: m.setup.DiskBytes})
		if err != nil {
			return err
		}
		m.disks = append(m.disks, d)
		node := hadoop.DataNode{Volumes: []hadoop.Volume{{Dir: m.dataDir(i)}}}
		if m.setup.Phases {
			cfg.LocalDirs = append(cfg.LocalDirs, filepath.Join(d.Mount(), "local"))
		} else {
			node.JVMArgs = []string{fmt.Sprintf("-javaagent:%s=socket=%s", m.options.AgentJar, m.socket())}
		}
		cfg.DataNodes = append(cfg.DataNodes, node)
	}
	var err error
	m.cluster, err = hadoop.Start(ctx, cfg)
	return err
}

// device has quanta and bounds for disks of some 100 MB/s, with a backlog that
// writers reach, so that streams do wait at their marks.
const device = `  quantum: 1MiB
  backlog: 4MiB
  dirty: 32MiB
  run: 4MiB
`

// startDaemon starts a daemon and waits until every agent that is there obeys it.
func (m *machine) startDaemon(ctx context.Context) (err error) {
	m.daemons++
	m.daemon, err = daemon.Start(ctx, daemon.Options{Book: m.book, Binary: m.options.Binary,
		Base: filepath.Join(m.options.RunDir, fmt.Sprintf("node%03d", m.daemons)), Socket: m.socket(), Mode: "enforce",
		Weights: goodWeights, LogLevel: "info", Device: device, More: daemon.Believe, Patience: patience})
	if err != nil {
		return err
	}
	return m.awaitAgents(ctx, "enforce")
}

// awaitAgents waits until the agents of all DataNodes that run are connected and
// have been told the mode.
func (m *machine) awaitAgents(ctx context.Context, mode string) error {
	return m.await(ctx, "the agents are connected, mode "+mode, func(ctx context.Context) (bool, error) {
		if !m.daemon.Alive() {
			return false, fmt.Errorf("%w: see %s", errGone, m.daemon.Log)
		}
		for i := range m.agents() {
			if i < Nodes && m.cluster.DataNodePID(i) == 0 {
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

// errGone ends every wait for the daemon.
var errGone = errors.New("penstock node has ended by itself")

// await asks until the answer is yes. If that takes too long it says why, and
// writes down where the threads of the DataNodes stand.
func (m *machine) await(ctx context.Context, what string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("too late"))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds(ctx)
		if ok && err == nil {
			return nil
		}
		if errors.Is(err, errGone) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("not within %v: %s (%v)\n%s", patience, what, err, m.stacks())
		}
	}
}

// gates is what the agent in a server has counted since its JVM began.
type gates struct {
	State                    string
	Connected                bool
	Mode                     string
	GateBackstops            int64
	FailedOpen               int64
	Reconnects               int64
	Suppressed               int64
	OrphanedWaits            int64
	OrphanedWaitNanosLongest int64
	OrphanedWaitNanosLatest  int64
	GateWaits, GateWaitNanos int64
}

// agents is how many servers have one: the DataNodes and, where it is governed, the
// NodeManager behind them.
func (m *machine) agents() int {
	if m.setup.Phases {
		return Nodes + 1
	}
	return Nodes
}

func (m *machine) gates(ctx context.Context, i int) (g gates, err error) {
	url := m.cluster.NodeManagerURL
	if i < Nodes {
		url = m.cluster.DataNodeURL
	} else {
		i -= Nodes
	}
	err = m.bean(ctx, url(i), "penstock:type=Agent", &g)
	return g, err
}

// redundant waits until every block of a finished file is on both DataNodes. fsck
// counts replicas; the NameNode's metrics would also count copies of blocks that
// were deleted meanwhile, for many seconds.
func (m *machine) redundant(ctx context.Context) error {
	return m.await(ctx, "every block is on both DataNodes", func(ctx context.Context) (bool, error) {
		err := m.checkFileSystem(ctx)
		if err != nil {
			err = errors.Join(err, wait(ctx, 200*time.Millisecond))
		}
		return true, err
	})
}

const beanMax = 8 << 20 // bytes

// bean reads one bean of a Hadoop daemon's JMX.
func (m *machine) bean(ctx context.Context, url, name string, into any) error {
	body, err := m.page(ctx, url+"/jmx?qry="+name)
	if err != nil {
		return err
	}
	var doc struct{ Beans []json.RawMessage }
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if len(doc.Beans) != 1 {
		return fmt.Errorf("%s: no bean %s", url, name)
	}
	return json.Unmarshal(doc.Beans[0], into)
}

func (m *machine) page(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := m.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, beanMax))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return body, err
}

// stop puts everything back. It may be called after a start that failed half-way.
func (m *machine) stop() error {
	var errs []error
	if m.clients != nil {
		m.clients.Stop()
	}
	if m.daemon != nil {
		errs = append(errs, m.daemon.Stop())
	}
	if m.cluster != nil {
		errs = append(errs, m.cluster.Stop())
	}
	for _, d := range m.disks {
		errs = append(errs, d.Stop())
	}
	if m.book != nil {
		errs = append(errs, m.book.Close())
	}
	m.clients, m.daemon, m.cluster, m.disks, m.book = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}
