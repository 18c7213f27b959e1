package soak

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

// Request is one call of a campaign from the command line.
type Request struct {
	Setup    Setup
	Options  Options // RunDir "": a private one is made and, if all is good, removed
	Build    string
	Resume   string // journal; "": in memory only
	JSON     string // "" none, "-" standard output
	KeepLogs bool
	Out      io.Writer // for the table
}

// ErrNotGood says that a campaign has found something.
var ErrNotGood = errors.New("the campaign has findings")

// Perform does the faults that the journal does not have and judges all of them.
// After a failure or Ctrl-C what was done is still written.
func Perform(ctx context.Context, q Request) (Result, error) {
	if err := q.Setup.Validate(); err != nil {
		return Result{}, err
	}
	journal, err := OpenJournal(q.Resume, q.Setup)
	if err != nil {
		return Result{}, err
	}
	defer journal.Close()
	say := q.Options.Progress.Printf
	plan := NewPlan(q.Setup.Seed, q.Setup.Kills)
	done := 0
	for _, o := range journal.outcomes {
		if o.Kind.kill() {
			done++
		}
	}
	q.Options.Progress.plan(plan.Kills, done)
	say("seed %d: %d kills among %d faults; %d kills are done", plan.Seed, plan.Kills, len(plan.Steps), done)
	var runErr error
	remove := false
	if over := len(journal.endings) > 0 && len(journal.outcomes) == len(plan.Steps); !over {
		remove, runErr = q.run(ctx, plan, journal)
	}
	if errors.Is(runErr, context.Canceled) && q.Resume != "" {
		say("interrupted; what was done is in %s: the same command goes on from there", q.Resume)
	}
	result := Summarise(q.Setup, q.Build, journal)
	if runErr != nil && len(journal.outcomes) == 0 {
		return result, runErr
	}
	if runErr != nil && !errors.Is(runErr, context.Canceled) {
		result.Good, result.Findings = false, append(result.Findings, runErr.Error())
	}
	fmt.Fprintln(q.Out)
	err = errors.Join(runErr, result.WriteTable(q.Out), writeFile(q.JSON, result.WriteJSON))
	if err == nil && !result.Good {
		err = fmt.Errorf("%w: %d", ErrNotGood, len(result.Findings))
	}
	switch {
	case err == nil && remove && !q.KeepLogs:
		return result, os.RemoveAll(q.Options.RunDir)
	case q.Options.RunDir != "":
		say("logs: %s", q.Options.RunDir)
	}
	return result, err
}

// run does one stretch, and says whether the run folder is ours to remove.
func (q *Request) run(ctx context.Context, plan Plan, journal *Journal) (ours bool, err error) {
	if err := q.recover(); err != nil {
		return false, err
	}
	if ours, err = q.runDir(); err != nil {
		return ours, err
	}
	m, err := startMachine(ctx, q.Setup, q.Options)
	if err != nil {
		return ours, err
	}
	c := &campaign{setup: q.Setup, plan: plan, m: m, journal: journal, progress: q.Options.Progress,
		seen: map[int]time.Time{}, underWay: make(chan struct{})}
	err = c.run(ctx)
	q.Options.Progress.Printf("putting everything back")
	return ours, errors.Join(err, m.stop())
}

// Where run folders are made, below the current directory.
const (
	runParent = "run"
	runPrefix = "soak-"
)

// recover puts back what killed campaigns of this checkout have left; the cluster's
// ledger, a folder deeper, goes first, since its processes use the disks.
func (q *Request) recover() error {
	var files []string
	for _, below := range []string{"*", ""} {
		found, err := filepath.Glob(filepath.Join(runParent, runPrefix+"*", below, ledger.FileName))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		switch err := ledger.Recover(dir); {
		case errors.Is(err, ledger.ErrInUse): // a living campaign
		case err != nil:
			return fmt.Errorf("put back what a killed campaign left in %s: %w", dir, err)
		default:
			q.Options.Progress.Printf("put back what a killed campaign had left: %s", dir)
		}
	}
	return nil
}

func (q *Request) runDir() (ours bool, err error) {
	if q.Options.RunDir == "" {
		if err := os.MkdirAll(runParent, 0o755); err != nil {
			return false, err
		}
		if q.Options.RunDir, err = os.MkdirTemp(runParent, runPrefix); err != nil {
			return false, err
		}
		ours = true
	}
	q.Options.RunDir, err = filepath.Abs(q.Options.RunDir)
	return ours, err
}

// writeFile writes a whole file or none.
func writeFile(path string, write func(io.Writer) error) error {
	switch path {
	case "":
		return nil
	case "-":
		return write(os.Stdout)
	}
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
