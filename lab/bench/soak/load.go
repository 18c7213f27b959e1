package soak

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/hadoop"
)

// Round is one round of jobs and its verdict.
type Round struct {
	Load    string  `json:"load"` // terasort or testdfsio
	Number  int     `json:"number"`
	Seconds float64 `json:"s"`
	// Failed lists the jobs that failed permanently, for any reason. After a failed job the round
	// starts again; there are at most roundAttempts attempts.
	Failed []string `json:"failed,omitempty"`
	// TaskWaits holds the waits of the TeraSort's tasks, in a campaign of kills in phases.
	TaskWaits TaskWaits `json:"task_waits,omitzero"`
	// Wrong is the judge's finding, or "".
	Wrong string `json:"wrong,omitempty"`
}

// rounds runs rounds of one load, one after another. When stop is closed, it completes the current
// round and returns.
func (c *campaign) rounds(ctx context.Context, load string, round func(context.Context, string) error, stop <-chan struct{}) {
	for n := c.roundsBefore(load) + 1; ; n++ {
		r := Round{Load: load, Number: n}
		begin := time.Now()
		for attempt := 1; ; attempt++ {
			dir := fmt.Sprintf("/%s/%d-%d", load, n, attempt)
			err := round(ctx, dir)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				break
			}
			c.m.Hadoop.FS().Remove(ctx, dir) // best effort: it only frees space
			var failed jobFailed
			if !errors.As(err, &failed) {
				r.Wrong = err.Error()
				break
			}
			r.Failed = append(r.Failed, err.Error())
			if attempt == roundAttempts {
				r.Wrong = fmt.Sprintf("%d attempts in a row ended with a failed job", attempt)
				break
			}
		}
		r.Seconds = time.Since(begin).Seconds()
		c.roundDone(r)
		select {
		case <-stop:
			return
		default:
		}
	}
}

const roundAttempts = 3

// jobFailed is the error of a job that failed in Hadoop. Such a failure needs an explanation, but
// no data is lost.
type jobFailed struct{ error }

func (j jobFailed) Unwrap() error { return j.error }

// job submits a job and waits for its end.
func (c *campaign) job(ctx context.Context, j hadoop.Job) (*hadoop.App, error) {
	app, err := c.m.Hadoop.Submit(ctx, j)
	if err != nil {
		return nil, jobFailed{err}
	}
	go c.begun(ctx, app)
	if j.Kind == hadoop.TeraSort {
		c.sort.Store(app)
		defer c.sort.Store(nil)
	}
	if _, err := app.Wait(ctx); err != nil {
		return nil, jobFailed{err}
	}
	return app, nil
}

// terasort runs TeraGen, TeraSort and TeraValidate. TeraGen computes the checksum of the rows
// before it writes them; TeraValidate computes it from the rows that it reads.
func (c *campaign) terasort(ctx context.Context, dir string) error {
	s := c.setup
	gen, err := c.job(ctx, hadoop.Job{Kind: hadoop.TeraGen, Output: dir + "/in", Rows: s.TeraBytes / hadoop.RowBytes,
		Maps: s.Tasks, Queue: hadoop.QueueProtected})
	if err != nil {
		return err
	}
	counters, err := gen.Counters(ctx)
	if err != nil {
		return err
	}
	sum, ok := counters["CHECKSUM"]
	if !ok {
		return jobFailed{fmt.Errorf("TeraGen's client printed no checksum: see %s", gen.Log)}
	}
	sort := hadoop.Job{Kind: hadoop.TeraSort, Input: dir + "/in", Output: dir + "/out", Reduces: s.Tasks, Queue: hadoop.QueueProtected}
	if s.Phases {
		sort.Settings = c.m.told()
	}
	if _, err := c.job(ctx, sort); err != nil {
		return err
	}
	if _, err := c.job(ctx, hadoop.Job{Kind: hadoop.TeraValidate, Input: dir + "/out", Output: dir + "/report",
		Queue: hadoop.QueueProtected}); err != nil {
		return err
	}
	return errors.Join(
		c.retry(ctx, func() error {
			return c.m.Hadoop.VerifyTeraValidate(ctx, dir+"/report", hadoop.Checksum128{Low: uint64(sum)})
		}),
		c.retry(ctx, func() error { return c.m.Hadoop.FS().Remove(ctx, dir) }))
}

// testDFSIO writes files, reads them, and then compares every byte.
func (c *campaign) testDFSIO(ctx context.Context, dir string) error {
	s := c.setup
	if _, err := c.job(ctx, hadoop.Job{Kind: hadoop.TestDFSIOWrite, Output: dir, Maps: s.Tasks, FileBytes: s.DFSIOBytes,
		Queue: hadoop.QueueAggressor}); err != nil {
		return err
	}
	if _, err := c.job(ctx, hadoop.Job{Kind: hadoop.TestDFSIORead, Input: dir, Maps: s.Tasks, FileBytes: s.DFSIOBytes,
		Queue: hadoop.QueueAggressor}); err != nil {
		return err
	}
	return errors.Join(
		c.retry(ctx, func() error { return c.m.Hadoop.VerifyTestDFSIO(ctx, dir, s.Tasks, s.DFSIOBytes) }),
		c.retry(ctx, func() error { return c.m.Hadoop.FS().Remove(ctx, dir) }))
}

// retry repeats a failed request by WebHDFS, because the DataNode that served it may have been
// killed. After the last attempt it returns that attempt's error.
func (c *campaign) retry(ctx context.Context, do func() error) (err error) {
	for range fileAttempts {
		if err = do(); err == nil || experiment.Pause(ctx, 2*time.Second) != nil {
			return err
		}
	}
	return err
}
