package overhead

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
)

// Options say where the real environment lives; nothing in them changes a
// figure.
type Options struct {
	RunDir   string // private, absolute
	CacheDir string // downloads; kept between runs
	AgentJar string
	Binary   string   // penstock itself, for the daemon
	JVMArgs  []string // of both DataNodes, as for a profiler
	Say      func(format string, args ...any)
}

// Machine is the real environment: two DataNodes, each on a disk of its own, the
// client and the daemon. What it changes is in the run folder's ledger first.
type Machine struct {
	options Options
	setup   Setup
	book    *ledger.Ledger
	disks   [2]*disk.Disk
	cluster *hadoop.Cluster
	client  *client
	daemon  *daemon.Daemon
	spills  *disk.Disk // the jobs' intermediate files, so that they are in memory as well
	fresh   bool       // the DataNodes have just been started with the cluster
	files   int        // numbers the outputs
	written string     // what the last write wrote
	rows    string     // what the last TeraGen wrote
}

const spillBytes = 4 << 30

const socketPathMax = 107 // sun_path, less the final zero

// StartMachine brings up disks, cluster and client. On an error everything is
// put back.
func StartMachine(ctx context.Context, setup Setup, o Options) (_ *Machine, err error) {
	m := &Machine{options: o, setup: setup}
	if err := checkSocket(m.socket()); err != nil {
		return nil, err
	}
	if m.book, err = ledger.Open(o.RunDir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Stop())
		}
	}()
	if err := tuneKernel(ctx, m.book, setup.DirtyBytes, setup.DirtyBackgroundBytes); err != nil {
		return nil, err
	}
	for i := range m.disks {
		if m.disks[i], err = disk.Open(ctx, disk.Options{Name: fmt.Sprintf("disk%d", i), RunDir: o.RunDir,
			Size: setup.DiskBytes, Scheduler: "none", LogBytesMax: mib}); err != nil {
			return nil, err
		}
	}
	if m.spills, err = disk.Open(ctx, disk.Options{Name: "spills", RunDir: o.RunDir, Size: spillBytes, Scheduler: "none", LogBytesMax: mib}); err != nil {
		return nil, err
	}
	return m, m.startCluster(ctx)
}

func (m *Machine) socket() string { return m.options.socket() }

func (o Options) socket() string { return filepath.Join(o.RunDir, "agent.sock") }

func checkSocket(path string) error {
	if n := len(path); n > socketPathMax {
		return fmt.Errorf("run folder %s: the agent's socket in it would have a path of %d bytes, the kernel allows %d: choose a shorter --run-dir",
			filepath.Dir(path), n, socketPathMax)
	}
	return nil
}

func tuneKernel(ctx context.Context, book *ledger.Ledger, dirty, background int64) error {
	if os.Geteuid() != 0 {
		return nil // in the setup's notes
	}
	const patience = 30 * time.Minute // while another run on this machine has them
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, p := range []struct {
		name  string
		value int64
	}{{"vm/dirty_bytes", dirty}, {"vm/dirty_background_bytes", background}} {
		if _, err := ledger.SetSysctl(wait, book, p.name, strconv.FormatInt(p.value, 10)); err != nil {
			return fmt.Errorf("set the kernel's dirty limits: %w", err)
		}
	}
	return nil
}

func (m *Machine) startCluster(ctx context.Context) error {
	lib, err := hadoop.Fetch(ctx, m.options.CacheDir, m.setup.Hadoop, m.options.Say)
	if err != nil {
		return err
	}
	cfg := hadoop.Config{RunDir: filepath.Join(m.options.RunDir, "hadoop"), Lib: lib, Version: m.setup.Hadoop,
		NoYARN: true, BlockSize: m.setup.BlockBytes, Progress: m.options.Say}
	for i, d := range m.disks {
		cfg.DataNodes = append(cfg.DataNodes, hadoop.DataNode{HeapMB: m.setup.HeapMB, JVMArgs: m.jvmArgs(i, 0), CPUs: m.setup.DataNodeCPU,
			Volumes: []hadoop.Volume{{Dir: filepath.Join(d.Mount(), "dfs"), Type: []string{"DISK", "SSD"}[i]}}})
	}
	if m.cluster, err = hadoop.Start(ctx, cfg); err != nil {
		return err
	}
	m.fresh = true
	// A place is a folder whose storage policy names its DataNode's only volume.
	for i, policy := range []string{"HOT", "ALL_SSD"} {
		if err := m.cluster.FS().Mkdir(ctx, placeDir(i)); err != nil {
			return err
		}
		if err := m.cluster.FS().SetStoragePolicy(ctx, placeDir(i), policy); err != nil {
			return err
		}
	}
	m.client, err = startClient(ctx, m.book, m.cluster, lib, m.options.RunDir, m.spills.Mount(), m.setup.ClientCPU)
	return err
}

func placeDir(place int) string { return fmt.Sprintf("/place%d", place) }

// jvmArgs are the DataNode's, with the agent or without.
func (m *Machine) jvmArgs(place, agent int) []string {
	args := append([]string{keepCompilers}, m.options.JVMArgs...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{place}", map[bool]string{true: "agent", false: "native"}[place == agent])
	}
	if place == agent {
		args = append(args, fmt.Sprintf("-javaagent:%s=socket=%s", m.options.AgentJar, m.socket()))
	}
	return args
}

// Begin starts the DataNodes anew and warms them. The one with the agent is
// warmed with a daemon and without, so that its compiler has seen both.
func (m *Machine) Begin(ctx context.Context, agent int) error {
	if !m.fresh || agent != 0 {
		for i := range m.disks {
			m.cluster.StopDataNode(i)
		}
		for i := range m.disks {
			if err := m.cluster.StartDataNode(ctx, i, m.jvmArgs(i, agent)...); err != nil {
				return err
			}
		}
	}
	jobs := m.fresh && m.setup.JobBytes > 0
	m.fresh = false
	for _, v := range []Variant{Native, Absent, Enforce} {
		place, bytes := agent, m.setup.WarmBytes/2
		if v == Native {
			place, bytes = 1-agent, m.setup.WarmBytes
		}
		if err := m.warm(ctx, v, place, bytes, jobs); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	}
	return m.settle(ctx)
}

// warm does what is done in a round, at full speed, and does not look at its
// figures. The client's JVM is warmed once, by the first round's jobs.
func (m *Machine) warm(ctx context.Context, v Variant, place int, bytes int64, jobs bool) (err error) {
	if err := m.Arrange(ctx, v); err != nil {
		return err
	}
	defer func() {
		_, released := m.Release(ctx)
		err = errors.Join(err, released)
	}()
	for warmed := int64(0); warmed < bytes; warmed += m.setup.StreamBytes {
		for _, op := range []Operation{FullWrite, FullCold, FullCold} {
			if _, err := m.Do(ctx, v, place, op); err != nil {
				return err
			}
		}
	}
	blocks, err := m.cluster.FS().Blocks(ctx, m.written)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		if want := m.cluster.DataNodeAddress(place); !slices.Contains(b.DataNodes, want) {
			return fmt.Errorf("a block of %s is on %v and not on %s", m.written, b.DataNodes, want)
		}
	}
	if !jobs {
		return nil
	}
	for _, job := range Jobs {
		if _, err := m.Do(ctx, v, place, job); err != nil {
			return err
		}
	}
	return nil
}

// A DataNode at rest beats its heart every second.
const (
	restWindow   = 500 * time.Millisecond
	restPart     = 0.03
	restPatience = 20 * time.Second
)

// settle waits until both DataNodes are at rest: what the warm-up gave their
// compilers to do is done.
func (m *Machine) settle(ctx context.Context) error {
	for begun := time.Now(); time.Since(begun) < restPatience; {
		var used time.Duration
		for i := range m.disks {
			before, err := cpuTime(m.cluster.DataNodePID(i))
			if err != nil {
				return err
			}
			used -= before
		}
		select {
		case <-time.After(restWindow):
		case <-ctx.Done():
			return ctx.Err()
		}
		for i := range m.disks {
			after, err := cpuTime(m.cluster.DataNodePID(i))
			if err != nil {
				return err
			}
			used += after
		}
		if used.Seconds() < restPart*restWindow.Seconds() {
			return nil
		}
	}
	m.options.Say("NOTE: the DataNodes are not at rest %v after their warm-up", restPatience)
	return nil
}

// Arrange starts the variant's daemon.
func (m *Machine) Arrange(ctx context.Context, v Variant) (err error) {
	if err := m.cluster.Check(); err != nil {
		return err
	}
	if v.governed() {
		m.daemon, err = startDaemon(ctx, m.book, m.options.Binary, m.options.RunDir, m.socket(), string(v), "", 1)
	}
	return err
}

// Release ends the daemon and deletes what was written.
func (m *Machine) Release(ctx context.Context) (peak int64, err error) {
	if m.daemon != nil {
		peak, err = peakMemory(m.daemon.PID())
		err = errors.Join(err, stopDaemon(m.daemon))
		m.daemon = nil
	}
	if err != nil || ctx.Err() != nil || m.client == nil {
		return peak, err
	}
	return peak, m.deleteFiles(ctx)
}

func (m *Machine) output(place int) string {
	m.files++
	return fmt.Sprintf("%s/%d", placeDir(place), m.files)
}

// Do performs one operation and accounts for it.
func (m *Machine) Do(ctx context.Context, _ Variant, place int, op Operation) (s Sample, err error) {
	var command []string
	rate := strconv.FormatInt(m.setup.StreamRate, 10)
	if slices.Contains(FullSpeed, op) {
		rate = "0"
	}
	switch op {
	case Write, FullWrite:
		m.written = m.output(place)
		command = []string{"write", m.written, strconv.FormatInt(m.setup.StreamBytes, 10), rate}
	case Cold, FullCold:
		if err := m.forget(place); err != nil {
			return s, err
		}
		command = []string{"read", m.written, rate}
	case Cached:
		command = []string{"read", m.written, rate}
	case TeraGen:
		m.rows = m.output(place)
		command = []string{"teragen", m.rows, strconv.FormatInt(m.setup.JobBytes/hadoop.RowBytes, 10)}
	case TeraSort:
		command = []string{"terasort", m.rows, m.output(place)}
	default:
		return s, fmt.Errorf("no such operation")
	}
	node, daemon, err := m.usage(place)
	if err != nil {
		return s, err
	}
	took, bytes, err := m.client.do(ctx, command...)
	if err != nil {
		return s, err
	}
	nodeAfter, _, err := m.usage(place)
	if err != nil {
		return s, err
	}
	s = Sample{Bytes: bytes, Seconds: took.Seconds(), DataNodeCPU: (nodeAfter - node).Seconds()}
	if op != Cold && op != FullCold && op != Cached {
		synced := time.Now()
		if err := syncDisk(m.disks[place]); err != nil {
			return s, err
		}
		s.SyncSeconds = time.Since(synced).Seconds()
	}
	_, daemonAfter, err := m.usage(place)
	s.DaemonCPU = (daemonAfter - daemon).Seconds()
	return s, err
}

// usage is the CPU time of the place's DataNode, without its compilers, and of
// the daemon so far.
func (m *Machine) usage(place int) (node, daemon time.Duration, err error) {
	pid := m.cluster.DataNodePID(place)
	compilers, err := compilerTime(pid)
	if err != nil {
		return 0, 0, err
	}
	if node, err = cpuTime(pid); err == nil && m.daemon != nil {
		daemon, err = cpuTime(m.daemon.PID())
	}
	return node - compilers, daemon, err
}

// Stop puts everything back. It may be called after a start that failed half-way.
func (m *Machine) Stop() error {
	var errs []error
	if m.daemon != nil {
		errs = append(errs, stopDaemon(m.daemon))
	}
	if m.client != nil {
		errs = append(errs, m.client.stop())
	}
	if m.cluster != nil {
		errs = append(errs, m.cluster.Stop())
	}
	for _, d := range []*disk.Disk{m.spills, m.disks[1], m.disks[0]} {
		if d != nil {
			errs = append(errs, d.Stop())
		}
	}
	if m.book != nil {
		errs = append(errs, m.book.Close())
	}
	m.daemon, m.client, m.cluster, m.spills, m.disks, m.book = nil, nil, nil, nil, [2]*disk.Disk{}, nil
	return errors.Join(errs...)
}
