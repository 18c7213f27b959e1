package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/noderun"
)

func newNodeCommand() *cobra.Command {
	cmd := noderun.Command(nil)
	cmd.AddCommand(newNodeList())
	return cmd
}
