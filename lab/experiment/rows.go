package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"penstock/lab/experiment/claims"
)

// RowTurn is the key of a turn of a measurement whose table has rows: a row's name and the number
// of the run, from 1.
type RowTurn struct {
	Row string
	Run int
}

func (t RowTurn) String() string { return fmt.Sprintf("%s, run %d", t.Row, t.Run) }

// RowTurns returns the turns that are not done, run by run. Every second run has the rows in reverse
// order, so that a row does not always follow the same row.
func RowTurns(rows []string, runs int, done func(RowTurn) bool) (turns []RowTurn) {
	rows = slices.Clone(rows)
	for run := 1; run <= runs; run++ {
		for _, r := range rows {
			if t := (RowTurn{r, run}); !done(t) {
				turns = append(turns, t)
			}
		}
		slices.Reverse(rows)
	}
	return turns
}

// SelectRows returns those of all rows whose names match a pattern, in which * matches any part of a
// name. Without patterns, it returns all rows. A pattern without a row is an error.
func SelectRows(all, patterns []string) ([]string, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	wanted := map[string]bool{}
	for _, p := range patterns {
		found := false
		for _, r := range all {
			ok, err := path.Match(p, r)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", p, err)
			}
			if ok {
				found, wanted[r] = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("no row %q: the rows are %s; * matches any part of a name", p, strings.Join(all, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(r string) bool { return !wanted[r] }), nil
}

// TimeLeft returns a function that is called before each turn with the number of turns to do, this
// turn included. It returns a text for a line of progress: the turns to do and, from the second turn
// on, about how long they take.
func TimeLeft() func(toDo int) string {
	begun, performed := time.Now(), 0
	return func(toDo int) (text string) {
		if performed > 0 {
			each := time.Since(begun) / time.Duration(performed)
			text = fmt.Sprintf(" (%d turns to do, about %s)", toDo, (each * time.Duration(toDo)).Round(time.Minute))
		}
		performed++
		return text
	}
}

// RowResult is the result of a turn of a measurement whose table has rows. String returns its figures on a line.
type RowResult interface {
	fmt.Stringer
	Key() RowTurn
}

// Table describes a measurement whose turns are rows of a table, each measured in several runs. A field
// without a comment means the same as in Turns.
type Table[S any, R RowResult] struct {
	TableRequest
	Name  string
	Setup S

	// Start brings up the machine in a folder. It returns a function that performs one turn, and a
	// function that restores the machine.
	Start func(ctx context.Context, dir string) (turn func(context.Context, RowTurn) (R, error), stop func() error, err error)
}

// Perform performs the turns that the journal lacks, and prints each result. It returns the results
// of all finished turns, also after a failure or an interruption.
func (t Table[S, R]) Perform(ctx context.Context) ([]R, error) {
	missing := func(done []R) []RowTurn {
		return RowTurns(t.Rows, t.Runs, func(k RowTurn) bool {
			return slices.ContainsFunc(done, func(r R) bool { return r.Key() == k })
		})
	}
	return Turns[S, RowTurn, R]{
		Name: t.Name, Unit: "turns", Setup: t.Setup, Resume: t.Resume, RunDir: t.Dir, KeepLogs: t.KeepLogs, Say: t.Progress,
		Missing: missing,
		Start: func(ctx context.Context, dir string) (func(context.Context, RowTurn, []R) (R, error), func() error, error) {
			turn, stop, err := t.Start(ctx, dir)
			left := TimeLeft()
			return func(ctx context.Context, k RowTurn, done []R) (R, error) {
				t.Progress("%v%s", k, left(len(missing(done))))
				r, err := turn(ctx, k)
				if err == nil {
					t.Progress("  %v", r)
				}
				return r, err
			}, stop, err
		},
	}.Perform(ctx)
}

// TurnTable is the result of a measurement whose table has rows, in the form of --json.
type TurnTable[S any, R RowResult] struct {
	Setup  S              `json:"setup"`
	Turns  []R            `json:"turns"`
	Claims []claims.Claim `json:"claims"`
}

// Of returns the turns of a row.
func (t TurnTable[S, R]) Of(row string) (all []R) {
	for _, turn := range t.Turns {
		if turn.Key().Row == row {
			all = append(all, turn)
		}
	}
	return all
}

// Values returns a figure of each turn of a row. figure returns false if a turn does not have it.
func (t TurnTable[S, R]) Values(row string, figure func(R) (float64, bool)) (all []float64) {
	for _, turn := range t.Of(row) {
		if v, known := figure(turn); known {
			all = append(all, v)
		}
	}
	return all
}

// Pairs returns a figure of two turns for each run that has both rows. figure returns false if the turns do not have it.
func (t TurnTable[S, R]) Pairs(row, base string, figure func(turn, base R) (float64, bool)) (all []float64) {
	for _, turn := range t.Of(row) {
		for _, b := range t.Of(base) {
			if turn.Key().Run != b.Key().Run {
				continue
			}
			if v, known := figure(turn, b); known {
				all = append(all, v)
			}
		}
	}
	return all
}

// WriteTurns writes a line for each turn, in the order of the rows.
func (t TurnTable[S, R]) WriteTurns(w io.Writer, rows []string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROW\tRUN\tRESULT")
	for _, row := range rows {
		for _, turn := range t.Of(row) {
			fmt.Fprintf(table, "%s\t%d\t%s\n", row, turn.Key().Run, turn)
		}
	}
	return table.Flush()
}

// MaxRuns bounds TableRequest.Runs.
const MaxRuns = 100

// TableRequest holds the options of a measurement with rows, besides its set-up. Paths are absolute.
type TableRequest struct {
	Rows     []string // to measure
	Runs     int      // of each row, 1 to MaxRuns
	Resume   string   // the journal; "" keeps turns in memory only
	Dir      string   // of the run; "": a new folder
	KeepLogs bool
	Binary   string // penstock
	AgentJar string
	Cache    string // for downloads
	Progress Say
}

// Validate returns an error for a number of runs that is out of range.
func (q TableRequest) Validate() error {
	if q.Runs < 1 || q.Runs > MaxRuns {
		return fmt.Errorf("--runs %d: use 1 to %d", q.Runs, MaxRuns)
	}
	return nil
}

// RowsRequest is one benchmark with rows, with the options of the command line.
type RowsRequest[S interface{ Validate() error }] struct {
	Setup S
	TableRequest
}

// Validate returns an error for a request that cannot be measured.
func (q RowsRequest[S]) Validate() error {
	return errors.Join(q.TableRequest.Validate(), q.Setup.Validate())
}
