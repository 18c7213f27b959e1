package isolation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"penstock/testbed/ledger"
)

// Request is one call of the experiment from the command line.
type Request struct {
	Setup    Setup
	Phases   []Phase
	Runs     int
	CheckAll bool    // see Experiment
	Options  Options // RunDir "": a private one is made and, after success, removed
	Build    string
	Resume   string // journal; "": the runs are kept in memory only
	JSON     string // "" none, "-" standard output
	Report   string // "" none
	SVG      string // "" none
	KeepLogs bool
	Out      io.Writer // for the table
}

// Perform does the runs that are missing and writes the results of all. After a
// failure or Ctrl-C the results of what was finished are still written, and the
// error returned.
func Perform(ctx context.Context, q Request) error {
	if err := q.Setup.useProfile(q.Options.Profile); err != nil {
		return err
	}
	q.Setup = Probe(q.Setup)
	if err := q.Setup.Validate(); err != nil {
		return err
	}
	journal, err := OpenJournal(q.Resume, q.Setup)
	if err != nil {
		return err
	}
	defer journal.Close()
	say := q.Options.Progress.Printf
	q.describe(say)
	runErr := q.run(ctx, journal)
	if errors.Is(runErr, context.Canceled) && q.Resume != "" {
		say("interrupted; the finished runs are in %s: the same command goes on from there", q.Resume)
	}
	if len(journal.Runs()) == 0 {
		return runErr
	}
	return errors.Join(runErr, q.write(Summarise(q.Setup, q.Phases, journal.Runs())))
}

// describe prints what is fixed before anything is measured.
func (q *Request) describe(say func(string, ...any)) {
	s := q.Setup
	say("WordCount (%d MiB, CPU %d) against %s (%d MiB, CPU %d), %d runs of %d phases",
		s.Protected.InputBytes/mib, s.Protected.CPU, s.Against, s.Aggressor.Bytes/mib, s.Aggressor.CPU, q.Runs, len(q.Phases))
	say("%d+%d modelled %s; dirty limit %d MiB; weights %d:%d; Hadoop %s; setup %s", s.Disk.DataNodes, s.Disk.DataNodes,
		s.Disk, s.Kernel.DirtyBytes/mib, s.Penstock.ProtectedWeight, s.Penstock.AggressorWeight, s.Hadoop.Version, s.Hash())
	if s.Penstock.ProfileSHA256 != "" {
		say("device profile %s (sha256 %.12s)", q.Options.Profile, s.Penstock.ProfileSHA256)
	}
	for _, n := range s.Notes {
		say("NOTE: %s", n)
	}
}

func (q *Request) run(ctx context.Context, journal *Journal) (err error) {
	todo := Interleave(q.Phases, q.Runs)
	if !slices.ContainsFunc(todo, func(t Turn) bool { return !journal.Has(t) }) {
		q.Options.Progress.Printf("all runs are in the journal")
		return nil
	}
	if err := q.recover(); err != nil {
		return err
	}
	remove, err := q.runDir()
	if err != nil {
		return err
	}
	machine, err := StartMachine(ctx, q.Setup, q.Phases, q.Options)
	if err != nil {
		q.Options.Progress.Printf("logs: %s", q.Options.RunDir)
		return err
	}
	x := &Experiment{Setup: q.Setup, Phases: q.Phases, Runs: q.Runs, Env: machine, Journal: journal,
		Progress: q.Options.Progress, Build: q.Build, CheckAll: q.CheckAll}
	err = x.Run(ctx)
	q.Options.Progress.Printf("putting everything back")
	err = errors.Join(err, machine.Stop())
	if err == nil && remove && !q.KeepLogs {
		return os.RemoveAll(q.Options.RunDir)
	}
	q.Options.Progress.Printf("logs: %s", q.Options.RunDir)
	return err
}

// recover puts back what killed experiments of this checkout have left. What
// others have left is theirs: `penstock testbed clean` sees to that.
func (q *Request) recover() error {
	// The cluster's ledger lies a folder deeper; its processes go before the
	// disks that they use.
	var files []string
	for _, below := range []string{"*", ""} {
		found, err := filepath.Glob(filepath.Join(runParent, runPrefix+"*", below, ledger.FileName))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, file := range files {
		switch err := ledger.Recover(filepath.Dir(file)); {
		case errors.Is(err, ledger.ErrInUse): // a living run
		case err != nil:
			return fmt.Errorf("put back what a killed run left in %s: %w", filepath.Dir(file), err)
		default:
			q.Options.Progress.Printf("put back what a killed run had left: %s", filepath.Dir(file))
		}
	}
	return nil
}

// Where run folders are made, below the current directory.
const (
	runParent = "run"
	runPrefix = "isolation-"
)

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
	}
	q.Options.RunDir, err = filepath.Abs(q.Options.RunDir)
	return ours, err
}

func (q *Request) write(res Result) error {
	fmt.Fprintln(q.Out)
	errs := []error{res.WriteTable(q.Out)}
	for _, n := range res.Notes() {
		fmt.Fprintln(q.Out, n)
	}
	errs = append(errs,
		writeFile(q.JSON, res.WriteJSON),
		writeFile(q.Report, func(w io.Writer) error { return res.WriteReport(w, time.Now()) }),
		writeFile(q.SVG, res.WriteSVG))
	if q.Report != "" {
		fmt.Fprintln(q.Out, "report:", q.Report)
	}
	return errors.Join(errs...)
}

// writeFile writes a whole file or none: a reader never sees half of it.
func writeFile(path string, write func(io.Writer) error) error {
	switch path {
	case "":
		return nil
	case "-":
		return write(os.Stdout)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
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

// Override changes the fields of s that the JSON file at path names, in the
// form of the "setup" of --json. A field that does not exist is an error.
func (s *Setup) Override(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return fmt.Errorf("setup %s: %w", path, err)
	}
	return nil
}
