package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"penstock/testbed/disk"
	"penstock/testbed/ledger"

	"github.com/spf13/cobra"
)

func newTestbedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "testbed",
		Short: "Disks of known speed, and putting the machine back after tests",
	}
	cmd.AddCommand(newTestbedDisk(), newTestbedCheck(), newTestbedClean(), newTestbedHadoop(), newDiskServe(), newDiskRecover())
	return cmd
}

// newDiskServe is the process behind a modelled disk; disk.Start starts it.
func newDiskServe() *cobra.Command {
	return &cobra.Command{
		Use:    "disk-serve CONFIG",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return disk.Serve(args[0], os.Stdin, os.Stdout)
		},
	}
}

// newDiskRecover is what a disk's server starts when its parent has died.
func newDiskRecover() *cobra.Command {
	return &cobra.Command{
		Use:    "disk-recover DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return disk.RecoverDead(args[0]) },
	}
}

func newTestbedDisk() *cobra.Command {
	var (
		o          disk.Options
		size, rate string
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "disk [DIR]",
		Short: "Mount a modelled disk until interrupted",
		Long: `Mounts an empty file system on a disk that is as slow as asked for: one head,
seeks by distance, one budget for reads and writes. It is a real block device
and goes away with this command (Ctrl-C). DIR is the run folder; without it a
temporary one is made. Needs root and /dev/fuse.`,
		Example: "  penstock testbed disk --name a --size 3G --rate 12M --seek-min 3ms --seek-max 14ms",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Size, err = parseBytes(size); err != nil {
				return usageError{fmt.Errorf("--size: %w", err)}
			}
			if o.Model.BytesPerSecond, err = parseBytes(rate); err != nil {
				return usageError{fmt.Errorf("--rate: %w", err)}
			}
			if len(args) == 1 {
				o.RunDir = args[0]
			} else {
				if o.RunDir, err = os.MkdirTemp("", "penstock-testbed-"); err != nil {
					return err
				}
			}
			d, err := disk.Start(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, d.Stop()) }()
			if asJSON {
				err = printJSON(cmd, map[string]any{
					"name": o.Name, "device": d.Device(), "mount": d.Mount(), "log": d.LogPath(), "model": o.Model,
				})
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "device %s\nmount  %s\nlog    %s\nCtrl-C unmounts it\n", d.Device(), d.Mount(), d.LogPath())
			}
			if err != nil {
				return err
			}
			<-cmd.Context().Done()
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Name, "name", "disk", "name of the disk")
	flags.StringVar(&size, "size", "1G", "size; memory is used for what is written (K, M, G: powers of 1024)")
	flags.StringVar(&rate, "rate", "12M", "transfer rate in bytes per second, 0 for no limit")
	flags.DurationVar(&o.Model.SeekMin, "seek-min", 3*time.Millisecond, "shortest seek, rotation included")
	flags.DurationVar(&o.Model.SeekMax, "seek-max", 14*time.Millisecond, "seek over the whole disk")
	flags.DurationVar(&o.Model.AgeMax, "age-max", disk.DefaultAgeMax, "how long shorter seeks may be preferred to a waiting request")
	flags.StringVar(&o.Scheduler, "scheduler", "mq-deadline", "I/O scheduler: none, mq-deadline, bfq")
	flags.IntVar(&o.QueueDepth, "queue-depth", 32, "requests that the disk takes at a time")
	flags.IntVar(&o.ReadaheadKB, "readahead-kb", 128, "the kernel's readahead")
	flags.StringVar(&o.BackingDir, "backing", "/dev/shm", "where the bytes are kept")
	flags.StringVar(&o.LogPath, "log", "", "request log (default: NAME.log in the run folder)")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newTestbedCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Start and stop a small modelled disk; fails with the reason if there can be none here",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reason := checkDisk(cmd)
			if asJSON {
				result := map[string]any{"modelled_disk": reason == nil}
				if reason != nil {
					result["reason"] = reason.Error()
				}
				if err := printJSON(cmd, result); err != nil {
					return err
				}
			} else if reason == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "modelled disks work here")
			}
			return reason
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func checkDisk(cmd *cobra.Command) error {
	if err := disk.Available(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "penstock-testbed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := disk.Start(cmd.Context(), disk.Options{Name: "check", RunDir: dir, Size: 16 << 20})
	if err != nil {
		return fmt.Errorf("a modelled disk does not start: %w", err)
	}
	return d.Stop()
}

func newTestbedClean() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Put back what runs that crashed or were killed have left",
		Long: `Undoes what dead runs have left: mounts, loop devices, processes, kernel
parameters. Runs that are alive are named and left alone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			recovered, alive, err := ledger.RecoverAll()
			if asJSON {
				return errors.Join(err, printJSON(cmd, map[string][]string{
					"recovered": append([]string{}, recovered...), "alive": append([]string{}, alive...),
				}))
			}
			for _, dir := range recovered {
				fmt.Fprintln(cmd.OutOrStdout(), "put back:", dir)
			}
			for _, dir := range alive {
				fmt.Fprintln(cmd.OutOrStdout(), "alive, left alone:", dir)
			}
			if len(recovered)+len(alive) == 0 && err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to put back")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printJSON(cmd *cobra.Command, value any) error {
	out := json.NewEncoder(cmd.OutOrStdout())
	out.SetIndent("", "  ")
	return out.Encode(value)
}

// parseBytes reads a size such as 512, 64K, 1.5M or 3G, in powers of 1024.
func parseBytes(text string) (int64, error) {
	const units, bytesMax = "KMGT", 1 << 50
	digits, unit := text, 1.0
	if n := len(text); n > 0 {
		if i := strings.IndexByte(units, text[n-1]); i >= 0 {
			digits, unit = text[:n-1], float64(int64(1)<<(10*(i+1)))
		}
	}
	number, err := strconv.ParseFloat(digits, 64)
	if bytes := number * unit; err == nil && bytes >= 0 && bytes <= bytesMax {
		return int64(bytes), nil
	}
	return 0, fmt.Errorf("%q is no size: want a number with K, M, G or T behind it, such as 12M", text)
}
