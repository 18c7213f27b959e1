package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/shortest"
)

func newBenchShortest() *cobra.Command {
	var q shortest.Request
	var f togetherFlags
	var workload string
	cmd := &cobra.Command{
		Use:   "shortest",
		Short: "Measure what the order \"shortest job first\" gains for jobs that share disks",
		Long: `Repeats the experiments of the disk contention paper (sections IV and V, Tables III to V)
with a real HDFS and YARN on modelled disks. Several MapReduce jobs run at the same time:
TeraGen with sizes 1:2:3, or (--workload mix) Sort, WordCount and TeraSort. The rows are:

  alone-JOB        each job by itself; measured twice, before all others
  native-...       together under the kernel's none, mq-deadline and bfq, without Penstock
  equal            together under Penstock, with equal weights
  shortest-...     together under Penstock, the shortest job first: 70, 20 and 10 % of the
                   disks (mix: 90 % for the first), or 100: everything to the first, but
                   1 % for each of the others
  sized-...        the same, and the jobs state their sizes (io.size)
  caps-...         natively, with the paper's mechanism: each job's containers in a cgroup
                   that caps their reads and writes; caps change when a job ends

From the volumes and the start-up times of the jobs alone, the simulator predicts what each
order gains, before any other row is measured. Rates by job come from the disks' own request
log. The tasks of all jobs begin to move data at the same moment; their JVMs start before.

A run takes one to two minutes. Outputs are checked after the first run of each row. With
--resume, an interrupted measurement continues.

Needs root, /dev/fuse, the blkio controller of cgroup v1 for the row caps-..., two CPUs, a JDK
and, the first time, Maven. Nothing else should run meanwhile.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench shortest --runs 5 --resume shortest.jsonl --json shortest.json --report shortest.html
  penstock-lab bench shortest --workload mix --disk ssd --runs 5 --resume mix-ssd.jsonl
  penstock-lab bench shortest --runs 1 --scale 0.3 --rows native-none,equal,shortest-70-20-10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.Setup, err = shortest.DefaultSetup(workload, f.disk); err != nil {
				return cli.Usage(err)
			}
			if err := errors.Join(f.sizes(&q.Setup.Setup), q.Validate()); err != nil {
				return cli.Usage(err)
			}
			if err := f.fill(cmd, &q.Request, q.Setup.Rows()); err != nil {
				return err
			}
			res, err := shortest.Perform(cmd.Context(), q)
			if len(res.Runs) > 0 {
				err = errors.Join(err, writeResult(cmd, f.jsonFile, res), res.Report().WriteFile(f.reportFile))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&workload, "workload", shortest.Generate, "jobs: "+strings.Join(shortest.Workloads, ", "))
	f.register(cmd, &q.Request)
	return cmd
}
