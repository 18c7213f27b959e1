package isolation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/lab/hadoop"
)

// Job is a started job, or several jobs that are treated as one.
type Job struct {
	Applications []string        // ids in YARN
	Done         <-chan struct{} // closed when the job has succeeded or failed
	// Times returns the job's start and end as the ResourceManager reports them, or those of the
	// query. The error is the job's failure. Times is called only after Done.
	Times   func() (started, finished time.Time, err error)
	Check   func(context.Context) error // compares the outputs with the expected ones
	Discard func(context.Context) error // deletes the outputs
	Kill    func(context.Context) error // ends the job early, if it still runs, and leaves partial outputs

	paths []string // in HDFS, of input and output
}

// newJob returns a job without outputs. wait blocks until the job ends; kill ends the job.
func newJob(id string, wait func(context.Context) (began time.Time, took time.Duration, err error), kill func(context.Context) error) *Job {
	watch, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var began time.Time
	var took time.Duration
	var failure error
	go func() {
		defer close(done)
		began, took, failure = wait(watch)
	}()
	return &Job{
		Applications: []string{id}, Done: done,
		Times:   func() (time.Time, time.Time, error) { return began, began.Add(took), failure },
		Discard: func(context.Context) error { return nil },
		Kill: func(ctx context.Context) error {
			err := kill(ctx)
			cancel()
			<-done
			return err
		},
	}
}

// wait waits for the job's end and returns Times.
func (j *Job) wait(ctx context.Context) (started, finished time.Time, err error) {
	select {
	case <-j.Done:
		return j.Times()
	case <-ctx.Done():
		return started, finished, ctx.Err()
	}
}

// together returns an aggressor of several applications, one job each. Many small jobs harm a
// neighbour in another way than a large job does: under a scheduler that serves applications in
// turn, the neighbour waits for the turns of all of them. The aggressor starts when the first job
// starts, and ends when the first job ends, because afterwards not all jobs run.
func together(jobs []*Job) *Job {
	if len(jobs) == 1 {
		return jobs[0]
	}
	each := func(do func(*Job) error) error {
		var errs []error
		for _, j := range jobs {
			errs = append(errs, do(j))
		}
		return errors.Join(errs...)
	}
	done := make(chan struct{})
	all := &Job{
		Done: done,
		Times: func() (started, finished time.Time, err error) {
			for i, j := range jobs {
				s, f, e := j.Times()
				err = errors.Join(err, e)
				if i == 0 || s.Before(started) {
					started = s
				}
				if i == 0 || f.Before(finished) {
					finished = f
				}
			}
			return started, finished, err
		},
		Check:   func(ctx context.Context) error { return each(func(j *Job) error { return j.Check(ctx) }) },
		Discard: func(ctx context.Context) error { return each(func(j *Job) error { return j.Discard(ctx) }) },
		Kill:    func(ctx context.Context) error { return each(func(j *Job) error { return j.Kill(ctx) }) },
	}
	for _, j := range jobs {
		all.Applications, all.paths = append(all.Applications, j.Applications...), append(all.paths, j.paths...)
	}
	go func() {
		defer close(done)
		for _, j := range jobs {
			<-j.Done
		}
	}()
	return all
}

// warmBytes is the least number of bytes that the aggressor's disks move before the protected job
// starts. It is more than the files of a job's submission, so the aggressor's tasks do I/O by then.
const warmBytes = 16 * mib

// StartProtected submits the protected job.
func (m *Machine) StartProtected(ctx context.Context, p Phase) (*Job, error) {
	s := m.setup().protected()
	if s.query() != "" {
		return m.submitQuery(ctx, s, protectedInput, m.sources[protectedInput].sameAnswer)
	}
	return m.submit(ctx, s, protectedInput, m.output("", s.kind), p)
}

// StartAggressor submits all applications of the aggressor and waits until the tasks of each do
// I/O.
func (m *Machine) StartAggressor(ctx context.Context, p Phase) (_ *Job, err error) {
	var jobs []*Job
	defer func() {
		if err != nil { // the caller does not know these jobs
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
			defer cancel()
			for _, j := range jobs {
				err = errors.Join(err, j.Kill(after), j.Discard(after))
			}
		}
	}()
	for range m.setup().Aggressor.applications() {
		j, err := m.submit(ctx, m.setup().aggressor(), aggressorInput(p.Elsewhere), m.output(place(p.Elsewhere), m.setup().Against), p)
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
	return together(jobs), nil
}

// output returns the path of an output folder that no other job has.
func (m *Machine) output(place, name string) string {
	m.jobSeq++
	return fmt.Sprintf("%s/output/%s-%d", place, name, m.jobSeq)
}

// run submits a MapReduce job and watches it to its end.
func (m *Machine) run(ctx context.Context, spec hadoop.Job, check func(context.Context) error) (*Job, error) {
	app, err := m.Hadoop.Submit(ctx, spec)
	if err != nil {
		return nil, err
	}
	j := newJob(app.ID, func(ctx context.Context) (time.Time, time.Duration, error) {
		s, err := app.Wait(ctx)
		return s.Started, s.Elapsed, err
	}, app.Kill)
	j.Check, j.paths = check, []string{spec.Output}
	if spec.Input != "" {
		j.paths = append(j.paths, spec.Input)
	}
	j.Discard = func(ctx context.Context) error { return m.Hadoop.FS().Remove(ctx, spec.Output) }
	return j, nil
}

// warm waits until the aggressor's disks have moved warmBytes or, without counters, until the job
// reports progress. Only I/O after the first task's start counts, because TeraSort's client reads
// a sample of the input earlier.
func (m *Machine) warm(ctx context.Context, j *Job, p Phase) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	app := m.Hadoop.Application(j.Applications[0])
	var before float64
	tasks := false
	for {
		moved, counted, err := m.movedBy(p)
		if err != nil {
			return err
		}
		if !tasks || !counted {
			s, err := app.Status(ctx)
			if err == nil && !counted && s.Progress > 0 {
				return nil
			}
			tasks, before = err == nil && s.Containers > 1, moved
		} else if moved-before >= warmBytes {
			return nil
		}
		select {
		case <-tick.C:
		case <-j.Done:
			_, _, err := j.Times()
			return errors.Join(err, fmt.Errorf("%s ended before it moved %d MiB", m.setup().Against, warmBytes/mib))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// movedBy returns the bytes that the disks of the aggressor's data have moved; counted is
// false if no disk has counters.
func (m *Machine) movedBy(p Phase) (bytes float64, counted bool, err error) {
	now, err := m.Counters()
	for i, d := range m.Disks {
		if elsewhere := i >= m.setup().Disk.DataNodes; elsewhere == p.Elsewhere {
			bytes += now[d.Name()].Total()
		}
	}
	return bytes, len(now) > 0, err
}

// validateSorted runs TeraValidate on TeraSort's output, with all CPUs. The output must have all
// rows of the input, in order.
func (m *Machine) validateSorted(ctx context.Context, queue, sorted string, want hadoop.Checksum128) error {
	report := sorted + "-validated"
	j, err := m.run(ctx, hadoop.Job{Kind: hadoop.TeraValidate, Input: sorted, Output: report,
		Queue: queue}, func(ctx context.Context) error {
		return m.Hadoop.VerifyTeraValidate(ctx, report, want)
	})
	if err != nil {
		return err
	}
	if _, _, err = j.wait(ctx); err == nil {
		err = j.Check(ctx)
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
	defer cancel()
	return errors.Join(err, j.Kill(after), j.Discard(after))
}
