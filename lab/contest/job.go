package contest

import (
	"context"
	"errors"
	"time"
)

// CleanupPatience bounds the clean-up after a failure or Ctrl-C.
const CleanupPatience = 90 * time.Second

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

	Paths []string // in HDFS, of input and output
}

// NewJob returns a job without outputs. wait blocks until the job ends; kill ends the job.
func NewJob(id string, wait func(context.Context) (began time.Time, took time.Duration, err error), kill func(context.Context) error) *Job {
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

// Wait waits for the job's end and returns Times.
func (j *Job) Wait(ctx context.Context) (started, finished time.Time, err error) {
	select {
	case <-j.Done:
		return j.Times()
	case <-ctx.Done():
		return started, finished, ctx.Err()
	}
}

// Together returns several jobs as one. It starts when the first job starts, and ends when the first
// job ends, because afterwards not all jobs run. Done is closed when all have ended.
func Together(jobs []*Job) *Job {
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
		all.Applications, all.Paths = append(all.Applications, j.Applications...), append(all.Paths, j.Paths...)
	}
	go func() {
		defer close(done)
		for _, j := range jobs {
			<-j.Done
		}
	}()
	return all
}
