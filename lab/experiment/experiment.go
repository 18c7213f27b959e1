// Package experiment is what all measurements share, so that each of them is a scenario and a
// judge: rounds that are interleaved and repeated, a journal by which an interrupted
// measurement continues, a run folder, progress, and results in JSON.
//
// Its parts are packages of their own: journal (finished parts on disk), runs (run folders and
// files), progress (lines with the time), figures (medians, intervals), claims (published figures),
// page (the frame of a report), published (results/, docs/results.md). lab/stand brings up the machine, and lab/chart draws.
package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"penstock/lab/experiment/journal"
	"penstock/lab/experiment/runs"
)

// Say prints a line of progress.
type Say = func(format string, args ...any)

// Rounds is a measurement of equal rounds. Its setup S is everything that may change a figure; a
// round R is what is kept of one. Both are written as JSON.
type Rounds[S, R any] struct {
	Name     string // of the measurement, in its journal and its run folder's name
	Setup    S
	Count    int    // rounds in all, those in the journal included
	Resume   string // the journal's file; "" keeps rounds in memory only
	RunDir   string // "": a new folder, which is removed after success
	KeepLogs bool
	Say      Say

	// Start brings up the machine in a folder. It returns a function that performs round n,
	// counted from 0, and one that puts everything back.
	Start func(ctx context.Context, dir string) (round func(ctx context.Context, n int) (R, error), stop func() error, err error)
}

// Perform does the rounds that the journal lacks. It returns all finished rounds, also after a
// failure or an interruption.
func (r Rounds[S, R]) Perform(ctx context.Context) ([]R, error) {
	done, err := journal.Open[S, R](r.Resume, r.Name, r.Setup)
	if err != nil {
		return nil, err
	}
	defer done.Close()
	had := len(done.Entries())
	if had > 0 {
		r.Say("%d rounds are in the journal, %d to do", had, max(0, r.Count-had))
	}
	if had >= r.Count {
		return done.Entries(), nil
	}
	err = runs.Within(r.RunDir, r.Name+"-", r.KeepLogs, r.Say, func(dir string) error {
		round, stop, err := r.Start(ctx, dir)
		if err != nil {
			return err
		}
		err = r.perform(ctx, done, round)
		r.Say("putting everything back")
		return errors.Join(err, stop())
	})
	if errors.Is(err, context.Canceled) && r.Resume != "" {
		r.Say("interrupted; the finished rounds are in %s: the same command continues", r.Resume)
	}
	return done.Entries(), err
}

func (r Rounds[S, R]) perform(ctx context.Context, done *journal.Journal[S, R], round func(context.Context, int) (R, error)) error {
	had, begun := len(done.Entries()), time.Now()
	for n := had; n < r.Count; n++ {
		left := ""
		if n > had {
			each := time.Since(begun) / time.Duration(n-had)
			left = fmt.Sprintf(", about %s left", (each * time.Duration(r.Count-n)).Round(10*time.Second))
		}
		r.Say("round %d of %d%s", n+1, r.Count, left)
		one, err := round(ctx, n)
		if err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
		if err := done.Append(one); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes a result, indented.
func WriteJSON(w io.Writer, result any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(result)
}
