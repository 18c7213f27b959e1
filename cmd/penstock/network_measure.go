package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/ops/network"
)

func newNetworkMeasure() *cobra.Command {
	setup := network.DefaultSetup()
	var setUps, parts []string
	length := time.Duration(setup.MeasuredS * float64(time.Second))
	asJSON, cpu := false, -1
	cmd := &cobra.Command{
		Use:   "measure",
		Short: "Measure what a container network costs on this machine",
		Long: `Measures the network between containers of this machine, without Hadoop. A container is a small
process in a network namespace of its own. The namespaces belong to the measurement and end with
it; the machine's own interfaces, rules and parameters are not changed. Each set-up adds one
step to the way of a packet:

  host           two processes, loopback
  bridge         containers on a bridge that passes packets to no rules
  bridge-filter  the same, with Docker's rules and connection tracking
  bridge-nat     the same, through a published port, so that addresses are translated

The parts are experiments of "Analysis of a Network IO Bottleneck in Big Data Environments based
on Docker Containers":

  streams  Figure 3: transmit, receive and both; throughput and CPU seconds per GB
  trips    Figure 4: requests of 100 bytes and answers of 200 bytes over TCP and UDP
  awake    the same, while processes at idle priority keep the CPUs from halting: waking a halted
           CPU takes longer than the network does, above all in a virtual machine
  pairs    Figure 5: round trips against the number of pairs of containers on one CPU, with the
           delay in the run queue, context switches and CPU time of both ends per trip
  busy     the same, while each container performs 1,000 small MapReduce operations per minute

At the end, the command says in sentences how much each step costs, and why round trips grow. All
parts of all set-ups take about four minutes. The figures include other load on the machine. Under a
limit of CPU time (cpu.max, docker run --cpus), leave out the part awake: it uses up the limit.

Needs root, and iptables for the last two set-ups.`,
		Example: `  penstock network measure
  penstock network measure --set-ups host,bridge-nat --parts trips,pairs --pairs 1,8,64 --time 5s
  penstock network measure --json > network.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			setup.MeasuredS = length.Seconds()
			if cpu != -1 {
				setup.CPU = cpu
			}
			chosen, err := network.Find(setUps)
			if err != nil {
				return cli.Usage(fmt.Errorf("--set-ups: %w", err))
			}
			var which []network.Part
			for _, p := range parts {
				if !slices.Contains(network.Parts(), network.Part(p)) {
					return cli.Usage(fmt.Errorf("--parts: no part %q: the parts are %v", p, network.Parts()))
				}
				which = append(which, network.Part(p))
			}
			if err := setup.Validate(); err != nil {
				return cli.Usage(err)
			}
			r, err := network.MeasureAll(cmd.Context(), chosen, which, setup, func(format string, args ...any) {
				fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
			})
			if asJSON {
				return errors.Join(err, cli.PrintJSON(cmd, r))
			}
			return errors.Join(err, r.WriteTable(cmd.OutOrStdout()))
		},
	}
	flags := cmd.Flags()
	var allSetUps, allParts []string
	for _, s := range network.SetUps() {
		allSetUps = append(allSetUps, s.Name)
	}
	for _, p := range network.Parts() {
		allParts = append(allParts, string(p))
	}
	flags.StringSliceVar(&setUps, "set-ups", allSetUps, "set-ups to measure")
	flags.StringSliceVar(&parts, "parts", allParts, "parts to measure")
	flags.IntSliceVar(&setup.Pairs, "pairs", setup.Pairs, fmt.Sprintf("numbers of pairs of containers, 1 to %d", network.MaxPairs))
	flags.DurationVar(&length, "time", length, "length of each figure's measurement, 100ms to 10m")
	flags.IntVar(&cpu, "cpu", -1, "CPU that all pairs share; -1 is the last one that this process may use")
	flags.BoolVar(&setup.AlsoUnbound, "also-unbound", false, "measure the pairs also on all CPUs")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
