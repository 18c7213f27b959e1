package overhead

import (
	"context"
	"errors"
	"io"
	"time"

	"penstock/lab/experiment/runs"
)

// Request is one call of the measurement from the command line.
type Request struct {
	Setup    Setup
	Rounds   int
	Options  Options // RunDir "": a private one is made and, after success, removed
	Build    string
	Resume   string // journal; "": rounds are kept in memory only
	KeepLogs bool
}

// MaxRounds bounds a measurement.
const MaxRounds = 1000

// Perform does the rounds that are missing and returns the result of all that
// are finished, also after a failure or Ctrl-C; nil if there are none.
func Perform(ctx context.Context, q Request) (*Result, error) {
	q.Setup = Probe(q.Setup)
	if err := q.Setup.Validate(); err != nil {
		return nil, err
	}
	journal, err := OpenJournal(q.Resume, q.Setup)
	if err != nil {
		return nil, err
	}
	defer journal.Close()
	for _, n := range q.Setup.Notes {
		q.Options.Say("NOTE: %s", n)
	}
	if n := len(journal.Entries()); n > 0 {
		q.Options.Say("%d rounds are in the journal, %d to do", n, max(0, q.Rounds-n))
	}
	runErr := q.run(ctx, journal)
	if errors.Is(runErr, context.Canceled) && q.Resume != "" {
		q.Options.Say("interrupted; the finished rounds are in %s: the same command goes on from there", q.Resume)
	}
	if len(journal.Entries()) == 0 {
		return nil, runErr
	}
	res := Summarise(q.Setup, journal.Entries())
	return &res, runErr
}

func (q *Request) run(ctx context.Context, journal *Journal) error {
	return q.Options.inFolder(q.Rounds-len(journal.Entries()), q.KeepLogs, func(o Options) (stop func() error, err error) {
		machine, err := StartMachine(ctx, q.Setup, o)
		if err != nil {
			return nil, err
		}
		x := &Experiment{Setup: q.Setup, Rounds: q.Rounds, Env: machine, Journal: journal, Build: q.Build, Say: o.Say}
		return machine.Stop, x.Run(ctx)
	})
}

// inFolder measures in the run folder if rounds are left to do. stop restores the machine; it is nil
// if nothing was started.
func (o Options) inFolder(left int, keepLogs bool, measure func(Options) (stop func() error, err error)) error {
	if left <= 0 {
		return nil
	}
	return runs.Within(o.RunDir, "overhead-", keepLogs, o.Say, func(dir string) error {
		o.RunDir = dir
		stop, err := measure(o)
		if stop != nil {
			o.Say("restoring the machine")
			err = errors.Join(err, stop())
		}
		return err
	})
}

// WriteReportFile writes the HTML report whole or not at all.
func (res Result) WriteReportFile(path string) error {
	return runs.WriteFile(path, func(w io.Writer) error { return res.WriteReport(w, time.Now()) })
}
