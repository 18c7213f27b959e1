package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/ops/install"
)

func newInstallCommand() *cobra.Command {
	var (
		o                             install.Options
		dryRun, apply, remove, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Prepare a Hadoop and a Spark configuration folder, or put them back",
		Long: `Shows as a unified diff what has to be in a configuration folder for Penstock to
govern what its daemons, jobs and applications do, and with --apply writes it:

  shellprofile.d/penstock.sh  the agent in the DataNode and the NodeManager
  mapred-site.xml             map and reduce tasks: their local files
  hdfs-site.xml               no readahead past the daemon by DataNodes
  spark-defaults.conf         executors, and the name of an application's HDFS I/O
  spark-env.sh                the jar on Spark's class path

With --disk-bandwidth also what makes bandwidth a resource of YARN's beside CPU and
memory (docs/operate/yarn-bandwidth.md):

  resource-types.xml          the resource disk-bandwidth, in MB/s
  node-resources.xml          how much of it a NodeManager offers; others do not read it
  capacity-scheduler.xml      if it is there: a calculator that counts it, without which
                              the ResourceManager does not start

Only what is needed is changed, where it stands; comments, order and form stay. A
setting of somebody else's that is in the way is a conflict: it is named, nothing is
written, and --force lets it give way. What was done is in penstock-install.json in
each folder; --remove reads it and puts back exactly what was there, and keeps what
others changed elsewhere in the files. Files are written as a whole, one after
another. After an interruption the same command goes on.

The jar and the socket need not be on this machine, but on those that use the
folder; where the jar is missing, daemons and tasks run ungoverned. Spark's
executors do not start without it, so with --spark-conf it has to be here as
well, or --force says that it is on the others.

docs/operate/install.md says what each setting is for.

Exit codes: 0 done, or nothing to do; 1 failed, or a conflict; 2 wrong flags.`,
		Example: `  penstock install --hadoop-conf /etc/hadoop/conf --spark-conf /etc/spark/conf
  penstock install --hadoop-conf /etc/hadoop/conf --spark-conf /etc/spark/conf --apply
  penstock install --hadoop-conf /etc/hadoop/conf --disk-bandwidth 200M --apply
  penstock install --hadoop-conf /etc/hadoop/conf --remove --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if apply && (dryRun || remove) {
				return cli.Usage(errors.New("--apply goes without --dry-run and --remove"))
			}
			if o.AgentJar == "" {
				binary, err := os.Executable()
				if err != nil {
					return err
				}
				o.AgentJar = filepath.Join(filepath.Dir(binary), "penstock-agent.jar")
			}
			if err := o.Validate(remove); err != nil {
				return cli.Usage(err)
			}
			var report *install.Report
			var err error
			switch {
			case apply:
				report, err = install.Apply(o)
			case remove && !dryRun:
				report, err = install.Remove(o)
			default:
				report, err = install.Plan(o, remove)
			}
			if asJSON {
				return errors.Join(err, cli.PrintJSON(cmd, report))
			}
			printInstall(cmd.OutOrStdout(), report, apply || remove && !dryRun, err == nil)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.HadoopConf, "hadoop-conf", "", "Hadoop's configuration folder `DIR`")
	flags.StringVar(&o.SparkConf, "spark-conf", "", "Spark's configuration folder `DIR`")
	flags.StringVar(&o.AgentJar, "agent-jar", "", "`PATH` of penstock-agent.jar on the machines (default: beside this binary)")
	flags.StringVar(&o.Socket, "socket", "/run/penstock/agent.sock", "`PATH` of the daemon's socket on the machines")
	flags.StringVar(&o.DiskBandwidth, "disk-bandwidth", "", "`MB/S` of disks that YARN may give away on a NodeManager, as in 200M; 0 takes it out (default: as the folder has it by an earlier --apply)")
	flags.BoolVar(&dryRun, "dry-run", false, "only show what would be changed; so without --apply and --remove, too")
	flags.BoolVar(&apply, "apply", false, "change the folders")
	flags.BoolVar(&remove, "remove", false, "put back what was there")
	flags.BoolVar(&o.Force, "force", false, "let other people's settings give way; with --remove or --disk-bandwidth 0: leave what was changed by hand of what is taken out")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printInstall is for people: the diff as patch(1) reads it, what to know in
// lines that it skips.
func printInstall(out io.Writer, r *install.Report, write, good bool) {
	for _, f := range r.Files {
		fmt.Fprint(out, f.Diff)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, "note:", n)
	}
	switch {
	case !good: // main says why
		return
	case !r.Changes():
		fmt.Fprintln(out, "nothing to change")
		return
	case write:
		fmt.Fprintln(out, "written")
	default:
		fmt.Fprintln(out, "nothing was written: that takes --apply, or --remove without --dry-run")
	}
	var named []string
	for _, who := range r.Restart {
		if !slices.Contains(named, who) {
			named = append(named, who)
			fmt.Fprintln(out, "to restart:", who)
		}
	}
}
