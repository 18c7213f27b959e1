package isolation

import (
	"context"
	"errors"
	"strings"
	"time"
)

// crowd is an aggressor of several applications, one job each: many small jobs
// hurt a neighbour in another way than one large one, since a scheduler that
// serves in turns makes it wait for all of their turns.
type crowd struct {
	jobs []*job
	done chan struct{}
}

func newCrowd(jobs []*job) *crowd {
	c := &crowd{jobs: jobs, done: make(chan struct{})}
	go func() {
		for _, j := range jobs {
			<-j.done
		}
		close(c.done)
	}()
	return c
}

func (c *crowd) Application() string {
	var ids []string
	for _, j := range c.jobs {
		ids = append(ids, j.app.ID)
	}
	return strings.Join(ids, " ")
}

func (c *crowd) Done() <-chan struct{} { return c.done }

// Times are from the first one's start to the first one's end: until then all
// of them ran.
func (c *crowd) Times() (started, finished time.Time, err error) {
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

func (c *crowd) Check(ctx context.Context) error {
	return c.each(func(j *job) error { return j.Check(ctx) })
}

func (c *crowd) Discard(ctx context.Context) error {
	return c.each(func(j *job) error { return j.Discard(ctx) })
}

func (c *crowd) Kill(ctx context.Context) error {
	return c.each(func(j *job) error { return j.Kill(ctx) })
}

func (c *crowd) paths() []string {
	var all []string
	for _, j := range c.jobs {
		all = append(all, j.paths()...)
	}
	return all
}

func (c *crowd) each(do func(*job) error) error {
	var errs []error
	for _, j := range c.jobs {
		errs = append(errs, do(j))
	}
	return errors.Join(errs...)
}
