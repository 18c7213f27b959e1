package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/bench/network"
)

func newBenchNetwork() *cobra.Command {
	q := network.Request{Setup: network.DefaultSetup()}
	var flags rowsBench
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Measure what a container network costs, as the Docker network paper did",
		Long: `Processes in network namespaces send streams and make round trips, as in Figures 3 to 5 of
"Analysis of a Network IO Bottleneck in Big Data Environments based on Docker Containers". The
name of a row is PART-SET-UP. The parts are:

  streams  Figure 3: transmit, receive and both; throughput and CPU time per GB
  trips    Figure 4: requests of 100 bytes and answers of 200 bytes over TCP and UDP
  awake    the same, while processes at idle priority keep the CPUs from halting: waking a halted
           CPU takes longer than the network does, above all in a virtual machine
  pairs    Figure 5: 1 to 32 pairs of containers that share one CPU: round trip, delay in the run
           queue and context switches
  busy     the same, while each container performs 1,000 small MapReduce operations per minute

The set-ups are:

  host           two processes, loopback
  bridge         containers on a bridge that passes packets to no rules
  bridge-filter  the same, with Docker's rules and connection tracking
  bridge-nat     the same, through a published port, so that addresses are translated
  runc           the same, with containers of runc (parts streams and trips)
  joined         bridge-nat, with the two sockets of each connection joined

The table and the report have the paper's figures beside these. A run of all rows takes more than
four minutes. With --resume, an interrupted measurement continues. The namespaces end with the
processes that use them.

Needs root and iptables. The set-up runc also needs the program runc, and the set-up joined needs
Linux 6.13 and cgroup v2. The figures include other load on the machine, so nothing else should
run meanwhile. On a machine without the laboratory, penstock network measure measures the same.

Exit codes: 0 done, also when a goal is missed; 1 failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench network --runs 5 --resume network.jsonl --json network.json --report network.html
  penstock-lab bench network --runs 1 --rows trips-*,*-joined,pairs-bridge-nat --seconds 5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.TableRequest, err = flags.request(cmd, network.Rows()); err != nil {
				return err
			}
			if err := q.Validate(); err != nil {
				return cli.Usage(err)
			}
			res, err := network.Perform(cmd.Context(), q)
			return flags.write(cmd, res, len(res.Turns), err)
		},
	}
	cmd.Flags().Float64Var(&q.Setup.MeasuredS, "seconds", q.Setup.MeasuredS, "length of each figure's measurement, 0.1 to 600")
	cmd.Flags().IntSliceVar(&q.Setup.Pairs, "pairs", q.Setup.Pairs, "numbers of pairs of containers, 1 to 128")
	cmd.Flags().BoolVar(&q.Setup.AlsoUnbound, "also-unbound", false, "measure the pairs also on all CPUs; these figures are in --json only")
	flags.registerTable(cmd)
	return cmd
}
