package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"penstock/lab/blkio"
	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/spark"
)

// lookEvery is the interval at which the monitor reads the waits. With a shorter interval, the monitor can
// remove more of the waits that the kernel counts wrongly.
const lookEvery = time.Second

// application is a running Spark application that performs its job when it receives an order. It runs for
// the whole measurement, so that its executor's JVM is as warm in the last turn as in the first.
type application struct {
	name, input string
	setup       JobSetup
	container   string // the container's name
	orders      *spark.Orders
}

// job is one job of an application.
type job struct {
	*application
	output        string
	done          spark.Done
	before, after waits
}

// submit starts an application with one executor in a container of its own.
func (m *machine) submit(ctx context.Context, name, script, input string, setup JobSetup) (err error) {
	a := &application{name: name, input: input, setup: setup}
	a.container = fmt.Sprintf("00000000-0000-4000-8000-%012d", len(m.applications)+1) // Mesos names containers by UUIDs
	group, err := blkio.Make(m.Book, filepath.Join(filepath.Base(m.root.Path), "mesos", a.container))
	if err != nil {
		return err
	}
	cpu, slots := strconv.Itoa(setup.CPU), strconv.Itoa(setup.Slots)
	home, err := m.Hadoop.JavaHome(cpu, group.Path)
	if err != nil {
		return err
	}
	if script, err = spark.Script(m.Dir, script); err != nil {
		return err
	}
	a.orders, err = m.spark.SubmitOrders(ctx, spark.Job{Name: name, Script: script, CPUs: cpu,
		Settings: map[string]string{
			"spark.executor.cores": slots, "spark.cores.max": slots, // one executor, as in the paper
			"spark.executorEnv.JAVA_HOME": home,
		}}, m.Path("orders-"+name), setup.Slots)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	m.applications[name] = a
	return nil
}

// jobsOf returns the jobs of a row.
func (m *machine) jobsOf(r Row) (jobs []*job) {
	for _, name := range []string{wordCount, teraSort} {
		if name == wordCount && r.WordCount || name == teraSort && r.TeraSort {
			m.jobs++
			jobs = append(jobs, &job{application: m.applications[name], output: fmt.Sprintf("/%s/output-%d", name, m.jobs)})
		}
	}
	return jobs
}

// cleanUp is the longest time for the removal of what a turn has left, also after an interruption.
const cleanUp = 2 * time.Minute

// turn performs a row once.
func (m *machine) turn(ctx context.Context, r Row, number int) (t Turn, err error) {
	t = Turn{Row: r.Name, Run: number, Disk: m.disk}
	jobs := m.jobsOf(r)
	var beside *background
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		err = errors.Join(err, m.limit(false))
		if beside != nil {
			beside.stop()
		}
		for _, j := range jobs {
			err = errors.Join(err, m.Hadoop.FS().Remove(after, j.output))
		}
		err = errors.Join(err, m.Hadoop.FS().Remove(after, writtenFile))
	}()
	if err := m.govern(ctx, r); err != nil {
		return t, err
	}
	if err := errors.Join(m.Forget(), m.limit(true)); err != nil {
		return t, err
	}
	if r.Beside != None {
		if beside, err = m.begin(r.Beside); err != nil {
			return t, err
		}
	}
	err = beside.within(ctx, func(ctx context.Context) error {
		if beside != nil {
			if err := errors.Join(m.moving(ctx), m.held(ctx, r), experiment.Pause(ctx, time.Duration(m.setup.SettlingS*float64(time.Second)))); err != nil {
				return err
			}
		}
		return errors.Join(m.run(ctx, &t, jobs), m.keepStatus(ctx, beside))
	})
	// An HDFS client cannot end before the disk has answered.
	if err = errors.Join(err, m.limit(false)); beside != nil {
		beside.stop()
		beside = nil
	}
	if err != nil {
		return t, err
	}
	if err := m.judge(ctx, &t, r, jobs); err != nil {
		return t, err
	}
	if b := t.Background; b != nil && b.ReadMBps+b.WriteMBps == 0 {
		return t, fmt.Errorf("the background moved no bytes while WordCount ran: %s and the daemon's log in the same folder show its state", m.Path(statusFile))
	}
	return t, m.verify(ctx, jobs)
}

// statusFile has the daemon's status at the end of the last turn with a background.
const statusFile = "status.json"

// keepStatus writes the daemon's status to statusFile while the background still runs.
func (m *machine) keepStatus(ctx context.Context, beside *background) error {
	if beside == nil {
		return nil
	}
	doc, err := m.Status(ctx, 0)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.Path(statusFile), text, 0o600)
}

// moving waits until the disk has moved a few bytes.
func (m *machine) moving(ctx context.Context) error {
	read, written, err := m.Disks[0].Counters()
	if err != nil {
		return err
	}
	return m.Await(ctx, "the background uses the disk", func(context.Context) (bool, error) {
		r, w, err := m.Disks[0].Counters()
		return r+w-read-written >= 4*mib, err
	})
}

// run orders the applications to perform the jobs, and waits until all jobs are done.
func (m *machine) run(ctx context.Context, t *Turn, jobs []*job) error {
	first, err := m.look()
	if err != nil {
		return err
	}
	marks, err := m.atMarks(ctx)
	if err != nil {
		return err
	}
	var looks sync.Mutex // held while the monitor is read
	look := func() (waits, error) {
		looks.Lock()
		defer looks.Unlock()
		return m.look()
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	var watching sync.WaitGroup
	watching.Go(func() {
		for experiment.Pause(looking, lookEvery) == nil {
			if _, err := look(); err != nil {
				return // the last reading fails, too, and returns the error
			}
		}
	})
	errs := make([]error, len(jobs))
	var running sync.WaitGroup
	for i, j := range jobs {
		j.before = first
		wait, err := j.orders.Give(m.Hadoop.DefaultFS()+j.input, m.Hadoop.DefaultFS()+j.output)
		if err != nil {
			return err
		}
		running.Go(func() {
			if j.done, errs[i] = wait(ctx); errs[i] == nil {
				j.after, errs[i] = look()
			}
		})
	}
	running.Wait()
	stop()
	watching.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	last := jobs[0].after
	for _, j := range jobs {
		if j.done.End().After(jobs[0].done.End()) {
			last = j.after
		}
	}
	ended, err := m.atMarks(ctx)
	t.AtMarksS = (ended - marks).Seconds()
	unit := filepath.Base(m.dataNode.Path)
	t.DataNodeBlockDelayS = (last.byOwner[unit] - first.byOwner[unit]).Seconds()
	t.Implausible = last.implausible
	return err
}

// Owners in the disk's request log.
const (
	ownerBackground = "background"
	ownerOutput     = "-output" // suffix after the name of a job
)

// judge fills in the figures that come from the disk's request log.
func (m *machine) judge(ctx context.Context, t *Turn, r Row, jobs []*job) error {
	owners := hadoop.NewOwners()
	folders := map[string]string{backgroundFile: ownerBackground, writtenFile: ownerBackground}
	for _, j := range jobs {
		folders[j.input], folders[j.output] = j.name, j.name+ownerOutput
	}
	for folder, owner := range folders {
		blocks, err := m.Hadoop.BlockNames(ctx, folder)
		if err != nil {
			return err
		}
		owners.AddBlocks(owner, blocks...)
	}
	owner := func(path string) string {
		if path == localFile {
			return ownerBackground
		}
		return owners.Of(path)
	}
	toMonotonic := disk.Monotonic() - time.Now().UnixNano()
	for _, j := range jobs {
		span := judge.Window{From: j.done.Began.UnixNano() + toMonotonic, To: j.done.End().UnixNano() + toMonotonic}
		accounts, err := judge.Disk(m.Disks[0], owner, append(judge.Windows(span, time.Second), span)...)
		if err != nil {
			return err
		}
		result := accountOf(j, accounts)
		if j.name == teraSort {
			t.TeraSort = result
			continue
		}
		t.WordCount = result
		if r.Beside != None {
			t.Background = backgroundOf(accounts[len(accounts)-1], result.RuntimeS)
		}
	}
	return nil
}

// accountOf returns a job's figures. The last account is that of the whole job. The other accounts are those
// of its seconds.
func accountOf(j *job, accounts []judge.Account) *Job {
	whole, seconds := accounts[len(accounts)-1], j.done.Elapsed.Seconds()
	read, written := whole.Owners[j.name], whole.Owners[j.name+ownerOutput]
	result := &Job{RuntimeS: seconds, ReadMBps: float64(read.ReadBytes) / megabyte / seconds, WriteMBps: float64(written.WriteBytes) / megabyte / seconds,
		BlockDelayS: (j.after.byOwner[j.container] - j.before.byOwner[j.container]).Seconds()}
	for _, a := range accounts[:len(accounts)-1] {
		result.Reads = append(result.Reads, float64(a.Owners[j.name].ReadBytes)/megabyte)
	}
	return result
}

func backgroundOf(a judge.Account, seconds float64) *Background {
	u := a.Owners[ownerBackground]
	return &Background{ReadMBps: float64(u.ReadBytes) / megabyte / seconds, WriteMBps: float64(u.WriteBytes) / megabyte / seconds}
}

// verify checks the jobs' outputs.
func (m *machine) verify(ctx context.Context, jobs []*job) error {
	for _, j := range jobs {
		if j.name == wordCount {
			if err := m.Hadoop.VerifyWordCount(ctx, j.output, m.words); err != nil {
				return err
			}
			continue
		}
		size, err := m.Hadoop.FS().Size(ctx, j.output)
		if err != nil {
			return err
		}
		if want := j.setup.InputBytes / int64(j.setup.Files) * int64(j.setup.Files); size != want {
			return fmt.Errorf("check TeraSort: the output %s has %d bytes, but the input has %d", j.output, size, want)
		}
	}
	return nil
}
