package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/ops/operate"
)

// forceFlag adds --force of commands that apply a policy.
func forceFlag(cmd *cobra.Command, force *bool) {
	cmd.Flags().BoolVar(force, "force", false, "accept a rule that limits all applications")
}

// canaryPercent parses the value of --canary; empty is 0.
func canaryPercent(text string) (uint32, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "%"), 10, 32)
	if err != nil || n < 1 || n > 99 {
		return 0, fmt.Errorf("--canary %q: give a part of the nodes from 1%% to 99%%, in whole percent", text)
	}
	return uint32(n), nil
}

func newPolicyCanary() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "canary",
		Short: "Show the canary in force, complete it, or take it back",
		Long: `Show which nodes follow the canary's policy, which "penstock policy apply --canary" has put into
force at a part of the nodes. "complete" puts it into force at all nodes. With "take-back" its
nodes follow the other nodes' policy again.`,
		Example: `  penstock policy apply policy.yaml --canary 10%
  penstock policy canary
  penstock policy canary complete`,
		Args: cobra.NoArgs,
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, _ []string) error {
			answer, err := c.Nodes(cmd.Context())
			if err != nil {
				return err
			}
			names := []string{}
			for _, n := range answer.GetNodes() {
				if n.GetCanary() {
					names = append(names, n.GetNode().GetName())
				}
			}
			switch {
			case a.asJSON:
				return cli.PrintJSON(cmd, map[string]any{"canary_percent": answer.GetCanaryPercent(), "nodes": len(answer.GetNodes()), "canary_nodes": names})
			case answer.GetCanaryPercent() == 0:
				fmt.Fprintln(cmd.OutOrStdout(), "no canary is in force")
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "canary of %d %%: %d of %s that report\n", answer.GetCanaryPercent(), len(names), operate.Counted(len(answer.GetNodes()), "node"))
			for _, name := range names {
				fmt.Fprintln(cmd.OutOrStdout(), operate.Printable(name))
			}
			return nil
		}),
	}
	a.flags(cmd)
	cmd.AddCommand(
		newEndCanary("complete", "Put the canary's policy into force at all nodes", true),
		newEndCanary("take-back", "Put the other nodes' policy into force at the canary's nodes again", false))
	return cmd
}

func newEndCanary(name, short string, complete bool) *cobra.Command {
	var a asking
	var note string
	var base uint64
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long:  short + `, and wait as "policy apply" does.`,
		Args:  cobra.NoArgs,
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, _ []string) error {
			if err := checkWait(wait); err != nil {
				return err
			}
			begin := time.Now()
			v, err := c.EndCanary(cmd.Context(), complete, base, note)
			if err != nil {
				return err
			}
			return live(cmd, c, v, begin, wait, a.asJSON)
		}),
	}
	a.flags(cmd)
	noteFlag(cmd, &note)
	cmd.Flags().Uint64Var(&base, "base", 0, "the `VERSION` with the canary; fails if another version is in force (default: any version)")
	waitFlag(cmd, &wait)
	return cmd
}

func newPolicyKillSwitch() *cobra.Command {
	var a asking
	var note string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "kill-switch on|off",
		Short: "Stop all governing on the whole cluster, or let it continue",
		Long: `With "on", no node governs anything until the kill switch is off again: each node goes to the
mode off with the answer to its next report. Another policy does not turn the kill switch
off. The command waits until all nodes report the mode off.

A node that no broker answers keeps its mode; on its machine there is the kill switch of the
node (docs/operate/enforce.md).

Exit codes: 0 done; 1 refused, or not all nodes have followed in time; 2 wrong use.`,
		Example: `  penstock policy kill-switch on --note "disks overloaded"
  penstock policy kill-switch off`,
		Args: arguments(1, 1, "on or off"),
		RunE: a.asked(func(cmd *cobra.Command, c *operate.Client, args []string) error {
			if args[0] != "on" && args[0] != "off" {
				return cli.Usage(fmt.Errorf("kill-switch %q: give on or off", args[0]))
			}
			if err := checkWait(wait); err != nil {
				return err
			}
			begin := time.Now()
			v, err := c.KillSwitch(cmd.Context(), args[0] == "on", note)
			if err != nil {
				return err
			}
			return live(cmd, c, v, begin, wait, a.asJSON)
		}),
	}
	a.flags(cmd)
	noteFlag(cmd, &note)
	waitFlag(cmd, &wait)
	return cmd
}

// noteFlag adds --note.
func noteFlag(cmd *cobra.Command, note *string) {
	cmd.Flags().StringVar(note, "note", "", "why, for the history: up to 1024 bytes")
}
