package isolation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/lab/contest"
)

// warmBytes is the least number of bytes that the aggressor's disks move before the protected job
// starts. It is more than the files of a job's submission, so the aggressor's tasks do I/O by then.
const warmBytes = 16 * mib

// StartProtected submits the protected job.
func (m *Machine) StartProtected(ctx context.Context, p Phase) (*contest.Job, error) {
	s := m.setup().protected()
	if s.query() != "" {
		return m.submitQuery(ctx, s, protectedInput, m.answer.same)
	}
	return m.submit(ctx, s, protectedInput, m.jobs.Output("", s.kind), p)
}

// StartAggressor submits all applications of the aggressor and waits until the tasks of each do
// I/O. Many small jobs harm a neighbour in another way than a large job does: under a scheduler that
// serves applications in turn, the neighbour waits for the turns of all of them.
func (m *Machine) StartAggressor(ctx context.Context, p Phase) (_ *contest.Job, err error) {
	var jobs []*contest.Job
	defer func() {
		if err != nil { // the caller does not know these jobs
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), contest.CleanupPatience)
			defer cancel()
			for _, j := range jobs {
				err = errors.Join(err, j.Kill(after), j.Discard(after))
			}
		}
	}()
	for range m.setup().Aggressor.applications() {
		j, err := m.submit(ctx, m.setup().aggressor(), aggressorInput(p.Elsewhere), m.jobs.Output(place(p.Elsewhere), m.setup().Against), p)
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
	return contest.Together(jobs), nil
}

// warm waits until the aggressor's disks have moved warmBytes or, without counters, until the job
// reports progress. Only I/O after the first task's start counts, because TeraSort's client reads
// a sample of the input earlier.
func (m *Machine) warm(ctx context.Context, j *contest.Job, p Phase) error {
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
