package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/noderun"
	"penstock/core/arbiter"
	"penstock/lab/schedulers"
)

// newNodeCommand returns the command that runs a daemon with another scheduler, to compare Penstock
// with it.
func newNodeCommand() *cobra.Command {
	cmd := noderun.Command(map[string]func(int) arbiter.Scheduler{"drr": schedulers.MakeDRR, "fifo": schedulers.MakeFIFO})
	cmd.Short = "Run the node daemon with another scheduler, for comparison"
	cmd.Long = `Run the node daemon as "penstock node" does, with two more schedulers that a device's
settings may name as "algorithm": drr, deficit round robin by weight, and fifo, the order
in which applications became ready. Both have a fixed depth ("depth: {fixed: N}") and
ignore queues.`
	return cmd
}
