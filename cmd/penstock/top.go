package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/node/status"
	"penstock/ops/operate"
	"penstock/ops/screen"
	"penstock/ops/top"
	"penstock/wire/web"
)

func newTopCommand() *cobra.Command {
	var (
		address   string
		interval  time.Duration
		once      bool
		selection screen.Selection
		wide      bool
		width     int
		broker    asking
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch devices and applications of a node, or of the cluster, live",
		Long: `Shows which applications use the disks of a node and which delay others. Each application has one line over
all disks: a word for its state, a bar of its share of the disks' service with a tick at
the share that it is due, rates, and its share over the last minute. The sentence on top
names the application that takes more than its due while another one waits.

On a terminal it is a live view. The key "a" shows applications, "d" shows devices and the
I/O of others, "f" shows flows by device, "?" shows help, and "q" quits. Otherwise it prints a text each interval. --json prints the
daemon's status (docs/reference/status.md), one document a line.

With --cluster, it asks the broker and shows each application's share of the whole cluster,
the number of devices that it keeps busy, and its due part. The columns to sort by are then
` + strings.Join(operate.Columns, ", ") + `.

Exit codes: 0 quit or done; 1 no daemon or broker answers; 2 wrong flags; 130 ended by a
signal.`,
		Example: `  penstock top
  penstock top --once --json | jq '.devices[].flows[] | {name, share: .window.share}'
  penstock top --interval 10s > top.txt
  penstock top --cluster --broker broker-1:9717 --ca ca.pem --cert alice.pem --key alice.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond || interval > time.Hour {
				return cli.Usage(fmt.Errorf("--interval %v: use 100ms to 1h", interval))
			}
			onTerminal := !once && !broker.asJSON && cli.IsTerminal(os.Stdout) && cli.IsTerminal(os.Stdin)
			if wide || broker.broker != "" {
				if cmd.Flags().Changed("address") {
					return cli.Usage(errors.New("top: --address asks a node's daemon, and --cluster and --broker ask the broker: give only one of them"))
				}
				return broker.asked(func(cmd *cobra.Command, c *operate.Client, _ []string) error {
					return topCluster(cmd, c, selection, interval, onTerminal, once, broker.asJSON)
				})(cmd, nil)
			}
			if width != 0 && width < 60 {
				return cli.Usage(fmt.Errorf("--width %d: use at least 60", width))
			}
			if err := selection.Check(top.Columns); err != nil {
				return cli.Usage(fmt.Errorf("--sort: %w", err))
			}
			source := func(ctx context.Context) (*status.Document, error) { return status.Fetch(ctx, address) }
			if onTerminal {
				// The terminal must be restored, however the view ends.
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGQUIT)
				defer stop()
				return screen.Run(ctx, screen.NewModel(ctx, top.View(source, address), interval, selection))
			}
			write := top.WriteText(address, selection, textWidth(width))
			if broker.asJSON {
				write = top.WriteJSON
			}
			return screen.Stream(cmd.Context(), source, interval, once, cmd.OutOrStdout(), cmd.ErrOrStderr(), write)
		},
	}
	flags := cmd.Flags()
	addressFlag(cmd, &address)
	flags.DurationVar(&interval, "interval", time.Second, "time between two updates")
	flags.IntVar(&width, "width", 0, "columns of the text, at least 60 (default: the terminal's, or 80)")
	flags.BoolVar(&once, "once", false, "print one text or document and end")
	flags.BoolVar(&wide, "cluster", false, "show the whole cluster, from the broker; --broker implies --cluster")
	broker.flags(cmd)
	flags.Lookup("json").Usage = "print the daemon's status, or the broker's nodes and applications, one JSON document a line"
	flags.StringVar(&selection.Sort, "sort", top.Columns[0], "sort applications by "+strings.Join(top.Columns, ", "))
	flags.BoolVar(&selection.Reverse, "reverse", false, "reverse the order of --sort")
	flags.StringVar(&selection.Filter, "filter", "", "only applications or devices whose name contains `TEXT`")
	flags.BoolVar(&selection.HideIdle, "active", false, "only applications that were active")
	return cmd
}

// topCluster runs top for the whole cluster.
func topCluster(cmd *cobra.Command, c *operate.Client, s screen.Selection, interval time.Duration, onTerminal, once, asJSON bool) error {
	if err := s.Check(operate.Columns); err != nil {
		return cli.Usage(fmt.Errorf("--sort: %w", err))
	}
	if onTerminal {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGQUIT)
		defer stop()
		return screen.Run(ctx, screen.NewModel(ctx, operate.Live(c.Look), interval, s))
	}
	write := func(w io.Writer, v *operate.View) error {
		_, err := fmt.Fprintln(w, v.Text(s))
		return err
	}
	if asJSON {
		write = func(w io.Writer, v *operate.View) error {
			apps := []appJSON{}
			for _, a := range v.Applications {
				apps = append(apps, asAppJSON(a))
			}
			nodes := []nodeJSON{}
			for _, n := range v.Nodes.GetNodes() {
				nodes = append(nodes, asNodeJSON(n))
			}
			return json.NewEncoder(w).Encode(map[string]any{"at": v.At.UTC(), "broker": v.Nodes.GetLeader(), "nodes": nodes, "applications": apps})
		}
	}
	return screen.Stream(cmd.Context(), c.Look, interval, once, cmd.OutOrStdout(), cmd.ErrOrStderr(), write)
}

// textWidth returns the number of columns of a text: the given number, the terminal's, or 80.
func textWidth(given int) int {
	const usual = 80
	if given > 0 {
		return given
	}
	if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		return max(60, int(size.Col))
	}
	return usual
}

// addressFlag adds the flag for the address of the daemon.
func addressFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVar(address, "address", status.DefaultAddress, "`HOST:PORT` or unix:PATH of the node's daemon: \"listen\" in its settings; $"+web.TokenEnv+" names the file with its token, if it has one")
}
