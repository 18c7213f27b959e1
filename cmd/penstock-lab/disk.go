package main

import (
	"errors"
	"fmt"
	"os"

	"penstock/cmd/internal/cli"

	"penstock/lab/disk"
	"penstock/lab/ledger"

	"github.com/spf13/cobra"
)

func newDiskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disk",
		Short: "Modelled disks: block devices of a known speed",
	}
	cmd.AddCommand(newDiskRun(), newDiskCheck(), newDiskServe(), newDiskRecover())
	return cmd
}

// newDiskServe returns the command that serves a modelled disk; disk.Start starts it as a process.
func newDiskServe() *cobra.Command {
	return &cobra.Command{
		Use:    "serve CONFIG",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return disk.Serve(args[0], os.Stdin, os.Stdout)
		},
	}
}

// newDiskRecover returns the command that a disk's server starts when its parent has died.
func newDiskRecover() *cobra.Command {
	return &cobra.Command{
		Use:    "recover DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return disk.RecoverDead(args[0]) },
	}
}

func newDiskRun() *cobra.Command {
	var (
		o      disk.Options
		size   string
		model  modelFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "run [DIR]",
		Short: "Mount a modelled disk until interrupted",
		Long: `Mounts an empty file system on a disk of the given speed. A hard disk
(--kind hdd) has one head, seeks by distance and one budget for reads and
writes. A solid-state disk (--kind ssd) has channels that serve side by side:
throughput grows with the requests in flight, up to the number of channels, and
writes are slower than reads. The disk is a real block device and exists until this
command ends (Ctrl-C). DIR is the run folder; without it a temporary one is made.
Needs root and /dev/fuse.`,
		Example: `  penstock-lab disk run --name a --size 3G --rate 12M --seek-min 3ms --seek-max 14ms
  penstock-lab disk run --kind ssd --rate 40M --write-rate 25M --channels 8`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Size, err = cli.ParseBytes(size); err != nil {
				return cli.Usage(fmt.Errorf("--size: %w", err))
			}
			if o.Model, err = model.model(cmd.Flags().Changed); err != nil {
				return cli.Usage(err)
			}
			if len(args) == 1 {
				o.RunDir = args[0]
			} else {
				if o.RunDir, err = os.MkdirTemp("", "penstock-lab-"); err != nil {
					return err
				}
			}
			d, err := disk.Start(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, d.Stop()) }()
			if asJSON {
				err = cli.PrintJSON(cmd, map[string]any{
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
	model.register(cmd)
	flags.StringVar(&o.Scheduler, "scheduler", "mq-deadline", "I/O scheduler: none, mq-deadline, bfq")
	flags.IntVar(&o.QueueDepth, "queue-depth", 32, "requests that the disk takes at a time")
	flags.IntVar(&o.ReadaheadKB, "readahead-kb", 128, "the kernel's readahead")
	flags.StringVar(&o.BackingDir, "backing", "/dev/shm", "where the bytes are kept")
	flags.StringVar(&o.LogPath, "log", "", "request log (default: NAME.log in the run folder)")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// modelFlags are the flags that describe a disk's speed. Flags that are not given have the defaults
// of the kind.
type modelFlags struct {
	kind, rate, writeRate string
	given                 disk.Model
}

func (f *modelFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	hdd, ssd := disk.HDD(disk.HDDRate), disk.SSD(disk.SSDRate)
	flags.StringVar(&f.kind, "kind", "hdd", "hdd or ssd: sets the defaults of the flags below")
	flags.StringVar(&f.rate, "rate", "", fmt.Sprintf("transfer rate in bytes per second, 0 for no limit (hdd %d, ssd %d)", hdd.BytesPerSecond, ssd.BytesPerSecond))
	flags.StringVar(&f.writeRate, "write-rate", "", "transfer rate of writes (hdd as --rate, ssd 5/8 of it)")
	flags.DurationVar(&f.given.SeekMin, "seek-min", hdd.SeekMin, "shortest seek, rotation included (hdd)")
	flags.DurationVar(&f.given.SeekMax, "seek-max", hdd.SeekMax, "seek over the whole disk (hdd)")
	flags.DurationVar(&f.given.AgeMax, "age-max", disk.DefaultAgeMax, "how long shorter seeks may be preferred to a waiting request (hdd)")
	flags.IntVar(&f.given.Channels, "channels", ssd.Channels, "channels that serve side by side (ssd)")
	flags.DurationVar(&f.given.ReadLatency, "read-latency", ssd.ReadLatency, "latency of a read on its channel, before the transfer (ssd)")
	flags.DurationVar(&f.given.WriteLatency, "write-latency", ssd.WriteLatency, "latency of a write on its channel, before the transfer (ssd)")
}

// model returns the preset of the kind, changed by the given flags.
func (f *modelFlags) model(given func(flag string) bool) (m disk.Model, err error) {
	rates := map[string]int64{"hdd": disk.HDDRate, "ssd": disk.SSDRate}
	rate, ok := rates[f.kind]
	if !ok {
		return m, fmt.Errorf("--kind %q: want hdd or ssd", f.kind)
	}
	if given("rate") {
		if rate, err = cli.ParseBytes(f.rate); err != nil {
			return m, fmt.Errorf("--rate: %w", err)
		}
	}
	if m = disk.HDD(rate); f.kind == "ssd" {
		m = disk.SSD(rate)
	}
	if given("write-rate") {
		if m.WriteBytesPerSecond, err = cli.ParseBytes(f.writeRate); err != nil {
			return m, fmt.Errorf("--write-rate: %w", err)
		}
	}
	for flag, put := range map[string]func(){
		"seek-min":      func() { m.SeekMin = f.given.SeekMin },
		"seek-max":      func() { m.SeekMax = f.given.SeekMax },
		"age-max":       func() { m.AgeMax = f.given.AgeMax },
		"channels":      func() { m.Channels = f.given.Channels },
		"read-latency":  func() { m.ReadLatency = f.given.ReadLatency },
		"write-latency": func() { m.WriteLatency = f.given.WriteLatency },
	} {
		if given(flag) {
			put()
		}
	}
	return m, m.Validate()
}

func newDiskCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Start and stop a small modelled disk, or report why this machine cannot have one",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reason := checkDisk(cmd)
			if asJSON {
				result := map[string]any{"modelled_disk": reason == nil}
				if reason != nil {
					result["reason"] = reason.Error()
				}
				if err := cli.PrintJSON(cmd, result); err != nil {
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
	dir, err := os.MkdirTemp("", "penstock-lab-")
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

func newClean() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Undo the changes of runs that crashed or were killed",
		Long: `Undoes the changes of runs that did not end properly: mounts, loop devices, processes,
kernel parameters. Runs that are still alive are listed and left alone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			recovered, alive, err := ledger.RecoverAll()
			if asJSON {
				return errors.Join(err, cli.PrintJSON(cmd, map[string][]string{
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
