package monitor

import (
	"context"
	"slices"

	"penstock/lab/experiment"
)

// Request is one benchmark with the options of the command line.
type Request = experiment.RowsRequest[Setup]

// calibration is WordCount alone on a disk without a limit, from which the disk's rate follows.
var calibration = Row{Name: "full-speed", WordCount: true, Control: Native}

// calibrations is how often the row calibration is measured.
const calibrations = 2

// missing returns the turns that are still to be done.
func missing(q Request, done []Turn) []experiment.RowTurn {
	left := func(rows []string, runs int) []experiment.RowTurn {
		return experiment.RowTurns(rows, runs, func(k experiment.RowTurn) bool {
			return slices.ContainsFunc(done, func(t Turn) bool { return t.Key() == k })
		})
	}
	return append(left([]string{calibration.Name}, calibrations), left(q.Rows, q.Runs)...)
}

// Perform performs the turns that the journal lacks. It returns the result of all finished turns, also
// after a failure or an interruption.
func Perform(ctx context.Context, q Request) (Result, error) {
	if err := q.Validate(); err != nil {
		return Result{}, err
	}
	turns, err := experiment.Turns[Setup, experiment.RowTurn, Turn]{
		Name: "monitor", Unit: "turns", Setup: q.Setup, Resume: q.Resume, RunDir: q.Dir, KeepLogs: q.KeepLogs, Say: q.Progress,
		Missing: func(done []Turn) []experiment.RowTurn { return missing(q, done) },
		Start: func(ctx context.Context, dir string) (func(context.Context, experiment.RowTurn, []Turn) (Turn, error), func() error, error) {
			m, err := startMachine(ctx, q, dir)
			if err != nil {
				return nil, nil, err
			}
			return m.counted(q), m.Down, nil
		},
	}.Perform(ctx)
	return Result{experiment.TurnTable[Setup, Turn]{Setup: q.Setup, Turns: turns}}, err
}

// counted returns the function that performs a turn and reports how many turns are left.
func (m *machine) counted(q Request) func(context.Context, experiment.RowTurn, []Turn) (Turn, error) {
	left := experiment.TimeLeft()
	return func(ctx context.Context, k experiment.RowTurn, done []Turn) (t Turn, err error) {
		if k.Row != calibration.Name && m.disk.Rate == 0 {
			d, err := m.setup.disk(experiment.TurnTable[Setup, Turn]{Turns: done}.Of(calibration.Name))
			if err != nil {
				return t, err
			}
			q.Progress("the disk has %.1f MB/s, of which WordCount alone would read %.0f %%, and a controlled background has %.2f MB/s",
				float64(d.Rate)/megabyte, 100*m.setup.AlonePart, float64(d.Limit)/megabyte)
			if err := m.calibrated(ctx, d); err != nil {
				return t, err
			}
		}
		q.Progress("%v%s", k, left(len(missing(q, done))))
		if t, err = m.turn(ctx, rowNamed(k.Row), k.Run); err != nil {
			return t, err
		}
		q.Progress("  %s", t)
		return t, nil
	}
}
