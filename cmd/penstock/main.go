// Command penstock gives every application on a shared data cluster its due part of the
// disks and the network. This file only assembles the subcommands.
package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "penstock",
		Short: "Per-application I/O control for shared big-data clusters",
	}
	root.AddCommand(newNodeCommand(), newBrokerCommand(), newCertsCommand(), newInstallCommand(), newProfileCommand())
	root.AddCommand(newPolicyCommand(), newAppCommand())
	root.AddCommand(newTopCommand(), newDoctorCommand())
	for _, name := range []string{"testbed", "bench", "sim", "demo"} {
		root.AddCommand(newMoved(name))
	}
	return cli.Root(root)
}

// newMoved answers a command that penstock-lab has now.
func newMoved(name string) *cobra.Command {
	now := map[string]string{
		"testbed": "penstock-lab (disk run, disk check, clean, hadoop, node and soak)",
	}[name]
	if now == "" {
		now = "penstock-lab " + name
	}
	return &cobra.Command{
		Use:                name,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return cli.Usage(fmt.Errorf("%q has moved: use %s", name, now))
		},
	}
}

func main() { cli.Main(newRoot()) }
