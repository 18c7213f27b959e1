package together

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"penstock/lab/contest"
)

// Environment provides what a run needs. Machine is the real one. Methods are called from one
// goroutine.
type Environment interface {
	// Limit switches the modelled rate of the disks on or off.
	Limit(on bool) error
	// Arrange sets the kernel scheduler, makes the cgroups and, for a governed way, starts the broker and the
	// daemon.
	Arrange(ctx context.Context, w Way, jobs []Job) error
	// Forget writes the disks' files out, drops them from the page cache, and begins to watch them.
	Forget() error
	// Start submits all jobs at the same time. It returns when their tasks are ready to move data, and held.
	// After an error, it returns those jobs that were submitted.
	Start(ctx context.Context, w Way, jobs []Job) ([]*contest.Job, error)
	// Begin lets the tasks continue.
	Begin() error
	// Ended is called when jobs have ended, with the names of those that still run, the shortest first.
	Ended(w Way, left []string) error
	// Estimate returns the broker's estimate for an application that has just ended. It is called in governed runs.
	Estimate(ctx context.Context, application string) (Estimate, error)
	// Moved returns the bytes that the daemon has moved for each application. It is called in governed runs,
	// before Release.
	Moved(ctx context.Context, applications []string) ([]int64, error)
	// Judge attributes the device bytes of a window to the jobs, by name.
	Judge(ctx context.Context, from, to time.Time, jobs map[string]*contest.Job) (*contest.Verdict, error)
	// Release undoes Arrange. It may be called without an Arrange before it.
	Release() error
}

// Estimate is the broker's estimate for an application.
type Estimate struct {
	// Slowdown is the estimated slowdown of the application since its start: the time passed divided by the time
	// alone. It is 0 without an estimate.
	Slowdown float64 `json:"estimated_slowdown,omitempty"`
	// Factor is the factor of the application's weight, in a queue with a goal for slowdowns.
	Factor float64 `json:"factor,omitempty"`
}

// JobRun is one job's part of a run.
type JobRun struct {
	Name        string  `json:"name"`
	Application string  `json:"application"`
	CompletionS float64 `json:"completion_s"` // from the run's begin to the job's end
	// HeldS is the time from the job's submission to the run's begin, which does not count.
	HeldS float64 `json:"held_s"`
	// IdleS is the time from the run's begin to the job's first device bytes, and from its last ones to its
	// end, by the disks' log: start-up and clean-up.
	IdleS   float64 `json:"idle_s"`
	Read    int64   `json:"read_bytes"` // by the disks' log
	Written int64   `json:"write_bytes"`
	Estimate
}

// Run is one finished run of one row, as the journal keeps it.
type Run struct {
	Row      string           `json:"row"`
	Number   int              `json:"run"`
	Build    string           `json:"build"`
	Started  time.Time        `json:"started"`
	TookS    float64          `json:"took_s"` // with everything before and after
	Jobs     []JobRun         `json:"jobs"`
	Verdict  *contest.Verdict `json:"verdict"`
	Checked  bool             `json:"checked"` // the outputs were compared with the expected ones
	Warnings []string         `json:"warnings,omitempty"`
}

// Completion returns a job's completion in seconds, or 0 if the job was not in the run.
func (r Run) Completion(name string) float64 {
	for _, j := range r.Jobs {
		if j.Name == name {
			return j.CompletionS
		}
	}
	return 0
}

// Mean returns the mean completion of all jobs, in seconds.
func (r Run) Mean() (mean float64) {
	for _, j := range r.Jobs {
		mean += j.CompletionS / float64(len(r.Jobs))
	}
	return mean
}

// Makespan returns the completion of the last job, in seconds.
func (r Run) Makespan() (last float64) {
	for _, j := range r.Jobs {
		last = max(last, j.CompletionS)
	}
	return last
}

// MBps returns the throughput of all disks until the last job's end.
func (r Run) MBps() float64 {
	bytes := int64(0)
	for _, b := range r.Verdict.Bytes {
		bytes += b
	}
	return float64(bytes) / contest.Megabyte / r.Makespan()
}

// WhileFirst returns the mean rate of each job, in MB/s and in the order of the set-up, until the first job's end.
func (r Run) WhileFirst() (rates []float64) {
	v := r.Verdict
	steps := 0
	if v.StepSeconds > 0 {
		steps = max(1, int(r.Jobs[0].CompletionS/v.StepSeconds))
	}
	for _, j := range r.Jobs {
		sum := 0.0
		mbps := v.MBps[j.Name]
		for _, rate := range mbps[:min(steps, len(mbps))] {
			sum += rate / float64(steps)
		}
		rates = append(rates, sum)
	}
	return rates
}

// FirstPart returns the part, 0 to 1, that the first job has of the device bytes of all jobs until its end; NaN if
// there were none.
func (r Run) FirstPart() float64 {
	rates, all := r.WhileFirst(), 0.0
	for _, rate := range rates {
		all += rate
	}
	return rates[0] / all
}

func (r Run) String() string {
	text := ""
	for _, j := range r.Jobs {
		text += fmt.Sprintf("%s %.1f s, ", j.Name, j.CompletionS)
	}
	return fmt.Sprintf("%smean %.1f s, disks %.1f MB/s", text, r.Mean(), r.MBps())
}

const (
	runPatience = 15 * time.Minute // bound on one run
	// leastIO is the rate in MB/s from which a second counts as one in which a job moves data.
	leastIO = 0.3
)

// ErrCheck reports that a job's output is wrong.
var ErrCheck = errors.New("output check failed")

// ErrNotGoverned reports that the daemon moved no bytes for a job. The run's figures would be those of
// the kernel's scheduler.
var ErrNotGoverned = errors.New("the run was not governed by Penstock")

// play performs one run of a row and restores the environment, also on failure.
func play(ctx context.Context, env Environment, jobs []Job, w Way, check bool) (r Run, err error) {
	ctx, cancel := context.WithTimeout(ctx, runPatience)
	defer cancel()
	r.Started, r.Checked = time.Now(), check
	var started []*contest.Job
	defer func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), contest.CleanupPatience)
		defer cancel()
		errs := []error{err, env.Limit(false)}
		for _, j := range started {
			if err != nil {
				errs = append(errs, j.Kill(after))
			}
			errs = append(errs, j.Discard(after))
		}
		err = errors.Join(append(errs, env.Release())...)
		r.TookS = contest.Round3(time.Since(r.Started).Seconds())
	}()
	if err := env.Limit(false); err != nil {
		return r, err
	}
	if err := env.Arrange(ctx, w, jobs); err != nil {
		return r, err
	}
	if err := env.Forget(); err != nil {
		return r, err
	}
	if started, err = env.Start(ctx, w, jobs); err != nil {
		return r, err
	}
	if err := env.Limit(true); err != nil {
		return r, err
	}
	began := time.Now()
	if err := env.Begin(); err != nil {
		return r, err
	}
	estimates, err := wait(ctx, env, w, jobs, started)
	if err != nil {
		return r, err
	}
	if err := r.finish(ctx, env, w, began, jobs, started); err != nil {
		return r, err
	}
	for i := range r.Jobs {
		r.Jobs[i].Estimate = estimates[i]
	}
	return r, nil
}

// wait waits until all jobs have ended, and reports each end to the environment. In a governed run, it returns the broker's
// estimate for each job.
func wait(ctx context.Context, env Environment, w Way, jobs []Job, started []*contest.Job) ([]Estimate, error) {
	estimates := make([]Estimate, len(jobs))
	ended := make(chan int, len(jobs))
	for i, j := range started {
		go func() {
			<-j.Done // a clean-up kills the job, so this ends
			ended <- i
		}()
	}
	var left []string
	for _, j := range jobs {
		left = append(left, j.Name)
	}
	for range started {
		select {
		case i := <-ended:
			if _, _, err := started[i].Times(); err != nil {
				return nil, err
			}
			if w.Governed {
				var err error
				if estimates[i], err = env.Estimate(ctx, started[i].Applications[0]); err != nil {
					return nil, err
				}
			}
			left = slices.DeleteFunc(left, func(name string) bool { return name == jobs[i].Name })
			if err := env.Ended(w, left); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return estimates, nil
}

// finish computes the run's figures and checks the outputs, on disks without a limit.
func (r *Run) finish(ctx context.Context, env Environment, w Way, began time.Time, jobs []Job, started []*contest.Job) error {
	last := began
	byName := map[string]*contest.Job{}
	var applications []string
	for i, j := range started {
		submitted, end, err := j.Times()
		if err != nil {
			return err
		}
		if end.After(last) {
			last = end
		}
		byName[jobs[i].Name] = j
		applications = append(applications, j.Applications...)
		r.Jobs = append(r.Jobs, JobRun{Name: jobs[i].Name, Application: j.Applications[0],
			CompletionS: contest.Round3(end.Sub(began).Seconds()), HeldS: contest.Round3(began.Sub(submitted).Seconds())})
	}
	if w.Governed {
		moved, err := env.Moved(ctx, applications)
		if err != nil {
			return err
		}
		for i, bytes := range moved {
			if bytes == 0 {
				return fmt.Errorf("%w: the daemon moved no bytes for %s: the DataNodes' logs show whether they run with the agent", ErrNotGoverned, applications[i])
			}
		}
	}
	var err error
	if r.Verdict, err = env.Judge(ctx, began, last, byName); err != nil {
		return fmt.Errorf("judge the run: %w", err)
	}
	for i := range r.Jobs {
		r.Jobs[i].judged(r.Verdict)
	}
	if err := env.Limit(false); err != nil {
		return err
	}
	if !r.Checked {
		return nil
	}
	for i, j := range started {
		if err := j.Check(ctx); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCheck, jobs[i].Name, err)
		}
	}
	return nil
}

// judged fills in the figures that come from the disks' log.
func (j *JobRun) judged(v *contest.Verdict) {
	j.Read, j.Written = v.Read[j.Name], v.Written[j.Name]
	first, last := -1, -1
	for i, mbps := range v.MBps[j.Name] {
		// Bytes that the kernel writes after the job's end are not the job's waits.
		if mbps >= leastIO && float64(i)*v.StepSeconds < j.CompletionS {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		j.IdleS = j.CompletionS
		return
	}
	busy := min(float64(last+1)*v.StepSeconds, j.CompletionS) - float64(first)*v.StepSeconds
	j.IdleS = contest.Round3(max(0, j.CompletionS-busy))
}
