package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/hadoop"
	"penstock/ops/network"
)

// Turn is the result of one row in one run.
type Turn struct {
	Row         string `json:"row"`
	Run         int    `json:"run"`
	Nodes       int    `json:"nodes"`
	SetUp       string `json:"set_up"`
	Replication int    `json:"replication"`
	Jobs        []Job  `json:"jobs"`
}

// Job is the result of one job.
type Job struct {
	Kind        hadoop.Kind `json:"kind"`
	RunS        float64     `json:"run_s"` // by the ResourceManager
	MBPerSecond float64     `json:"mb_s"`  // bytes of the job, counted once, by that time
	// During the job:
	CPU               float64      `json:"cpu"` // busy part of the machine's CPUs, 0 to 1
	SwitchesPerSecond float64      `json:"switches_per_s"`
	RunDelayUS        float64      `json:"run_delay_us"` // of a dispatch of the containers' threads, mean
	Trip              network.Trip `json:"trip"`         // between two containers
	Disks             float64      `json:"disks"`        // mean part of the time for which a disk had requests, 0 to 1
	JoinedMB          float64      `json:"joined_mb,omitempty"`
}

// SwitchesPerMB returns the context switches of the machine for each MB of the job.
func (j Job) SwitchesPerMB() float64 {
	if !(j.MBPerSecond > 0) {
		return 0
	}
	return j.SwitchesPerSecond / j.MBPerSecond
}

// Key returns the turn's key.
func (t Turn) Key() experiment.RowTurn { return experiment.RowTurn{Row: t.Row, Run: t.Run} }

func (t Turn) String() string {
	var all []string
	for _, j := range t.Jobs {
		all = append(all, fmt.Sprintf("%s %.1f s, %.1f MB/s (CPU %.2f, disks %.2f, run queue %.0f us, trip %.0f us)", j.Kind, j.RunS, j.MBPerSecond, j.CPU, j.Disks, j.RunDelayUS, j.Trip.P50US))
	}
	return strings.Join(all, "; ")
}

// Folders of HDFS.
const (
	filesDir  = "/files"
	rowsDir   = "/rows"
	sortedDir = "/sorted"
)

// submission returns a job of HDFS and YARN. Each container has a map or, of TeraSort, a reduce; TeraSort has a map
// for each block.
func (s Setup) submission(kind hadoop.Kind, nodes int) hadoop.Job {
	j := hadoop.Job{Kind: kind, Queue: queue, Maps: nodes, Settings: map[string]string{"dfs.replication": strconv.Itoa(replication(nodes))}}
	switch kind {
	case hadoop.TestDFSIOWrite:
		j.Output, j.FileBytes = filesDir, s.Bytes/int64(nodes)
	case hadoop.TestDFSIORead:
		j.Input, j.FileBytes = filesDir, s.Bytes/int64(nodes)
	case hadoop.TeraGen:
		j.Output, j.Rows = rowsDir, s.Bytes/hadoop.RowBytes
	case hadoop.TeraSort:
		j.Input, j.Output, j.Reduces = rowsDir, sortedDir, nodes
	}
	return j
}

// moved returns the bytes of a job, counted once.
func moved(j hadoop.Job, s Setup) int64 {
	switch j.Kind {
	case hadoop.TestDFSIOWrite, hadoop.TestDFSIORead:
		return j.FileBytes * int64(j.Maps)
	}
	return s.Bytes / hadoop.RowBytes * hadoop.RowBytes
}

// turn measures all jobs of a row on a machine of its own.
func (q Request) turn(ctx context.Context, k experiment.RowTurn, dir string) (t Turn, err error) {
	var row Row
	for _, r := range q.Setup.rows() {
		if r.Name() == k.Row {
			row = r
		}
	}
	if row.Nodes == 0 {
		return Turn{}, fmt.Errorf("no row %q", k.Row)
	}
	m, err := start(ctx, q, row, dir)
	if err != nil {
		return Turn{}, err
	}
	defer func() {
		err = errors.Join(err, m.Down(), q.clear(dir, k, err != nil))
	}()
	t = Turn{Row: k.Row, Run: k.Run, Nodes: row.Nodes, SetUp: row.SetUp, Replication: replication(row.Nodes)}
	for _, w := range works {
		j, err := m.perform(ctx, w.kind)
		if err != nil {
			return Turn{}, fmt.Errorf("%s: %w", w.title, err)
		}
		t.Jobs = append(t.Jobs, j)
		if err := m.check(ctx, w.kind, k.Run == 1); err != nil {
			return Turn{}, fmt.Errorf("output of %s: %w", w.title, err)
		}
	}
	if m.joining != nil {
		err = m.joining.Any()
	}
	return t, err
}

// clear keeps the logs of a turn that has failed, or of all turns if they are wanted. The next turn uses the same
// folder, so that the ledgers of a killed run are found.
func (q Request) clear(dir string, k experiment.RowTurn, failed bool) error {
	logs := filepath.Join(dir, "hadoop", "logs")
	if !failed && !q.KeepLogs {
		return os.RemoveAll(logs)
	}
	if _, err := os.Stat(logs); err != nil {
		return nil // Hadoop was not started
	}
	kept := filepath.Join(dir, fmt.Sprintf("logs-%s-%d", k.Row, k.Run))
	return errors.Join(os.RemoveAll(kept), os.Rename(logs, kept))
}

// perform runs a job on cold disks, and measures it.
func (m *machine) perform(ctx context.Context, kind hadoop.Kind) (j Job, err error) {
	if err := errors.Join(m.Forget(), m.limit(true)); err != nil {
		return Job{}, err
	}
	defer func() { err = errors.Join(err, m.limit(false)) }()
	job := m.setup.submission(kind, m.row.Nodes)
	app, err := m.Hadoop.Submit(ctx, job)
	if err != nil {
		return Job{}, err
	}
	before := m.joinedBytes()
	if err := m.probe.Begin(time.Duration(m.setup.ProbeEveryMS) * time.Millisecond); err != nil {
		return Job{}, err
	}
	if err := m.meter.start(time.Duration(m.setup.LookEveryMS) * time.Millisecond); err != nil {
		return Job{}, err
	}
	status, failed := app.Wait(ctx)
	used, delay, err := m.meter.end()
	trip, err2 := m.probe.End()
	if err := errors.Join(failed, err, err2); err != nil {
		return Job{}, err
	}
	if _, err := app.Counters(ctx); err != nil { // the client has ended
		return Job{}, err
	}
	return Job{Kind: kind, RunS: round(status.Elapsed.Seconds()), MBPerSecond: round(float64(moved(job, m.setup)) / 1e6 / status.Elapsed.Seconds()),
		CPU: round(used.CPU), SwitchesPerSecond: round(used.SwitchesPerSecond), RunDelayUS: round(float64(delay.Nanoseconds()) / 1e3), Trip: trip,
		Disks: round(used.Disks), JoinedMB: round(float64(m.joinedBytes()-before) / 1e6)}, nil
}

// check checks the size of a job's output or, with all, every byte of it, and deletes what no later job reads.
func (m *machine) check(ctx context.Context, kind hadoop.Kind, all bool) error {
	fs, job := m.Hadoop.FS(), m.setup.submission(kind, m.row.Nodes)
	size := func(dir string) error {
		n, err := fs.Size(ctx, dir)
		if want := moved(job, m.setup); err == nil && n < want {
			err = fmt.Errorf("%s has %d bytes, and %d were written", dir, n, want)
		}
		return err
	}
	switch kind {
	case hadoop.TestDFSIOWrite:
		if all {
			return m.Hadoop.VerifyTestDFSIO(ctx, filesDir, job.Maps, job.FileBytes)
		}
		return size(filesDir + "/io_data")
	case hadoop.TestDFSIORead:
		return fs.Remove(ctx, filesDir)
	case hadoop.TeraGen:
		return size(rowsDir) // the rows are checked with the sorted ones
	}
	if !all {
		return size(sortedDir)
	}
	rows := m.setup.Bytes / hadoop.RowBytes
	written, err := m.Hadoop.VerifyRows(ctx, rowsDir, rows, true)
	if err != nil {
		return err
	}
	sorted, err := m.Hadoop.VerifyRows(ctx, sortedDir, rows, false)
	if err == nil && sorted != written {
		err = fmt.Errorf("the sorted rows have the checksum %s, those before %s", sorted, written)
	}
	return err
}
