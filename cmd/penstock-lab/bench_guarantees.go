package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/guarantees"
)

func newBenchGuarantees() *cobra.Command {
	q := guarantees.Request{Setup: guarantees.DefaultSetup()}
	var flags rowsBench
	cmd := &cobra.Command{
		Use:   "guarantees",
		Short: "Measure how guaranteed rates and limits are kept",
		Long: `Real HDFS clients contend for modelled disks, and the disks' own request logs judge. An
application with a guaranteed rate or a limit stands beside others of equal weight. The rows
are:

  hdd-native, ssd-native  16 readers and writers beside a reader, without Penstock
  hdd-time, ssd-time      the same; the reader has 40 % of the disk's time
  hdd-bytes               the same; the reader has 40 % of the disk's rate, in bytes
  cluster                 a total rate on three nodes, while the tasks move; before that, a
                          rate that the nodes cannot keep
  limit                   a limit on one disk, and a total limit on two nodes
  halved                  two guaranteed rates on a disk that becomes half as fast

A run of all rows takes about twelve minutes. With --resume, an interrupted measurement
continues.

Needs root and /dev/fuse for the modelled disks, two CPUs, 8 GiB in /dev/shm, a JDK and, the
first time, Maven. Nothing else should run meanwhile.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench guarantees --runs 5 --resume guarantees.jsonl --json guarantees.json --report guarantees.html
  penstock-lab bench guarantees --runs 1 --rows hdd-*,cluster`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.TableRequest, err = flags.request(cmd, guarantees.Rows()); err != nil {
				return err
			}
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if err := flags.locate(&q.TableRequest); err != nil {
				return err
			}
			res, err := guarantees.Perform(cmd.Context(), q)
			return flags.write(cmd, res, len(res.Turns), err)
		},
	}
	flags.register(cmd)
	return cmd
}
