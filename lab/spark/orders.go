package spark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"penstock/lab/poll"
)

// Orders is a running Sort or WordCount that performs its job when it is ordered to (jobs/orders.py).
// So the job's time has no start of Spark in it. Its methods may be called by one goroutine at a time.
type Orders struct {
	*App
	dir   string
	given int
}

// Done describes a job that is done.
type Done struct {
	Began   time.Time
	Elapsed time.Duration
}

// End returns when the job was done.
func (d Done) End() time.Time { return d.Began.Add(d.Elapsed) }

// SubmitOrders starts a program and returns when the program waits for orders. It sets the job's
// arguments. dir is a new folder for the orders, and partitions is the number of the job's parts.
func (s *Spark) SubmitOrders(ctx context.Context, job Job, dir string, partitions int) (*Orders, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	job.Args = []string{dir, strconv.Itoa(partitions)}
	app, err := s.Submit(ctx, job)
	if err != nil {
		return nil, err
	}
	o := &Orders{App: app, dir: dir}
	if _, err := o.done(ctx, 0); err != nil {
		return nil, errors.Join(err, o.End(ctx))
	}
	return o, nil
}

// Give orders the job for folders of HDFS. wait returns when the job is done.
func (o *Orders) Give(input, output string) (wait func(context.Context) (Done, error), err error) {
	o.given++
	number := o.given
	file := filepath.Join(o.dir, strconv.Itoa(number))
	if err := os.WriteFile(file+".new", []byte(input+" "+output), 0o644); err != nil {
		return nil, err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Done, error) { return o.done(ctx, number) }, nil
}

// done waits for the report of a job.
func (o *Orders) done(ctx context.Context, number int) (d Done, err error) {
	file := filepath.Join(o.dir, strconv.Itoa(number)+".done")
	var text []byte
	err = poll.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		ended := !o.p.Alive() // checked first, so no report can follow after the file is read
		var err error
		if text, err = os.ReadFile(file); !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
		if ended {
			return false, o.p.Failure()
		}
		return false, nil
	})
	if err != nil {
		return d, fmt.Errorf("job %d of %s: %w", number, o.ID, err)
	}
	var said struct{ Began, Seconds float64 }
	if err := json.Unmarshal(text, &said); err != nil {
		return d, fmt.Errorf("job %d of %s: %s: %q: %w", number, o.ID, file, text, err)
	}
	return Done{Began: time.UnixMicro(int64(said.Began * 1e6)), Elapsed: time.Duration(said.Seconds * float64(time.Second))}, nil
}

// End ends the program after its present job, and returns when it has ended.
func (o *Orders) End(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(o.dir, "end"), nil, 0o644); err != nil {
		return err
	}
	return o.Wait(ctx)
}
