package spark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
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

// SubmitOrders starts the program of job, whose arguments are set by SubmitOrders, and returns when it waits for
// orders. dir is a new folder for the orders; partitions is the number of the job's parts.
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

func (o *Orders) done(ctx context.Context, number int) (Done, error) {
	line, err := o.p.Find(ctx, regexp.MustCompile(`(?m)^\{"step": "`+strconv.Itoa(number)+`".*\}$`))
	if err != nil {
		return Done{}, err
	}
	var said struct{ Began, Seconds float64 }
	if err := json.Unmarshal([]byte(line[0]), &said); err != nil {
		return Done{}, fmt.Errorf("%s: %q: %w", o.ID, line[0], err)
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
