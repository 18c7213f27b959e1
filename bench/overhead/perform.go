package overhead

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"penstock/testbed/ledger"
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
	if len(journal.Entries()) >= q.Rounds {
		return nil
	}
	if err := recoverKilled(q.Options.Say); err != nil {
		return err
	}
	remove, err := q.runDir()
	if err != nil {
		return err
	}
	machine, err := StartMachine(ctx, q.Setup, q.Options)
	if err != nil {
		q.Options.Say("logs: %s", q.Options.RunDir)
		return err
	}
	x := &Experiment{Setup: q.Setup, Rounds: q.Rounds, Env: machine, Journal: journal, Build: q.Build, Say: q.Options.Say}
	err = x.Run(ctx)
	q.Options.Say("putting everything back")
	err = errors.Join(err, machine.Stop())
	if err == nil && remove && !q.KeepLogs {
		return os.RemoveAll(q.Options.RunDir)
	}
	q.Options.Say("logs: %s", q.Options.RunDir)
	return err
}

// Where run folders are made, below the current directory.
const (
	runParent = "run"
	runPrefix = "overhead-"
)

// recoverKilled puts back what killed measurements of this checkout have left.
func recoverKilled(say func(string, ...any)) error {
	// The cluster's ledger lies a folder deeper; its processes go before the
	// disks that they use.
	for _, below := range []string{"*", ""} {
		found, err := filepath.Glob(filepath.Join(runParent, runPrefix+"*", below, ledger.FileName))
		if err != nil {
			return err
		}
		for _, file := range found {
			dir := filepath.Dir(file)
			switch err := ledger.Recover(dir); {
			case errors.Is(err, ledger.ErrInUse): // a living run
			case err != nil:
				return fmt.Errorf("put back what a killed run left in %s: %w", dir, err)
			default:
				say("put back what a killed run had left: %s", dir)
			}
		}
	}
	return nil
}

// runDir makes the private run folder unless one was given, and says whether it
// is ours to remove.
func (q *Request) runDir() (ours bool, err error) {
	if q.Options.RunDir == "" {
		if err := os.MkdirAll(runParent, 0o755); err != nil {
			return false, err
		}
		if q.Options.RunDir, err = os.MkdirTemp(runParent, runPrefix); err != nil {
			return false, err
		}
		ours = true
	} else if err := os.MkdirAll(q.Options.RunDir, 0o755); err != nil {
		return false, err
	}
	q.Options.RunDir, err = filepath.Abs(q.Options.RunDir)
	return ours, err
}

// WriteReportFile writes the HTML report whole or not at all.
func (res Result) WriteReportFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return res.WriteReport(w, time.Now()) }
	if err := errors.Join(write(f), f.Close()); err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
