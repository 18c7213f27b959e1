package isolation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/lab/contest"
	"penstock/lab/experiment"
	"penstock/lab/experiment/counters"
)

// Experiment performs the turns of a request.
type Experiment struct {
	Request
	Env Environment

	SampleEvery time.Duration // of the device counters; default 250 ms

	done        []Run // finished runs, as in the journal
	at          position
	reported    bool // the report's path was printed
	calibration *Calibration
}

const (
	runPatience = 15 * time.Minute // bound on one run
)

// ErrCheck reports that a job's output is wrong.
var ErrCheck = errors.New("output check failed")

// ErrNotGoverned reports that the daemon moved no bytes for a job or used another weight for it.
// The run's figures would be those of the kernel's scheduler.
var ErrNotGoverned = errors.New("the run was not governed by Penstock")

// ErrOutlasted reports that the aggressor ended before the protected job: there was no
// contention at the run's end.
var ErrOutlasted = errors.New("the aggressor ended before the protected job did: give it more bytes (--aggressor-size)")

// turns describes the experiment as turns, of which those are performed that the journal lacks.
// start must set x.Env.
func (x *Experiment) turns(start func(ctx context.Context, dir string) (stop func() error, err error)) experiment.Turns[Setup, Turn, Run] {
	return experiment.Turns[Setup, Turn, Run]{
		Name: "isolation", Unit: "runs", Setup: x.Setup, Resume: x.Resume, RunDir: x.RunDir, KeepLogs: x.KeepLogs, Say: x.say,
		Missing: func(done []Run) []Turn {
			for _, r := range done {
				x.took(r, r.RuntimeS+r.AfterS+turnOverhead.Seconds())
			}
			return x.missing(done)
		},
		Start: func(ctx context.Context, dir string) (func(context.Context, Turn, []Run) (Run, error), func() error, error) {
			stop, err := start(ctx, dir)
			return x.turn, stop, err
		},
		After: func(done []Run) error {
			x.done = done
			x.finished(done[len(done)-1])
			return x.writeReport(x.summarise())
		},
	}
}

// missing returns the turns that are not among the finished runs.
func (x *Experiment) missing(done []Run) []Turn {
	return slices.DeleteFunc(Interleave(x.Phases, x.Runs), func(t Turn) bool {
		return slices.ContainsFunc(done, func(r Run) bool { return r.Phase == t.Phase.Name && r.Number == t.Run })
	})
}

// checkedIn returns the phases in which both outputs were checked after at least one run.
func checkedIn(done []Run) map[string]bool {
	checked := map[string]bool{}
	for _, r := range done {
		checked[r.Phase] = checked[r.Phase] || !r.Killed
	}
	return checked
}

// kills reports whether the next run of a phase kills the aggressor after the window. checked holds
// the phases in which an earlier run checked both outputs.
func (x *Experiment) kills(p Phase, checked map[string]bool) bool {
	return p.Against && !x.Setup.Both && !x.CheckAll && checked[p.Name]
}

// turn performs one run and restores the environment, also on failure.
func (x *Experiment) turn(ctx context.Context, t Turn, done []Run) (r Run, err error) {
	x.done = done
	ctx, cancel := context.WithTimeout(ctx, runPatience)
	defer cancel()
	var jobs []*contest.Job
	defer func() {
		// The machine is restored even if the caller's context has ended.
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), contest.CleanupPatience)
		defer cancel()
		err = errors.Join(err, x.cleanUp(after, jobs, err != nil))
	}()

	x.step(t, "prepare")
	r = Run{Phase: t.Phase.Name, Number: t.Run, Build: x.Build, Started: time.Now()}
	if err := x.prepare(ctx, t.Phase); err != nil {
		return r, err
	}
	s := x.sample(t.Phase)
	defer s.stop()
	var protected, aggressor *contest.Job
	if t.Phase.Against {
		x.step(t, "start "+x.Setup.aggressor().title())
		if aggressor, err = x.Env.StartAggressor(ctx, t.Phase); err != nil {
			return r, err
		}
		jobs = append(jobs, aggressor)
		r.Aggressor = strings.Join(aggressor.Applications, " ")
	}
	measured := aggressor
	if !t.Phase.Unprotected {
		x.step(t, "start "+x.Setup.protected().title())
		if protected, err = x.Env.StartProtected(ctx, t.Phase); err != nil {
			return r, err
		}
		measured = protected
		jobs = append(jobs, protected)
		r.Protected = strings.Join(protected.Applications, " ")
	}
	if t.Phase.Governed {
		if err := x.Env.SetWeights(ctx, r.Protected, r.aggressors()); err != nil {
			return r, err
		}
	}
	x.step(t, x.Setup.measured(t.Phase)+" runs")
	from, to, err := x.window(ctx, &r, measured, aggressor)
	if err != nil {
		return r, err
	}
	if err := s.stop(); err != nil {
		return r, err
	}
	r.measure(s.disks, s.scrapes, from, to)
	if t.Phase.Governed {
		if err := x.governed(r, s.scrapes); err != nil {
			return r, err
		}
	}
	return r, x.afterwards(ctx, t, &r, from, to, protected, aggressor)
}

// governed checks in the last scrape that the daemon moved bytes for every job, with the
// job's weight.
func (x *Experiment) governed(r Run, scrapes []scrapeSample) error {
	if len(scrapes) == 0 {
		return fmt.Errorf("%w: the daemon's metrics could not be read", ErrNotGoverned)
	}
	last := scrapes[len(scrapes)-1].m
	moved, weights := onDisks(last, "flow_bytes_total", "flow"), map[string]float64{}
	last.Each("flow_weight", func(labels map[string]string, w float64) {
		if onDisk(labels) {
			weights[labels["flow"]] = w
		}
	})
	check := func(flow string, weight int) error {
		if moved[flow] == 0 {
			return fmt.Errorf("%w: the daemon moved no bytes for %s: check in the DataNodes' logs that they run with the agent", ErrNotGoverned, flow)
		}
		if w := weights[flow]; w != float64(weight) {
			return fmt.Errorf("%w: %s had weight %v, not %d", ErrNotGoverned, flow, w, weight)
		}
		return nil
	}
	var errs []error
	if r.Protected != "" {
		errs = append(errs, check(r.Protected, x.Setup.Penstock.ProtectedWeight))
	}
	for _, flow := range r.aggressors() {
		errs = append(errs, check(flow, x.Setup.Penstock.AggressorWeight))
	}
	return errors.Join(errs...)
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

// window waits for the measured job and returns its start and end. The measured job is the
// protected one or, in a phase without it, the aggressor. If the aggressor ends before the
// protected job, window returns an error or, with Both, adds a warning to the run.
func (x *Experiment) window(ctx context.Context, r *Run, measured, aggressor *contest.Job) (from, to time.Time, err error) {
	var early <-chan struct{}
	if aggressor != nil && aggressor != measured {
		early = aggressor.Done
	}
	select {
	case <-measured.Done:
	case <-early:
		select {
		case <-measured.Done: // both at the same moment
			return measured.Times()
		default:
		}
		begun, end, err := aggressor.Times()
		if err != nil {
			return from, to, err
		}
		if !x.Setup.Both {
			return from, to, ErrOutlasted
		}
		r.Warnings = append(r.Warnings, fmt.Sprintf("the aggressor ended first, after %.1f s: with contention until the end, the protected job would have taken longer", end.Sub(begun).Seconds()))
	case <-ctx.Done():
	}
	return measured.Wait(ctx)
}

// afterwards finishes the run: the aggressor ends or is killed, the judge attributes the
// device bytes, and outputs are checked. Meanwhile the disks have no limit, unless the
// aggressor's run time is measured too.
func (x *Experiment) afterwards(ctx context.Context, t Turn, r *Run, from, to time.Time, protected, aggressor *contest.Job) error {
	begin := time.Now()
	own := x.Setup.Both && aggressor != nil // the aggressor's own run time is measured too
	if !own {
		if err := x.Env.Limit(ctx, false); err != nil {
			return err
		}
	}
	r.Killed = x.kills(t.Phase, checkedIn(x.done))
	var check []*contest.Job
	if protected != nil {
		check = append(check, protected)
	}
	var ownFrom, ownTo time.Time
	var err error
	if aggressor != nil && !r.Killed {
		check = append(check, aggressor)
		x.step(t, "let "+x.Setup.aggressor().title()+" finish")
		if ownFrom, ownTo, err = aggressor.Wait(ctx); err != nil {
			return err
		}
	}
	if own {
		r.AggressorRuntimeS = ownTo.Sub(ownFrom).Seconds()
		if err := x.Env.Limit(ctx, false); err != nil {
			return err
		}
	}
	x.step(t, "check outputs")
	if r.Verdict, err = x.Env.Judge(ctx, from, to, protected, aggressor); err == nil && own {
		r.AggressorVerdict, err = x.Env.Judge(ctx, ownFrom, ownTo, protected, aggressor)
	}
	if err != nil {
		r.Warnings = append(r.Warnings, "the judge: "+err.Error())
	}
	if v := r.AggressorVerdict; v != nil {
		v.MBps = nil // only the sums are used
	}
	if r.Killed { // only after the judge, which needs the aggressor's files
		if err := aggressor.Kill(ctx); err != nil {
			return err
		}
	}
	for _, j := range check {
		if err := j.Check(ctx); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCheck, strings.Join(j.Applications, " "), err)
		}
	}
	r.AfterS = contest.Round3(time.Since(begin).Seconds())
	return nil
}

// cleanUp runs after every turn. It lifts the disks' limit, kills the jobs of a failed turn,
// deletes outputs and ends the daemon.
func (x *Experiment) cleanUp(ctx context.Context, jobs []*contest.Job, failed bool) error {
	errs := []error{x.Env.Limit(ctx, false)}
	for _, j := range slices.Backward(jobs) {
		if failed {
			errs = append(errs, j.Kill(ctx))
		}
		errs = append(errs, j.Discard(ctx))
	}
	return errors.Join(append(errs, x.Env.Release(ctx))...)
}

// sampler reads counters and metrics from its start to its stop.
type sampler struct {
	disks   counters.Samples
	scrapes []scrapeSample

	err    error
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// sample starts sampling the counters and, in governed phases, the daemon's metrics.
func (x *Experiment) sample(p Phase) *sampler {
	ctx, cancel := context.WithCancel(context.Background())
	s := &sampler{cancel: cancel}
	s.done.Go(func() {
		s.err = counters.Every(ctx, cmp.Or(x.SampleEvery, 250*time.Millisecond), func() error {
			d, err := x.Env.Counters()
			if err == nil {
				s.disks = append(s.disks, counters.Sample{At: time.Now(), Disks: d})
				x.throughput(s.disks)
			}
			return err
		})
	})
	if p.Governed {
		s.done.Go(func() {
			counters.Every(ctx, time.Second, func() error {
				// A lost scrape is a gap in a chart, not a failed run.
				if m, err := x.Env.Metrics(ctx); err == nil {
					s.scrapes = append(s.scrapes, scrapeSample{time.Now(), m})
				}
				return nil
			})
		})
	}
	return s
}

// stop takes a last sample of the counters, ends the sampling and returns its error. It may be
// called more than once.
func (s *sampler) stop() error {
	s.cancel()
	s.done.Wait()
	return s.err
}
