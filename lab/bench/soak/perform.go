package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"penstock/lab/experiment/runs"
)

// Request is a campaign with the options of the command line.
type Request struct {
	Setup    Setup
	Options  Options // if RunDir is "", a private folder is made, and removed if the campaign is good
	Build    string
	Resume   string // journal; "": in memory only
	JSON     string // "" none, "-" standard output
	Report   string // HTML; "" none
	KeepLogs bool
	Out      io.Writer // for the table
}

// ErrNotGood is returned if a campaign has findings.
var ErrNotGood = errors.New("the campaign has findings")

// Perform performs the faults that the journal lacks, and judges all faults. After a failure or
// Ctrl-C it still writes the results so far.
func Perform(ctx context.Context, q Request) (Result, error) {
	if err := q.Setup.Validate(); err != nil {
		return Result{}, err
	}
	journal, err := OpenJournal(q.Resume, q.Setup)
	if err != nil {
		return Result{}, err
	}
	defer journal.Close()
	say, plan, remove := q.Options.Progress.Printf, q.Setup.Plan(), q.Options.RunDir == ""
	say("seed %d: %d kills among %d faults; %d kills are done", plan.Seed, plan.Kills, len(plan.Steps), journal.kills())
	var runErr error
	if over := len(journal.endings) > 0 && len(journal.outcomes) == len(plan.Steps); !over {
		runErr = q.run(ctx, plan, journal)
	}
	interrupted := errors.Is(runErr, context.Canceled)
	if interrupted && q.Resume != "" {
		say("interrupted; the finished part is in %s: the same command continues from there", q.Resume)
	}
	result := Summarise(q.Setup, q.Build, journal)
	if runErr != nil && len(journal.outcomes) == 0 {
		return result, runErr
	}
	if runErr != nil && !interrupted {
		result.Good, result.Findings = false, append(result.Findings, runErr.Error())
	}
	fmt.Fprintln(q.Out)
	err = errors.Join(runErr, result.WriteTable(q.Out), runs.WriteFile(q.JSON, result.WriteJSON), result.Report().WriteFile(q.Report))
	if err == nil && !result.Good {
		err = fmt.Errorf("%w: %d", ErrNotGood, len(result.Findings))
	}
	if err == nil && remove && !q.KeepLogs && q.Options.RunDir != "" {
		return result, os.RemoveAll(q.Options.RunDir)
	}
	return result, err
}

// run performs one stretch of the campaign, which is the part that one process performs.
func (q *Request) run(ctx context.Context, plan Plan, journal *Journal) error {
	log := q.Options.Progress
	return runs.Within(q.Options.RunDir, "soak-", true, log.Printf, func(dir string) error {
		q.Options.RunDir = dir
		m, err := startMachine(ctx, q.Setup, q.Options)
		if err != nil {
			return err
		}
		c := &campaign{setup: q.Setup, plan: plan, m: m, journal: journal, log: log, seen: map[int]time.Time{}, underWay: make(chan struct{})}
		err = c.run(ctx)
		log.Printf("putting everything back")
		return errors.Join(err, m.Down())
	})
}
