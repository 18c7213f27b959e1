package isolation

import (
	"context"
	"errors"
	"strings"
	"time"
)

// jobGroup is an aggressor of several applications, one job each. Many small jobs hurt a
// neighbour in another way than a large one: under a scheduler that serves applications in
// turn it waits for all of their turns.
type jobGroup struct {
	jobs []*job
	done chan struct{}
}

func newJobGroup(jobs []*job) *jobGroup {
	c := &jobGroup{jobs: jobs, done: make(chan struct{})}
	go func() {
		for _, j := range jobs {
			<-j.done
		}
		close(c.done)
	}()
	return c
}

func (c *jobGroup) Application() string {
	var ids []string
	for _, j := range c.jobs {
		ids = append(ids, j.app.ID)
	}
	return strings.Join(ids, " ")
}

func (c *jobGroup) Done() <-chan struct{} { return c.done }

// Times returns the first start and the first end: all jobs run between them.
func (c *jobGroup) Times() (started, finished time.Time, err error) {
	for i, j := range c.jobs {
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
}

func (c *jobGroup) Check(ctx context.Context) error {
	return c.each(func(j *job) error { return j.Check(ctx) })
}

func (c *jobGroup) Discard(ctx context.Context) error {
	return c.each(func(j *job) error { return j.Discard(ctx) })
}

func (c *jobGroup) Kill(ctx context.Context) error {
	return c.each(func(j *job) error { return j.Kill(ctx) })
}

func (c *jobGroup) paths() []string {
	var all []string
	for _, j := range c.jobs {
		all = append(all, j.paths()...)
	}
	return all
}

func (c *jobGroup) each(do func(*job) error) error {
	var errs []error
	for _, j := range c.jobs {
		errs = append(errs, do(j))
	}
	return errors.Join(errs...)
}
