// Command penstock gives every application on a shared data cluster its due part of the
// disks and the network. This file only assembles the subcommands.
package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/cmd/internal/noderun"
	"penstock/node/control/freezer"
	"penstock/ops/network"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "penstock",
		Short: "Per-application I/O control for shared big-data clusters",
	}
	cli.Group(root, "Operate", newNodeCommand(), newBrokerCommand(), newInstallCommand(), newCertsCommand(), newProfileCommand(), newPolicyCommand(), newAppCommand())
	cli.Group(root, "Inspect", newStatusCommand(), newTopCommand(), newDoctorCommand(), newNetworkCommand())
	for _, name := range []string{"testbed", "bench", "sim", "demo"} {
		root.AddCommand(newMoved(name))
	}
	noderun.AddGate(root)
	return cli.Root(root)
}

// movedTo maps the names of commands that have moved to the commands of penstock-lab.
var movedTo = map[string]string{
	"testbed disk": "disk run", "testbed check": "disk check", "testbed clean": "clean", "testbed hadoop": "hadoop",
	"testbed node": "node", "testbed soak": "soak",
}

// newMoved returns a hidden command that names its replacement in penstock-lab.
func newMoved(name string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			old := name
			if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
				old += " " + args[0]
			}
			now := movedTo[old]
			switch {
			case now != "":
			case name == "testbed":
				now = "--help"
			default:
				now = old
			}
			return cli.Usage(fmt.Errorf("%q has moved to a program of its own: use penstock-lab %s", old, now))
		},
	}
}

func main() {
	freezer.RunIfHelper()
	network.RunIfWorker()
	cli.Main(newRoot())
}
