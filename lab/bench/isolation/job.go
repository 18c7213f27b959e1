package isolation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/lab/hadoop"
)

// job is a real MapReduce job.
type job struct {
	app    *hadoop.App
	fs     *hadoop.FS
	done   chan struct{}
	cancel context.CancelFunc
	status hadoop.Status // valid after done
	err    error         // valid after done
	check  func(context.Context) error
}

// warmBytes is the least that the aggressor's disks move before the protected job starts:
// more than any job's own files, so the aggressor's tasks do I/O by then.
const warmBytes = 16 * mib

// StartProtected submits the protected job.
func (m *Machine) StartProtected(ctx context.Context, p Phase) (Job, error) {
	s := m.setup.protected()
	if s.query() != "" {
		return m.submitQuery(ctx, s, protectedInput, m.sources[protectedInput].answer)
	}
	return m.submit(ctx, s, protectedInput, m.output("", s.kind), p)
}

// StartAggressor submits the aggressor, all its applications, and waits until the
// tasks of each do I/O.
func (m *Machine) StartAggressor(ctx context.Context, p Phase) (_ Job, err error) {
	var jobs []*job
	defer func() {
		if err != nil { // the caller does not know these jobs
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
			defer cancel()
			for _, j := range jobs {
				err = errors.Join(err, j.Kill(after), j.Discard(after))
			}
		}
	}()
	for range m.setup.Aggressor.applications() {
		j, err := m.submit(ctx, m.setup.aggressor(), aggressorInput(p.Elsewhere), m.output(place(p.Elsewhere), m.setup.Against), p)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	for _, j := range jobs {
		if err := m.warm(ctx, j, p); err != nil {
			return nil, err
		}
	}
	if len(jobs) == 1 {
		return jobs[0], nil
	}
	return newJobGroup(jobs), nil
}

// output returns a new folder.
func (m *Machine) output(place, name string) string {
	m.jobSeq++
	return fmt.Sprintf("%s/output/%s-%d", place, name, m.jobSeq)
}

// run submits a MapReduce job and watches it to its end.
func (m *Machine) run(ctx context.Context, spec hadoop.Job, check func(context.Context) error) (*job, error) {
	app, err := m.Hadoop.Submit(ctx, spec)
	if err != nil {
		return nil, err
	}
	watch, cancel := context.WithCancel(context.Background())
	j := &job{app: app, fs: m.Hadoop.FS(), done: make(chan struct{}), cancel: cancel, check: check}
	go func() {
		defer close(j.done)
		j.status, j.err = app.Wait(watch)
	}()
	return j, nil
}

// warm waits until the aggressor has a task and its disks have then moved warmBytes or,
// without counters, the job reports progress. Only I/O after the first task's start counts:
// TeraSort's client reads a sample of the input before that.
func (m *Machine) warm(ctx context.Context, j *job, p Phase) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var before int64
	tasks := false
	for {
		moved, counted, err := m.movedBy(p)
		if err != nil {
			return err
		}
		if !tasks || !counted {
			s, err := j.app.Status(ctx)
			if err == nil && !counted && s.Progress > 0 {
				return nil
			}
			tasks, before = err == nil && s.Containers > 1, moved
		} else if moved-before >= warmBytes {
			return nil
		}
		select {
		case <-tick.C:
		case <-j.done:
			return errors.Join(j.err, fmt.Errorf("%s ended before it moved %d MiB", m.setup.Against, warmBytes/mib))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// movedBy returns the bytes that the disks of the aggressor's data have moved; counted is
// false if no disk has counters.
func (m *Machine) movedBy(p Phase) (bytes int64, counted bool, err error) {
	now, err := m.Counters()
	for i, d := range now {
		if elsewhere := i >= m.setup.Disk.DataNodes; elsewhere == p.Elsewhere {
			bytes += both(d)
		}
	}
	return bytes, len(now) > 0, err
}

// validateSorted runs TeraValidate over TeraSort's output, on every CPU: it must hold all
// of the input's rows, in order.
func (m *Machine) validateSorted(ctx context.Context, queue, sorted string, want hadoop.Checksum128) error {
	report := sorted + "-validated"
	j, err := m.run(ctx, hadoop.Job{Kind: hadoop.TeraValidate, Input: sorted, Output: report,
		Queue: queue}, func(ctx context.Context) error {
		return m.Hadoop.VerifyTeraValidate(ctx, report, want)
	})
	if err != nil {
		return err
	}
	select {
	case <-j.Done():
		if err = j.err; err == nil {
			err = j.Check(ctx)
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
	defer cancel()
	return errors.Join(err, j.Kill(after), j.Discard(after))
}

func (j *job) Application() string   { return j.app.ID }
func (j *job) Done() <-chan struct{} { return j.done }

func (j *job) Times() (started, finished time.Time, err error) {
	return j.status.Started, j.status.Started.Add(j.status.Elapsed), j.err
}

func (j *job) paths() []string { return []string{j.app.Job.Input, j.app.Job.Output} }

func (j *job) Check(ctx context.Context) error { return j.check(ctx) }

func (j *job) Discard(ctx context.Context) error { return j.fs.Remove(ctx, j.app.Job.Output) }

// Kill ends the job, if it still runs.
func (j *job) Kill(ctx context.Context) error {
	err := j.app.Kill(ctx)
	j.cancel()
	<-j.done
	return err
}
