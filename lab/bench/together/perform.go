package together

import (
	"context"
	"fmt"
	"slices"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/experiment/progress"
)

// Request is a measurement of rows with the options of the command line.
type Request struct {
	Name     string // of the measurement
	Setup    Setup
	First    []Row // measured FirstRuns times before all other rows
	Rows     []Row // measured Runs times, interleaved
	Runs     int   // 1..MaxRuns
	CheckAll bool  // check the outputs after each run, and not only after the first of a row
	Resume   string
	Dir      string // of the run; "": a new folder
	KeepLogs bool
	Build    string // of penstock
	Binary   string // penstock
	AgentJar string
	Cache    string // of Hadoop's files
	Progress func(format string, args ...any)
	// Known, if not nil, is called once, when the rows in First have been measured and before any row in Rows.
	Known func(done []Run) error
}

// FirstRuns is how often the rows in Request.First are measured.
const FirstRuns = 2

// Validate returns an error for a request that cannot be measured.
func (q Request) Validate() error {
	if q.Runs < 1 || q.Runs > MaxRuns {
		return fmt.Errorf("--runs %d: use 1 to %d", q.Runs, MaxRuns)
	}
	return q.Setup.Validate()
}

// key identifies a turn: a row and the number of the run.
type key struct {
	row Row
	run int // from 1
}

func (k key) String() string { return fmt.Sprintf("%s, run %d", k.row.Name, k.run) }

// missing returns the turns to do, in order: the rows in First, then the others. Every second run has the rows
// in reverse order, so a row does not always follow the same row.
func (q Request) missing(done []Run) (keys []key) {
	add := func(r Row, run int) {
		if !slices.ContainsFunc(done, func(t Run) bool { return t.Row == r.Name && t.Number == run }) {
			keys = append(keys, key{r, run})
		}
	}
	for run := 1; run <= min(FirstRuns, q.Runs); run++ {
		for _, r := range q.First {
			add(r, run)
		}
	}
	for run := 1; run <= q.Runs; run++ {
		rows := slices.Clone(q.Rows)
		if run%2 == 0 {
			slices.Reverse(rows)
		}
		for _, r := range rows {
			add(r, run)
		}
	}
	return keys
}

func (q Request) isFirst(row string) bool {
	return slices.ContainsFunc(q.First, func(r Row) bool { return r.Name == row })
}

// Perform performs the turns that the journal lacks. It returns all finished runs, also after a failure or
// an interruption.
func Perform(ctx context.Context, q Request) ([]Run, error) {
	return perform(ctx, q, func(ctx context.Context, dir string) (Environment, func() error, error) {
		m, err := StartMachine(ctx, q, dir)
		if err != nil {
			return nil, nil, err
		}
		return m, m.Stop, nil
	})
}

func perform(ctx context.Context, q Request, start func(ctx context.Context, dir string) (Environment, func() error, error)) ([]Run, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	return experiment.Turns[Setup, key, Run]{
		Name: q.Name, Unit: "runs", Setup: q.Setup, Resume: q.Resume, RunDir: q.Dir, KeepLogs: q.KeepLogs, Say: q.Progress,
		Missing: q.missing,
		Start: func(ctx context.Context, dir string) (func(context.Context, key, []Run) (Run, error), func() error, error) {
			q.Progress("starting %d modelled %s and Hadoop %s in %s", q.Setup.Disk.DataNodes, q.Setup.Disk, q.Setup.Hadoop, dir)
			env, stop, err := start(ctx, dir)
			if err != nil {
				return nil, nil, err
			}
			return q.turns(env), stop, nil
		},
	}.Perform(ctx)
}

// turns returns the function that performs a turn.
func (q Request) turns(env Environment) func(context.Context, key, []Run) (Run, error) {
	known := q.Known == nil
	return func(ctx context.Context, k key, done []Run) (Run, error) {
		if !known && !q.isFirst(k.row.Name) {
			known = true
			if err := q.Known(done); err != nil {
				return Run{}, err
			}
		}
		q.Progress("%v (%d runs to do%s)", k, len(q.missing(done)), q.left(done))
		check := q.CheckAll || !slices.ContainsFunc(done, func(r Run) bool { return r.Row == k.row.Name && r.Checked })
		r, err := play(ctx, env, k.row.of(q.Setup), k.row.Way, check)
		if err != nil {
			return r, err
		}
		r.Row, r.Number, r.Build = k.row.Name, k.run, q.Build
		q.Progress("  %s", r)
		for _, w := range r.Warnings {
			q.Progress("  note: %s", w)
		}
		return r, nil
	}
}

// left returns the expected time of the turns to do as text. A row's turn takes as long as the row's last one
// or, before it, as the mean of all.
func (q Request) left(done []Run) string {
	if len(done) == 0 {
		return ""
	}
	mean, seconds := 0.0, map[string]float64{}
	for _, r := range done {
		mean += r.TookS / float64(len(done))
		seconds[r.Row] = r.TookS
	}
	sum := 0.0
	for _, k := range q.missing(done) {
		if s, ok := seconds[k.row.Name]; ok {
			sum += s
		} else {
			sum += mean
		}
	}
	return ", about " + progress.Clock(time.Duration(sum*float64(time.Second))) + " left"
}
