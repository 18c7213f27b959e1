package noderun

import (
	"github.com/spf13/cobra"

	"penstock/node/control/gate"
)

// AddGate adds the hidden commands that the daemon starts as the gate's two processes.
func AddGate(root *cobra.Command) {
	for name, run := range map[string]func() error{gate.RoleSupervisor: gate.RunSupervisor, gate.RoleGate: gate.RunGate} {
		root.AddCommand(&cobra.Command{Use: name, Hidden: true, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return run() }})
	}
}
