package main

import "github.com/spf13/cobra"

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what Penstock does for applications on real Hadoop",
	}
	cmd.AddCommand(newBenchIsolation(), newBenchOverhead(), newBenchDecision(), newBenchCoordination(), newBenchBroker())
	return cmd
}
