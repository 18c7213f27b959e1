package main

import "github.com/spf13/cobra"

func newNetworkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Measure and accelerate the network of containers",
	}
	cmd.AddCommand(newNetworkMeasure(), newNetworkAccelerate())
	return cmd
}
