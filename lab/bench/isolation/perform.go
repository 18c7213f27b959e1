package isolation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"penstock/lab/experiment/progress"
	"penstock/lab/experiment/runs"
	"penstock/settings"
)

// Request is one experiment with the options of the command line.
type Request struct {
	Setup  Setup
	Phases []Phase
	Runs   int // of each phase
	// CheckAll lets the aggressor finish after every run and checks its output. Otherwise this is
	// done only in the first run of each phase. Later runs kill the aggressor after the window,
	// which saves half of the time.
	CheckAll bool
	// Calibrate measures the protected job alone first, and derives the disks' rate from it.
	Calibrate bool
	Resume    string // journal; "": the runs are kept in memory only

	Build    string        // version of penstock, noted in each run
	Binary   string        // penstock itself, for the node daemon
	AgentJar string        // penstock-agent.jar
	CacheDir string        // downloads; kept between runs
	Profile  string        // absolute path of the disks' profile; "" none
	RunDir   string        // "": a private folder, removed after success
	KeepLogs bool          // keeps the private folder after success, too
	Progress *progress.Log // nil: silent

	JSON   string    // "" none, "-" standard output
	Report string    // "" none
	SVG    string    // "" none
	Out    io.Writer // for the table
}

// Perform performs the runs that the journal lacks, and writes the results of all runs. After a
// failure or Ctrl-C it writes the results of the finished runs and returns the error.
func Perform(ctx context.Context, q Request) error {
	if err := q.Setup.useProfile(q.Profile); err != nil {
		return err
	}
	q.Setup = Probe(q.Setup)
	q.Calibrate = q.Calibrate && q.Setup.Disk.Modelled
	if err := q.Setup.Validate(); err != nil {
		return err
	}
	x := &Experiment{Request: q}
	x.describe()
	done, err := x.turns(x.start).Perform(ctx)
	if len(done) == 0 {
		return err
	}
	x.done = done
	res := x.summarise()
	res.pending = 0 // after a failure, too: nothing writes the report again
	return errors.Join(err, x.write(res))
}

// describe prints the set-up before the first run.
func (x *Experiment) describe() {
	s := x.Setup
	x.say("%s (%s, CPU %d) beside %s (%d MiB, CPU %d): %d phases, runs of each: %d", s.protected().title(),
		s.protected().size(), s.Protected.CPU, s.aggressor().title(), s.Aggressor.Bytes/mib, s.Aggressor.CPU, len(x.Phases), x.Runs)
	if s.Intermediate {
		x.say("intermediate data is on the contested disks")
	}
	if x.Calibrate {
		x.say("first, %s runs alone on disks without a limit, to choose the disks' rate", s.protected().title())
	} else {
		x.say("%d+%d modelled %s; dirty limit %d MiB; weights %d:%d; Hadoop %s; setup %s", s.Disk.DataNodes, s.Disk.DataNodes,
			s.Disk, s.Kernel.DirtyBytes/mib, s.Penstock.ProtectedWeight, s.Penstock.AggressorWeight, s.Hadoop.Version, s.Hash())
	}
	if s.Penstock.ProfileSHA256 != "" {
		x.say("device profile %s (sha256 %.12s)", x.Profile, s.Penstock.ProfileSHA256)
	}
	for _, n := range s.Notes {
		x.say("NOTE: %s", n)
	}
}

// start starts the real environment in a folder.
func (x *Experiment) start(ctx context.Context, dir string) (stop func() error, err error) {
	x.RunDir = dir
	phases, input := x.Phases, x.Setup.Protected.InputBytes
	if x.Calibrate {
		phases = []Phase{fullSpeed}
		if input > 0 { // a query has a scale instead
			x.Setup.Protected.InputBytes = calibrationInput(x.Setup.Protected)
		}
	}
	m, err := StartMachine(ctx, &x.Request, phases)
	if err != nil {
		return nil, err
	}
	x.Env = m
	if x.Calibrate {
		if err := x.calibrate(ctx, m, input); err != nil {
			return nil, errors.Join(err, m.Stop())
		}
	}
	return m.Stop, nil
}

func (x *Experiment) summarise() Result {
	res := Summarise(x.Setup, x.Phases, x.done)
	res.Calibration, res.pending = x.calibration, len(x.missing(x.done))
	return res
}

// writeReport writes the HTML report. The first time, it also prints the report's path.
func (x *Experiment) writeReport(res Result) error {
	if x.Report == "" {
		return nil
	}
	if err := runs.WriteFile(x.Report, func(w io.Writer) error { return res.WriteReport(w, time.Now()) }); err != nil {
		return err
	}
	if !x.reported && res.pending > 0 {
		x.say("first picture: %s (the page reloads itself)", x.Report)
	}
	x.reported = true
	return nil
}

func (x *Experiment) write(res Result) error {
	fmt.Fprintln(x.Out)
	errs := []error{res.WriteTable(x.Out)}
	for _, n := range res.Notes() {
		fmt.Fprintln(x.Out, n)
	}
	errs = append(errs, runs.WriteFile(x.JSON, res.WriteJSON), x.writeReport(res), runs.WriteFile(x.SVG, res.WriteSVG))
	if x.Report != "" {
		fmt.Fprintln(x.Out, "report:", x.Report)
	}
	if text := res.Headline(); text != "" {
		fmt.Fprintf(x.Out, "\n%s (%s in all)\n", text, progress.Clock(x.Progress.Elapsed()))
	}
	return errors.Join(errs...)
}

// maxSetup bounds the size of the file that Override reads, in bytes.
const maxSetup = 1 << 20

// Override changes the fields of s that are in the JSON file at path, which has the form of
// "setup" in --json. The error lists all mistakes, as settings.Mistakes.
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
