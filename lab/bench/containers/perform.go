package containers

import (
	"context"
	"io"

	"penstock/lab/experiment"
)

// Request is one benchmark with the options of the command line.
type Request struct {
	experiment.RowsRequest[Setup]
}

// Perform performs the turns that the journal lacks. It returns the result of all finished turns, also after a failure
// or an interruption.
func Perform(ctx context.Context, q Request) (Result, error) {
	if err := q.Validate(); err != nil {
		return Result{}, err
	}
	turns, err := experiment.Table[Setup, Turn]{
		TableRequest: q.TableRequest, Name: "containers", Setup: q.Setup,
		Start: func(_ context.Context, dir string) (func(context.Context, experiment.RowTurn) (Turn, error), func() error, error) {
			// Each turn starts its machine, because the number of nodes changes, and stops it.
			return func(ctx context.Context, k experiment.RowTurn) (Turn, error) { return q.turn(ctx, k, dir) }, func() error { return nil }, nil
		},
	}.Perform(ctx)
	return newResult(q.Setup, turns), err
}

// Result is the benchmark's result, in the form of --json.
type Result struct {
	experiment.TurnTable[Setup, Turn]
}

func newResult(s Setup, turns []Turn) Result {
	return Result{experiment.TurnTable[Setup, Turn]{Setup: s, Turns: turns}}
}

// WriteJSON writes the result.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, struct {
		Result
		Findings []Finding `json:"findings"`
	}{r, r.findings()})
}
