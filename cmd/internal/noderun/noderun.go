// Package noderun is the command that runs the node daemon. The product and the laboratory share
// it: the laboratory adds schedulers to compare Penstock with.
package noderun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/core/arbiter"
	"penstock/node"
	"penstock/node/blockfile"
	"penstock/node/config"
	"penstock/node/profile"
	"penstock/node/status"
)

// Command returns the command that runs the node daemon. peers are additional schedulers, by the
// names that a device's settings use for them; nil if there are none.
func Command(peers map[string]func(maxFlows int) arbiter.Scheduler) *cobra.Command {
	var file, format, level string
	var check, asJSON bool
	cmd := &cobra.Command{
		Use:   "node --config FILE",
		Short: "Run the node daemon beside a DataNode",
		Long: `Run the node daemon. It listens for the agents inside DataNodes. On every block
device that holds a data directory, it stages the applications' reads and drains
their writes, by weight.

It starts in observe mode: it accounts, and reports how long enforcement would have
delayed streams, but delays nobody. Set "mode: enforce" in the settings or the
weights file to enforce; the weights file is reloaded while the daemon runs.
Creating the kill switch's file stops all governing at once; SIGTERM ends the
daemon, and applications then run as without it.

The daemon needs permission to open the DataNode's files for reading and to query the
page cache for them: run it as the DataNode's user, or as root (CAP_DAC_OVERRIDE).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := cli.NewLogger(format, level)
			if err != nil {
				return cli.Usage(err)
			}
			if file == "" {
				return cli.Usage(errors.New("node: give the settings file: --config FILE"))
			}
			settings, err := config.CheckNode(file, slices.Collect(maps.Keys(peers))...)
			if err != nil {
				return err
			}
			defer endInTime(cmd.Context(), endAtMost, func() {
				log.Error("a disk or a process hangs: ending without an orderly stop; the next start puts back what is left", "after", endAtMost)
				os.Exit(1)
			})()
			d, err := node.New(settings, log)
			if err != nil {
				return err
			}
			if check {
				return answer(cmd, d, file, settings, asJSON)
			}
			d.Build, d.Peers = cli.Version, peers
			program, err := os.Executable()
			if err != nil {
				return err
			}
			d.GateCommand = []string{program}
			return d.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "settings `FILE` (YAML)")
	cmd.Flags().BoolVar(&check, "check", false, "check the settings and the weights, then exit")
	cmd.Flags().BoolVar(&asJSON, "json", false, "with --check: print JSON")
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// endAtMost is the longest time from SIGTERM to the end of the process, also while the daemon starts. It is longer than the
// daemon's own bound, and shorter than systemd's.
const endAtMost = 9 * time.Second

// endInTime calls end if the returned function is not called within the given time after the end of ctx.
func endInTime(ctx context.Context, within time.Duration, end func()) (ended func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(within):
			end()
		}
	})
	return func() {
		stop()
		close(done)
	}
}

// answer prints that the settings are good, the warnings, and the devices.
func answer(cmd *cobra.Command, d *node.Daemon, file string, settings *config.Node, asJSON bool) error {
	weights, err := config.LoadWeights(settings.Weights)
	if err != nil {
		return err
	}
	warnings := append([]string{}, weights.Warnings()...)
	out := cmd.OutOrStdout()
	if asJSON {
		return cli.PrintJSON(cmd, map[string]any{"settings": file, "weights": settings.Weights, "good": true, "warnings": warnings, "control": d.PreviewControl()})
	}
	fmt.Fprintln(out, "settings and weights are good")
	for _, w := range warnings {
		fmt.Fprintf(out, "warning: %s: %s\n", settings.Weights, w)
	}
	if err := printDevices(out, settings); err != nil {
		return err
	}
	printControl(out, d.PreviewControl())
	return nil
}

// printControl prints the mechanisms of the kernel that may hold processes without an agent, and which
// of them holds what.
func printControl(out io.Writer, c status.Control) {
	if len(c.Mechanisms) == 0 {
		return
	}
	fmt.Fprintf(out, "\nkernel control: %s\n", c.Mode)
	for _, m := range c.Mechanisms {
		if m.Available {
			fmt.Fprintf(out, "  %-9s  available\n", m.Name)
			continue
		}
		fmt.Fprintf(out, "  %-9s  %s\n", m.Name, m.Why)
	}
	for _, h := range c.Holds {
		by := "nothing can hold it"
		if h.Mechanism != "" {
			by = "by " + h.Mechanism
		}
		fmt.Fprintf(out, "%s on %s: %s\n", h.Flow, h.Where, by)
		if h.Gap != "" {
			fmt.Fprintf(out, "    note: %s\n", h.Gap)
		}
		for _, r := range h.Passed {
			fmt.Fprintf(out, "    not by %s: %s\n", r.Mechanism, r.Why)
		}
	}
}

// printDevices prints what applies to each device in the settings, and to the devices of the listed
// data directories.
func printDevices(out io.Writer, settings *config.Node) error {
	const sysfs = "/sys"
	kinds := map[string]bool{} // whether each device is rotational
	for name := range settings.Devices {
		kinds[name] = true
	}
	for _, path := range settings.DataDirs {
		dir, err := blockfile.OpenDir(path, sysfs)
		if err != nil {
			fmt.Fprintln(out, "warning:", err)
			continue
		}
		kinds[dir.Device.Name] = dir.Device.Rotational
		dir.Close()
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		id, err := profile.Identify(sysfs, name)
		if err != nil {
			fmt.Fprintln(out, "warning:", err)
			id = profile.Device{Name: name, Rotational: kinds[name]}
		}
		c, misfit, err := settings.ConfigFor(id)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\ndevice %s: algorithm %s, quantum %v, reads %v + %v/MiB, writes %v + %v/MiB\n", name, c.Algorithm,
			profile.Bytes(c.Quantum), c.Depth.Read.Fixed, c.Depth.Read.PerMiB, c.Depth.Write.Fixed, c.Depth.Write.PerMiB)
		file, p := settings.Profile(name)
		switch {
		case misfit != nil:
			fmt.Fprintln(out, "warning:", misfit)
		case p == nil:
			fmt.Fprintln(out, "no profile: measure one with `penstock profile`")
		default:
			fmt.Fprintf(out, "profile %s of %s:\n", file, p.Measured.Format(time.DateTime))
			p.Describe(out)
		}
	}
	return nil
}
