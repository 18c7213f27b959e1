package main

import (
	"errors"
	"fmt"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/lab/bench/broker"
)

func newBenchBroker() *cobra.Command {
	var q broker.Request
	var jsonFile, reportFile string
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Measure what the broker costs with thousands of nodes, and how late totals arrive",
		Long: `Starts "penstock broker" with certificates made for the run, and processes that play
nodes over loopback. Each node has its own connection with mutual TLS and the real
protocol, and reports rates drawn from a seed. Then measures, in five windows:

  broker           CPU time per second and per report; memory; garbage collection
  wire             bytes per second in each direction
  delay            from a report to its answer, and from a change at one node
                   until another node has a total that includes it
  joining          time until every node has an answer, after the broker was killed
                   (kill -9) and started again

Costs are CPU time of each process. Delays include the time in which the played nodes
wait for a processor. One process needs a file descriptor for each node; if necessary,
the command raises the limit up to the hard limit. It needs no privileges. With
--resume, an interrupted measurement continues with the missing windows and restarts.

Exit codes: 0 done; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: "  penstock-lab bench broker --nodes 10000 --json broker.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if q.Binary, err = penstockBinary(); err != nil {
				return err
			}
			q.Progress = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			res, err := broker.Perform(cmd.Context(), q)
			if err != nil {
				return err
			}
			return errors.Join(writeResult(cmd, jsonFile, res), res.Report().WriteFile(reportFile))
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&q.Nodes, "nodes", 10_000, "nodes, at most 20000")
	flags.IntVar(&q.Applications, "applications", 100, "applications of the cluster")
	flags.Float64Var(&q.Served, "served", 0.2, "mean fraction of the applications that a node serves")
	flags.Float64Var(&q.Changes, "changes", 0.5, "fraction of a node's rates that change in each report")
	flags.DurationVar(&q.Period, "period", time.Second, "time between a node's reports")
	flags.DurationVar(&q.Duration, "duration", time.Minute, "total length of the windows")
	flags.IntVar(&q.Storms, "storms", 5, "how often the broker is killed and started again")
	flags.Uint64Var(&q.Seed, "seed", 1, "seed of the random rates, and of which node serves which application")
	flags.StringVar(&q.Profile, "profile", "", "write a CPU profile of the broker during the last window to `FILE`")
	flags.StringVar(&q.RunDir, "run-dir", "", "`FOLDER` of the run (default: a new one in ./run)")
	flags.StringVar(&q.Resume, "resume", "", "journal `FILE` of finished windows and restarts; made if missing")
	flags.StringVar(&reportFile, "report", "", "write an HTML report to `FILE`")
	flags.StringVar(&jsonFile, "json", "", "write the figures to `FILE` (- for standard output, in place of the table)")
	cmd.AddCommand(&cobra.Command{
		Use: "nodes", Short: "Play the nodes that standard input describes", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return broker.Generate(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	})
	return cmd
}
