package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"penstock/cmd/internal/cli"
	"penstock/lab/play"
	"penstock/node/status"
	"penstock/ops/screen"
	"penstock/ops/top"
)

func newPlayCommand() *cobra.Command {
	var o play.Options
	var at place
	var rate string
	var noTop bool
	cmd := &cobra.Command{
		Use:   "play",
		Short: "Try things out: run two competing jobs on a small cluster, with penstock top",
		Long: `Brings up HDFS and YARN on two modelled disks, and a daemon in enforce mode. WordCount
(protected) and TeraGen (its aggressor) run again and again on the same disks, and
"penstock top" shows them. Change the weights file meanwhile, or read the daemon's status.

q in top, or Ctrl-C, ends everything and undoes all changes to the machine. Without a terminal, or with
--no-top, it prints the commands to try and runs until Ctrl-C.

Needs root and /dev/fuse for the modelled disks, a JDK and, the first time, Maven.`,
		Example: "  penstock-lab play\n  penstock-lab play --protected 2 --no-top",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Rate, err = cli.ParseBytes(rate); err != nil || o.Rate < 1<<20 {
				return cli.Usage(fmt.Errorf("--rate %s: give at least 1M", rate))
			}
			if o.Protected < 1 || o.Aggressor < 1 || o.Protected > 1000 || o.Aggressor > 1000 {
				return cli.Usage(errors.New("--protected and --aggressor: use 1 to 1000"))
			}
			if err := at.resolve(); err != nil {
				return err
			}
			o.Dir, o.Binary, o.AgentJar, o.Cache = at.runDir, at.binary, at.agentJar, at.cache
			errs := cmd.ErrOrStderr()
			o.Progress = func(format string, args ...any) { fmt.Fprintf(errs, format+"\n", args...) }
			p, err := play.Start(cmd.Context(), o)
			if err != nil {
				return err
			}
			dir := p.Dir
			defer func() {
				fmt.Fprintln(errs, "putting everything back")
				if err = errors.Join(err, p.Stop()); err == nil {
					err = os.RemoveAll(dir)
				} else {
					fmt.Fprintln(errs, "logs:", dir)
				}
			}()
			if noTop || !cli.IsTerminal(os.Stdout) || !cli.IsTerminal(os.Stdin) {
				return playWithoutTop(cmd, p)
			}
			address := p.Nodes[0].Address
			source := func(ctx context.Context) (*status.Document, error) {
				if err := p.Check(); err != nil {
					return nil, err
				}
				return status.Fetch(ctx, address)
			}
			view := top.View(source, address)
			draw := view.Draw
			view.Draw = func(doc *status.Document, s screen.Selection, width, height int) screen.Page {
				page := draw(doc, s, width, height)
				page.Above = append([]string{"weights, to be edited while jobs run: " + p.Nodes[0].Weights}, page.Above...)
				return page
			}
			err = screen.Run(cmd.Context(), screen.NewModel(cmd.Context(), view, time.Second, screen.Selection{Sort: "share"}))
			if errors.Is(err, context.Canceled) {
				err = nil // Ctrl-C is the way to end it
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&rate, "rate", "20M", "`RATE` of each disk in bytes a second (K, M, G: powers of 1024)")
	flags.IntVar(&o.Protected, "protected", 32, "`WEIGHT` of WordCount")
	flags.IntVar(&o.Aggressor, "aggressor", 1, "`WEIGHT` of TeraGen")
	flags.BoolVar(&noTop, "no-top", false, "print the commands to try instead of showing top")
	at.register(flags)
	flags.Lookup("run-dir").Usage = "`FOLDER` of the run (default: a new one in the system's temporary folder)"
	return cmd
}

// playWithoutTop prints commands to try, and waits until it is interrupted or a part fails.
func playWithoutTop(cmd *cobra.Command, p *play.Play) error {
	fmt.Fprintf(cmd.OutOrStdout(), `
Two jobs run. Try, in another terminal:
  %[1]s top --address %[2]s
  %[1]s status --address %[2]s
  $EDITOR %[3]s        # weights; they are in force as soon as the file is saved
  curl http://%[2]s/metrics

ResourceManager  %[4]s
NameNode         %[5]s

Ctrl-C ends everything.
`, p.Spec.Binary, p.Nodes[0].Address, p.Nodes[0].Weights, p.Hadoop.ResourceManagerURL(), p.Hadoop.NameNodeURL())
	check := time.NewTicker(time.Second)
	defer check.Stop()
	for {
		select {
		case <-cmd.Context().Done():
			return nil
		case <-check.C:
			if err := p.Check(); err != nil {
				return err
			}
		}
	}
}
