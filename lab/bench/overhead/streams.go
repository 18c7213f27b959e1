package overhead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/hadoop"
	"penstock/lab/proc"
	"penstock/lab/stand"
)

// Machine is the real environment of streams and of jobs within the client: two DataNodes, each on
// its own disk, the client and the daemon.
type Machine struct {
	*stand.Stand
	options Options
	setup   Setup
	client  *client.JVM
	fresh   bool   // the DataNodes still run as the cluster started them
	files   int    // numbers the outputs
	written string // output of the last write
	rows    string // output of the last TeraGen
}

const (
	spillBytes     = 4 << 30
	daemonPatience = 20 * time.Second
)

// StartMachine starts disks, cluster and client. On an error it undoes everything.
func StartMachine(ctx context.Context, setup Setup, o Options) (_ *Machine, err error) {
	m := &Machine{options: o, setup: setup, fresh: true}
	spec := o.stand(setup.Conditions, "disk0", "disk1")
	// This disk holds the jobs' intermediate files, so that they are in memory as well.
	spec.Disks = append(spec.Disks, fastDisk("spills", spillBytes))
	node := daemon.Options{Patience: daemonPatience}
	spec.Nodes = func(*stand.Stand) []daemon.Options { return []daemon.Options{node} }
	spec.NodesLater = true
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
	if err = m.makePlaces(ctx); err == nil {
		err = m.startClient(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// makePlaces makes a folder of HDFS for each DataNode. The folder's storage policy selects the
// DataNode's only volume.
func (m *Machine) makePlaces(ctx context.Context) error {
	for i, policy := range []string{"HOT", "ALL_SSD"} {
		if err := m.Hadoop.FS().Mkdir(ctx, placeDir(i)); err != nil {
			return err
		}
		if err := m.Hadoop.FS().SetStoragePolicy(ctx, placeDir(i), policy); err != nil {
			return err
		}
	}
	return nil
}

func placeDir(place int) string { return fmt.Sprintf("/place%d", place) }

// jvmArgs returns the DataNode's JVM arguments, with the agent or without.
func (m *Machine) jvmArgs(s *stand.Stand, place, agent int) []string {
	// With the first argument, idle compiler threads do not end, so their CPU time remains known.
	args := append([]string{"-XX:-UseDynamicNumberOfCompilerThreads"}, m.options.JVMArgs...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{place}", map[bool]string{true: "agent", false: "native"}[place == agent])
	}
	if place == agent {
		args = append(args, s.AgentArgs(0)...)
		if m.setup.Loopback {
			args[len(args)-1] += ",transport=loopback"
		}
	}
	return args
}

// Begin restarts the DataNodes and warms them. The DataNode with the agent is warmed with a daemon
// and without one, so that its JVM has compiled both cases.
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
		bytes := m.setup.WarmBytes / 2
		if v == Native {
			bytes = m.setup.WarmBytes
		}
		if err := m.warm(ctx, v, placeOf(v, agent), bytes, jobs); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	}
	return m.settle(ctx)
}

// warm performs the operations of a round, at full speed, without measuring them. The client's JVM
// is warmed once, by the first round's jobs.
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

// A DataNode is idle if it uses less than restPart of a CPU; it still sends a heartbeat every
// second.
const (
	restWindow   = 500 * time.Millisecond
	restPart     = 0.03
	restPatience = 20 * time.Second
)

// settle waits until both DataNodes are idle, that is, their compilers have finished the work from
// the warm-up.
func (m *Machine) settle(ctx context.Context) error {
	for begun := time.Now(); time.Since(begun) < restPatience; {
		before, err1 := m.dataNodesCPU()
		err2 := pause(ctx, restWindow)
		after, err3 := m.dataNodesCPU()
		if err := errors.Join(err1, err2, err3); err != nil || (after-before).Seconds() < restPart*restWindow.Seconds() {
			return err
		}
	}
	m.options.Say("NOTE: the DataNodes are not idle %v after their warm-up", restPatience)
	return nil
}

func (m *Machine) dataNodesCPU() (time.Duration, error) {
	a, err1 := proc.CPUTime(m.Hadoop.DataNodePID(0))
	b, err2 := proc.CPUTime(m.Hadoop.DataNodePID(1))
	return a + b, errors.Join(err1, err2)
}

func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-time.After(length):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Arrange starts the variant's daemon. It returns when the DataNode's agent is connected and knows the mode or,
// without an agent, when the file systems are marked.
func (m *Machine) Arrange(ctx context.Context, v Variant) error {
	if err := m.Hadoop.Check(); err != nil || !v.governed() {
		return err
	}
	ready := func() error { return m.AwaitAgents(ctx, 0, 1) }
	if v == Marked {
		ready = func() error { return m.awaitMark(ctx) }
	}
	err := m.StartNode(ctx, 0, func(o *daemon.Options) {
		o.Mode, o.More, o.Weights = string(v), "", ""
		switch {
		case v == Marked:
			m.mark(o)
		case m.setup.Loopback:
			o.More = "loopback: 127.0.0.1:0\n"
		}
	})
	if err != nil {
		return err
	}
	if err := ready(); err != nil {
		return errors.Join(err, m.stopDaemon())
	}
	const twoHeartbeats = 500 * time.Millisecond // the agent has received the mode and is idle again
	return pause(ctx, twoHeartbeats)
}

// unusedCommand is the name of a command that nobody runs. The file systems are marked for it.
const unusedCommand = "nobody-runs-it"

// mark makes the daemon mark the file systems of both DataNodes.
func (m *Machine) mark(o *daemon.Options) {
	o.Mode = string(Enforce)
	o.More = fmt.Sprintf("control: {mode: enforce, directories: [%s, %s], mechanisms: [gate]}\n", m.Disks[0].Mount(), m.Disks[1].Mount())
	o.Weights = fmt.Sprintf("default: 1\nprocesses: [{name: unused, command: %s, weight: 1}]\n", unusedCommand)
}

// awaitMark waits until the file systems are marked.
func (m *Machine) awaitMark(ctx context.Context) error {
	return m.Await(ctx, "the file systems are marked", func(ctx context.Context) (bool, error) {
		doc, err := m.Status(ctx, 0)
		if err != nil {
			return false, err
		}
		if !doc.Control.Held("process:unused") {
			return false, fmt.Errorf("not yet: %+v", doc.Control)
		}
		return true, nil
	})
}

// stopDaemon ends the daemon. It returns an error if the daemon had died before, because the run
// was then not governed to its end.
func (m *Machine) stopDaemon() error {
	d := m.Nodes[0]
	m.Nodes[0] = nil
	if d == nil {
		return nil
	}
	if !d.Alive() {
		return fmt.Errorf("penstock node had ended by itself: see %s", d.Log)
	}
	return d.Stop()
}

// Release ends the daemon and deletes the written files.
func (m *Machine) Release(ctx context.Context) (peak int64, err error) {
	if d := m.Nodes[0]; d != nil {
		_, peak, err = proc.Memory(d.PID())
		err = errors.Join(err, m.stopDaemon())
	}
	if err != nil || ctx.Err() != nil {
		return peak, err
	}
	return peak, m.deleteFiles(ctx)
}

// deleteFiles deletes the written files and waits until the DataNodes have deleted their blocks.
func (m *Machine) deleteFiles(ctx context.Context) error {
	for i := range 2 {
		files, err := m.Hadoop.FS().List(ctx, placeDir(i))
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := m.Hadoop.FS().Remove(ctx, f.Path); err != nil {
				return err
			}
		}
	}
	return errors.Join(awaitDeleted(ctx, m.Stand, m.Disks[0], 0), awaitDeleted(ctx, m.Stand, m.Disks[1], 0))
}

func (m *Machine) output(place int) string {
	m.files++
	return fmt.Sprintf("%s/%d", placeDir(place), m.files)
}

// Do performs one operation and measures it.
func (m *Machine) Do(ctx context.Context, _ Variant, place int, op Operation) (s Sample, err error) {
	var command, args string
	rate := m.setup.StreamRate
	if slices.Contains(FullSpeed, op) {
		rate = 0
	}
	switch op {
	case Write, FullWrite:
		m.written = m.output(place)
		command, args = "write", fmt.Sprintf("%s %d %d", m.written, m.setup.StreamBytes, rate)
	case Cold, FullCold, Cached:
		if op != Cached {
			if err := m.Disks[place].Forget(); err != nil {
				return s, err
			}
		}
		command, args = "read", fmt.Sprintf("%s %d", m.written, rate)
	case TeraGen:
		m.rows = m.output(place)
		command, args = "teragen", fmt.Sprintf("%s %d", m.rows, m.setup.JobBytes/hadoop.RowBytes)
	case TeraSort:
		command, args = "terasort", m.rows+" "+m.output(place)
	default:
		return s, fmt.Errorf("no such operation")
	}
	node, daemon, err := m.usage(place)
	if err != nil {
		return s, err
	}
	took, bytes, err := m.command(ctx, command, args)
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
		if err := m.Disks[place].Sync(); err != nil {
			return s, err
		}
		s.SyncSeconds = time.Since(synced).Seconds()
	}
	_, daemonAfter, err := m.usage(place)
	s.DaemonCPU = (daemonAfter - daemon).Seconds()
	return s, err
}

// usage returns the CPU times so far of the place's DataNode and of the daemon. The DataNode's time
// excludes the compilers of its JVM. After some minutes a JVM still compiles, in bursts as long as
// the read of a block; after some hours it does not. So the compilers' time is not part of the cost
// of I/O.
func (m *Machine) usage(place int) (node, daemon time.Duration, err error) {
	pid := m.Hadoop.DataNodePID(place)
	compilers, err := proc.ThreadsCPUTime(pid, isCompiler)
	if err != nil {
		return 0, 0, err
	}
	if node, err = proc.CPUTime(pid); err == nil && m.Nodes[0] != nil {
		daemon, err = proc.CPUTime(m.Nodes[0].PID())
	}
	return node - compilers, daemon, err
}

func isCompiler(thread string) bool {
	return strings.HasPrefix(thread, "C1 CompilerThre") || strings.HasPrefix(thread, "C2 CompilerThre")
}

// Stop undoes everything.
func (m *Machine) Stop() error {
	err := m.stopDaemon()
	if m.client != nil {
		m.client.Stop()
	}
	return errors.Join(err, m.Down())
}
