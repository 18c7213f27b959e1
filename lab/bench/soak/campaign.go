package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/experiment/progress"
	"penstock/lab/hadoop"
)

// Outcome is the effect of a fault.
type Outcome struct {
	Step
	Begin  time.Time `json:"begin"`
	TookMS float64   `json:"took_ms"` // until the former state was restored
	// The probe's operations during the fault: their number, the longest, and those that failed.
	Ops     int      `json:"ops"`
	StallMS float64  `json:"stall_ms"`
	StallOp string   `json:"stall_op"`
	Failed  []string `json:"failed,omitempty"`
	// Orphans counts waits at the agents' gates that ended because there was no daemon. OrphanMS is
	// the longest such wait, counted from the daemon's last sign of life.
	Orphans  int64   `json:"orphans"`
	OrphanMS float64 `json:"orphan_ms"`
	// GateWaits counts all waits at gates during the fault. If it is above 0, Penstock was active.
	GateWaits int64 `json:"gate_waits"`
	// Phase is the phase of the TeraSort at the fault; empty in a campaign of all faults.
	Phase Phase   `json:"phase,omitempty"`
	Usage []Usage `json:"usage"`
}

// Ending holds the results of the checks at the end of one stretch, after the faults and the load.
// A stretch is the part of a campaign that one process performs.
type Ending struct {
	Last       int     `json:"last"` // number of the last fault
	Seconds    float64 `json:"s"`    // length of the stretch
	Files      int     `json:"files"`
	FileBytes  int64   `json:"file_bytes"`
	Again      int     `json:"files_again"` // repeated attempts on files
	ProbeOps   int     `json:"probe_ops"`
	Backstops  int64   `json:"backstops"`
	Suppressed int64   `json:"suppressed"`
	FailedOpen int64   `json:"failed_open"`
	Usage      []Usage `json:"usage"`
	// TaskWaits holds the waits of the stretch's tasks.
	TaskWaits TaskWaits `json:"task_waits"`
	Clean     bool      `json:"clean"` // every check was made and passed
}

// campaign is one stretch of a running campaign.
type campaign struct {
	setup Setup
	plan  Plan
	m     *machine
	probe *probe
	log   *progress.Log
	seen  map[int]time.Time // time at which each process was first looked at, by PID

	underWay     chan struct{} // closed when a job's tasks run
	underWayOnce sync.Once
	sort         atomic.Pointer[hadoop.App] // the TeraSort that runs at the moment

	mu      sync.Mutex // guards journal and err
	journal *Journal
	err     error // the first error of a write to the journal
}

// note writes a line to the journal; it may be called from any goroutine.
func (c *campaign) note(l line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.journal.add(l); err != nil && c.err == nil {
		c.err = err
	}
}

func (c *campaign) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// finding records a finding, which makes the verdict bad.
func (c *campaign) finding(text string) {
	c.note(line{Finding: text})
	c.log.Printf("FINDING: %s", text)
}

// roundsBefore returns how many rounds of a load are in the journal.
func (c *campaign) roundsBefore(load string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return loadResult(load, c.journal.rounds).Rounds
}

func (c *campaign) roundDone(r Round) {
	if c.setup.Phases {
		var err error
		if r.TaskWaits, err = c.m.taskWaits(); err != nil {
			c.finding(err.Error())
		}
	}
	c.note(line{Round: &r})
	c.log.Printf("%s", r)
	if r.Wrong != "" {
		c.finding(fmt.Sprintf("%s, round %d: %s", r.Load, r.Number, r.Wrong))
	}
}

// begun waits until a job's tasks run, according to the job's status, and then closes underWay.
func (c *campaign) begun(ctx context.Context, app *hadoop.App) {
	for {
		if s, err := app.Status(ctx); err == nil && (s.Containers > 1 || s.Ended()) {
			c.underWayOnce.Do(func() { close(c.underWay) })
			return
		}
		if experiment.Pause(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
}

// run performs the faults that are missing in the journal, under load, and then checks the
// remaining state.
func (c *campaign) run(ctx context.Context) (err error) {
	begin := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.probe, err = startProbe(ctx, c.m); err != nil {
		return err
	}
	stop := make(chan struct{})
	files := &files{m: c.m, report: c.finding}
	var load sync.WaitGroup
	load.Go(func() { files.run(ctx, stop) })
	load.Go(func() { c.rounds(ctx, "terasort", c.terasort, stop) })
	if c.setup.DFSIOBytes > 0 {
		load.Go(func() { c.rounds(ctx, "testdfsio", c.testDFSIO, stop) })
	}
	ended := make(chan struct{})
	err = c.faults(ctx)
	close(stop)
	if err != nil {
		cancel()
	} else {
		c.log.Printf("all faults are over: waiting for the jobs to end, then checking files and servers")
	}
	go func() { load.Wait(); close(ended) }()
	var e Ending
	if late := c.watch(ended, &e); late != nil && err == nil {
		err = late
		cancel()
		<-ended
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	e.Last, e.Files, e.FileBytes, e.Again = len(c.journal.outcomes), files.done, files.bytes, files.again
	looking, cancelLook := context.WithTimeout(ctx, lookPatience)
	defer cancelLook()
	err = c.look(looking, files, &e)
	e.Seconds, e.Clean = time.Since(begin).Seconds(), err == nil
	if err != nil && ctx.Err() == nil {
		c.finding(err.Error())
	}
	c.note(line{Ending: &e})
	return errors.Join(c.failure(), ctx.Err())
}

// watch records the resources of the processes after the last fault, until the load has ended.
func (c *campaign) watch(ended <-chan struct{}, e *Ending) error {
	late := time.NewTimer(roundPatience)
	defer late.Stop()
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-tick.C:
			e.Usage = append(e.Usage, c.usages()...)
		case <-late.C:
			return fmt.Errorf("the jobs did not end within %v of the last fault:\n%s", roundPatience, c.m.stacks())
		}
	}
}

// After the last fault, roundPatience bounds the time for the jobs to end, and lookPatience bounds
// the time for the checks.
const (
	roundPatience = 15 * time.Minute
	lookPatience  = 5 * time.Minute
)

// faults performs the plan's steps that the journal lacks.
func (c *campaign) faults(ctx context.Context) error {
	c.log.Printf("waiting for the first job's tasks")
	select {
	case <-c.underWay:
	case <-ctx.Done():
		return ctx.Err()
	}
	begin, before := time.Now(), c.journal.kills()
	for _, s := range c.plan.Steps[len(c.journal.outcomes):] {
		var phase Phase
		var err error
		if s.In != "" {
			phase, err = c.reach(ctx, s)
		} else {
			err = experiment.Pause(ctx, s.Pause)
		}
		if err != nil {
			return err
		}
		if !c.m.daemon().Alive() {
			return fmt.Errorf("%w: see %s", errGone, c.m.daemon().Log)
		}
		if err := errors.Join(c.m.Hadoop.Check(), c.failure()); err != nil {
			return err
		}
		o, err := c.step(ctx, s)
		if err != nil {
			return cmp.Or(ctx.Err(), fmt.Errorf("fault %d (%s): %w", s.Number, s, err))
		}
		o.Phase = phase
		c.note(line{Outcome: &o})
		kills, left := c.journal.kills(), ""
		if kills > before && kills < c.plan.Kills {
			each := time.Since(begin) / time.Duration(kills-before)
			left = fmt.Sprintf("   about %s left", progress.Clock(each*time.Duration(c.plan.Kills-kills)))
		}
		c.log.Printf("%3d/%d kills  %s%s", kills, c.plan.Kills, o, left)
	}
	return nil
}

// step performs a fault and returns its effect.
func (c *campaign) step(ctx context.Context, s Step) (o Outcome, err error) {
	o.Step = s
	before, err := c.allGates(ctx)
	if err != nil {
		return o, err
	}
	if s.Kind == KillDataNode || s.Kind == StopDataNode {
		if err := c.m.redundant(ctx); err != nil { // no block may have its only replica on this DataNode
			return o, err
		}
	}
	o.Begin = time.Now()
	if err := c.m.fault(ctx, s); err != nil {
		return o, err
	}
	end := time.Now()
	o.TookMS = ms(end.Sub(o.Begin))
	if err := c.probe.served(ctx, end); err != nil {
		return o, err
	}
	var longest op
	longest, o.Ops, o.Failed = c.probe.felt(o.Begin, end)
	o.StallMS, o.StallOp = ms(longest.took()), longest.name
	after, err := c.allGates(ctx)
	if err != nil {
		return o, err
	}
	for i, now := range after {
		if now.pid != before[i].pid {
			continue // a new JVM, which counts from zero
		}
		o.GateWaits += now.GateWaits - before[i].GateWaits
		if n := now.OrphanedWaits - before[i].OrphanedWaits; n > 0 {
			o.Orphans += n
			o.OrphanMS = max(o.OrphanMS, float64(now.OrphanedWaitNanosLatest)/1e6)
		}
	}
	o.Usage = c.usages()
	return o, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// counted holds the figures of the agent in one JVM.
type counted struct {
	gates
	pid int
}

func (c *campaign) allGates(ctx context.Context) (all []counted, err error) {
	all = make([]counted, c.m.agents())
	for i := range all {
		err = errors.Join(err, c.m.await(ctx, "the agent's figures", func(ctx context.Context) (bool, error) {
			var err error
			if i < Nodes {
				all[i].pid = c.m.Hadoop.DataNodePID(i)
			}
			all[i].gates, err = c.m.gates(ctx, i)
			return true, err
		}))
	}
	return all, err
}

// look makes all checks that are possible when the load and the faults have ended.
func (c *campaign) look(ctx context.Context, f *files, e *Ending) error {
	errs := []error{c.probe.stop(ctx), c.m.redundant(ctx)}
	e.ProbeOps = c.probe.count
	c.log.Printf("every block has its replicas; reading %d files back", len(f.kept))
	errs = append(errs, f.checkKept(ctx), c.m.checkFileSystem(ctx), c.m.checkThreads(ctx), c.m.Hadoop.Check())
	all, err := c.allGates(ctx)
	errs = append(errs, err)
	for i, g := range all {
		e.Backstops += g.GateBackstops
		e.Suppressed += g.Suppressed
		e.FailedOpen += g.FailedOpen
		if g.State != "woven" || g.Suppressed > 0 {
			errs = append(errs, fmt.Errorf("the agent in server %d (DataNodes first) is %s and has suppressed %d exceptions", i, g.State, g.Suppressed))
		}
	}
	e.TaskWaits, err = c.m.taskWaits()
	errs = append(errs, err)
	e.Usage = append(e.Usage, c.usages()...)
	return errors.Join(errs...)
}
