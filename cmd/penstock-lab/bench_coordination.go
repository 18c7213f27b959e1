package main

import (
	"errors"
	"fmt"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/lab/bench/coordination"
)

func newBenchCoordination() *cobra.Command {
	var q coordination.Request
	var at place
	var jsonFile, reportFile string
	var kills int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "coordination",
		Short: "Measure misallocated disk time on a cluster, with the broker and without",
		Long: `Three applications read and write on a real HDFS with three DataNodes, each with a modelled
disk and a node daemon. The applications' tasks and replicas are distributed unevenly. Each
application runs alone first. Then all run together, with the broker and after the broker was
killed (IBIS, section 7.6). The results come from the disks' own request logs: the disk time
that is misallocated, compared with the weighted max-min division that the placement allows,
and the slowdown of each application. A run takes about three minutes. With --resume, an
interrupted measurement continues.

With --kills N, the command instead kills the broker (kill -9) N times under load, at random
moments. No task may stall, disk time must be allocated as it is due, and all files are read
again. A kill takes about ten seconds. With --resume, the same command continues with the
missing kills.

Needs root and /dev/fuse for the modelled disks, a JDK, and, the first time, Maven.

Exit codes: 0 done; 1 failed, or something was wrong after a kill; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench coordination --runs 5 --json coordination.json
  penstock-lab bench coordination --kills 100 --seed 1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if kills < 0 || kills > coordination.MaxKills {
				return cli.Usage(fmt.Errorf("--kills %d: use 0 to %d", kills, coordination.MaxKills))
			}
			if err := at.resolve(); err != nil {
				return err
			}
			q.Binary, q.AgentJar, q.Cache, q.Dir = at.binary, at.agentJar, at.cache, at.runDir
			q.Progress = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			if kills > 0 {
				res, err := coordination.Soak{Place: q.Place, Seed: seed, Kills: kills, Resume: q.Resume}.Perform(cmd.Context())
				if err != nil {
					return err
				}
				return errors.Join(writeResult(cmd, jsonFile, res), res.Report().WriteFile(reportFile))
			}
			res, err := coordination.Perform(cmd.Context(), q)
			if len(res.Runs) > 0 {
				err = errors.Join(err, writeResult(cmd, jsonFile, res), res.Report().WriteFile(reportFile))
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&q.Runs, "runs", 5, "number of runs")
	flags.DurationVar(&q.Window, "window", 16*time.Second, "length of each measurement")
	flags.DurationVar(&q.Settling, "settling", 10*time.Second, "how long the load runs before each measurement")
	flags.IntVar(&kills, "kills", 0, "kill the broker this many times under load, instead of measuring")
	flags.Uint64Var(&seed, "seed", 1, "seed of the random kills; the same seed gives the same kills")
	at.register(flags)
	flags.StringVar(&q.Resume, "resume", "", "journal `FILE` of finished runs; made if missing")
	flags.StringVar(&reportFile, "report", "", "write an HTML report to `FILE`")
	flags.StringVar(&jsonFile, "json", "", "write the figures to `FILE` (- for standard output, in place of the table)")
	return cmd
}
