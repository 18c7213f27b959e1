package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/slowdown"
)

func newBenchSlowdown() *cobra.Command {
	var q slowdown.Request
	var f togetherFlags
	var pair string
	cmd := &cobra.Command{
		Use:   "slowdown",
		Short: "Measure how evenly two jobs that share disks are slowed down",
		Long: `Repeats IBIS, section 7.5 (Figure 11), in small, with a real HDFS and YARN on modelled disks.
The pairs of jobs are TeraSort and TeraGen, and (--pair wordcount-teragen) a WordCount that is
bound by its CPU and TeraGen. The rows are:

  alone-JOB        each job by itself
  native           together, without Penstock
  equal            together under Penstock, with equal weights
  equal-slowdown   together under Penstock, with "goal: equal-slowdown" for their queue

The result is each job's slowdown against its time alone, the difference of both in points, and
the worst, and the errors of the broker's own estimates. The tasks of both jobs
begin to move data at the same moment; their JVMs start before. Each job has a CPU of its own.

A run takes two to three minutes. Outputs are checked after the first run of each row. With
--resume, an interrupted measurement continues.

Needs root, /dev/fuse, two CPUs, a JDK and, the first time, Maven. Nothing else should run
meanwhile.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench slowdown --runs 5 --resume slowdown.jsonl --json slowdown.json --report slowdown.html
  penstock-lab bench slowdown --pair wordcount-teragen --disk ssd --runs 5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.Setup, err = slowdown.DefaultSetup(pair, f.disk); err != nil {
				return cli.Usage(err)
			}
			if err := errors.Join(f.sizes(&q.Setup.Setup), q.Validate()); err != nil {
				return cli.Usage(err)
			}
			if err := f.fill(cmd, &q.Request, q.Setup.Rows()); err != nil {
				return err
			}
			res, err := slowdown.Perform(cmd.Context(), q)
			if len(res.Runs) > 0 {
				err = errors.Join(err, writeResult(cmd, f.jsonFile, res), res.Report().WriteFile(f.reportFile))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&pair, "pair", slowdown.SortPair, "pair of jobs: "+strings.Join(slowdown.Pairs, ", "))
	f.register(cmd, &q.Request)
	return cmd
}
