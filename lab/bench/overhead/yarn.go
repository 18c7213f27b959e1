package overhead

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/proc"
	"penstock/lab/stand"
	"penstock/node/status"
)

// HDFS folders, and the seed of both inputs; any other number would do.
const (
	sortInput = "/input"
	sortSeed  = 20160531
)

// yarn is one of the two real clusters, which have a disk each.
type yarn struct {
	disk    *disk.Disk
	cluster *hadoop.Cluster
	sum     hadoop.Checksum128 // of the input
	held    int64              // bytes of blocks on the disk when there is no output
}

// YARNMachine is the real environment of a TeraSort on YARN: two clusters, and the daemon. One
// cluster has all parts of Penstock. The clusters and the daemon keep running during all rounds.
type YARNMachine struct {
	*stand.Stand // with the disks, both clusters and the daemon
	setup        YARNSetup
	sides        map[Variant]*yarn
	outputs      int // counts outputs
}

// StartYARNMachine starts disks, clusters and daemon, and writes the inputs. On an error it undoes
// everything.
func StartYARNMachine(ctx context.Context, setup YARNSetup, o Options) (*YARNMachine, error) {
	m := &YARNMachine{setup: setup, sides: map[Variant]*yarn{}}
	spec := o.stand(setup.Conditions, "disk-native", "disk-enforce")
	spec.Nodes = func(*stand.Stand) []daemon.Options {
		return []daemon.Options{{Mode: string(Enforce), More: fmt.Sprintf("network: {rate: %d}\n", setup.NetworkRate)}}
	}
	spec.Hadoop = func(s *stand.Stand) hadoop.Config {
		cfg := m.config(s.Disks[1])
		cfg.Governed = s.Governed(0)
		return cfg
	}
	spec.Agents = []int{2} // DataNode and NodeManager
	var err error
	if m.Stand, err = stand.Up(ctx, spec); err != nil {
		return nil, err
	}
	native, err := m.StartCluster(ctx, string(Native), m.config(m.Disks[0]))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", Native, err), m.Stop())
	}
	m.sides[Native], m.sides[Enforce] = &yarn{disk: m.Disks[0], cluster: native}, &yarn{disk: m.Disks[1], cluster: m.Hadoop}
	for _, v := range YARNVariants {
		if err := m.writeInput(ctx, m.sides[v]); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: write the input: %w", v, err), m.Stop())
		}
	}
	return m, nil
}

func (m *YARNMachine) config(d *disk.Disk) hadoop.Config {
	return hadoop.Config{Version: m.setup.Hadoop,
		DataNodes: []hadoop.DataNode{{HeapMB: m.setup.HeapMB, Volumes: []hadoop.Volume{{Dir: filepath.Join(d.Mount(), "dfs")}}}},
		LocalDirs: []string{filepath.Join(d.Mount(), "local")},
		BlockSize: m.setup.BlockBytes, TaskSlots: m.setup.TaskSlots, TaskHeapMB: m.setup.TaskHeapMB}
}

func (m *YARNMachine) writeInput(ctx context.Context, y *yarn) (err error) {
	y.sum, err = y.cluster.WriteRows(ctx, sortInput, hadoop.Rows{Seed: sortSeed, Rows: m.setup.rows(), Files: m.setup.maps()})
	if err != nil {
		return err
	}
	y.held, err = blockBytes(y.disk.Mount())
	return err
}

// Begin has nothing to do: each variant always uses the same cluster.
func (m *YARNMachine) Begin(context.Context, int) error { return nil }

// Arrange has nothing to do: the daemon runs all the time.
func (m *YARNMachine) Arrange(context.Context, Variant) error { return nil }

// Do performs a job, and either checks or measures it.
func (m *YARNMachine) Do(ctx context.Context, v Variant, _ int, op Operation) (Sample, error) {
	if op == YARNCheck {
		return Sample{}, m.check(ctx, v)
	}
	return m.sort(ctx, v)
}

// Release leaves the daemon running.
func (m *YARNMachine) Release(context.Context) (peak int64, err error) {
	_, peak, err = proc.Memory(m.Nodes[0].PID())
	return peak, err
}

// Stop undoes everything.
func (m *YARNMachine) Stop() error { return m.Down() }

// job submits a job and waits for it and for its containers.
func (m *YARNMachine) job(ctx context.Context, y *yarn, j hadoop.Job) (*hadoop.App, hadoop.Status, error) {
	j.Queue = hadoop.QueueProtected
	app, err := y.cluster.Submit(ctx, j)
	if err != nil {
		return nil, hadoop.Status{}, err
	}
	s, err := app.Wait(ctx)
	if err != nil {
		return nil, s, err
	}
	if _, err := app.Counters(ctx); err != nil { // the client has ended
		return nil, s, err
	}
	return app, s, awaitNone(ctx, m.Stand, "processes of containers; logs in "+y.cluster.LogDir(), func() (int64, error) {
		_, living, err := proc.Descendants(y.cluster.NodeManagerPID(0))
		return int64(living), err
	})
}

func (m *YARNMachine) sortJob(output string) hadoop.Job {
	return hadoop.Job{Kind: hadoop.TeraSort, Input: sortInput, Output: output, Reduces: m.setup.Reduces,
		Settings: map[string]string{"mapreduce.task.io.sort.mb": strconv.Itoa(m.setup.SortMB)}}
}

// output returns the path of an HDFS folder that no other job has.
func (m *YARNMachine) output() string {
	m.outputs++
	return fmt.Sprintf("/output-%d", m.outputs)
}

// check runs a job and TeraValidate on its output. It also checks that Penstock governed the job if
// the variant has Penstock, and that it did not govern the job otherwise.
func (m *YARNMachine) check(ctx context.Context, v Variant) error {
	y, output := m.sides[v], m.output()
	app, _, err := m.job(ctx, y, m.sortJob(output))
	if err != nil {
		return err
	}
	counters, err := app.Counters(ctx)
	if err != nil {
		return err
	}
	// Both the maps and the reduces spill every record once. Maps that have to merge spill their
	// records once more.
	if got := counters["Spilled Records"]; got < m.setup.rows()*5/2 {
		return fmt.Errorf("%d records were spilled of %d: maps do not merge: see %s", got, m.setup.rows(), app.Log)
	}
	if err := m.checkGoverned(ctx, v, app.ID); err != nil {
		return err
	}
	report := m.output()
	if _, _, err := m.job(ctx, y, hadoop.Job{Kind: hadoop.TeraValidate, Input: output, Output: report}); err != nil {
		return err
	}
	if err := y.cluster.VerifyTeraValidate(ctx, report, y.sum); err != nil {
		return err
	}
	return m.remove(ctx, y, output, report)
}

// checkGoverned returns an error unless all phases of a job went through the daemon or, with
// Native, none did.
func (m *YARNMachine) checkGoverned(ctx context.Context, v Variant, id string) error {
	doc, err := m.Status(ctx, 0)
	if err != nil {
		return err
	}
	for _, kind := range []string{"persistent", "intermediate", "network"} {
		moved := streamed(doc, id, kind)
		if v == Native && moved > 0 {
			return fmt.Errorf("the daemon saw %d bytes, %s, of %s, which is not governed", moved, kind, id)
		}
		if v != Native && moved < m.setup.rows()*hadoop.RowBytes {
			return fmt.Errorf("the daemon saw %d bytes, %s, of %s, which sorts %d: see %s", moved, kind, id, m.setup.Bytes, m.Nodes[0].Log)
		}
	}
	return nil
}

// streamed returns the bytes that a flow's streams of one kind have read and written.
func streamed(doc *status.Document, flow, kind string) (bytes int64) {
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			for _, k := range f.Kinds {
				if f.Name == flow && k.Kind == kind {
					bytes += k.Streamed.Read + k.Streamed.Written
				}
			}
		}
	}
	return bytes
}

// remove deletes folders and waits until their blocks are deleted. The jobs' history, which is
// small, stays.
func (m *YARNMachine) remove(ctx context.Context, y *yarn, folders ...string) error {
	for _, f := range folders {
		if err := y.cluster.FS().Remove(ctx, f); err != nil {
			return err
		}
	}
	const historyMax = 16 * mib
	return awaitDeleted(ctx, m.Stand, y.disk, y.held+historyMax)
}

// sort runs and measures a job whose input is not in the page cache.
func (m *YARNMachine) sort(ctx context.Context, v Variant) (s Sample, err error) {
	for _, v := range YARNVariants {
		y := m.sides[v]
		if err := errors.Join(y.cluster.Check(), y.disk.Forget(), y.disk.Sync()); err != nil {
			return s, err
		}
	}
	y, output := m.sides[v], m.output()
	before, err := m.usage(v)
	if err != nil {
		return s, err
	}
	begun := time.Now()
	_, ended, err := m.job(ctx, y, m.sortJob(output))
	if err != nil {
		return s, err
	}
	if err := y.disk.Sync(); err != nil {
		return s, err
	}
	settled := time.Since(begun)
	after, err := m.usage(v)
	if err != nil {
		return s, err
	}
	s = Sample{Seconds: ended.Elapsed.Seconds(), SettledSeconds: settled.Seconds(),
		DataNodeCPU: after.DataNodeCPU - before.DataNodeCPU, NodeManagerCPU: after.NodeManagerCPU - before.NodeManagerCPU,
		TasksCPU: after.TasksCPU - before.TasksCPU, DaemonCPU: after.DaemonCPU - before.DaemonCPU,
		MachineCPU: after.MachineCPU - before.MachineCPU}
	return s, m.remove(ctx, y, output)
}

// usage returns the CPU time so far. It must be called while no container runs.
func (m *YARNMachine) usage(v Variant) (s Sample, err error) {
	c := m.sides[v].cluster
	tasks, living, err := proc.Descendants(c.NodeManagerPID(0))
	if err == nil && living > 0 {
		err = fmt.Errorf("%d processes of containers still run", living)
	}
	if err != nil {
		return s, err
	}
	node, err1 := proc.CPUTime(c.DataNodePID(0))
	manager, err2 := proc.CPUTime(c.NodeManagerPID(0))
	machine, err3 := proc.MachineCPUTime()
	s = Sample{DataNodeCPU: node.Seconds(), NodeManagerCPU: manager.Seconds(), TasksCPU: tasks.Seconds(), MachineCPU: machine.Seconds()}
	if v == Native {
		return s, errors.Join(err1, err2, err3)
	}
	daemon, err4 := proc.CPUTime(m.Nodes[0].PID())
	s.DaemonCPU = daemon.Seconds()
	return s, errors.Join(err1, err2, err3, err4)
}
