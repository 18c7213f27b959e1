package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/containers"
)

func newBenchContainers() *cobra.Command {
	var q containers.Request
	q.Setup = containers.DefaultSetup()
	rateMB, sizeMiB := q.Setup.Rate/1_000_000, q.Setup.Bytes>>20
	var flags rowsBench
	cmd := &cobra.Command{
		Use:   "containers",
		Short: "Measure Hadoop against the number of its containers, as the Docker network paper did",
		Long: `A real HDFS and YARN in containers of this machine: network namespaces on a bridge whose router
translates addresses. Each container has a DataNode, a NodeManager and a small modelled hard disk
of its own; NameNode, ResourceManager and clients are in the router's namespace. TestDFSIO
(write, read), TeraGen and TeraSort move the same number of bytes with each number of containers,
as in Figures 6 and 8 of "Analysis of a Network IO Bottleneck in Big Data Environments based on
Docker Containers". There are two replicas, and one if there is only one container.

The name of a row is N-SET-UP: N containers, and one of these set-ups:

  nat     as container engines connect containers, with translated addresses
  joined  the same, with the two sockets of each connection to a DataNode, to the shuffle and of
          the probe joined (penstock network accelerate)

During each job it measures time and throughput, the busy part of the CPUs and of the disks,
context switches, the delay of the containers' threads in the run queue, and round trips between
two containers. The knee is the smallest number of containers from which on a doubling adds less
than 25 % throughput. Rules tell apart why: CPU, disks, network, context switches, run queue. The
table and the report have the paper's findings beside these.

Each row starts a cluster and takes some minutes, longest with one container. With --resume, an
interrupted measurement continues; a later command with more --runs and some --rows adds runs to
these rows.

Needs root and /dev/fuse for the modelled disks, cgroup v2, nsenter and unshare, memory of 3 GiB
and 1.5 GiB for each container, a JDK and, the first time, Maven. The set-up joined needs Linux
6.13. Nothing else should run meanwhile.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench containers --runs 3 --resume containers.jsonl --json containers.json --report containers.html
  penstock-lab bench containers --runs 5 --rows '1-*,4-*,8-*' --resume containers.jsonl
  penstock-lab bench containers --runs 1 --nodes 2,4 --size 64 --rows '*-nat'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			q.Setup.Rate, q.Setup.Bytes = rateMB*1_000_000, sizeMiB<<20
			if q.TableRequest, err = flags.request(cmd, q.Setup.Rows()); err != nil {
				return err
			}
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if err := flags.locate(&q.TableRequest); err != nil {
				return err
			}
			res, err := containers.Perform(cmd.Context(), q)
			return flags.write(cmd, res, len(res.Turns), err)
		},
	}
	cmd.Flags().IntSliceVar(&q.Setup.Nodes, "nodes", q.Setup.Nodes, "numbers of containers, 1 to 32, in ascending order")
	cmd.Flags().Int64Var(&rateMB, "rate", rateMB, "rate of each disk in MB/s, 1 to 100")
	cmd.Flags().Int64Var(&sizeMiB, "size", sizeMiB, "`MiB` that each job writes, reads, generates or sorts, 32 to 512")
	flags.register(cmd)
	return cmd
}
