package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"penstock/ops/measure"
	"penstock/settings"
	"penstock/settings/plain"
)

func newProfileCommand() *cobra.Command {
	var (
		o          measure.Options
		space      string
		plot, file string
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "profile DIR|DEVICE",
		Short: "Measure a disk: costs, reference latencies, quantum",
		Long: `Measures the costs of requests on a disk and writes a profile for the settings of
"penstock node" (device: {profile: FILE}). The profile has the costs of reads and writes,
random and sequential, from which service is computed; the latency just before the disk
saturates, from which the depth is controlled; and the smallest quantum that keeps 97 %
of the sequential rate.

DIR is a folder on the disk, such as a DataNode's data directory. The load goes to a file
without a name in this folder, so nothing remains of it. Its requests take the same path
as the daemon's own requests. DEVICE is a whole block device. It is only read, unless
--write is given, WHICH DESTROYS ALL DATA ON IT. On a hard disk, measuring the device
covers seeks over the whole disk; measuring a folder, only seeks within the file.

Measure while the disk is idle. If there is other load, the command refuses the result or
prints a warning.`,
		Example: `  penstock profile /data/1 --out /etc/penstock/sdb.profile
  penstock profile /dev/sdb --json --time 5m > sdb.json   # penstock-lab plot sdb.json draws it`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage(errors.New("profile: give one folder or block device"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			o.Path = args[0]
			if plot != "" {
				return cli.Usage(errors.New("--plot has moved: write the points with --json > FILE and draw them with penstock-lab plot FILE"))
			}
			if o.Space, err = cli.ParseBytes(space); err != nil {
				return cli.Usage(fmt.Errorf("--space: %w", err))
			}
			if err := mayWrite(file); err != nil {
				return fmt.Errorf("--out: %w", err)
			}
			errs := cmd.ErrOrStderr()
			if info, err := os.Stat(o.Path); o.Write && err == nil && info.IsDir() {
				return cli.Usage(fmt.Errorf("--write is for devices: in the folder %s writes are measured anyway", o.Path))
			}
			if o.Write {
				fmt.Fprintf(errs, "WARNING: --write DESTROYS everything on %s. Beginning in 5 s; Ctrl-C stops it.\n", o.Path)
				select {
				case <-cmd.Context().Done():
					return context.Canceled
				case <-time.After(5 * time.Second):
				}
			}
			bar := &progressBar{out: errs, terminal: cli.IsTerminal(os.Stderr), began: time.Now()}
			o.Progress = bar.show
			r, err := measure.Run(cmd.Context(), o)
			bar.clear()
			if errors.Is(err, measure.ErrOptions) {
				return cli.Usage(err)
			}
			if err != nil {
				return profileError(o.Path, err)
			}
			for _, w := range r.Warnings {
				fmt.Fprintln(errs, "warning:", w)
			}
			return conclude(cmd.OutOrStdout(), cmd, r, file, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "out", "o", "", "write the profile to `FILE` (YAML)")
	flags.StringVar(&plot, "plot", "", "")
	flags.MarkHidden("plot")
	flags.DurationVar(&o.Time, "time", time.Minute, "approximate length of the measurement, at least 5s")
	flags.StringVar(&space, "space", "1G", "size of the measurement's files in a folder, at least 64M (K, M, G: powers of 1024)")
	flags.BoolVar(&o.Write, "write", false, "DEVICE: also measure writes, which overwrites all data on it")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the requests' random positions; the same seed gives the same positions")
	flags.BoolVar(&asJSON, "json", false, "print JSON: the profile and every point measured")
	return cmd
}

// profileError returns an error that names the path exactly once.
func profileError(path string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) && p.Path == path {
		return fmt.Errorf("profile: %w", plain.File(err))
	}
	return fmt.Errorf("profile %s: %w", path, plain.File(err))
}

// mayWrite checks, before a measurement, that the file can be written after it.
func mayWrite(file string) error {
	if file == "" {
		return nil
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return fmt.Errorf("%s: it is a folder, and must be a file", file)
	}
	folder := filepath.Dir(file)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("%s: there is no folder %s", file, folder)
	}
	where := file // a new file needs permission to write to the folder
	if _, err := os.Stat(file); err != nil {
		where = folder
	}
	if err := unix.Access(where, unix.W_OK); err != nil {
		return plain.File(&fs.PathError{Op: "write", Path: where, Err: err})
	}
	return nil
}

// conclude writes the profile to the file, and prints the result.
func conclude(out io.Writer, cmd *cobra.Command, r *measure.Result, file string, asJSON bool) error {
	if file != "" {
		text, err := r.Profile.Text()
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("--out: %w", plain.File(err))
		}
	}
	if asJSON {
		return cli.PrintJSON(cmd, r)
	}
	r.Profile.Describe(out)
	fmt.Fprintf(out, "quantum keeps    %.0f %% of the sequential rate where streams take turns\n", 100*r.Kept)
	fmt.Fprintf(out, "residual error   %.1f %%\n", 100*r.Profile.Residual)
	switch {
	case file != "":
		fmt.Fprintf(out, "\nWritten to %s. In the daemon's settings: device: {profile: %s}\n", file, file)
	default:
		fmt.Fprintln(out, "\nNot written: give --out FILE for the daemon.")
	}
	return nil
}

// progressBar shows how far a measurement is: on a terminal one line that is
// rewritten, elsewhere a line for each saturated load.
type progressBar struct {
	out      io.Writer
	terminal bool
	began    time.Time
	shown    bool
}

func (b *progressBar) show(p measure.Progress) {
	const width = 24
	what := p.What
	if p.Point != nil {
		what += fmt.Sprintf(": %s, %v", settings.Rate(p.Point.BytesPerSecond), p.Point.Latency.Round(10*time.Microsecond))
	}
	took := time.Since(b.began).Round(time.Second)
	if b.terminal {
		full := width * p.Done / max(1, p.Total)
		fmt.Fprintf(b.out, "\r\x1b[K[%s%s] %3d %% %4v  %s", strings.Repeat("#", full), strings.Repeat(".", width-full), 100*p.Done/max(1, p.Total), took, what)
		b.shown = true
	} else if p.Point != nil || p.Done == 0 {
		fmt.Fprintf(b.out, "%3d %% %4v  %s\n", 100*p.Done/max(1, p.Total), took, what)
	}
}

func (b *progressBar) clear() {
	if b.shown {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}
