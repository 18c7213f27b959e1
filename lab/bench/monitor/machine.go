package monitor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"penstock/lab/blkio"
	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/spark"
	"penstock/lab/stand"
	"penstock/node/monitor/processes"
)

// Folders and files. The local file is on the contested disk, beside HDFS's folder.
const (
	wordCountInput = "/wordcount/input"
	teraSortInput  = "/terasort/input"
	backgroundFile = "/background/file"
	writtenFile    = "/background/written"
	localFile      = "fio"
	seed           = 20160301 // seed of all inputs; any number is possible
	// backgroundNumber is the number of the application to which the HDFS background belongs.
	backgroundNumber = 101
)

// machine is the machine of the experiments: a contested disk with HDFS and a local file, a disk
// without a limit for Spark's local files, a daemon, and Spark with a master and a worker.
type machine struct {
	*stand.Stand
	setup Setup
	disk  Disk
	spark *spark.Spark
	watch *processes.Watch
	words *hadoop.WordCounts
	jobs  int // so far

	applications map[string]*application

	root, fio, container, dataNode *blkio.Group
}

// startMachine starts a machine in the folder dir, and writes all inputs. If that fails, it undoes all changes.
func startMachine(ctx context.Context, q Request, dir string) (_ *machine, err error) {
	m := &machine{setup: q.Setup, applications: map[string]*application{}}
	m.Stand, err = stand.Up(ctx, stand.Spec{
		Dir: dir, Binary: q.Binary, AgentJar: q.AgentJar, Cache: q.Cache, Progress: q.Progress,
		// The kernel counts the waits of processes that begin after this.
		Sysctls: append([]stand.Sysctl{{Name: "kernel/task_delayacct", Value: "1"}}, stand.LateWriteback...),
		Disks: []disk.Options{
			{Name: "data", Size: 8 << 30, Scheduler: q.Setup.Scheduler},
			{Name: "local", Size: 3 << 30, Scheduler: "mq-deadline"},
		},
		Nodes: func(s *stand.Stand) []daemon.Options {
			return []daemon.Options{{Mode: "observe", More: daemon.Believe, LogLevel: "info"}}
		},
		Hadoop: func(s *stand.Stand) hadoop.Config {
			return hadoop.Config{Version: q.Setup.Hadoop, NoYARN: true, DataNodes: s.DataNodes("dfs", s.Disks[0]), BlockSize: 32 * mib, Governed: s.Governed(0)}
		},
		ClientClasses: true,
		Agents:        []int{1},
		Stop:          func() error { return m.stop() },
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Down())
		}
	}()
	home, err := spark.Fetch(ctx, q.Cache, spark.Version, q.Progress)
	if err != nil {
		return nil, err
	}
	m.spark, err = spark.Start(ctx, spark.Config{RunDir: m.Path("spark"), Home: home, Cluster: m.Hadoop, Standalone: true,
		LocalDir: filepath.Join(m.Disks[1].Mount(), "spark"), Governed: m.Governed(0), Progress: q.Progress,
		Settings: map[string]string{"spark.executor.memory": "768m", "spark.driver.memory": "512m",
			"spark.cleaner.periodicGC.interval": "1min", // so that files of earlier jobs are deleted
		}})
	if err != nil {
		return nil, err
	}
	if m.watch, err = processes.New("hadoop-yarn"); err != nil {
		return nil, err
	}
	if err := errors.Join(m.makeGroups(), m.compileContained(ctx)); err != nil {
		return nil, err
	}
	if err := m.writeInputs(ctx, q); err != nil {
		return nil, err
	}
	return m, m.submitAll(ctx, q)
}

// warmUps is how often each job runs before the first turn. WordCount became faster until its third run.
const warmUps = 3

// submitAll starts both applications, and runs the job of each warmUps times.
func (m *machine) submitAll(ctx context.Context, q Request) error {
	q.Progress("starting WordCount and TeraSort, and running each %d times", warmUps)
	if err := errors.Join(m.submit(ctx, wordCount, spark.WordCount, wordCountInput, m.setup.WordCount),
		m.submit(ctx, teraSort, spark.Sort, teraSortInput, m.setup.TeraSort)); err != nil {
		return err
	}
	for range warmUps {
		t, err := m.turn(ctx, Row{Name: "warm-up", WordCount: true, TeraSort: true, Control: Native}, 0)
		if err != nil {
			return err
		}
		q.Progress("  %s", t)
	}
	return nil
}

// stop stops what the stand, on which the machine is built, does not stop.
func (m *machine) stop() (err error) {
	if m.spark != nil {
		err = m.spark.Stop()
	}
	if m.watch != nil {
		m.watch.Close()
	}
	return err
}

// makeGroups makes the cgroups. They have names by which the monitor recognises containers and services. The
// executors have names of Mesos containers, as in the paper.
func (m *machine) makeGroups() (err error) {
	root, parent := "penstock-monitor-"+filepath.Base(m.Dir), new(*blkio.Group)
	for _, g := range []struct {
		name string
		to   **blkio.Group
	}{
		{"", &m.root}, {"mesos", parent}, {"fio.service", &m.fio}, {"datanode.service", &m.dataNode},
		{"hadoop-yarn", parent}, {fmt.Sprintf("hadoop-yarn/container_1700000000000_%04d_01_000002", backgroundNumber), &m.container},
	} {
		if *g.to, err = blkio.Make(m.Book, filepath.Join(root, g.name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(m.dataNode.Path, "cgroup.procs"), []byte(strconv.Itoa(m.Hadoop.DataNodePID(0))), 0)
}

// cgroupOf returns a group's path as in /proc/PID/cgroup.
func cgroupOf(g *blkio.Group) (string, error) {
	mount, err := blkio.Mount()
	return strings.TrimPrefix(g.Path, mount), err
}

// writeInputs writes the inputs of all jobs and of the background, on a disk without a limit.
func (m *machine) writeInputs(ctx context.Context, q Request) (err error) {
	q.Progress("writing the inputs: WordCount %d MiB, TeraSort %d MiB, background %d MiB of HDFS and as much in a local file",
		m.setup.WordCount.InputBytes/mib, m.setup.TeraSort.InputBytes/mib, m.setup.BackgroundBytes/mib)
	text := func(j JobSetup) hadoop.Text {
		return hadoop.Text{Seed: seed, WordBytes: j.WordBytes, Files: j.Files, FileBytes: j.InputBytes / int64(j.Files)}
	}
	if m.words, err = m.Hadoop.WriteText(ctx, wordCountInput, text(m.setup.WordCount)); err != nil {
		return fmt.Errorf("write WordCount's input: %w", err)
	}
	if _, err := m.Hadoop.WriteText(ctx, teraSortInput, text(m.setup.TeraSort)); err != nil {
		return fmt.Errorf("write TeraSort's input: %w", err)
	}
	jvm, err := m.StartClients(client.Options{Log: m.Path("writer.log")})
	if err != nil {
		return err
	}
	defer jvm.Stop()
	if err := jvm.Run(ctx, "put", m.putArgs(backgroundFile, m.setup.BackgroundBytes)); err != nil {
		return fmt.Errorf("write the background's file in HDFS: %w", err)
	}
	f, err := os.Create(m.local())
	if err != nil {
		return err
	}
	buffer := make([]byte, mib)
	for at := int64(0); at < m.setup.BackgroundBytes && err == nil; at += mib {
		_, err = f.Write(buffer)
	}
	return errors.Join(err, f.Close(), m.Forget())
}

// local returns the path of the background's local file.
func (m *machine) local() string { return filepath.Join(m.Disks[0].Mount(), localFile) }

// putArgs returns the arguments of a client that writes a file of one block, so that the client has one
// connection.
func (m *machine) putArgs(path string, bytes int64) string {
	return fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d block=%d replication=1", path, client.Attempt(backgroundNumber), bytes, seed, (bytes+511)/512*512)
}

// limit turns the disk's rate on or off.
func (m *machine) limit(on bool) error {
	if on && m.disk.Rate > 0 {
		return m.SetModel(disk.HDD(m.disk.Rate), m.Disks[0])
	}
	return m.SetModel(disk.Model{}, m.Disks[0])
}

// calibrated sets the disk's rate, and dirty limits of the kernel that fit the rate. With the usual limits,
// the page cache would take all that is written to a slow disk in a minute.
func (m *machine) calibrated(ctx context.Context, d Disk) error {
	m.disk = d
	bytes := func(seconds float64) int64 { return int64(seconds * float64(d.Rate)) }
	return m.SetSysctls(ctx, stand.DirtyBytes(bytes(m.setup.DirtyBackgroundS), bytes(m.setup.DirtyS))...)
}

// waits are the times for which the threads of containers and units have waited for block I/O, by the name of
// the container or the unit.
type waits struct {
	byOwner     map[string]time.Duration
	implausible bool
}

// look asks the monitor for all waits so far.
func (m *machine) look() (waits, error) {
	if err := m.watch.Look(time.Now(), nil); err != nil {
		return waits{}, err
	}
	s := m.watch.Snapshot(math.MaxInt)
	if !s.Accounting {
		return waits{}, errors.New("the kernel does not count waits for block I/O, although kernel.task_delayacct was set")
	}
	w := waits{byOwner: map[string]time.Duration{}, implausible: s.Implausible}
	for _, sum := range s.Sums {
		w.byOwner[sum.Owner.ID] += sum.BlockDelay
	}
	return w, nil
}

// atMarks returns how long the DataNode's threads have waited at marks so far.
func (m *machine) atMarks(ctx context.Context) (time.Duration, error) {
	var agent struct{ GateWaitNanos int64 }
	if err := hadoop.Bean(ctx, m.Hadoop.DataNodeURL(0), "penstock:type=Agent", &agent); err != nil {
		return 0, fmt.Errorf("read how long the DataNode has waited at marks: %w", err)
	}
	return time.Duration(agent.GateWaitNanos), nil
}
