package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"penstock/cmd/internal/noderun"
)

func newNodeCommand() *cobra.Command {
	cmd := noderun.Command(nil) // the command also works without the subcommand "run"
	run := noderun.Command(nil)
	run.Use = "run --config FILE"
	cmd.AddCommand(run, newNodeList(), newNodeOffer(), newNodePutBack())
	cmd.Short = "Run the node daemon beside a DataNode; list the nodes of a cluster"
	cmd.Use = "node"
	cmd.Long = `"penstock node run" runs the node daemon, and "penstock node list" lists the nodes of a
cluster; --help after each of them describes it.

"penstock node --config FILE" is the former form of "penstock node run --config FILE" and
still works.`
	cmd.Example = "  penstock node run --config /etc/penstock/node.yaml\n  penstock node list"
	hideFlags(cmd)
	return cmd
}

// hideFlags hides the flags of a command that also works without its subcommand "run". The
// subcommand shows them.
func hideFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	cmd.DisableFlagsInUseLine = true
}
