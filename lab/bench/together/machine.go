package together

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"penstock/lab/blkio"
	"penstock/lab/contest"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/stand"
	"penstock/ops/operate"
)

// Machine is the real environment: a stand with modelled disks, a real Hadoop, a broker and a daemon.
type Machine struct {
	*stand.Stand
	setup   Setup
	jobs    *contest.Jobs
	hold    *hadoop.Hold
	watched *judge.Disks
	groups  map[string]*blkio.Group // by job
}

const daemonPatience = 20 * time.Second

// StartMachine starts disks and cluster in the folder dir and writes the inputs. If that fails, it undoes
// all changes.
func StartMachine(ctx context.Context, q Request, dir string) (_ *Machine, err error) {
	m := &Machine{setup: q.Setup}
	spec := stand.Spec{Dir: dir, Binary: q.Binary, AgentJar: q.AgentJar, Cache: q.Cache, Progress: q.Progress,
		Sysctls: q.Setup.Kernel.DirtyLimits(), Hadoop: m.cluster,
		Nodes:      func(s *stand.Stand) []daemon.Options { return []daemon.Options{m.daemonOptions(s)} },
		NodesLater: true,
		Broker: func(s *stand.Stand) []string {
			return []string{"--policy", s.PolicyFile(), "--resource-manager", strings.Join(s.Hadoop.ResourceManagerURLs(), ",")}
		},
	}
	for i := range q.Setup.Disk.DataNodes {
		spec.Disks = append(spec.Disks, q.Setup.Disk.Options(fmt.Sprintf("disk%d", i), q.Setup.Kernel.Scheduler))
	}
	if m.Stand, err = stand.Up(ctx, spec); err != nil {
		return nil, err
	}
	m.jobs = contest.NewJobs(m.Hadoop)
	err = m.Broker.Stop() // governed runs start their own
	m.Broker = nil
	if err == nil {
		err = m.writeInputs(ctx, q)
	}
	if err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// cluster returns the configuration of Hadoop: a DataNode for each disk, and room for all tasks at a time.
func (m *Machine) cluster(s *stand.Stand) hadoop.Config {
	containers := 0
	for _, j := range m.setup.Jobs {
		containers += 1 + j.Maps + j.Reduces
	}
	cfg := hadoop.Config{Version: m.setup.Hadoop, DataNodes: s.DataNodes("dfs"), BlockSize: m.setup.BlockBytes,
		Queues: []string{Queue}, TaskSlots: (containers + 1) / 2, Governed: s.Governed(0)}
	if m.setup.Intermediate {
		for _, d := range s.Disks {
			cfg.LocalDirs = append(cfg.LocalDirs, filepath.Join(d.Mount(), "local"))
		}
	}
	return cfg
}

func (m *Machine) daemonOptions(s *stand.Stand) daemon.Options {
	return daemon.Options{Mode: "enforce", Patience: daemonPatience, Device: m.setup.Device.Settings(),
		More: fmt.Sprintf("broker: {addresses: [%q], node: node}\n", s.BrokerAddress())}
}

func (m *Machine) writeInputs(ctx context.Context, q Request) error {
	for _, j := range m.setup.Jobs {
		if m.jobs.Prepared(j.Work(), j.input()) {
			continue
		}
		q.Progress("writing the input of %s: %d MiB", j.Name, j.Bytes/contest.MiB)
		if err := m.jobs.Prepare(ctx, j.Work(), j.input()); err != nil {
			return fmt.Errorf("write the input of %s: %w", j.Name, err)
		}
	}
	return nil
}

// Limit switches the modelled rate on or off.
func (m *Machine) Limit(on bool) error {
	if on {
		return m.SetModel(m.setup.Disk.Model())
	}
	return m.SetModel(disk.Model{})
}

// Arrange sets the kernel scheduler, makes the cgroups and, for a governed way, starts broker and daemon.
func (m *Machine) Arrange(ctx context.Context, w Way, jobs []Job) error {
	for _, d := range m.Disks {
		if err := d.SetScheduler(cmp.Or(w.Kernel, m.setup.Kernel.Scheduler)); err != nil {
			return err
		}
	}
	if err := m.Hadoop.Check(); err != nil {
		return err
	}
	if len(w.Caps.Percent) > 0 {
		m.groups = map[string]*blkio.Group{}
		for _, j := range jobs {
			// The script that joins a cgroup is written once, so a job's cgroup has the same name in each run.
			g, err := blkio.Make(m.Book, fmt.Sprintf("penstock-%s-%s", filepath.Base(m.Dir), j.Name))
			if err != nil {
				return err
			}
			m.groups[j.Name] = g
		}
		if err := m.Ended(w, names(jobs)); err != nil {
			return err
		}
	}
	if !w.Governed {
		return nil
	}
	if err := m.SetPolicy(policy(m.setup, w)); err != nil {
		return err
	}
	if err := m.StartBroker(ctx); err != nil {
		return err
	}
	if err := m.StartNode(ctx, 0, nil); err != nil {
		return err
	}
	return m.Await(ctx, "the daemon has the broker's policy, and all agents are connected", func(ctx context.Context) (bool, error) {
		doc, err := m.Status(ctx, 0)
		if err != nil {
			return false, err
		}
		servers := 0
		for _, a := range doc.Agents {
			if a.Role == "datanode" || a.Role == "nodemanager" {
				servers++
			}
		}
		return doc.Cluster.Broker != "" && doc.Cluster.Policy > 0 && servers == len(m.Disks)+1, nil
	})
}

func names(jobs []Job) (all []string) {
	for _, j := range jobs {
		all = append(all, j.Name)
	}
	return all
}

// policy returns the text of the policy: all jobs have the same weight, in one queue.
func policy(s Setup, w Way) string {
	words := ""
	if w.Policy != "" {
		words = ", " + w.Policy
	}
	return fmt.Sprintf("default: 1\nqueues:\n- {queue: %s, weight: 1%s}\nrules:\n- {flow: clients, weight: %d}\n", Queue, words, s.ClientsWeight)
}

// Forget drops the disks' files from the page cache and begins to watch them. Hadoop's own files stay there, so
// JVMs start sooner.
func (m *Machine) Forget() error {
	if err := m.Stand.Forget(); err != nil {
		return err
	}
	m.watched = judge.NewDisks(m.Disks)
	return m.watched.Watch(contest.LookEvery)
}

// Start submits all jobs and waits until their tasks are held.
func (m *Machine) Start(ctx context.Context, w Way, jobs []Job) ([]*contest.Job, error) {
	m.hold = m.Hadoop.Hold()
	all, errs := make([]*contest.Job, len(jobs)), make([]error, len(jobs))
	var submitting sync.WaitGroup
	for i, j := range jobs {
		s := contest.Submission{Input: j.input(), Output: m.jobs.Output("", j.Name), Settings: map[string]string{}}
		if g := m.groups[j.Name]; g != nil {
			s.Cgroup = g.Path
		}
		if w.Sized {
			s.Settings["mapreduce.job.tags"] = fmt.Sprintf("io.size=%dm", max(1, j.moves(m.setup.Intermediate)/contest.MiB))
		}
		submitting.Go(func() { all[i], errs[i] = m.jobs.Submit(ctx, j.Work(), s) })
	}
	submitting.Wait()
	var started []*contest.Job
	tasks := map[string]int{}
	for i, j := range all {
		if j != nil {
			started = append(started, j)
			tasks[j.Applications[0]] = jobs[i].Maps
		}
	}
	if err := errors.Join(errs...); err != nil {
		return started, err
	}
	waiting, cancel := context.WithTimeout(ctx, stand.Patience)
	defer cancel()
	return started, m.hold.Await(waiting, tasks)
}

// moves returns the bytes that a job reads from and writes to the contested disks: its input and output, and
// with intermediate data on the same disks, the maps' output once.
func (j Job) moves(intermediate bool) int64 {
	switch {
	case j.Kind == hadoop.TeraGen || j.Kind == hadoop.WordCount: // one side only
		return j.Bytes
	case intermediate:
		return 3 * j.Bytes
	}
	return 2 * j.Bytes
}

// Begin lets the tasks continue.
func (m *Machine) Begin() error { return m.hold.Release() }

// Ended sets the caps of the jobs that still run.
func (m *Machine) Ended(w Way, left []string) error {
	if len(w.Caps.Percent) == 0 || len(left) == 0 {
		return nil
	}
	for i, part := range w.Caps.Parts(len(left)) {
		for _, d := range m.Disks {
			if err := m.groups[left[i]].SetCap(d.Device(), int64(part*float64(m.setup.Disk.BytesPerSecond))); err != nil {
				return err
			}
		}
	}
	return nil
}

// Estimate returns the broker's estimate for an application, or a zero Estimate if no node serves the application any more.
func (m *Machine) Estimate(ctx context.Context, application string) (Estimate, error) {
	broker, err := operate.New([]string{m.BrokerAddress()}, nil)
	if err != nil {
		return Estimate{}, err
	}
	defer broker.Close()
	all, err := broker.Applications(ctx, "")
	if err != nil {
		return Estimate{}, fmt.Errorf("estimates of the broker: %w", err)
	}
	for _, a := range all {
		if a.GetApplication() == application {
			return Estimate{Slowdown: contest.Round3(a.GetSlowdownOverall()), Factor: contest.Round3(a.GetFactor())}, nil
		}
	}
	return Estimate{}, nil
}

// Moved returns the bytes that the daemon has moved for each application.
func (m *Machine) Moved(ctx context.Context, applications []string) ([]int64, error) {
	doc, err := m.Status(ctx, 0)
	if err != nil {
		return nil, err
	}
	moved := make([]int64, len(applications))
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			for i, app := range applications {
				if f.Name == app {
					moved[i] += f.Bytes.Read + f.Bytes.Written
				}
			}
		}
	}
	return moved, nil
}

// Judge attributes the device bytes of a window to the jobs.
func (m *Machine) Judge(ctx context.Context, from, to time.Time, jobs map[string]*contest.Job) (*contest.Verdict, error) {
	return contest.Judge(ctx, m.Hadoop, m.watched, from, to, jobs)
}

// Release lets held tasks continue, ends daemon and broker, and removes the cgroups. It returns an error
// if a daemon had ended earlier, because then the run was not governed to its end.
func (m *Machine) Release() error {
	var errs []error
	if m.hold != nil {
		errs = append(errs, m.hold.Release())
	}
	errs = append(errs, m.watched.Stop())
	m.hold, m.watched = nil, nil
	for _, g := range m.groups {
		errs = append(errs, g.Remove())
	}
	m.groups = nil
	for _, d := range []**daemon.Daemon{&m.Nodes[0], &m.Broker} {
		one := *d
		if *d = nil; one == nil {
			continue
		}
		if !one.Alive() {
			errs = append(errs, fmt.Errorf("a daemon had ended before it was stopped: see %s", one.Log))
			continue
		}
		errs = append(errs, one.Stop())
	}
	return errors.Join(errs...)
}

// Stop stops everything and restores the machine.
func (m *Machine) Stop() error { return errors.Join(m.Release(), m.Down()) }
