package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/noderun"
)

func newNodeCommand() *cobra.Command {
	cmd := noderun.Command(nil) // also runs without "run", as it used to
	run := noderun.Command(nil)
	run.Use = "run --config FILE"
	cmd.AddCommand(run, newNodeList())
	cmd.Short = "Run the node daemon beside a DataNode; list the nodes of a cluster"
	return cmd
}
