package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/node/status"
	"penstock/node/top"
)

func newTopCommand() *cobra.Command {
	var (
		address      string
		interval     time.Duration
		once, asJSON bool
		selection    top.Selection
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch devices and applications of a node live",
		Long: `Shows what a node's daemon does: each device with its depth, latency against
the reference, backlog and foreign I/O, and each application's share of the
device's service beside its entitlement, over the last five seconds.

SHARE is what an application got of the service; DUE is its entitlement: its
weight among those that were active. Less share than due with nothing QUEUED
means that it did not want more. FOREIGN is what others than the governed
applications move on the device.

On a terminal it is a live view: s sorts by the next column, r reverses, /
filters by application or device, i hides idle applications, p pauses, q quits.
Elsewhere it prints a text each interval. --json prints the daemon's status
(docs/reference/status.md), one document a line.

Exit codes: 0 quit or done; 1 no daemon answers; 2 wrong flags; 130 ended by a
signal.`,
		Example: `  penstock top
  penstock top --once --json | jq '.devices[].flows[] | {name, share: .window.share}'
  penstock top --interval 10s > top.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond || interval > time.Hour {
				return usageError{fmt.Errorf("--interval %v: use 100ms to 1h", interval)}
			}
			if err := selection.Check(); err != nil {
				return usageError{fmt.Errorf("--sort: %w", err)}
			}
			source := func(ctx context.Context) (*status.Document, error) { return status.Fetch(ctx, address) }
			if !once && !asJSON && isTerminal(os.Stdout) && isTerminal(os.Stdin) {
				// The terminal has to be put back whatever ends the view.
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGQUIT)
				defer stop()
				return top.Run(ctx, top.NewModel(ctx, source, address, interval, selection))
			}
			write := top.WriteText(address, selection)
			if asJSON {
				write = top.WriteJSON
			}
			return top.Stream(cmd.Context(), source, interval, once, cmd.OutOrStdout(), cmd.ErrOrStderr(), write)
		},
	}
	flags := cmd.Flags()
	addressFlag(cmd, &address)
	flags.DurationVar(&interval, "interval", time.Second, "time between two looks")
	flags.BoolVar(&once, "once", false, "print one text or document and end")
	flags.BoolVar(&asJSON, "json", false, "print the daemon's status, one JSON document a line")
	flags.StringVar(&selection.Sort, "sort", top.Columns[0], "sort applications by "+strings.Join(top.Columns, ", "))
	flags.BoolVar(&selection.Reverse, "reverse", false, "the other way round")
	flags.StringVar(&selection.Filter, "filter", "", "only applications or devices whose name contains `TEXT`")
	flags.BoolVar(&selection.HideIdle, "active", false, "only applications that were active")
	return cmd
}

// addressFlag is how every command that asks a daemon is told which.
func addressFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVar(address, "address", status.DefaultAddress, "`HOST:PORT` of the node's daemon: \"listen\" in its settings")
}
