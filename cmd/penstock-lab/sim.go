package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/lab/sim"
	"penstock/lab/sim/report"
)

func newSimCommand() *cobra.Command {
	var seed uint64
	var jsonFile, reportFile, traceFile string
	cmd := &cobra.Command{
		Use:   "sim SCENARIO.yaml",
		Short: "Simulate a cluster of any size in virtual time, with the production scheduler and coordination",
		Long: `Simulate a scenario: nodes with modelled disks, applications with tasks on some of the
nodes, late and lost messages, nodes and brokers that leave and join. Scheduler, depth
control, coordination and the broker's account of totals are the daemons' own code. The
report shows, window by window, how much service was misallocated, compared with the
weighted max-min division that the placement allows. MapReduce jobs, given one by one or
as a trace in SWIM's format, are simulated alone, first come first served, with local
shares and with coordination; the report shows their slowdowns.

The seed is printed; the same scenario and seed give the same run, to the last digit.
lab/sim/scenarios/ has scenarios for Penstock's claims; docs/operate/simulate.md explains every field.

Exit codes: 0 as the scenario expects; 1 otherwise; 2 a mistake in flags or scenario;
130 interrupted.`,
		Example: "  penstock-lab sim lab/sim/scenarios/hundred-nodes.yaml --seed 7 --report sim.html",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := sim.Load(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			if traceFile != "" {
				if err := s.Trace(traceFile); err != nil {
					return cli.Usage(err)
				}
			}
			if !cmd.Flags().Changed("seed") {
				seed = rand.Uint64N(1_000_000)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "seed %d\n", seed)
			begin, printed := time.Now(), time.Now()
			r, err := s.Play(seed, func(done float64) error {
				if now := time.Now(); now.Sub(printed) > 5*time.Second {
					printed = now
					left := time.Duration(float64(now.Sub(begin)) * (1 - done) / done)
					fmt.Fprintf(cmd.ErrOrStderr(), "%3.0f %% done, about %v left\n", 100*done, left.Round(time.Second))
				}
				return cmd.Context().Err()
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "the simulation took %.1f s\n", time.Since(begin).Seconds())
			shown := report.Report{Result: r}
			if err := writeResult(cmd, jsonFile, shown); err != nil {
				return err
			}
			if reportFile != "" {
				f, err := os.Create(reportFile)
				if err != nil {
					return err
				}
				if err := errors.Join(shown.WriteHTML(f), f.Close()); err != nil {
					return err
				}
			}
			if !r.Good {
				return errors.New(shown.Verdict())
			}
			return nil
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", 0, "seed of all random choices; a run with the same seed is the same (default: another seed each time)")
	cmd.Flags().StringVar(&jsonFile, "json", "", "write the result to `FILE` (- for standard output, in place of the table)")
	cmd.Flags().StringVar(&traceFile, "trace", "", "take the scenario's traces from `FILE` (SWIM's format) instead")
	cmd.Flags().StringVar(&reportFile, "report", "", "write an HTML page to `FILE`")
	return cmd
}
