package main

import "github.com/spf13/cobra"

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the effect and the cost of Penstock",
	}
	cmd.AddCommand(newBenchIsolation(), newBenchOverhead(), newBenchDecision(), newBenchCoordination(), newBenchBroker(), newBenchMonitor(),
		newBenchGuarantees(), newBenchLatency(), newBenchShortest(), newBenchSlowdown(), newBenchForecast(), newBenchNetwork(), newBenchContainers(), newBenchSharedfs())
	return cmd
}
