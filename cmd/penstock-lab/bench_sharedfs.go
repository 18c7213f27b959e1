package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/sharedfs"
)

func newBenchSharedfs() *cobra.Command {
	var q sharedfs.Request
	q.Setup = sharedfs.DefaultSetup()
	rateMB, turnKiB := q.Setup.Rate/1_000_000, q.Setup.Beside.Turn>>10
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

taskset binds NodeManagers and containers to the CPUs. The memory is the limit of a cgroup, page
cache included. Its use is sampled once a second, and the report draws it over time.

The table has run times, local maps, the busy part of the CPUs, and the bytes from and to the disks,
over the network and through NodeManagers. Every row of every output of TeraSort is checked, and
every rank of PageRank.

Further rows measure storage clients beside TeraSorts, on GlusterFS:

  gluster-clients-floor       the TeraSorts use other disks; the CPUs are the same
  gluster-clients-native      both use the same disks
  gluster-clients-segregated  the same, with a daemon of Penstock at each server

The clients are two more hosts, with a mount and no server. On each of them, fio has a process for each
server in the pattern of IOR: it writes a file for 6 s in transfers of 256 KiB, reads it for 6 s, and
pauses for 12 s. A probe for each process reads 4 KiB five times a second meanwhile. All of this is direct
I/O, so it reaches the servers' disks. --sorts TeraSorts of --sort-size are submitted 4 s apart to a
queue of YARN that runs at most --at-once of them (the queue has room for as many ApplicationMasters).
Their intermediate data is on modelled solid-state disks. Each row has two volumes on disks of their own;
in the row floor, the TeraSorts use the second one.

In the row segregated, the TeraSorts' reads and writes take turns at the servers' disks. The storage
service gets the part --storage-share of a disk's time while it uses the disk. The TeraSorts, each with
weight 1, get the rest, and all of the time while the service does not use the disk. The depth is 1.
--turn-size is the largest turn and the daemons' quantum. Goals: the clients' throughput is at least
0.95 of that of floor, and their p99 at most that of floor plus the time of one quantum. The
TeraSorts' makespan is at most that of floor, divided by the part of the time that the weights leave to
them: 1 - share * (part of the time in which clients write or read).

In these rows, servers, their daemons and storage clients have real-time priority, as if they had CPUs
of their own.

Each row starts a cluster and takes some minutes. With --resume, an interrupted measurement
continues.

Needs root, /dev/fuse, nsenter, unshare and chrt, 8 GiB of memory (16 GiB with storage clients), a JDK
and, the first time, Maven and a Debian machine (GlusterFS, MooseFS and fio are unpacked into the cache,
not installed). The rows yarn-* also need two CPUs and cgroups of the memory controller.
Nothing else should run meanwhile.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench sharedfs --runs 5 --resume sharedfs.jsonl --json sharedfs.json --report sharedfs.html
  penstock-lab bench sharedfs --runs 1 --rows 'gluster-s*' --sizes 128
  penstock-lab bench sharedfs --runs 3 --rows '*-pagerank-*,gluster-yarn-*' --report yarn.html
  penstock-lab bench sharedfs --runs 5 --rows 'gluster-clients-*' --resume clients.jsonl --json clients.json
  penstock-lab bench sharedfs --runs 1 --rows 'gluster-clients-*' --sorts 50 --json clients-50.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			q.Setup.Rate, q.Setup.Beside.Turn = rateMB*1_000_000, turnKiB<<10
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
	beside := &q.Setup.Beside
	cmd.Flags().IntVar(&beside.Sorts, "sorts", beside.Sorts, "rows with storage clients: number of TeraSorts, 1 to 100")
	cmd.Flags().IntVar(&beside.AtOnce, "at-once", beside.AtOnce, "rows with storage clients: TeraSorts that the queue runs at a time, 1 to 24")
	cmd.Flags().IntVar(&beside.SortMiB, "sort-size", beside.SortMiB, "rows with storage clients: size of each TeraSort's input in MiB, 8 to 2048")
	cmd.Flags().Float64Var(&beside.Share, "storage-share", beside.Share, "rows with storage clients: the storage service's part of a disk's time, 0.5 to 0.99")
	cmd.Flags().Int64Var(&turnKiB, "turn-size", turnKiB, "rows with storage clients: size of the TeraSorts' turns in KiB, 64 to 1024")
	flags.register(cmd)
	return cmd
}
