package overhead

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/stand"
	"penstock/node/status"
)

// HDFS folders, and the seed of both inputs; any number would do.
const (
	sortInput = "/input"
	sortSeed  = 20160531
)

// yarn is a real cluster of its own, on a disk of its own.
type yarn struct {
	disk    *disk.Disk
	cluster *hadoop.Cluster
	sum     hadoop.Checksum128 // of the input
	held    int64              // bytes of blocks on the disk while no output is
}

// YARNMachine is the real environment: two clusters, one of them with all of
// Penstock, and its daemon.
type YARNMachine struct {
	*stand.Stand // with the disks, the governed cluster and the daemon
	setup        YARNSetup
	sides        map[Variant]*yarn
	outputs      int // numbers them
}

// StartYARNMachine brings up disks, clusters and daemon, and writes the inputs. On
// an error everything is put back.
func StartYARNMachine(ctx context.Context, setup YARNSetup, o Options) (_ *YARNMachine, err error) {
	m := &YARNMachine{setup: setup, sides: map[Variant]*yarn{}}
	spec := o.stand(setup.DirtyBytes, setup.DirtyBackgroundBytes)
	for _, v := range YARNVariants {
		spec.Disks = append(spec.Disks, fastDisk("disk-"+string(v), setup.DiskBytes))
	}
	spec.Nodes = func(*stand.Stand) []daemon.Options {
		return []daemon.Options{{Mode: string(Enforce), More: fmt.Sprintf("network: {rate: %d}\n", setup.NetworkRate)}}
	}
	governed := slices.Index(YARNVariants, Enforce)
	spec.Hadoop = func(s *stand.Stand) hadoop.Config {
		cfg := m.cluster(s.Disks[governed])
		cfg.Governed = s.Governed(0)
		return cfg
	}
	spec.Agents = []int{2} // DataNode and NodeManager
	if m.Stand, err = stand.Up(ctx, spec); err != nil {
		return nil, err
	}
	m.sides[Enforce] = &yarn{disk: m.Disks[governed], cluster: m.Hadoop}
	if err := m.startNative(ctx, m.Disks[1-governed]); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", Native, err), m.Stop())
	}
	for _, v := range YARNVariants {
		if err := m.writeInput(ctx, v); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: write the input: %w", v, err), m.Stop())
		}
	}
	return m, nil
}

func (m *YARNMachine) cluster(d *disk.Disk) hadoop.Config {
	return hadoop.Config{Version: m.setup.Hadoop,
		DataNodes: []hadoop.DataNode{{HeapMB: m.setup.HeapMB, Volumes: []hadoop.Volume{{Dir: filepath.Join(d.Mount(), "dfs")}}}},
		LocalDirs: []string{filepath.Join(d.Mount(), "local")},
		BlockSize: m.setup.BlockBytes, TaskSlots: m.setup.TaskSlots, TaskHeapMB: m.setup.TaskHeapMB}
}

// startNative starts the cluster that has nothing of Penstock.
func (m *YARNMachine) startNative(ctx context.Context, d *disk.Disk) (err error) {
	cfg := m.cluster(d)
	cfg.RunDir, cfg.Lib, cfg.Progress = m.Path(string(Native)), m.Lib, m.Spec.Progress
	y := &yarn{disk: d}
	y.cluster, err = hadoop.Start(ctx, cfg)
	m.sides[Native] = y
	return err
}

func (m *YARNMachine) writeInput(ctx context.Context, v Variant) (err error) {
	y := m.sides[v]
	y.sum, err = y.cluster.WriteRows(ctx, sortInput, hadoop.Rows{Seed: sortSeed, Rows: m.setup.rows(), Files: m.setup.maps()})
	if err != nil {
		return err
	}
	y.held, err = blockBytes(y.disk.Mount())
	return err
}

// job submits one and waits for it and for its containers.
func (y *yarn) job(ctx context.Context, j hadoop.Job) (*hadoop.App, hadoop.Status, error) {
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
	return app, s, y.idle(ctx)
}

const idlePatience = 60 * time.Second

// idle waits until the NodeManager has no container.
func (y *yarn) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, idlePatience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, living, err := family(y.cluster.NodeManagerPID(0))
		if err != nil || living == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d processes of containers have not ended: %w; logs in %s", living, ctx.Err(), y.cluster.LogDir())
		}
	}
}

func (m *YARNMachine) sortJob(output string) hadoop.Job {
	return hadoop.Job{Kind: hadoop.TeraSort, Input: sortInput, Output: output, Reduces: m.setup.Reduces,
		Settings: map[string]string{"mapreduce.task.io.sort.mb": strconv.Itoa(m.setup.SortMB)}}
}

// output is a new folder of HDFS.
func (m *YARNMachine) output() string {
	m.outputs++
	return fmt.Sprintf("/output-%d", m.outputs)
}

// Warm does a job and lets TeraValidate see its output.
func (m *YARNMachine) Warm(ctx context.Context, v Variant) error {
	y, output := m.sides[v], m.output()
	app, _, err := y.job(ctx, m.sortJob(output))
	if err != nil {
		return err
	}
	counters, err := app.Counters(ctx)
	if err != nil {
		return err
	}
	// Every record is spilled once by the reduces and once by the maps, and again by
	// those maps that have to merge.
	if got := counters["Spilled Records"]; got < m.setup.rows()*5/2 {
		return fmt.Errorf("%d records were spilled of %d: maps do not merge: see %s", got, m.setup.rows(), app.Log)
	}
	if err := m.checkGoverned(ctx, v, app.ID); err != nil {
		return err
	}
	report := m.output()
	if _, _, err := y.job(ctx, hadoop.Job{Kind: hadoop.TeraValidate, Input: output, Output: report}); err != nil {
		return err
	}
	if err := y.cluster.VerifyTeraValidate(ctx, report, y.sum); err != nil {
		return err
	}
	return m.remove(ctx, v, output, report)
}

// checkGoverned makes sure that all phases of a job went through the daemon, or
// that none did.
func (m *YARNMachine) checkGoverned(ctx context.Context, v Variant, id string) error {
	doc, err := status.Fetch(ctx, m.Nodes[0].Address)
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

// streamed is what a flow's streams of one kind have read and written.
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

// remove deletes folders and waits until their blocks have gone. Small files of jobs
// stay: their history.
func (m *YARNMachine) remove(ctx context.Context, v Variant, folders ...string) error {
	y := m.sides[v]
	for _, f := range folders {
		if err := y.cluster.FS().Remove(ctx, f); err != nil {
			return err
		}
	}
	const historyMax = 16 * mib
	return awaitDeleted(ctx, y.disk, y.held+historyMax)
}

// Sort does a job whose input is not in the page cache.
func (m *YARNMachine) Sort(ctx context.Context, v Variant) (s YARNSample, err error) {
	for _, y := range m.sides {
		if err := errors.Join(y.cluster.Check(), y.disk.Forget(), syncDisk(y.disk)); err != nil {
			return s, err
		}
	}
	y, output := m.sides[v], m.output()
	before, err := m.usage(v)
	if err != nil {
		return s, err
	}
	begun := time.Now()
	_, ended, err := y.job(ctx, m.sortJob(output))
	if err != nil {
		return s, err
	}
	if err := syncDisk(y.disk); err != nil {
		return s, err
	}
	settled := time.Since(begun)
	after, err := m.usage(v)
	if err != nil {
		return s, err
	}
	s = YARNSample{Seconds: ended.Elapsed.Seconds(), SettledSeconds: settled.Seconds(),
		DataNodeCPU: after.DataNodeCPU - before.DataNodeCPU, NodeManagerCPU: after.NodeManagerCPU - before.NodeManagerCPU,
		TasksCPU: after.TasksCPU - before.TasksCPU, DaemonCPU: after.DaemonCPU - before.DaemonCPU,
		MachineCPU: after.MachineCPU - before.MachineCPU}
	return s, m.remove(ctx, v, output)
}

// usage is the CPU time so far, while no container runs.
func (m *YARNMachine) usage(v Variant) (s YARNSample, err error) {
	c := m.sides[v].cluster
	tasks, living, err := family(c.NodeManagerPID(0))
	if err == nil && living > 0 {
		err = fmt.Errorf("%d processes of containers where none should be", living)
	}
	if err != nil {
		return s, err
	}
	node, err1 := cpuTime(c.DataNodePID(0))
	manager, err2 := cpuTime(c.NodeManagerPID(0))
	machine, err3 := machineTime()
	s = YARNSample{DataNodeCPU: node.Seconds(), NodeManagerCPU: manager.Seconds(), TasksCPU: tasks.Seconds(), MachineCPU: machine.Seconds()}
	if v == Native {
		return s, errors.Join(err1, err2, err3)
	}
	daemon, err4 := cpuTime(m.Nodes[0].PID())
	s.DaemonCPU = daemon.Seconds()
	return s, errors.Join(err1, err2, err3, err4)
}

// DaemonPeak is the daemon's largest resident size so far.
func (m *YARNMachine) DaemonPeak() (int64, error) { return peakMemory(m.Nodes[0].PID()) }

// Stop puts everything back.
func (m *YARNMachine) Stop() error {
	var errs []error
	if y := m.sides[Native]; y != nil && y.cluster != nil {
		errs = append(errs, y.cluster.Stop())
	}
	return errors.Join(append(errs, m.Down())...)
}
