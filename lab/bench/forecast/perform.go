package forecast

import (
	"context"

	"penstock/lab/experiment"
)

// Request is one benchmark with the options of the command line.
type Request = experiment.RowsRequest[Setup]

// Perform performs the turns that the journal lacks. It returns the result of all finished turns, also
// after a failure or an interruption.
func Perform(ctx context.Context, q Request) (Result, error) {
	if err := q.Validate(); err != nil {
		return Result{}, err
	}
	turns, err := experiment.Table[Setup, Turn]{
		TableRequest: q.TableRequest, Name: "forecast", Setup: q.Setup,
		Start: func(ctx context.Context, dir string) (func(context.Context, experiment.RowTurn) (Turn, error), func() error, error) {
			m, err := startMachine(ctx, q, dir)
			if err != nil {
				return nil, nil, err
			}
			return m.turn, m.Down, nil
		},
	}.Perform(ctx)
	return Result{experiment.TurnTable[Setup, Turn]{Setup: q.Setup, Turns: turns}}, err
}
