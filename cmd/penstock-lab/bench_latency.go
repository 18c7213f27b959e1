package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/latency"
)

func newBenchLatency() *cobra.Command {
	q := latency.Request{Setup: latency.DefaultSetup()}
	var flags rowsBench
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Measure small random reads alone and beside others, with a latency goal",
		Long: `A client of a real HDFS reads 16 KiB at random places of a file on a modelled hard disk, as
HBase does. One DataNode has the agent and the daemon, another one has neither. The rows are:

  alone           cold and cached reads, natively and under Penstock in turn
  writers-native  beside two HDFS writers, without Penstock
  writers-weight  the same; the reads have weight 32
  writers-goal    the same; the reads have weight 32 and a latency goal of 50 ms
  teragen-native  beside TeraGen on YARN, without Penstock
  teragen-goal    the same; the reads have weight 32 and a latency goal

  hbase-alone           HBase's PerformanceEvaluation alone, natively and under Penstock: random
                        reads from the disk and from the page cache, writes, a scan
  hbase-teragen-native  HBase's random reads and writes beside TeraGen, without Penstock
  hbase-teragen-weight  the same under Penstock; HBase has weight 32
  hbase-teragen-goal    the same under Penstock; HBase has weight 32 and a latency goal

Beside others, the client makes ten reads per second. HBase's client makes one operation after
another, and each write waits for HBase's log. The table has the operations' durations, and the
part of the disk's rate that the disk moves with and without the client's reads. A run of all rows
takes about twenty minutes. With --resume, an interrupted measurement continues.

Needs root and /dev/fuse for the modelled disks, two CPUs, 8 GiB in /dev/shm, a JDK and, the
first time, Maven. Nothing else should run meanwhile.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench latency --runs 5 --resume latency.jsonl --json latency.json --report latency.html
  penstock-lab bench latency --runs 1 --rows alone,writers-* --goal 30
  penstock-lab bench latency --runs 5 --rows hbase-* --resume hbase.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.TableRequest, err = flags.request(cmd, latency.Rows()); err != nil {
				return err
			}
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if err := flags.locate(&q.TableRequest); err != nil {
				return err
			}
			res, err := latency.Perform(cmd.Context(), q)
			return flags.write(cmd, res, len(res.Turns), err)
		},
	}
	cmd.Flags().IntVar(&q.Setup.GoalMS, "goal", q.Setup.GoalMS, "latency goal of the reads in milliseconds, 10 to 10,000")
	flags.register(cmd)
	return cmd
}
