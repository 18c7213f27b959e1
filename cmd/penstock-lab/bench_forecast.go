package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/forecast"
)

func newBenchForecast() *cobra.Command {
	q := forecast.Request{Setup: forecast.DefaultSetup()}
	var flags rowsBench
	var rate string
	cmd := &cobra.Command{
		Use:   "forecast",
		Short: "Measure how well the broker foresees the ends of applications, and profile them",
		Long: `Measures forecasts and profiles on one modelled hard disk, with a real HDFS, YARN and Spark,
a node daemon and a broker that polls the ResourceManager. The rows are:

  wordcount, terasort, query                  forecasts at unchanged weights
  wordcount-changed, terasort-changed,
  query-changed                               forecasts after a change of the weights
  profile-sort, profile-terasort,
  profile-wordcount, profile-query,
  profile-bayes, profile-kmeans               profiles of applications alone

WordCount, TeraSort and Sort are MapReduce's; the query (TPC-H), Bayes and K-means are Spark's.
For the forecasts, an application runs beside an HDFS client that reads all the time. The broker
is asked for the application's end, as penstock app forecast asks it, when the application has
made 40, 50, 60 and 70 % of its progress, and of its work as the broker knows it from earlier
runs. The broker runs over all turns and learns from each, so the first run of each application is
without history. Only forecasts with history have goals; the others are stated separately.
In a row with a change, the weights change from 1:1 to 3:1 (in every second run 1:3) at a third of
the work. YARN's account of the end is the judge. An error is a part of the whole run time from
submission to end; another figure states the error as a part of the time that remained. 30 forecasts
need eight turns or more, after some turns without history.

A profile is that of penstock app profile; its class is compared with Table II of the disk
contention paper. A turn takes two to three minutes. With --resume, an interrupted measurement
continues, with a new broker that has no history yet.

Needs root, /dev/fuse, two CPUs, a JDK, Python and, the first time, Maven and pip. Nothing else
should run meanwhile.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench forecast --runs 5 --resume forecast.jsonl --json forecast.json --report forecast.html
  penstock-lab bench forecast --runs 1 --rows wordcount,query*
  penstock-lab bench forecast --runs 1 --rows profile-*`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.TableRequest, err = flags.request(cmd, forecast.Rows()); err != nil {
				return err
			}
			if rate != "" {
				if q.Setup.DiskRate, err = cli.ParseBytes(rate); err != nil {
					return cli.Usage(fmt.Errorf("--disk-rate: %w", err))
				}
			}
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if err := flags.locate(&q.TableRequest); err != nil {
				return err
			}
			res, err := forecast.Perform(cmd.Context(), q)
			return flags.write(cmd, res, len(res.Turns), err)
		},
	}
	cmd.Flags().StringVar(&rate, "disk-rate", "", "`BYTES` per second of the disk (K, M, G: powers of 1024; default: 10 MB/s)")
	cmd.Flags().StringVar(&q.Setup.Scheduler, "scheduler", q.Setup.Scheduler, "I/O scheduler of the disk: bfq, mq-deadline, kyber or none")
	flags.register(cmd)
	return cmd
}
