package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/monitor"
)

func newBenchMonitor() *cobra.Command {
	q := monitor.Request{Setup: monitor.DefaultSetup()}
	var flags rowsBench
	var wordCountSize, teraSortSize string
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Measure what background activities cost a Spark job, and what control gives back",
		Long: `Repeats the experiments of the monitor-and-controller paper on a modelled hard disk, with
a real HDFS and a real Spark: WordCount and TeraSort alone and together (Table 1), WordCount
beside a reader and a writer of local files and of HDFS (Table 2), with these activities
under control (Experiment 2), and both jobs with one preferred (Experiment 1). The rows are:

  alone, terasort-alone, together             natively
  fio-reader, fio-writer,
  hdfs-reader, hdfs-writer                    WordCount beside the activity, natively
  ...-cgroup, ...-tc                          the same, held by the paper's mechanisms
  ...-penstock                                the same, held by Penstock's gate and arbiter
  wordcount-preferred, terasort-preferred     together, one with the larger weight

The activities are small programs of this laboratory. First, WordCount runs on a disk
without a limit; the disk's rate is set so that WordCount alone uses 0.45 of it, and a
controlled activity may use 0.2 of it. Rates come from the disk's own request log. Waits for
block I/O come from the daemon's monitor. A round of all rows takes about ten minutes. With
--resume, an interrupted measurement continues.

Needs root, /dev/fuse, the blkio controller of cgroup v1, two CPUs, a JDK, Python and, the
first time, Maven and pip. Nothing else should run meanwhile.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench monitor --runs 5 --resume monitor.jsonl --json monitor.json --report monitor.html
  penstock-lab bench monitor --runs 1 --rows alone,fio-writer*`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.TableRequest, err = flags.request(cmd, monitor.RowNames()); err != nil {
				return err
			}
			for _, size := range []struct {
				flag, text string
				to         *int64
			}{{"wordcount-size", wordCountSize, &q.Setup.WordCount.InputBytes}, {"terasort-size", teraSortSize, &q.Setup.TeraSort.InputBytes}} {
				if size.text == "" {
					continue
				}
				if *size.to, err = cli.ParseBytes(size.text); err != nil {
					return cli.Usage(fmt.Errorf("--%s: %w", size.flag, err))
				}
			}
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if err := flags.locate(&q.TableRequest); err != nil {
				return err
			}
			res, err := monitor.Perform(cmd.Context(), q)
			return flags.write(cmd, res, len(res.Turns), err)
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&wordCountSize, "wordcount-size", "", "bytes of WordCount's input (K, M, G: powers of 1024)")
	cmd.Flags().StringVar(&teraSortSize, "terasort-size", "", "bytes of TeraSort's input")
	cmd.Flags().StringVar(&q.Setup.Scheduler, "scheduler", q.Setup.Scheduler, "I/O scheduler of the contested disk: bfq, mq-deadline, kyber or none")
	cmd.Flags().IntVar(&q.Setup.FioJobs, "fio-jobs", q.Setup.FioJobs, "threads of the reader and of the writer of local files")
	cmd.AddCommand(&cobra.Command{
		Use: "load read|write FILE JOBS", Short: "Read or overwrite a file until a signal", Hidden: true, Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "read" && args[0] != "write" {
				return cli.Usage(fmt.Errorf("load %q: use read or write", args[0]))
			}
			jobs, err := strconv.Atoi(args[2])
			if err != nil || jobs < 1 || jobs > monitor.MaxFioJobs {
				return cli.Usage(fmt.Errorf("%q jobs: use 1 to %d", args[2], monitor.MaxFioJobs))
			}
			return monitor.Load(cmd.Context(), args[1], args[0] == "write", jobs)
		},
	})
	return cmd
}
