package main

import (
	"fmt"
	"path/filepath"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/lab/bench/decision"
)

func newBenchDecision() *cobra.Command {
	var q decision.Request
	var jsonFile string
	cmd := &cobra.Command{
		Use:   "decision",
		Short: "Measure what a scheduling decision costs, and the messages and gates around it",
		Long: `Measures, without a disk or a cluster:

  one decision     of each algorithm, with every flow backlogged: dispatch,
                   complete, submit; nanoseconds and allocations
  device loop      everything that the daemon does for a reader's quantum
  round trip       OPEN to MARK through the daemon's socket and device loop: for a
                   block in the page cache (no decision), for a cold block (one
                   quantum), and a bare echo for comparison
  the agent's side the same trips from a JVM through the agent's own classes, and
                   what a packet costs Hadoop's thread at the gate

Calls that are shorter than a reading of the clock are measured in batches; their
times are means. The command takes about half a minute. The agent's side needs a JDK
(17 or later) and penstock-agent.jar; without them, the output says what was left out.

Exit codes: 0 done; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: "  penstock-lab bench decision --flows 10,1000 --json decision.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if q.AgentJar == "" {
				binary, err := penstockBinary()
				if err != nil {
					return err
				}
				q.AgentJar = filepath.Join(filepath.Dir(binary), "penstock-agent.jar")
			}
			q.Progress = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			res, err := decision.Perform(cmd.Context(), q)
			if err != nil {
				return err
			}
			return writeResult(cmd, jsonFile, res)
		},
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&q.Flows, "flows", []int{10, 100, 1000, 10_000}, "numbers of flows")
	flags.DurationVar(&q.Length, "length", 500*time.Millisecond, "how long to measure each of the scheduler's figures")
	flags.IntVar(&q.Trips, "trips", 20_000, "round trips of each kind")
	flags.StringVar(&q.AgentJar, "agent-jar", "", "penstock-agent.jar (default: beside this binary)")
	flags.BoolVar(&q.NoJava, "no-java", false, "leave the agent's side out")
	flags.StringVar(&jsonFile, "json", "", "write the figures to `FILE` (- for standard output, in place of the table)")
	return cmd
}
