package latency

import (
	"context"
	"io"

	"penstock/lab/experiment"
	"penstock/lab/experiment/report"
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
		TableRequest: q.TableRequest, Name: "latency", Setup: q.Setup,
		Start: func(ctx context.Context, dir string) (func(context.Context, experiment.RowTurn) (Turn, error), func() error, error) {
			m, err := start(ctx, q, dir)
			if err != nil {
				return nil, nil, err
			}
			return m.turn, m.Down, nil
		},
	}.Perform(ctx)
	return Result{experiment.TurnTable[Setup, Turn]{Setup: q.Setup, Turns: turns}}, err
}

// Result is the benchmark's result, in the form of --json.
type Result struct {
	experiment.TurnTable[Setup, Turn]
}

// WriteJSON writes the result.
func (r Result) WriteJSON(w io.Writer) error {
	r.Claims = r.claims()
	return experiment.WriteJSON(w, r)
}

// Report returns the HTML page.
func (r Result) Report() report.Report {
	return report.Report{Headline: "Latency of small random reads", Claims: r.claims(), Table: r.WriteTable, Setup: r.Setup,
		About: "Random reads of 16 KiB of HDFS, alone and beside writers and TeraGen on a modelled hard disk: natively, with a weight, and with a latency goal."}
}

// WriteTable writes the result of each turn.
func (r Result) WriteTable(w io.Writer) error { return r.WriteTurns(w, Rows()) }
