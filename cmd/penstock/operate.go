package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/ops/operate"
	"penstock/wire/cluster"
)

const (
	brokerEnv     = "PENSTOCK_BROKER"
	brokerDefault = "127.0.0.1:9717"
	// liveWait is the default of --wait: how long a change may take to reach all nodes.
	liveWait = 30 * time.Second
)

// asking holds the flags of a command that asks the broker: the broker's addresses, and the
// certificate of the user.
type asking struct {
	broker string
	files  cluster.Files
	asJSON bool
}

func (a *asking) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.broker, "broker", "", "`HOST:PORT` of the broker, or of several with commas between them (default: $"+brokerEnv+" or "+brokerDefault+")")
	addFiles(cmd, &a.files)
	cmd.Flags().BoolVar(&a.asJSON, "json", false, "print JSON")
}

// client returns a client of the broker that the flags name.
func (a *asking) client() (*operate.Client, error) {
	addresses := strings.Split(cmp.Or(a.broker, os.Getenv(brokerEnv), brokerDefault), ",")
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, cli.Usage(fmt.Errorf("broker %q: give HOST:PORT", address))
		}
	}
	var secure func() *tls.Config
	if !a.files.Empty() {
		var err error
		if secure, err = a.files.Clients(); err != nil {
			return nil, cli.Usage(fmt.Errorf("--ca, --cert and --key: %w", err))
		}
	}
	return operate.New(addresses, secure)
}

// asked returns a cobra RunE function that calls run with a client of the broker.
func (a *asking) asked(run func(*cobra.Command, *operate.Client, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		defer c.Close()
		return run(cmd, c, args)
	}
}

// arguments checks the number of arguments as cobra does, but returns a usage error that says what
// to give.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return cli.Usage(fmt.Errorf("%s: give %s", strings.TrimPrefix(cmd.CommandPath(), "penstock "), what))
		}
		return nil
	}
}

// applied is the result of a new version of the policy, as --json prints it.
type applied struct {
	Version uint64  `json:"version"`
	Author  string  `json:"author"`
	Nodes   int     `json:"nodes"`
	Live    bool    `json:"live"` // in force at all of these nodes
	Seconds float64 `json:"seconds"`
	// The canary in force, 0: none, and the nodes that have it.
	CanaryPercent uint32 `json:"canary_percent"`
	CanaryNodes   int    `json:"canary_nodes"`
	KillSwitch    bool   `json:"kill_switch"` // on: no node governs anything
}

// live waits until a version is in force at all nodes and prints how long that took.
func live(cmd *cobra.Command, c *operate.Client, v *cluster.PolicyVersion, begin time.Time, most time.Duration, asJSON bool) error {
	r := applied{Version: v.GetVersion(), Author: v.GetAuthor(), CanaryPercent: v.GetCanaryPercent(), KillSwitch: v.GetOff()}
	var err error
	if most > 0 {
		var a *cluster.ListNodesAnswer
		a, err = c.Await(cmd.Context(), v, most)
		if err != nil && !errors.Is(err, operate.ErrNotLive) {
			return fmt.Errorf("version %d is written, but it is not known whether nodes have it: %w", v.GetVersion(), err)
		}
		r.Nodes, r.CanaryNodes, r.Live = len(a.GetNodes()), operate.CanaryNodes(a), err == nil
	}
	r.Seconds = time.Since(begin).Seconds()
	if asJSON {
		return errors.Join(err, cli.PrintJSON(cmd, r))
	}
	switch {
	case most == 0:
		fmt.Fprintf(cmd.OutOrStdout(), "version %d is written; nodes have it with their next reports\n", r.Version)
	case err == nil && r.Nodes == 0:
		fmt.Fprintf(cmd.OutOrStdout(), "version %d is written; no node reports to the broker\n", r.Version)
	case err == nil && r.Nodes == 1:
		fmt.Fprintf(cmd.OutOrStdout(), "version %d is in force at the one node that reports, known after %.1f s\n", r.Version, r.Seconds)
	case err == nil:
		fmt.Fprintf(cmd.OutOrStdout(), "version %d is in force at all %d nodes, known after %.1f s\n", r.Version, r.Nodes, r.Seconds)
	}
	r.notes(cmd, most > 0)
	return err
}

// notes prints what the operator may have forgotten about the version in force. counted means that the nodes of the canary are
// known.
func (r applied) notes(cmd *cobra.Command, counted bool) {
	if r.KillSwitch {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: the cluster's kill switch is on: no node governs anything, until `penstock policy kill-switch off`")
	}
	switch {
	case r.CanaryPercent == 0:
	case counted && r.CanaryNodes == 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: none of the %d nodes is among the canary's %d %%: apply the file again with a larger --canary\n", r.Nodes, r.CanaryPercent)
	case counted:
		fmt.Fprintf(cmd.ErrOrStderr(), "note: a canary of %d %% is in force, at %s (`penstock node list`); end it with `penstock policy canary complete` or `take-back`\n", r.CanaryPercent, operate.Counted(r.CanaryNodes, "node"))
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "note: a canary of %d %% is in force\n", r.CanaryPercent)
	}
}

// waitFlag adds --wait.
func waitFlag(cmd *cobra.Command, wait *time.Duration) {
	cmd.Flags().DurationVar(wait, "wait", liveWait, "how long to wait until all nodes have the version, up to 10m; 0: do not wait")
}

func checkWait(wait time.Duration) error {
	if wait < 0 || wait > 10*time.Minute {
		return cli.Usage(fmt.Errorf("--wait %v: use 0 to 10m", wait))
	}
	return nil
}

// inForce asks the broker for the policy in force.
func inForce(ctx context.Context, c *operate.Client) (*operate.Policy, error) {
	v, err := c.Policy(ctx, 0)
	if err != nil {
		return nil, err
	}
	return operate.OfVersion(v)
}
