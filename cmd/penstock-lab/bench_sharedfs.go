package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/sharedfs"
)

func newBenchSharedfs() *cobra.Command {
	var q sharedfs.Request
	q.Setup = sharedfs.DefaultSetup()
	rateMB := q.Setup.Rate / 1_000_000
	var flags rowsBench
	cmd := &cobra.Command{
		Use:   "sharedfs",
		Short: "Measure MapReduce on GlusterFS and MooseFS, as the Lustre integration paper did on Lustre",
		Long: `A real GlusterFS or MooseFS on several hosts of this machine: network namespaces with mounts of their
own. Each host has a server of the file system with a modelled hard disk, a mount, and a NodeManager.
There is no HDFS: MapReduce uses the file system shared:/// of penstock-sharedfs.jar. TeraSort sorts
inputs of some sizes. The name of a row is FILE-SYSTEM-CASE: gluster or moosefs, and one of

  local-any    intermediate data on local disks, without locality
  local-near   the same, and maps are placed beside their data
  shared-any   intermediate data on the file system, where reduces merge it in place
  shared-near  the same, and maps are placed beside their data
  stock-near   intermediate data on the file system, with Hadoop's own shuffle

The first four are the cases of "Progress on Efficient Integration of Lustre and Hadoop/YARN". The
paper's second job is PageRank, with a quarter of TeraSort's largest input:

  pagerank-local-any, pagerank-local-near, pagerank-shared-near, pagerank-stock-near

PageRank is three jobs of MapReduce one after the other, on a generated graph. Further rows give YARN
one or two CPUs, and less or more memory for its containers (1 or 2 GiB on each host), in place of
the paper's virtual machines. These rows have TeraSort's largest input, and only exist for gluster:

  yarn-1-core-less, yarn-1-core-more, yarn-2-cores-less, yarn-2-cores-more    else as shared-near

The CPUs are a list of taskset for NodeManagers and containers. The memory is that of a cgroup, page
cache included, whose use is sampled once a second. The report draws it over time.

The table has run times, local maps, the busy part of the CPUs, and the bytes from and to the disks,
over the network and through NodeManagers. Every row of every output of TeraSort is checked, and
every rank of PageRank.

Each row starts a cluster and takes some minutes. With --resume, an interrupted measurement
continues.

Needs root, /dev/fuse, nsenter and unshare, 8 GiB of memory, a JDK, for rows with a part of the
machine cgroups of the memory controller and two CPUs, and, the first time, Maven and a
Debian machine (GlusterFS and MooseFS are unpacked into the cache, not installed). Nothing else
should run meanwhile.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench sharedfs --runs 5 --resume sharedfs.jsonl --json sharedfs.json --report sharedfs.html
  penstock-lab bench sharedfs --runs 1 --rows 'gluster-s*' --sizes 128
  penstock-lab bench sharedfs --runs 3 --rows '*-pagerank-*,gluster-yarn-*' --report yarn.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			q.Setup.Rate = rateMB * 1_000_000
			if q.TableRequest, err = flags.request(cmd, sharedfs.Rows()); err != nil {
				return err
			}
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			if err := flags.locate(&q.TableRequest); err != nil {
				return err
			}
			res, err := sharedfs.Perform(cmd.Context(), q)
			return flags.write(cmd, res, len(res.Turns), err)
		},
	}
	cmd.Flags().IntVar(&q.Setup.Hosts, "hosts", q.Setup.Hosts, "number of hosts, 2 to 8")
	cmd.Flags().Int64Var(&rateMB, "rate", rateMB, "rate of each disk in MB/s, 1 to 100")
	cmd.Flags().IntSliceVar(&q.Setup.SizesMiB, "sizes", q.Setup.SizesMiB, "sizes of TeraSort's input in MiB, 32 to 2048")
	flags.register(cmd)
	return cmd
}
