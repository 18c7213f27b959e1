package main

import (
	"github.com/spf13/cobra"
)

func newDemoCommand() *cobra.Command {
	var f isolationFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on real HDFS what a weight of 32:1 does for a job; about ten minutes",
		Long: `Starts a real Hadoop on modelled disks and runs WordCount four times: alone;
beside an aggressor whose data is on other disks (the floor: what CPU alone
costs); together with it on the same disks as Hadoop does natively; and together
under Penstock, 32:1, SFQ(D2). Ends with a table and an HTML report.

It is "bench isolation" with one run of each phase, and natively only under
mq-deadline, to save time; "bench isolation" compares with all kernel schedulers
and gives medians.

Exit codes: 0 done; 1 a run, a check of outputs or putting back failed; 2 wrong
flags; 130 interrupted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.perform(cmd) },
	}
	f.register(cmd, "alone,floor,native-mq-deadline,sfqd2", 1, "report/demo.html", "all")
	return cmd
}
