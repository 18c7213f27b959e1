package isolation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"penstock/lab/experiment/runs"
	"penstock/settings"
)

// Request is one experiment as the command line asks for it.
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
	// Calibrate measures the protected job alone first, and sets the disks' rate by it.
	Calibrate bool

	reported    bool // the report's path was printed
	calibration *Calibration
}

// Perform does the missing runs and writes the results of all. After a failure or Ctrl-C it
// writes the results of the finished runs and returns the error.
func Perform(ctx context.Context, q Request) error {
	if err := q.Setup.useProfile(q.Options.Profile); err != nil {
		return err
	}
	q.Setup = Probe(q.Setup)
	q.Calibrate = q.Calibrate && q.Setup.Disk.Modelled
	if err := q.Setup.Validate(); err != nil {
		return err
	}
	journal, err := OpenJournal(q.Resume, q.Setup)
	if err != nil {
		return err
	}
	defer journal.Close()
	say := q.Options.Progress.Printf
	if q.Calibrate && q.Options.Progress != nil {
		q.Options.Progress.PlainName = q.names().plainName
	}
	q.describe(say)
	runErr := q.run(ctx, journal)
	if errors.Is(runErr, context.Canceled) && q.Resume != "" {
		say("interrupted; the finished runs are in %s: the same command continues", q.Resume)
	}
	if len(journal.Runs()) == 0 {
		return runErr
	}
	res := q.summarise(journal)
	res.pending = 0 // after a failure, too: nothing writes the report again
	return errors.Join(runErr, q.write(res))
}

// describe prints the set-up before the first run.
func (q *Request) describe(say func(string, ...any)) {
	s := q.Setup
	say("%s (%s, CPU %d) beside %s (%d MiB, CPU %d): %d phases, runs of each: %d", s.protected().title(),
		s.protected().size(), s.Protected.CPU, s.aggressor().title(), s.Aggressor.Bytes/mib, s.Aggressor.CPU, len(q.Phases), q.Runs)
	if s.Intermediate {
		say("intermediate data is on the contested disks")
	}
	if q.Calibrate {
		say("first %s alone on disks without a limit, to choose their rate", s.protected().title())
	} else {
		say("%d+%d modelled %s; dirty limit %d MiB; weights %d:%d; Hadoop %s; setup %s", s.Disk.DataNodes, s.Disk.DataNodes,
			s.Disk, s.Kernel.DirtyBytes/mib, s.Penstock.ProtectedWeight, s.Penstock.AggressorWeight, s.Hadoop.Version, s.Hash())
	}
	if s.Penstock.ProfileSHA256 != "" {
		say("device profile %s (sha256 %.12s)", q.Options.Profile, s.Penstock.ProfileSHA256)
	}
	for _, n := range s.Notes {
		say("NOTE: %s", n)
	}
}

func (q *Request) run(ctx context.Context, journal *Journal) error {
	todo := Interleave(q.Phases, q.Runs)
	if !slices.ContainsFunc(todo, func(t Turn) bool { return !journal.Has(t) }) {
		q.Options.Progress.Printf("all runs are in the journal")
		return nil
	}
	say := q.Options.Progress.Printf
	return runs.Within(q.Options.RunDir, "isolation-", q.KeepLogs, say, func(dir string) error {
		q.Options.RunDir = dir
		first := q.Phases
		if q.Calibrate {
			first = []Phase{fullSpeed}
		}
		machine, err := StartMachine(ctx, q.Setup, first, q.Options)
		if err != nil {
			return err
		}
		if q.Calibrate {
			err = q.calibrate(ctx, machine)
		}
		if err == nil {
			err = q.experiment(machine, journal).Run(ctx)
		}
		say("restoring the machine")
		return errors.Join(err, machine.Stop())
	})
}

// experiment returns the experiment. It writes the report again after each run.
func (q *Request) experiment(e Environment, journal *Journal) *Experiment {
	return &Experiment{Setup: q.Setup, Phases: q.Phases, Runs: q.Runs, Env: e, Journal: journal,
		Progress: q.Options.Progress, Build: q.Build, CheckAll: q.CheckAll,
		After: func() error { return q.writeReport(q.summarise(journal)) }}
}

func (q *Request) summarise(journal *Journal) Result {
	res := Summarise(q.Setup, q.Phases, journal.Runs())
	res.Calibration = q.calibration
	for _, t := range Interleave(q.Phases, q.Runs) {
		if !journal.Has(t) {
			res.pending++
		}
	}
	return res
}

// writeReport writes the HTML report, the first time with a line that says where.
func (q *Request) writeReport(res Result) error {
	if q.Report == "" {
		return nil
	}
	if err := runs.WriteFile(q.Report, func(w io.Writer) error { return res.WriteReport(w, time.Now()) }); err != nil {
		return err
	}
	if !q.reported && res.pending > 0 {
		q.Options.Progress.Printf("first picture: %s (the page reloads itself)", q.Report)
	}
	q.reported = true
	return nil
}

// names returns a result of all phases without figures, for their plain names.
func (q *Request) names() (res Result) {
	res.Setup = q.Setup
	for _, p := range q.Phases {
		res.Phases = append(res.Phases, Figure{Name: p.Name})
	}
	return res
}

func (q *Request) write(res Result) error {
	fmt.Fprintln(q.Out)
	errs := []error{res.WriteTable(q.Out)}
	for _, n := range res.Notes() {
		fmt.Fprintln(q.Out, n)
	}
	errs = append(errs,
		runs.WriteFile(q.JSON, res.WriteJSON),
		q.writeReport(res),
		runs.WriteFile(q.SVG, res.WriteSVG))
	if q.Report != "" {
		fmt.Fprintln(q.Out, "report:", q.Report)
	}
	if text := res.Headline(); text != "" {
		fmt.Fprintf(q.Out, "\n%s (%s in all)\n", text, q.Options.Progress.elapsed())
	}
	return errors.Join(errs...)
}

// maxSetup bounds a file of Override, in bytes.
const maxSetup = 1 << 20

// Override changes the fields of s that are in the JSON file at path, which has the form of
// "setup" in --json. The error has all mistakes, as settings.Mistakes.
func (s *Setup) Override(path string) error {
	doc, err := settings.Load(path, maxSetup, s) // YAML contains JSON
	if err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	if err := doc.Err(); err != nil {
		return fmt.Errorf("setup: %s: %w", path, err)
	}
	return nil
}
