package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/node/config"
	"penstock/node/control/join"
	"penstock/ops/accelerate"
)

// accelerateReport is the time between two lines about the joined connections.
const accelerateReport = 5 * time.Second

func newNetworkAccelerate() *cobra.Command {
	o := accelerate.Options{Folder: "/run/penstock"}
	var ports []uint
	var length time.Duration
	asJSON, all := false, false
	cmd := &cobra.Command{
		Use:   "accelerate",
		Short: "Join connections between containers of this machine",
		Long: `Joins TCP connections between containers of this machine: what one end sends goes straight into the
other end's receive queue, without packets, bridge, NAT and TCP. The containers do not notice.
Connections that were made before the command use TCP as before.

A connection is made as usual, so a firewall rule that forbids it holds. All connections return to
TCP when a rule changes, when an interface gets a limit, and when the command ends; no byte is lost
or reordered. Two kinds of programs notice a difference: those that wait until FIONREAD is not 0
instead of reading, and those that splice from a socket. So only connections to the servers' ports
of Hadoop and Spark are joined unless you choose other ports.

The command runs until it is interrupted or its terminal is closed, and then puts everything back.
Bytes that a program does not read for some seconds stay where the program can read them; the next
start removes what they leave. After kill -9, connections return to TCP within a second, and the
next start puts back what is left. To join connections all the time, set control.joining in the
settings of the node daemon.

Needs Linux 6.13 or later, cgroup v2, and root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYS_ADMIN).`,
		Example: `  penstock network accelerate
  penstock network accelerate --ports 9866,13562 --for 10m
  penstock network accelerate --all-ports --cgroup /sys/fs/cgroup/system.slice/docker-0123.scope`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !all {
				if len(ports) == 0 || len(ports) > config.MaxJoinedPorts {
					return cli.Usage(fmt.Errorf("--ports: give 1 to %d ports, or --all-ports", config.MaxJoinedPorts))
				}
				for _, p := range ports {
					if p == 0 || p > 65535 {
						return cli.Usage(fmt.Errorf("--ports: %d: use 1 to 65535", p))
					}
					o.Ports = append(o.Ports, uint16(p))
				}
			} else if cmd.Flags().Changed("ports") {
				return cli.Usage(errors.New("give --ports or --all-ports, not both"))
			}
			if o.Cgroup != "" && !filepath.IsAbs(o.Cgroup) {
				return cli.Usage(fmt.Errorf("--cgroup: %q: give the absolute path of a cgroup's folder, such as /sys/fs/cgroup/hadoop", o.Cgroup))
			}
			if !filepath.IsAbs(o.Folder) { // the next start finds what is left by this path
				return cli.Usage(fmt.Errorf("--folder: %q: give an absolute path", o.Folder))
			}
			if length < 0 {
				return cli.Usage(fmt.Errorf("--for: %v: give a time above 0", length))
			}
			log, err := cli.NewLogger("text", "warn")
			if err != nil {
				return err
			}
			o.Log = log
			ctx := cmd.Context()
			if !signal.Ignored(syscall.SIGHUP) { // by nohup
				var stop context.CancelFunc
				ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
				defer stop()
			}
			if length > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, length)
				defer cancel()
			}
			var reported time.Time
			last, err := accelerate.Run(ctx, o, func(s accelerate.State) {
				if reported.IsZero() {
					fmt.Fprintln(cmd.ErrOrStderr(), "new connections are joined; interrupt the command to end this (Ctrl-C)")
				}
				if time.Since(reported) >= accelerateReport {
					reported = time.Now()
					fmt.Fprintln(cmd.ErrOrStderr(), s)
				}
			})
			if err != nil && !errors.Is(err, join.ErrUnread) {
				return err
			}
			if asJSON {
				return errors.Join(err, cli.PrintJSON(cmd, last))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "joined for %.0f s: %v\n", last.Seconds, last)
			return err
		},
	}
	usual := config.DefaultJoinedPorts()
	defaults := make([]uint, len(usual))
	for i, p := range usual {
		defaults[i] = uint(p)
	}
	flags := cmd.Flags()
	flags.UintSliceVar(&ports, "ports", defaults, "servers' ports, as in the container or as published")
	flags.BoolVar(&all, "all-ports", false, "connections to all ports")
	flags.StringVar(&o.Cgroup, "cgroup", "", "only sockets of this cgroup (v2), as its `FOLDER`")
	flags.StringVar(&o.Folder, "folder", o.Folder, "`FOLDER` with the record of changes, an absolute path, for root only: the folder of the node daemon's socket")
	flags.DurationVar(&length, "for", 0, "end after this time; 0: when interrupted")
	flags.BoolVar(&asJSON, "json", false, "at the end, print the counts as JSON")
	return cmd
}
