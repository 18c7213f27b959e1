package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/core/character"
	"penstock/node/status"
	"penstock/ops/characterise"
	"penstock/ops/screen"
	"penstock/settings/plain"
)

func newAppProfile() *cobra.Command {
	var nodes []string
	var file, network, memory string
	var length time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "profile APP",
		Short: "Follow an application, and describe its use of CPU, memory, disk and network, its phases and its class",
		Long: `Follow an application on its nodes until it ends, until --for has passed, or until Ctrl-C, and
print its mean and highest use of CPU, memory, disk and network, its phases, and its class with
the reason. APP is an application's ID; outside of the cluster's applications it is the name of
a systemd unit, or the id of a container or pod.

It asks the nodes' daemons, not the broker. --out writes the readings, one JSON line each, for
"penstock app pair" and "penstock-lab plot".

Exit codes: 0 done; 1 a daemon does not answer, or the application has used nothing; 2 wrong use.`,
		Example: `  penstock app profile application_1700000000000_0042 --node dn1:9707 --node dn2:9707 --out sort.json
  penstock app profile fio.service --for 2m`,
		Args: arguments(1, 1, "the application's ID"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if length < 0 {
				return cli.Usage(fmt.Errorf("--for %v: give a time, such as 10m", length))
			}
			f := characterise.Follower{Application: args[0], Addresses: nodes, Period: time.Second, Out: io.Discard}
			if network != "" {
				if f.Network, err = cli.ParseBytes(network); err != nil {
					return cli.Usage(fmt.Errorf("--network: %w", err))
				}
			}
			if memory != "" {
				if f.Memory, err = cli.ParseBytes(memory); err != nil {
					return cli.Usage(fmt.Errorf("--memory: %w", err))
				}
			}
			if file != "" {
				out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
				if errors.Is(err, os.ErrExist) {
					return fmt.Errorf("%s exists: give another --out, or remove it", file)
				} else if err != nil {
					return plain.File(err)
				}
				defer out.Close()
				f.Out = out
			}
			said := ""
			f.Progress = func(text string) {
				if text != said {
					fmt.Fprintln(cmd.ErrOrStderr(), screen.Printable(text))
				}
				said = text
			}
			ctx := cmd.Context()
			if length > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, length)
				defer cancel()
			}
			result, err := f.Run(ctx)
			if err != nil {
				return err
			}
			p, err := character.New(result.Samples, character.DefaultThresholds)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd, p)
			}
			return characterise.Write(cmd.OutOrStdout(), screen.Printable(args[0]), p, character.DefaultThresholds)
		},
	}
	cmd.Flags().StringSliceVar(&nodes, "node", []string{status.DefaultAddress}, "`HOST:PORT` of a node's daemon; may be repeated")
	cmd.Flags().StringVarP(&file, "out", "o", "", "`FILE` for the readings; it must not exist")
	cmd.Flags().DurationVar(&length, "for", 0, "end after this time (default: when the application ends)")
	cmd.Flags().StringVar(&network, "network", "", "`BYTES` per second of a node's network, where its daemon does not know it, such as 125M")
	cmd.Flags().StringVar(&memory, "memory", "", "`BYTES` of memory that applications may use on a node, such as what its NodeManager offers (default: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the description as JSON")
	return cmd
}

func newAppPair() *cobra.Command {
	return &cobra.Command{
		Use:   "pair FILE...",
		Short: "Predict which applications go well side by side, from files of app profile",
		Long: `Predict how each pair of applications runs side by side on the same machines: good (at most 10 %
slower), fair (at most 30 %), poor, or no (their memory does not fit), with the slowdown and the
resource that causes it. docs/design/character.md has the rule.`,
		Example: "  penstock app pair sort.json kmeans.json wordcount.json",
		Args:    arguments(1, 1000, "the FILEs of app profile"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var names []string
			var profiles []*character.Profile
			for _, name := range args {
				f, err := readProfile(name)
				if err != nil {
					return err
				}
				if f.Torn {
					fmt.Fprintf(cmd.ErrOrStderr(), "note: the last line of %s is incomplete and was left out\n", name)
				}
				p, err := character.New(f.Samples, character.DefaultThresholds)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				names, profiles = append(names, screen.Printable(f.Application)), append(profiles, p)
			}
			return characterise.WritePairs(cmd.OutOrStdout(), names, profiles)
		},
	}
}

func readProfile(name string) (*characterise.File, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, plain.File(err)
	}
	defer in.Close()
	f, err := characterise.Read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}
