package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/together"
	"penstock/lab/contest"
)

// togetherFlags are shared by the benches in which several jobs run together.
type togetherFlags struct {
	at                   place
	disk, check          string
	scale                float64
	rows                 []string
	jsonFile, reportFile string
}

func (f *togetherFlags) register(cmd *cobra.Command, q *together.Request) {
	flags := cmd.Flags()
	flags.StringVar(&f.disk, "disk", contest.HDD, "kind of the modelled disks: "+contest.HDD+", "+contest.SSD)
	flags.IntVar(&q.Runs, "runs", 5, "number of runs of each row")
	flags.StringSliceVar(&f.rows, "rows", nil, "measure these rows only; * matches any part of a name (default: all)")
	flags.Float64Var(&f.scale, "scale", 1, "factor for the sizes of all jobs, 0.1 to 10")
	flags.StringVar(&f.check, "check", "first", "runs after which all outputs are checked: all, or the first of each row")
	flags.BoolVar(&q.KeepLogs, "keep-logs", false, "keep the run folder with all logs, even after success")
	f.at.register(flags)
	flags.StringVar(&q.Resume, "resume", "", "journal `FILE` of finished runs; made if missing")
	flags.StringVar(&f.reportFile, "report", "", "write an HTML report to `FILE`")
	flags.StringVar(&f.jsonFile, "json", "", "write the figures to `FILE` (- for standard output, in place of the table)")
}

// sizes checks the flags that change the set-up, and scales the jobs.
func (f *togetherFlags) sizes(s *together.Setup) error {
	if !(f.scale >= 0.1 && f.scale <= 10) {
		return fmt.Errorf("--scale %v: use 0.1 to 10", f.scale)
	}
	if f.scale != 1 {
		s.Scale(f.scale)
	}
	return nil
}

// fill completes the request.
func (f *togetherFlags) fill(cmd *cobra.Command, q *together.Request, all []together.Row) (err error) {
	if f.check != "all" && f.check != "first" {
		return cli.Usage(fmt.Errorf("--check %q: choose all or first", f.check))
	}
	q.CheckAll = f.check == "all"
	if q.Rows, err = together.SelectRows(all, f.rows); err != nil {
		return cli.Usage(fmt.Errorf("--rows: %w", err))
	}
	if err := f.at.resolve(); err != nil {
		return err
	}
	q.Build, q.Binary, q.AgentJar, q.Cache, q.Dir = cli.Version, f.at.binary, f.at.agentJar, f.at.cache, f.at.runDir
	q.Progress = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
	return nil
}
