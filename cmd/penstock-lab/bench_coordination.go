package main

import (
	"fmt"
	"path/filepath"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/lab/bench/coordination"
)

func newBenchCoordination() *cobra.Command {
	var q coordination.Request
	var jsonFile string
	var kills int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "coordination",
		Short: "What shares of the whole cluster are worth, with the broker and without",
		Long: `On a real HDFS with three DataNodes, each with a modelled disk and a node daemon of
its own, three applications whose tasks and replicas lie unevenly on the nodes write and read, by
weights that are to slow them down alike: each alone, then all together, with the broker and
with it killed (IBIS, section 7.6). Tells the part of the service that is not where
it is due, against the weighted max-min division that the placement allows, and
slowdowns against alone; all from the disks' own request logs. About three
minutes a run.

With --kills the broker is killed (kill -9) that often instead, at random moments under
load: no task may stand still, the service must be where it is due, and all that was
written is read again. About ten seconds a kill.

Needs root and /dev/fuse for the modelled disks, a JDK, and, the first time, Maven.

Exit codes: 0 done; 1 failed, or something was wrong after a kill; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench coordination --runs 5 --json coordination.json
  penstock-lab bench coordination --kills 100 --seed 1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if kills < 0 || kills > coordination.MaxKills {
				return cli.Usage(fmt.Errorf("--kills %d: use 0 to %d", kills, coordination.MaxKills))
			}
			if q.Binary, err = penstockBinary(); err != nil {
				return err
			}
			if q.AgentJar == "" {
				q.AgentJar = filepath.Join(filepath.Dir(q.Binary), "penstock-agent.jar")
			}
			for _, p := range []*string{&q.AgentJar, &q.Cache} {
				if *p, err = filepath.Abs(*p); err != nil {
					return err
				}
			}
			q.Progress = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			if kills > 0 {
				res, err := coordination.Soak{Place: q.Place, Seed: seed, Kills: kills}.Perform(cmd.Context())
				if err != nil {
					return err
				}
				return writeResult(cmd, jsonFile, res)
			}
			res, err := coordination.Perform(cmd.Context(), q)
			if err != nil {
				return err
			}
			return writeResult(cmd, jsonFile, res)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&q.Runs, "runs", 5, "how often to measure everything")
	flags.DurationVar(&q.Window, "window", 16*time.Second, "how long each measurement is")
	flags.DurationVar(&q.Settling, "settling", 10*time.Second, "how long the load is at work before each")
	flags.IntVar(&kills, "kills", 0, "kill the broker so often under load, instead of measuring")
	flags.Uint64Var(&seed, "seed", 1, "the kills' seed")
	flags.StringVar(&q.AgentJar, "agent-jar", "", "penstock-agent.jar (default: beside this binary)")
	flags.StringVar(&q.Cache, "cache-dir", ".cache", "folder for downloads, kept between runs")
	flags.StringVar(&q.Dir, "run-dir", "", "folder for the run (default: a new one below run/)")
	flags.StringVar(&jsonFile, "json", "", "write the figures to `FILE` (- for standard output, in place of the table)")
	return cmd
}
