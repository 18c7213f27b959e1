package main

import (
	"github.com/spf13/cobra"

	"penstock/cmd/internal/noderun"
	"penstock/core/arbiter"
	"penstock/lab/schedulers"
)

// newNodeCommand runs a daemon with a scheduler that Penstock's is compared with.
func newNodeCommand() *cobra.Command {
	cmd := noderun.Command(map[string]func(int) arbiter.Scheduler{"drr": schedulers.MakeDRR, "fifo": schedulers.MakeFIFO})
	cmd.Short = "Run the node daemon with a scheduler to compare with"
	cmd.Long = `Run the node daemon as "penstock node" does, with two more schedulers that a device's
settings may name as "algorithm": drr, deficit round robin by weight, and fifo, the order
in which applications became ready. Both have a fixed depth ("depth: {fixed: N}") and
ignore queues.`
	return cmd
}
