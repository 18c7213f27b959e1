package monitor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"penstock/lab/experiment"
)

// Request is one benchmark with the options of the command line.
type Request struct {
	Setup    Setup
	Rows     []Row // to measure
	Runs     int   // 1..MaxRuns
	Resume   string
	Dir      string // of the run; "": a new folder
	KeepLogs bool
	Binary   string // penstock
	AgentJar string
	Cache    string // of Hadoop's and Spark's files
	Progress func(format string, args ...any)
}

// Validate returns an error for a request that cannot be measured.
func (q Request) Validate() error {
	if q.Runs < 1 || q.Runs > MaxRuns {
		return fmt.Errorf("--runs %d: use 1 to %d", q.Runs, MaxRuns)
	}
	return q.Setup.validate()
}

// calibration is WordCount alone on a disk without a limit, from which the disk's rate follows.
var calibration = Row{Name: "full-speed", WordCount: true, Control: Native}

// calibrations is how often the row calibration is measured.
const calibrations = 2

// key identifies a turn: a row and the number of the run.
type key struct {
	row Row
	run int // from 1
}

func (k key) String() string { return fmt.Sprintf("%s, run %d", k.row.Name, k.run) }

// missing returns the turns that are still to be done. Every second run has the rows in reverse order, so
// that a row does not always follow the same row.
func (q Request) missing(done []Turn) (keys []key) {
	add := func(r Row, run int) {
		if !slices.ContainsFunc(done, func(t Turn) bool { return t.Row == r.Name && t.Run == run }) {
			keys = append(keys, key{r, run})
		}
	}
	for run := 1; run <= calibrations; run++ {
		add(calibration, run)
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

// Perform performs the turns that the journal lacks. It returns the result of all finished turns, also
// after a failure or an interruption.
func Perform(ctx context.Context, q Request) (Result, error) {
	if err := q.Validate(); err != nil {
		return Result{}, err
	}
	turns, err := experiment.Turns[Setup, key, Turn]{
		Name: "monitor", Unit: "turns", Setup: q.Setup, Resume: q.Resume, RunDir: q.Dir, KeepLogs: q.KeepLogs, Say: q.Progress,
		Missing: q.missing,
		Start: func(ctx context.Context, dir string) (func(context.Context, key, []Turn) (Turn, error), func() error, error) {
			m, err := startMachine(ctx, q, dir)
			if err != nil {
				return nil, nil, err
			}
			return m.counted(q), m.Down, nil
		},
	}.Perform(ctx)
	return Result{Setup: q.Setup, Turns: turns}, err
}

// counted returns the function that performs a turn and reports how many turns are left.
func (m *machine) counted(q Request) func(context.Context, key, []Turn) (Turn, error) {
	begun, performed := time.Now(), 0
	return func(ctx context.Context, k key, done []Turn) (t Turn, err error) {
		if k.row.Name != calibration.Name && m.disk.Rate == 0 {
			d, err := m.setup.disk(Result{Turns: done}.of(calibration.Name))
			if err != nil {
				return t, err
			}
			q.Progress("the disk has %.1f MB/s, of which WordCount alone would read %.0f %%, and a controlled background has %.2f MB/s",
				float64(d.Rate)/megabyte, 100*m.setup.AlonePart, float64(d.Limit)/megabyte)
			if err := m.calibrated(ctx, d); err != nil {
				return t, err
			}
		}
		left := ""
		if to := len(q.missing(done)); performed > 0 {
			left = fmt.Sprintf(" (%d turns to do, about %s)", to, (time.Since(begun) / time.Duration(performed) * time.Duration(to)).Round(time.Minute))
		}
		q.Progress("%v%s", k, left)
		if t, err = m.turn(ctx, k.row, k.run); err != nil {
			return t, err
		}
		performed++
		q.Progress("  %s", t)
		return t, nil
	}
}
