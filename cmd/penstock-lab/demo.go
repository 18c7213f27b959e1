package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"penstock/cmd/internal/cli"
)

func newDemoCommand() *cobra.Command {
	var f isolationFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on real HDFS what a weight of 32:1 does for a job; 5 to 8 minutes",
		Long: `Starts a real Hadoop on modelled disks and runs WordCount beside TeraGen:

  alone                  WordCount by itself
  CPU contention only    TeraGen runs too, with its data on other disks (floor)
  Hadoop today           both on the same disks (native-mq-deadline)
  with Penstock          both on the same disks, weights 32:1 (sfqd2)

First, WordCount runs alone on disks without a limit. The disks' rate is then set so that
the throughput of this run is 70 % of the rate. At less than 50 % there would be no
contention; at more than 75 % no throughput would be left for TeraGen. The rate is between a
quarter of the disks' usual rate and four times the usual rate (3 and 48 MB/s for hard
disks). On a slow machine the input is reduced, to no less than a third. --disk-rate sets
the rate without a measurement.

The HTML report is written after each run; the output says where. The report begins
with the result in one sentence. "bench isolation" compares with all kernel schedulers
and other controls, and gives medians; its other flags work here, too.

Exit codes: 0 done; 1 a run, a check of outputs or the restoring of the machine
failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab demo
  penstock-lab demo --weights 8:1 --disk-rate 12M`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.request.Calibrate = f.rate == ""
			if f.request.Calibrate && f.request.Resume != "" {
				return cli.Usage(errors.New("--resume needs --disk-rate: all runs of a journal need disks of the same rate, and the demo measures the rate again each time"))
			}
			return f.perform(cmd)
		},
	}
	f.register(cmd, "alone,floor,native-mq-deadline,sfqd2", 1, "report/demo.html", "all")
	// The other flags of bench isolation work, too; a visitor does not need them.
	shown := []string{"weights", "disk-rate", "report", "json", "keep-logs", "run-dir", "cache-dir", "agent-jar"}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(shown, flag.Name) })
	return cmd
}
