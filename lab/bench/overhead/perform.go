package overhead

import (
	"context"
	"io"
	"time"

	"penstock/lab/experiment"
	"penstock/lab/experiment/runs"
)

// Request is one call of the measurement from the command line. Its setup is a Setup, or a
// YARNSetup for the measurement on YARN.
type Request[S any] struct {
	Setup    S
	Rounds   int
	Options  Options // if RunDir is "", a new folder is made, and removed after success
	Build    string
	Resume   string // the journal; "" keeps rounds in memory only
	KeepLogs bool
}

// MaxRounds bounds a measurement.
const MaxRounds = 1000

// Perform performs the rounds that the journal lacks and returns the result of all finished rounds,
// also after a failure or Ctrl-C. Without any finished round, the result is nil.
func Perform(ctx context.Context, q Request[Setup]) (*Result, error) {
	q.Setup = Probe(q.Setup)
	if err := q.Setup.Validate(); err != nil {
		return nil, err
	}
	for _, n := range q.Setup.Notes {
		q.Options.Say("NOTE: %s", n)
	}
	rounds, err := q.perform(ctx, "overhead", Experiment{Variants: q.Setup.Variants, Operations: q.Setup.operations()},
		func(ctx context.Context, o Options) (Environment, error) { return StartMachine(ctx, q.Setup, o) })
	if len(rounds) == 0 {
		return nil, err
	}
	res := Summarise(q.Setup, rounds)
	return &res, err
}

// PerformYARN does the same as Perform for the measurement on YARN.
func PerformYARN(ctx context.Context, q Request[YARNSetup]) (_ *YARNResult, err error) {
	if q.Setup, err = ProbeYARN(q.Setup); err != nil {
		return nil, err
	}
	if err := q.Setup.Validate(); err != nil {
		return nil, err
	}
	rounds, err := q.perform(ctx, "overhead-terasort", yarnExperiment,
		func(ctx context.Context, o Options) (Environment, error) { return StartYARNMachine(ctx, q.Setup, o) })
	if len(rounds) == 0 {
		return nil, err
	}
	res := SummariseYARN(q.Setup, rounds)
	return &res, err
}

var yarnExperiment = Experiment{Variants: YARNVariants, Operations: []Operation{YARNSort}, WarmUp: YARNCheck}

func (q Request[S]) perform(ctx context.Context, name string, x Experiment, start func(context.Context, Options) (Environment, error)) ([]Round, error) {
	return experiment.Rounds[S, Round]{
		Name: name, Setup: q.Setup, Count: q.Rounds, Resume: q.Resume, RunDir: q.Options.RunDir, KeepLogs: q.KeepLogs, Say: q.Options.Say,
		Start: func(ctx context.Context, dir string) (func(context.Context, int) (Round, error), func() error, error) {
			o := q.Options
			o.RunDir = dir
			env, err := start(ctx, o)
			if err != nil {
				return nil, nil, err
			}
			x.Env, x.Build, x.Say = env, q.Build, o.Say
			return x.Round, env.Stop, nil
		},
	}.Perform(ctx)
}

// WriteReportFile writes the HTML report atomically.
func (res Result) WriteReportFile(path string) error {
	return runs.WriteFile(path, func(w io.Writer) error { return res.WriteReport(w, time.Now()) })
}
