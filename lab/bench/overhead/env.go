package overhead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
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

// Machine is the real environment: two DataNodes, each on a disk of its own, the client and the
// daemon.
type Machine struct {
	*stand.Stand
	options Options
	setup   Setup
	client  *client
	daemon  *daemon.Daemon
	fresh   bool   // the DataNodes have just been started with the cluster
	files   int    // numbers the outputs
	written string // what the last write wrote
	rows    string // what the last TeraGen wrote
}

const spillBytes = 4 << 30

// stand has what both machines share. Without root the dirty limits stay as they are.
func (o Options) stand(dirty, background int64) stand.Spec {
	return stand.Spec{Dir: o.RunDir, Binary: o.Binary, AgentJar: o.AgentJar, Cache: o.CacheDir, Progress: o.Say, DisksOptional: true,
		Sysctls: []stand.Sysctl{{Name: "vm/dirty_bytes", Value: strconv.FormatInt(dirty, 10)}, {Name: "vm/dirty_background_bytes", Value: strconv.FormatInt(background, 10)}}}
}

func fastDisk(name string, bytes int64) disk.Options {
	return disk.Options{Name: name, Size: bytes, Scheduler: "none", LogBytesMax: mib}
}

// StartMachine brings up disks, cluster and client. On an error everything is
// put back.
func StartMachine(ctx context.Context, setup Setup, o Options) (_ *Machine, err error) {
	m := &Machine{options: o, setup: setup, fresh: true}
	spec := o.stand(setup.DirtyBytes, setup.DirtyBackgroundBytes)
	// The last disk is for the jobs' intermediate files, so that they are in memory as well.
	spec.Disks = []disk.Options{fastDisk("disk0", setup.DiskBytes), fastDisk("disk1", setup.DiskBytes), fastDisk("spills", spillBytes)}
	spec.Hadoop = func(s *stand.Stand) hadoop.Config {
		cfg := hadoop.Config{Version: setup.Hadoop, NoYARN: true, BlockSize: setup.BlockBytes, DataNodes: s.DataNodes("dfs", s.Disks[:2]...)}
		for i := range cfg.DataNodes {
			d := &cfg.DataNodes[i]
			d.HeapMB, d.JVMArgs, d.CPUs, d.Volumes[0].Type = setup.HeapMB, m.jvmArgs(s, i, 0), setup.DataNodeCPU, []string{"DISK", "SSD"}[i]
		}
		return cfg
	}
	if m.Stand, err = stand.Up(ctx, spec); err != nil {
		return nil, err
	}
	if err := m.startClient(ctx); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

func (m *Machine) startClient(ctx context.Context) (err error) {
	// A place is a folder whose storage policy names its DataNode's only volume.
	for i, policy := range []string{"HOT", "ALL_SSD"} {
		if err := m.Hadoop.FS().Mkdir(ctx, placeDir(i)); err != nil {
			return err
		}
		if err := m.Hadoop.FS().SetStoragePolicy(ctx, placeDir(i), policy); err != nil {
			return err
		}
	}
	m.client, err = startClient(ctx, m.Book, m.Hadoop, m.Lib, m.Dir, m.Disks[2].Mount(), m.setup.ClientCPU)
	return err
}

func placeDir(place int) string { return fmt.Sprintf("/place%d", place) }

// jvmArgs are the DataNode's, with the agent or without.
func (m *Machine) jvmArgs(s *stand.Stand, place, agent int) []string {
	args := append([]string{keepCompilers}, m.options.JVMArgs...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{place}", map[bool]string{true: "agent", false: "native"}[place == agent])
	}
	if place == agent {
		args = append(args, s.AgentArgs(0)...)
	}
	return args
}

// Begin restarts the DataNodes and warms them. The one with the agent is
// warmed with a daemon and without, so that its compiler has seen both.
func (m *Machine) Begin(ctx context.Context, agent int) error {
	if !m.fresh || agent != 0 {
		for i := range 2 {
			m.Hadoop.StopDataNode(i)
		}
		for i := range 2 {
			if err := m.Hadoop.StartDataNode(ctx, i, m.jvmArgs(m.Stand, i, agent)...); err != nil {
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
	blocks, err := m.Hadoop.FS().Blocks(ctx, m.written)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		if want := m.Hadoop.DataNodeAddress(place); !slices.Contains(b.DataNodes, want) {
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
		for i := range 2 {
			before, err := cpuTime(m.Hadoop.DataNodePID(i))
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
		for i := range 2 {
			after, err := cpuTime(m.Hadoop.DataNodePID(i))
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
	if err := m.Hadoop.Check(); err != nil {
		return err
	}
	if v.governed() {
		err = m.startDaemon(ctx, v)
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
		if err := syncDisk(m.Disks[place]); err != nil {
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
	pid := m.Hadoop.DataNodePID(place)
	compilers, err := compilerTime(pid)
	if err != nil {
		return 0, 0, err
	}
	if node, err = cpuTime(pid); err == nil && m.daemon != nil {
		daemon, err = cpuTime(m.daemon.PID())
	}
	return node - compilers, daemon, err
}

// Stop puts everything back.
func (m *Machine) Stop() error {
	var errs []error
	if m.daemon != nil {
		errs = append(errs, stopDaemon(m.daemon))
	}
	if m.client != nil {
		errs = append(errs, m.client.stop())
	}
	return errors.Join(append(errs, m.Down())...)
}
