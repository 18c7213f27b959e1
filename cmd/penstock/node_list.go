package main

import (
	"fmt"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/ops/operate"
	"penstock/wire/cluster"
)

// newNodeList returns the subcommand `penstock node list`. Without a subcommand, `penstock node`
// runs the daemon.
func newNodeList() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the nodes that report to the broker",
		Long: `List the nodes that report to the broker: the version of the policy in force at each node,
the mode in force there, whether it has the canary's policy, the time of its last report, and
its service as the number of busy devices.

The command asks the broker as an operator: with an operator's certificate (--ca, --cert,
--key), or without TLS on the broker's own machine.`,
		Example: `  penstock node list
  penstock node list --broker broker-1:9717 --ca ca.pem --cert alice.pem --key alice.key
  penstock node list --json | jq -r '.nodes[].node'`,
		Args: cobra.NoArgs,
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, _ []string) error {
			answer, err := c.Nodes(cmd.Context())
			if err != nil {
				return err
			}
			now := time.Now()
			if !a.asJSON {
				fmt.Fprintf(cmd.OutOrStdout(), "broker %s, %s\n", operate.Printable(answer.GetLeader()), operate.Counted(len(answer.GetNodes()), "node"))
				if p := answer.GetCanaryPercent(); p > 0 {
					fmt.Fprintf(cmd.OutOrStdout(), "canary of %d %%: %s\n", p, operate.Counted(operate.CanaryNodes(answer), "node"))
				}
				if note := operate.NodesNote(answer); note != "" {
					fmt.Fprintln(cmd.ErrOrStderr(), note)
				}
				return operate.Nodes(cmd.OutOrStdout(), answer, now)
			}
			nodes := []nodeJSON{}
			for _, n := range answer.GetNodes() {
				nodes = append(nodes, asNodeJSON(n))
			}
			return cli.PrintJSON(cmd, map[string]any{"broker": answer.GetLeader(), "epoch": answer.GetEpoch(), "canary_percent": answer.GetCanaryPercent(), "kill_switch": answer.GetOff(), "nodes": nodes})
		}),
	}
	a.flags(cmd)
	return cmd
}

// nodeJSON is a node as --json prints it.
type nodeJSON struct {
	Node         string    `json:"node"`
	Version      string    `json:"version,omitempty"`
	Address      string    `json:"address,omitempty"`
	PeriodMS     uint32    `json:"period_ms"`
	Policy       uint64    `json:"policy"` // version of the policy in force at the node
	Heard        time.Time `json:"heard"`
	RateNS       uint64    `json:"rate_ns"` // service, in ns of device time per second
	Applications uint32    `json:"applications"`
	Mode         string    `json:"mode"` // in force at the node; empty: an earlier release, which does not report it
	Canary       bool      `json:"canary"`
}

func asNodeJSON(n *cluster.NodeState) nodeJSON {
	return nodeJSON{n.GetNode().GetName(), n.GetNode().GetVersion(), n.GetNode().GetAddress(), n.GetNode().GetPeriodMs(), n.GetPolicy(),
		time.UnixMilli(n.GetHeardUnixMs()).UTC(), n.GetRate(), n.GetApplications(), operate.Mode(n.GetMode()), n.GetCanary()}
}
