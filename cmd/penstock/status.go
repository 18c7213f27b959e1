package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/node/status"
	"penstock/ops/screen"
)

func newStatusCommand() *cobra.Command {
	var address string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of this node's daemon on one screen",
		Long: `Show the state of this node's daemon: its mode, devices, agents and broker, and what needs
attention. "penstock top" shows applications; "penstock doctor" also checks Hadoop and the
machine.

Exit codes: 0 all is well; 1 the daemon does not answer, or something needs attention; 2 wrong
use.`,
		Example: "  penstock status\n  penstock status --json | jq .mode",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc, err := status.Fetch(cmd.Context(), address)
			if err != nil {
				return err
			}
			problems := attention(doc)
			if asJSON {
				err = cli.PrintJSON(cmd, doc)
			} else {
				printStatus(cmd.OutOrStdout(), doc, problems)
			}
			if err == nil && len(problems) > 0 {
				err = needAttention(len(problems))
			}
			return err
		},
	}
	addressFlag(cmd, &address)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's document as JSON")
	return cmd
}

func needAttention(count int) error {
	if count == 1 {
		return errors.New("status: one thing needs attention; penstock doctor says what to do")
	}
	return fmt.Errorf("status: %d things need attention; penstock doctor says what to do", count)
}

// attention returns what an operator should look at, a sentence each.
func attention(doc *status.Document) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if doc.KillSwitch.On {
		add("the kill switch is on: nothing is governed until %s is removed", doc.KillSwitch.File)
	}
	if doc.Weights.Error != "" {
		add("the weights file is wrong, and its last good version is in force: %s", doc.Weights.Error)
	}
	if doc.Cluster.Node != "" && doc.Cluster.Broker == "" {
		add("no broker answers; shares are local: %s", doc.Cluster.Error)
	}
	if len(doc.Agents) == 0 {
		add("no agent is connected: restart the DataNode with the agent (penstock install prepares it)")
	}
	for _, name := range doc.Heartbeat.Stalled {
		add("the scheduler loop for %s is stalled; its gates are open", name)
	}
	for _, d := range doc.Devices {
		if d.Stuck {
			add("device %s does not answer; its gates are open", d.Name)
		}
		if d.SlowFactor > 1 {
			add("device %s is %.1f times slower than it was", d.Name, d.SlowFactor)
		}
		if d.Errors > 0 {
			add("device %s has returned %d I/O errors", d.Name, d.Errors)
		}
	}
	return problems
}

func printStatus(out io.Writer, doc *status.Document, problems []string) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-9s %s\n", name, screen.Printable(fmt.Sprintf(format, args...)))
	}
	line("daemon", "%s, process %d, up %v", doc.Build, doc.PID, doc.Time.Sub(doc.Started).Round(time.Second))
	line("mode", "%s", doc.Mode)
	weights := "every application has weight 1 (no weights file)"
	if doc.Weights.File != "" {
		weights = fmt.Sprintf("%s, %d rules", doc.Weights.File, doc.Weights.Rules)
	}
	line("weights", "%s", weights)
	switch c := doc.Cluster; {
	case c.Node == "":
		line("broker", "none is configured; shares are local")
	case c.Broker == "":
		line("broker", "none answers; shares are local")
	case c.InForce:
		line("broker", "%s, policy version %d, cluster shares in force", c.Broker, c.Policy)
	default:
		line("broker", "%s, policy version %d, cluster shares not yet in force", c.Broker, c.Policy)
	}
	roles := map[string]int{}
	var order []string
	for _, a := range doc.Agents {
		if roles[a.Role]++; roles[a.Role] == 1 {
			order = append(order, a.Role)
		}
	}
	agents := make([]string, 0, len(order))
	for _, role := range order {
		agents = append(agents, fmt.Sprintf("%d %s", roles[role], role))
	}
	if len(agents) == 0 {
		agents = []string{"none"}
	}
	byLoopback := ""
	if n := doc.Loopback.Agents; n > 0 {
		byLoopback = fmt.Sprintf("; %d of them by loopback", n)
	}
	line("agents", "%s%s", strings.Join(agents, ", "), byLoopback)
	for _, d := range doc.Devices {
		if !d.Answered {
			line("device", "%s: its loop did not answer", d.Name)
			continue
		}
		active := 0
		for _, f := range d.Flows {
			if f.Window.Active {
				active++
			}
		}
		line("device", "%s: %.0f %% busy, depth %d, %d of %d flows active", d.Name, 100*d.Window.Utilisation, d.Depth, active, len(d.Flows))
	}
	for _, p := range problems {
		fmt.Fprintln(out, "ATTENTION", screen.Printable(p))
	}
}
