package latency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"penstock/lab/client"
	"penstock/lab/contenders"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
)

// The two ways in which the DataNode serves: without the agent, and under Penstock.
const (
	native = iota
	governed
	ways
)

// Paths of the files that are read.
const (
	coldFile   = "/file"
	cachedFile = "/cached"
)

// seed of the files that are read.
const seed = 19

// Numbers of the applications.
const (
	reader = 100
	writer = 110 // the first
)

type machine struct {
	*stand.Stand
	setup Setup
	field *contenders.Field
	way   int // in which the DataNode serves now
	jobs  int

	verifies bool // the daemon verifies names
	filled   bool // HBase's table has its rows
}

// start starts a machine in the folder dir, with all files that are read. On an error it undoes everything.
func start(ctx context.Context, q Request, dir string) (_ *machine, err error) {
	s := q.Setup
	m := &machine{setup: s}
	spec := stand.Spec{
		Name: "latency", Dir: dir, Binary: q.Binary, AgentJar: q.AgentJar, Cache: q.Cache, Progress: q.Progress,
		Sysctls: stand.DirtyBytes(s.Dirty/2, s.Dirty),
		Disks:   []disk.Options{{Name: "disk", Size: 8 << 30}},
		Clients: true, NodesLater: true, ZooKeeper: slices.ContainsFunc(q.Rows, func(name string) bool { return rowOf(name).HBase }),
		Nodes: func(*stand.Stand) []daemon.Options { return make([]daemon.Options, 1) },
		Hadoop: func(at *stand.Stand) hadoop.Config {
			return hadoop.Config{Version: s.Hadoop, DataNodes: at.DataNodes("dfs"), TaskSlots: s.Maps}
		},
	}
	if m.Stand, err = stand.Up(ctx, spec); err != nil {
		return nil, err
	}
	m.field = contenders.On(m.Stand, 16*mib, 16*mib)
	q.Progress("writing the files to read, %d MiB", (s.FileBytes+s.CachedBytes)/mib)
	if err := errors.Join(m.startNode(ctx), m.put(ctx, coldFile, s.FileBytes), m.put(ctx, cachedFile, s.CachedBytes)); err != nil {
		return nil, errors.Join(err, m.Down())
	}
	return m, nil
}

// become makes the DataNode serve in one of the two ways. Both use the same disk and the same files: seeks depend on
// where a file system has placed a file, and two disks differ in that. After a start of the DataNode, become reads for some
// seconds, so that the JVM has compiled what serves a read.
func (m *machine) become(ctx context.Context, way int) error {
	if m.way == way {
		return nil
	}
	arguments := []string{"-Dpenstock.lab=native"}
	if way == governed {
		arguments = m.AgentArgs(0)
	}
	m.Hadoop.StopDataNode(0)
	if err := m.Hadoop.StartDataNode(ctx, 0, arguments...); err != nil {
		return err
	}
	m.way = way
	if way == governed {
		if err := m.AwaitAgents(ctx, 0, 1); err != nil {
			return err
		}
	}
	if err := m.cache(ctx); err != nil {
		return err
	}
	_, err := m.read(ctx, cachedFile, m.setup.CachedBytes, 1, seconds(m.setup.WarmingS))
	return err
}

// cache brings a file to the page cache.
func (m *machine) cache(ctx context.Context) error {
	return m.Clients.Run(ctx, "get", fmt.Sprintf("path=%s attempt=%s seed=%d", cachedFile, client.Attempt(reader), seed))
}

func (m *machine) startNode(ctx context.Context) error {
	profile, err := m.WriteProfile(m.Disks[0], m.setup.model(), m.setup.Quantum)
	if err != nil {
		return err
	}
	return m.StartNode(ctx, 0, func(o *daemon.Options) {
		// The clients only claim the names of applications, so the daemon must not verify names.
		*o = daemon.Options{Mode: "enforce", More: daemon.Believe,
			Device: fmt.Sprintf("  profile: %q\n  quantum: %d\n  ahead: 4\n  backlog: %d\n  dirty: %d\n  depth: {start: 2, max: 8}\n", profile, m.setup.Quantum, m.setup.Backlog, 2*m.setup.Backlog)}
	})
}

func (m *machine) put(ctx context.Context, path string, bytes int64) error {
	args := fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d block=%d replication=1", path, client.Attempt(reader), bytes, seed, 64*mib)
	if err := m.Clients.Run(ctx, "put", args); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// trust makes the daemon believe names, or verify them. It starts again for that.
func (m *machine) trust(ctx context.Context, believe bool) error {
	if m.verifies != believe {
		return nil
	}
	more := ""
	if believe {
		more = daemon.Believe
	}
	if err := m.RestartNode(ctx, 0, func(o *daemon.Options) { o.More = more }); err != nil {
		return err
	}
	m.verifies = !believe
	if m.way == native {
		return nil
	}
	return m.AwaitAgents(ctx, 0, 1)
}

// weigh puts the row's weights in force.
func (m *machine) weigh(ctx context.Context, row Row) error {
	goal := ""
	if row.Goal {
		goal = fmt.Sprintf(", latency: %dms", m.setup.GoalMS)
	}
	return m.SetWeights(ctx, 0, fmt.Sprintf("default: 1\nrules:\n  - {application: %s, weight: %d%s}\n", contenders.Flow(reader), m.setup.Weight, goal))
}

// limit turns the disks' models on or off.
func (m *machine) limit(on bool) error {
	if on {
		return m.SetModel(m.setup.model())
	}
	return m.SetModel(disk.Model{})
}

// aggress starts the row's writers or TeraGen. The returned function ends them and deletes what they wrote; it
// returns the error with which they have failed.
func (m *machine) aggress(ctx context.Context, row Row) (stop func(context.Context) error, err error) {
	if row.TeraGen {
		return m.teraGen(ctx)
	}
	var tasks []contenders.Task
	var numbers []int
	for i := range m.setup.Writers {
		numbers = append(numbers, writer+i)
		tasks = append(tasks, contenders.Tasks(numbers[i], 1, false, 0)...)
	}
	load := m.field.Start(ctx, tasks)
	return func(ctx context.Context) error {
		err := load.Stop()
		for _, n := range numbers {
			err = errors.Join(err, m.field.Clear(ctx, n))
		}
		return err
	}, nil
}

// relieve gives the disks their own speed, so that the end of the others takes no time, and ends the others.
func (m *machine) relieve(ctx context.Context, stop func(context.Context) error) error {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := m.limit(false)
	if stop != nil {
		err = errors.Join(err, stop(after))
	}
	return err
}

// teraGen starts TeraGen, which would write for an hour, and waits until its tasks advance.
func (m *machine) teraGen(ctx context.Context) (stop func(context.Context) error, err error) {
	m.jobs++
	output := fmt.Sprintf("/teragen-%d", m.jobs)
	app, err := m.Hadoop.Submit(ctx, hadoop.Job{Kind: hadoop.TeraGen, Output: output, Rows: m.setup.Rate * int64(time.Hour/time.Second) / hadoop.RowBytes,
		Maps: m.setup.Maps, Queue: hadoop.QueueAggressor, Settings: map[string]string{"dfs.blocksize": strconv.Itoa(16 * mib)}})
	if err != nil {
		return nil, err
	}
	stop = func(ctx context.Context) error { return errors.Join(app.Kill(ctx), m.Hadoop.FS().Remove(ctx, output)) }
	before, err := m.moved()
	if err != nil {
		return stop, err
	}
	return stop, m.Await(ctx, "TeraGen's tasks write", func(ctx context.Context) (bool, error) {
		s, err := app.Status(ctx)
		if err != nil {
			return false, err
		}
		now, err := m.moved()
		if err == nil && (s.Containers <= m.setup.Maps || now-before < 4*m.setup.Quantum) {
			err = fmt.Errorf("%d containers run, and the disk has moved %d MiB", s.Containers, (now-before)/mib)
		}
		return err == nil, err
	})
}

// moved returns the bytes that the disk has read and written so far.
func (m *machine) moved() (int64, error) {
	read, written, err := m.Disks[0].Counters()
	return read + written, err
}
