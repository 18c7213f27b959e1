package isolation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Experiment runs the turns that are missing in the journal.
type Experiment struct {
	Setup    Setup
	Phases   []Phase
	Runs     int // of each phase
	Env      Environment
	Journal  *Journal
	Progress *Progress // nil: silent
	Build    string    // version of penstock, noted in each run
	// CheckAll lets the aggressor finish after every run and checks its output.
	// Otherwise only the first run of each phase does so; later runs kill the
	// aggressor after the window, which saves half of the time.
	CheckAll bool
	After    func() error // called after each run that was journalled; nil: nothing

	SampleEvery time.Duration // of the device counters; default 250 ms
	ScrapeEvery time.Duration // of the daemon's metrics; default 1 s
	Patience    time.Duration // bound on one run; default 15 minutes
}

// cleanupPatience bounds what is done after a failure or Ctrl-C.
const cleanupPatience = 90 * time.Second

// ErrCheck reports that a job's output is wrong.
var ErrCheck = errors.New("output check failed")

// ErrNotGoverned reports that the daemon moved no bytes for a job, or not with its weight:
// the figures of the run would be the kernel's.
var ErrNotGoverned = errors.New("the run was not governed by Penstock")

// ErrOutlasted reports that the aggressor ended before the protected job: there was no
// contention at the run's end.
var ErrOutlasted = errors.New("the aggressor ended before the protected job did: give it more bytes (--aggressor-size)")

// Run does the missing turns in order and stops at the first failure. Finished runs are in
// the journal.
func (x *Experiment) Run(ctx context.Context) error {
	var todo []Turn
	for _, t := range Interleave(x.Phases, x.Runs) {
		if !x.Journal.Has(t) {
			todo = append(todo, t)
		}
	}
	x.Progress.plan(x.Setup, todo, x.Journal.Runs(), x.CheckAll)
	for _, t := range todo {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := x.turn(ctx, t)
		if err != nil {
			return fmt.Errorf("%s, run %d: %w", t.Phase.Name, t.Run, err)
		}
		if err := x.Journal.Append(*r); err != nil {
			return err
		}
		x.Progress.finished(*r)
		if x.After != nil {
			if err := x.After(); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn does one run and leaves the environment as it found it, also on failure.
func (x *Experiment) turn(ctx context.Context, t Turn) (r *Run, err error) {
	patience := x.Patience
	if patience == 0 {
		patience = 15 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var jobs []Job
	defer func() {
		// The machine is restored even if the caller's context has ended.
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
		defer cancel()
		err = errors.Join(err, x.cleanUp(after, jobs, err != nil))
	}()

	x.Progress.step(t, "prepare")
	r = &Run{Phase: t.Phase.Name, Number: t.Run, Build: x.Build, Started: time.Now()}
	if err := x.prepare(ctx, t.Phase); err != nil {
		return nil, err
	}
	s := newSampler(x, t)
	defer s.stop()
	var aggressor Job
	if t.Phase.Against {
		x.Progress.step(t, "start "+x.Setup.aggressor().title())
		if aggressor, err = x.Env.StartAggressor(ctx, t.Phase); err != nil {
			return nil, err
		}
		jobs = append(jobs, aggressor)
		r.Aggressor = aggressor.Application()
	}
	measured, protected, err := aggressor, Job(nil), error(nil)
	if !t.Phase.Unprotected {
		x.Progress.step(t, "start "+x.Setup.protected().title())
		if protected, err = x.Env.StartProtected(ctx, t.Phase); err != nil {
			return nil, err
		}
		measured = protected
		jobs = append(jobs, protected)
		r.Protected = protected.Application()
	}
	if t.Phase.Governed {
		if err := x.Env.SetWeights(ctx, r.Protected, r.aggressors()); err != nil {
			return nil, err
		}
	}
	x.Progress.step(t, x.Setup.measured(t.Phase)+" runs")
	from, to, err := x.window(ctx, r, measured, aggressor)
	if err != nil {
		return nil, err
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	r.measure(s.disks, s.scrapes, from, to)
	if t.Phase.Governed {
		if err := x.governed(r, s.scrapes); err != nil {
			return nil, err
		}
	}
	return r, x.afterwards(ctx, t, r, from, to, protected, aggressor)
}

// governed checks in the last scrape that the daemon moved bytes for every job, with the
// job's weight.
func (x *Experiment) governed(r *Run, scrapes []scrapeSample) error {
	if len(scrapes) == 0 {
		return fmt.Errorf("%w: the daemon's metrics could not be read", ErrNotGoverned)
	}
	last := scrapes[len(scrapes)-1].m
	weights := map[string]int{}
	if r.Protected != "" {
		weights[r.Protected] = x.Setup.Penstock.ProtectedWeight
	}
	for _, flow := range r.aggressors() {
		weights[flow] = x.Setup.Penstock.AggressorWeight
	}
	for flow, weight := range weights {
		var moved float64
		for k, v := range last.FlowBytes {
			if k.Flow == flow {
				moved += v
			}
		}
		if moved == 0 {
			return fmt.Errorf("%w: the daemon moved no bytes for %s: check in the DataNodes' logs that they run with the agent", ErrNotGoverned, flow)
		}
		if w := last.Weights[flow]; w != float64(weight) {
			return fmt.Errorf("%w: %s had weight %v, not %d", ErrNotGoverned, flow, w, weight)
		}
	}
	return nil
}

func (x *Experiment) prepare(ctx context.Context, p Phase) error {
	if err := x.Env.Limit(ctx, false); err != nil {
		return err
	}
	if err := x.Env.Arrange(ctx, p); err != nil {
		return err
	}
	if err := x.Env.DropCaches(ctx); err != nil {
		return err
	}
	return x.Env.Limit(ctx, !p.Unlimited)
}

// window waits for the measured job, which is the protected one where it runs, and returns
// its start and end. If the aggressor has ended before, that is an error, or with Both a
// warning in the result.
func (x *Experiment) window(ctx context.Context, r *Run, protected, aggressor Job) (from, to time.Time, err error) {
	var early <-chan struct{}
	if aggressor != nil && aggressor != protected {
		early = aggressor.Done()
	}
	select {
	case <-protected.Done():
	case <-early:
		select {
		case <-protected.Done(): // both at the same moment
		default:
			begun, ended, err := aggressor.Times()
			if err != nil {
				return from, to, err
			}
			if !x.Setup.Both {
				return from, to, ErrOutlasted
			}
			r.Warnings = append(r.Warnings, fmt.Sprintf("the aggressor ended first, after %.1f s: with contention to its end the protected job would have taken longer", ended.Sub(begun).Seconds()))
		}
		select {
		case <-protected.Done():
		case <-ctx.Done():
			return from, to, ctx.Err()
		}
	case <-ctx.Done():
		return from, to, ctx.Err()
	}
	return protected.Times()
}

// afterwards finishes the run: the aggressor ends or is killed, the judge attributes the
// device bytes, and outputs are checked. The disks have no limit then, unless the
// aggressor's run time counts.
func (x *Experiment) afterwards(ctx context.Context, t Turn, r *Run, from, to time.Time, protected, aggressor Job) error {
	begin := time.Now()
	own := x.Setup.Both && aggressor != nil // the aggressor's own run time counts
	if !own {
		if err := x.Env.Limit(ctx, false); err != nil {
			return err
		}
	}
	r.Killed = aggressor != nil && !own && !x.CheckAll && x.Journal.Checked(t.Phase)
	var check []Job
	if protected != nil {
		check = append(check, protected)
	}
	var ownFrom, ownTo time.Time
	var err error
	if aggressor != nil && !r.Killed {
		check = append(check, aggressor)
		x.Progress.step(t, "let "+x.Setup.aggressor().title()+" finish")
		select {
		case <-aggressor.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
		if ownFrom, ownTo, err = aggressor.Times(); err != nil {
			return err
		}
	}
	if own {
		r.AggressorRuntimeS = ownTo.Sub(ownFrom).Seconds()
		if err := x.Env.Limit(ctx, false); err != nil {
			return err
		}
	}
	x.Progress.step(t, "check outputs")
	if r.Verdict, err = x.Env.Judge(ctx, from, to, protected, aggressor); err == nil && own {
		r.AggressorVerdict, err = x.Env.Judge(ctx, ownFrom, ownTo, protected, aggressor)
	}
	if err != nil {
		r.Warnings = append(r.Warnings, "the judge: "+err.Error())
	}
	if v := r.AggressorVerdict; v != nil {
		v.MBps = nil // sums are all that is used
	}
	if r.Killed { // not before: the judge needs its files
		if err := aggressor.Kill(ctx); err != nil {
			return err
		}
	}
	for _, j := range check {
		if err := j.Check(ctx); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCheck, j.Application(), err)
		}
	}
	r.AfterS = round3(time.Since(begin).Seconds())
	return nil
}

// cleanUp runs after every turn: no limit, no job, no output, no daemon.
func (x *Experiment) cleanUp(ctx context.Context, jobs []Job, failed bool) error {
	errs := []error{x.Env.Limit(ctx, false)}
	for _, j := range slices.Backward(jobs) {
		if failed {
			errs = append(errs, j.Kill(ctx))
		}
		errs = append(errs, j.Discard(ctx))
	}
	errs = append(errs, x.Env.Release(ctx))
	return errors.Join(errs...)
}
