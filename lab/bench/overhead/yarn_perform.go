package overhead

import (
	"context"
	"errors"
)

// YARNRequest is one call of the measurement on YARN from the command line.
type YARNRequest struct {
	Setup    YARNSetup
	Rounds   int
	Options  Options
	Build    string
	Resume   string // as in Request
	KeepLogs bool
}

// PerformYARN does the rounds that are missing and returns the result of all that
// are finished, also after a failure or Ctrl-C; nil if there are none.
func PerformYARN(ctx context.Context, q YARNRequest) (_ *YARNResult, err error) {
	if q.Setup, err = ProbeYARN(q.Setup); err != nil {
		return nil, err
	}
	if err := q.Setup.Validate(); err != nil {
		return nil, err
	}
	journal, err := OpenYARNJournal(q.Resume, q.Setup)
	if err != nil {
		return nil, err
	}
	defer journal.Close()
	runErr := q.Options.inFolder(q.Rounds-len(journal.Entries()), q.KeepLogs, func(o Options) (stop func() error, err error) {
		machine, err := StartYARNMachine(ctx, q.Setup, o)
		if err != nil {
			return nil, err
		}
		x := &YARNExperiment{Rounds: q.Rounds, Env: machine, Journal: journal, Build: q.Build, Say: o.Say}
		return machine.Stop, x.Run(ctx)
	})
	if errors.Is(runErr, context.Canceled) && q.Resume != "" {
		q.Options.Say("interrupted; the finished rounds are in %s: the same command goes on from there", q.Resume)
	}
	if len(journal.Entries()) == 0 {
		return nil, runErr
	}
	res := SummariseYARN(q.Setup, journal.Entries())
	return &res, runErr
}
