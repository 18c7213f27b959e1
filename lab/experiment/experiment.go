// Package experiment has the common parts of all measurements: turns that are interleaved and
// repeated, a journal from which an interrupted measurement continues, a run folder, progress, and
// results in JSON. So a measurement itself is only a scenario and a judge.
//
// The parts are packages of their own: journal (finished parts on disk), runs (run folders and
// files), progress (lines with the time), counters (samples of disks' byte counters), figures
// (medians, intervals), claims (published figures), page (the frame of a report), report (a page of
// claims), published (results/, docs/results.md). lab/stand brings up the machine, and lab/chart
// draws.
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
	"penstock/lab/proc"
)

// Say prints a line of progress.
type Say = func(format string, args ...any)

// Turns describes a measurement that is performed in turns. S is the type of the setup, which is
// everything that may change a figure. K is the type of a turn's key, which names the turn. R is
// the type of a turn's result. S and R are written as JSON.
type Turns[S, K, R any] struct {
	Name     string // of the measurement; it is in the journal and in the run folder's name
	Unit     string // name of the turns in lines of progress, such as "rounds"
	Setup    S
	Resume   string // the journal's file; "" keeps results in memory only
	RunDir   string // "": a new folder, which is removed after success
	KeepLogs bool
	Say      Say

	// Missing returns the keys of the turns to do, in order. done has the results of finished
	// turns.
	Missing func(done []R) []K
	// Start brings up the machine in a folder. It returns a function that performs one turn, given
	// the results of the finished turns, and a function that restores the machine.
	Start func(ctx context.Context, dir string) (turn func(ctx context.Context, key K, done []R) (R, error), stop func() error, err error)
	// After, if not nil, is called after each turn, when the turn's result is in the journal. The
	// turn's result is the last element of done.
	After func(done []R) error
}

// Perform performs the turns that the journal lacks. It returns the results of all finished turns,
// also after a failure or an interruption.
func (t Turns[S, K, R]) Perform(ctx context.Context) ([]R, error) {
	done, err := journal.Open[S, R](t.Resume, t.Name, t.Setup)
	if err != nil {
		return nil, err
	}
	defer done.Close()
	missing := t.Missing(done.Entries())
	if had := len(done.Entries()); had > 0 {
		t.Say("%d %s are in the journal, %d to do", had, t.Unit, len(missing))
	}
	if len(missing) == 0 {
		return done.Entries(), nil
	}
	err = runs.Within(t.RunDir, t.Name+"-", t.KeepLogs, t.Say, func(dir string) error {
		turn, stop, err := t.Start(ctx, dir)
		if err != nil {
			return err
		}
		err = t.perform(ctx, done, missing, turn)
		t.Say("putting everything back")
		return errors.Join(err, stop())
	})
	if errors.Is(err, context.Canceled) && t.Resume != "" {
		t.Say("interrupted; the finished %s are in %s: the same command continues", t.Unit, t.Resume)
	}
	return done.Entries(), err
}

func (t Turns[S, K, R]) perform(ctx context.Context, done *journal.Journal[S, R], missing []K, turn func(context.Context, K, []R) (R, error)) error {
	for _, key := range missing {
		if err := ctx.Err(); err != nil {
			return err
		}
		one, err := turn(ctx, key, done.Entries())
		if err != nil {
			return fmt.Errorf("%v: %w", key, err)
		}
		if err := done.Append(one); err != nil {
			return err
		}
		if t.After == nil {
			continue
		}
		if err := t.After(done.Entries()); err != nil {
			return err
		}
	}
	return nil
}

// Rounds describes a measurement whose turns are all alike; they are called rounds. A field without
// a comment means the same as in Turns.
type Rounds[S, R any] struct {
	Name     string
	Setup    S
	Count    int // all rounds, including those in the journal
	Resume   string
	RunDir   string
	KeepLogs bool
	Say      Say

	// Start brings up the machine in a folder. It returns a function that performs round n, counted
	// from 0, and a function that restores the machine.
	Start func(ctx context.Context, dir string) (round func(ctx context.Context, n int) (R, error), stop func() error, err error)
}

// round is the key of a round, counted from 0.
type round int

func (n round) String() string { return fmt.Sprintf("round %d", int(n)+1) }

// Perform performs the rounds that the journal lacks. It returns all finished rounds, also after a
// failure or an interruption.
func (r Rounds[S, R]) Perform(ctx context.Context) ([]R, error) {
	return Turns[S, round, R]{
		Name: r.Name, Unit: "rounds", Setup: r.Setup, Resume: r.Resume, RunDir: r.RunDir, KeepLogs: r.KeepLogs, Say: r.Say,
		Missing: func(done []R) (missing []round) {
			for n := len(done); n < r.Count; n++ {
				missing = append(missing, round(n))
			}
			return missing
		},
		Start: func(ctx context.Context, dir string) (func(context.Context, round, []R) (R, error), func() error, error) {
			perform, stop, err := r.Start(ctx, dir)
			begun, first := time.Now(), round(-1)
			return func(ctx context.Context, n round, _ []R) (R, error) {
				if first < 0 {
					begun, first = time.Now(), n
				}
				left := ""
				if n > first {
					each := time.Since(begun) / time.Duration(n-first)
					left = fmt.Sprintf(", about %s left", (each * time.Duration(r.Count-int(n))).Round(10*time.Second))
				}
				r.Say("%v of %d%s", n, r.Count, left)
				return perform(ctx, int(n))
			}, stop, err
		},
	}.Perform(ctx)
}

// Machine describes a machine. It is part of setups, so that figures of different machines are not
// mixed.
type Machine struct {
	KernelRelease string `json:"kernel_release"`
	CPUs          int    `json:"cpus"` // that this process may use
	MemoryBytes   int64  `json:"memory_bytes"`
}

// ThisMachine returns the properties of this machine. Properties that the kernel does not report
// are zero.
func ThisMachine() Machine {
	m := proc.ThisMachine()
	return Machine{KernelRelease: m.KernelRelease, CPUs: len(m.CPUs), MemoryBytes: m.MemoryBytes}
}

// WriteJSON writes a result, indented.
func WriteJSON(w io.Writer, result any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(result)
}
