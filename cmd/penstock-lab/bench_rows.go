package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/experiment"
	"penstock/lab/experiment/report"
)

// rowsBench holds the flags of a benchmark whose table has rows.
type rowsBench struct {
	place
	patterns             []string
	runs                 int
	keepLogs             bool
	resume               string
	jsonFile, reportFile string
}

func (b *rowsBench) register(cmd *cobra.Command) {
	b.registerTable(cmd)
	b.place.register(cmd.Flags())
}

// registerTable adds the flags of a benchmark that uses no other programs.
func (b *rowsBench) registerTable(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&b.runs, "runs", 5, "number of runs of each row")
	flags.StringSliceVar(&b.patterns, "rows", nil, "measure these rows only; * matches any part of a name (default: all)")
	flags.BoolVar(&b.keepLogs, "keep-logs", false, "keep the run folder with all logs, even after success")
	flags.StringVar(&b.resume, "resume", "", "journal `FILE` of finished turns; made if missing")
	flags.StringVar(&b.reportFile, "report", "", "write an HTML report to `FILE`")
	flags.StringVar(&b.jsonFile, "json", "", "write the figures to `FILE` (- for standard output, in place of the table)")
}

// request returns the options that the flags give, without paths of programs.
func (b *rowsBench) request(cmd *cobra.Command, all []string) (experiment.TableRequest, error) {
	rows, err := experiment.SelectRows(all, b.patterns)
	if err != nil {
		return experiment.TableRequest{}, cli.Usage(fmt.Errorf("--rows: %w", err))
	}
	return experiment.TableRequest{Rows: rows, Runs: b.runs, Resume: b.resume, KeepLogs: b.keepLogs, Dir: b.runDir, Progress: say(cmd)}, nil
}

// locate adds the paths of the programs.
func (b *rowsBench) locate(q *experiment.TableRequest) error {
	err := b.resolve()
	q.Binary, q.AgentJar, q.Cache = b.binary, b.agentJar, b.cache
	return err
}

// say prints a line of progress.
func say(cmd *cobra.Command) experiment.Say {
	return func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
}

// rowsResult is the result of a benchmark whose table has rows.
type rowsResult interface {
	result
	Report() report.Report
}

// write writes the result as the flags demand, after a measurement that ended with err. turns is the number of
// finished turns.
func (b *rowsBench) write(cmd *cobra.Command, res rowsResult, turns int, err error) error {
	if turns > 0 {
		err = errors.Join(err, writeResult(cmd, b.jsonFile, res), res.Report().WriteFile(b.reportFile))
	}
	return err
}
