package coordination

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/stat"

	"penstock/lab/disk"
	"penstock/lab/experiment"
	"penstock/lab/experiment/claims"
	"penstock/lab/experiment/report"
	"penstock/lab/judge"
)

// Bounds of a request.
const (
	MaxRuns   = 100
	MinWindow = 5 * time.Second
	MaxWindow = time.Minute // for Settling, too: the data of longer loads would not fit on the disks
)

// Request is one benchmark with the options of the command line.
type Request struct {
	Place        // if Dir is "", a new folder is made
	Runs     int // 1..MaxRuns
	Window   time.Duration
	Settling time.Duration // before each window
	Resume   string        // the journal; "" keeps runs in memory only
}

// setup is everything that may change a figure.
type setup struct {
	Contest   []Application `json:"contest"`
	WindowS   float64       `json:"window_s"`
	SettlingS float64       `json:"settling_s"`
}

// Validate returns an error for a request that cannot be measured.
func (q Request) Validate() error {
	switch {
	case q.Runs < 1 || q.Runs > MaxRuns:
		return fmt.Errorf("--runs %d: use 1 to %d", q.Runs, MaxRuns)
	case q.Window < MinWindow || q.Window > MaxWindow:
		return fmt.Errorf("--window %v: use %v to %v", q.Window, MinWindow, MaxWindow)
	case q.Settling < 0 || q.Settling > MaxWindow:
		return fmt.Errorf("--settling %v: use 0s to %v", q.Settling, MaxWindow)
	}
	return nil
}

// Run holds the results of one run.
type Run struct {
	Alone   []float64 `json:"alone"` // each application's service, in disks
	With    Outcome   `json:"with"`
	Without Outcome   `json:"without"`
	// SlowdownWith and SlowdownWithout hold each application's slowdown against its run alone, with
	// the broker and without.
	SlowdownWith    []float64 `json:"slowdown_with"`
	SlowdownWithout []float64 `json:"slowdown_without"`
}

// Result is the benchmark's result, in the form of --json.
type Result struct {
	Contest []Application  `json:"contest"`
	Due     []float64      `json:"due"` // each application's service, in disks
	WindowS float64        `json:"window_s"`
	Runs    []Run          `json:"runs"`
	Claims  []claims.Claim `json:"claims"`

	setup setup
}

// Perform performs the runs that the journal lacks and returns the result of all runs.
func Perform(ctx context.Context, q Request) (res Result, err error) {
	if err := q.Validate(); err != nil {
		return res, err
	}
	res = Result{Contest: Alike, WindowS: q.Window.Seconds(), setup: setup{Alike, q.Window.Seconds(), q.Settling.Seconds()}}
	if res.Due, err = Due(Alike); err != nil {
		return res, err
	}
	res.Runs, err = experiment.Rounds[setup, Run]{
		Name: "coordination", Setup: res.setup, Count: q.Runs, Resume: q.Resume,
		RunDir: q.Dir, Say: q.Progress,
		Start: func(ctx context.Context, dir string) (func(context.Context, int) (Run, error), func() error, error) {
			m, err := q.start(ctx, dir, Alike)
			if err != nil {
				return nil, nil, err
			}
			return (&campaign{q: q, m: m}).round, m.Down, nil
		},
	}.Perform(ctx)
	return res, err
}

// round performs run n, counted from 0, and prints its figures.
func (c *campaign) round(ctx context.Context, n int) (Run, error) {
	run, err := c.run(ctx, n)
	if err == nil {
		c.q.Progress("misallocated: %.1f %% with the broker, %.1f %% without; average slowdown %.2f and %.2f",
			100*run.With.Misplaced, 100*run.Without.Misplaced, mean(run.SlowdownWith), mean(run.SlowdownWithout))
	}
	return run, err
}

// campaign is a running benchmark.
type campaign struct {
	q Request
	m *Machine
}

// run measures everything once. Every second run measures without the broker first.
func (c *campaign) run(ctx context.Context, number int) (run Run, err error) {
	for _, a := range Alike {
		o, err := c.measure(ctx, []Application{a})
		if err != nil {
			return run, fmt.Errorf("application %d alone: %w", a.Number, err)
		}
		run.Alone = append(run.Alone, o.Totals[0])
	}
	with := func() (err error) {
		run.With, err = c.measure(ctx, Alike)
		return err
	}
	without := func() (err error) {
		if err := c.m.Broker.Kill(); err != nil {
			return err
		}
		if err := c.m.InForce(ctx, 0, false); err != nil {
			return err
		}
		if run.Without, err = c.measure(ctx, Alike); err != nil {
			return err
		}
		if err := c.m.StartBroker(ctx); err != nil {
			return err
		}
		return c.m.InForce(ctx, 0, true)
	}
	first, second := with, without
	if number%2 == 1 {
		first, second = without, with
	}
	if err := first(); err != nil {
		return run, err
	}
	if err := second(); err != nil {
		return run, err
	}
	for i := range Alike {
		run.SlowdownWith = append(run.SlowdownWith, run.Alone[i]/run.With.Totals[i])
		run.SlowdownWithout = append(run.SlowdownWithout, run.Alone[i]/run.Without.Totals[i])
	}
	return run, nil
}

// measure runs a load on slow disks and judges a window of it.
func (c *campaign) measure(ctx context.Context, contest []Application) (o Outcome, err error) {
	// When one application runs alone, each of its tasks gets a third of a disk; beside other
	// applications, a task gets less. A task gets more only at the end, when the disks are fast
	// again.
	wanted := int64((c.q.Settling+c.q.Window).Seconds()*rate/tasks) + 3*fileBytes
	if err := c.m.Place(ctx, tasksOf(contest), wanted); err != nil {
		return o, err
	}
	if err := c.m.Slow(true); err != nil {
		return o, errors.Join(err, c.m.Slow(false))
	}
	load := c.m.Work(ctx, contest)
	defer func() {
		load.End()
		err = errors.Join(err, c.m.Slow(false), load.Stop(), c.m.remove(ctx, contest))
	}()
	if err := experiment.Pause(ctx, c.q.Settling); err != nil {
		return o, err
	}
	window := judge.Window{From: disk.Monotonic()}
	if err := experiment.Pause(ctx, c.q.Window); err != nil {
		return o, err
	}
	window.To = disk.Monotonic()
	return c.m.Judge(ctx, contest, window)
}

func mean(x []float64) float64 { return stat.Mean(x, nil) }

// WriteJSON writes the result.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	return report.Report{Headline: "Shares of the whole cluster", Claims: r.claims(), Table: r.WriteTable, Setup: r.setup,
		About: "Three applications on three DataNodes, with the broker and without. Disk time is misallocated if it deviates from the optimum for the weights and the placement."}
}

// WriteTable writes medians over the runs, with the least and the greatest value in brackets.
func (r Result) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	spread := func(of func(Run) float64) string {
		var values []float64
		for _, run := range r.Runs {
			values = append(values, of(run))
		}
		c := claims.Of("", "", values...)
		return fmt.Sprintf("%.2f (%.2f to %.2f)", c.Value, c.Low, c.High)
	}
	both := func(name string, of func(o Outcome, slowdowns []float64) float64) {
		fmt.Fprintf(t, "%s\t\t\t%s\t%s\n", name, spread(func(x Run) float64 { return of(x.With, x.SlowdownWith) }),
			spread(func(x Run) float64 { return of(x.Without, x.SlowdownWithout) }))
	}
	fmt.Fprintf(t, "%d runs, windows of %.0f s\tALONE\tDUE\tWITH BROKER\tWITHOUT\n", len(r.Runs), r.WindowS)
	for i, a := range r.Contest {
		does := map[bool]string{true: "reads", false: "writes"}[a.Reads]
		fmt.Fprintf(t, "application %d, weight %d, %s on nodes %v: disks\t%s\t%.2f\t%s\t%s\n", a.Number, a.Weight, does, a.On,
			spread(func(x Run) float64 { return x.Alone[i] }), r.Due[i],
			spread(func(x Run) float64 { return x.With.Totals[i] }), spread(func(x Run) float64 { return x.Without.Totals[i] }))
		both("  slowdown", func(_ Outcome, slowdowns []float64) float64 { return slowdowns[i] })
	}
	both("average slowdown", func(_ Outcome, slowdowns []float64) float64 { return mean(slowdowns) })
	both("misplaced, % of the service", func(o Outcome, _ []float64) float64 { return 100 * o.Misplaced })
	fmt.Fprintf(t, "average slowdown without / with\t\t\t%s\t\n",
		spread(func(x Run) float64 { return mean(x.SlowdownWithout) / mean(x.SlowdownWith) }))
	return t.Flush()
}
