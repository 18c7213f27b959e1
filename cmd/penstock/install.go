package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"penstock/ops/install"
)

func newInstallCommand() *cobra.Command {
	var (
		o                             install.Options
		dryRun, apply, remove, asJSON bool
		tool                          string
	)
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Prepare the configuration folders of Hadoop, Spark and Tez, or restore them",
		Long: `Shows, as a unified diff, the changes that a configuration folder needs for Penstock to
govern the I/O of Hadoop's daemons and of applications. --apply writes them:

  shellprofile.d/penstock.sh  the agent in the DataNode and the NodeManager
  mapred-site.xml             map and reduce tasks: their local files
  hdfs-site.xml               turns off the DataNodes' own readahead
  spark-defaults.conf         executors, and the name of an application's HDFS I/O
  spark-env.sh                the jar on Spark's class path, and the agent in standalone
                              Workers and in a separate shuffle service
  tez-site.xml                tasks of Tez: their local files

With --disk-bandwidth, also the changes that make disk bandwidth a YARN resource, like
CPU and memory (docs/operate/yarn-bandwidth.md):

  resource-types.xml          the resource disk-bandwidth, in MB/s
  node-resources.xml          how much of it a NodeManager offers; only NodeManagers
                              read this file
  capacity-scheduler.xml      if the file exists: a calculator that counts the resource;
                              without it, the ResourceManager does not start

Settings are changed in place; comments, order and layout stay. If somebody else has set a
different value, this is a conflict: the command names it and writes nothing. --force
replaces the value. penstock-install.json in each folder records the changes. --remove
reads this file and restores exactly the previous settings; other changes in the files
stay. Each file is written as a whole, one after another. After an interruption, run the
same command again.

The jar and the socket must exist on the machines that use the folder, not necessarily on
this one. Where the jar is missing, daemons and tasks run ungoverned. Spark's executors do
not start without it, so with --spark-conf the command checks that the jar exists on this
machine. --force skips this check, for a machine that runs no executors.

If a tool writes the folders, --for prints the same settings for the fields of this tool, and where to paste them:
Ambari (2.7 and later), Cloudera Manager (6 and 7), or variables of your own Ansible roles. With --for, the command
reads and writes no folder. Ambari and Cloudera Manager were not available, so pasting was not tried.

docs/operate/install.md says what each setting is for.

Exit codes: 0 done, or nothing to do; 1 failed, or a conflict; 2 wrong flags.`,
		Example: `  penstock install --hadoop-conf /etc/hadoop/conf --spark-conf /etc/spark/conf
  penstock install --hadoop-conf /etc/hadoop/conf --spark-conf /etc/spark/conf --apply
  penstock install --hadoop-conf /etc/hadoop/conf --disk-bandwidth 200M --apply
  penstock install --hadoop-conf /etc/hadoop/conf --remove --dry-run
  penstock install --for ambari`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if apply && (dryRun || remove) {
				return cli.Usage(errors.New("--apply cannot be combined with --dry-run or --remove"))
			}
			if o.AgentJar == "" {
				binary, err := os.Executable()
				if err != nil {
					return err
				}
				o.AgentJar = filepath.Join(filepath.Dir(binary), "penstock-agent.jar")
			}
			if cmd.Flags().Changed("for") {
				return printPaste(cmd, tool, o, asJSON)
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
	flags.StringVar(&o.TezConf, "tez-conf", "", "Tez's configuration folder `DIR`")
	flags.StringVar(&o.AgentJar, "agent-jar", "", "`PATH` of penstock-agent.jar on the machines (default: beside this binary)")
	flags.StringVar(&o.Socket, "socket", "/run/penstock/agent.sock", "`PATH` of the daemon's socket on the machines")
	flags.StringVar(&o.DiskBandwidth, "disk-bandwidth", "", "disk bandwidth in `MB/S` that YARN may allocate on a NodeManager, such as 200M; 0 removes the resource (default: the value of an earlier --apply)")
	flags.IntVar(&o.LeastJava, "least-java", 0, "oldest `JAVA` version of DataNodes and NodeManagers that load the agent, 8 to 16; before 16 the daemon's setting loopback is needed (default: the value of an earlier --apply, or 16)")
	flags.BoolVar(&dryRun, "dry-run", false, "only show the changes; this is the default without --apply and --remove")
	flags.BoolVar(&apply, "apply", false, "change the folders")
	flags.BoolVar(&remove, "remove", false, "restore the previous settings")
	flags.BoolVar(&o.Force, "force", false, "replace other people's settings; with --remove or --disk-bandwidth 0: do not restore settings that somebody has changed by hand since --apply")
	flags.StringVar(&tool, "for", "", "print what to paste into the fields of `TOOL`: "+strings.Join(install.Tools(), ", "))
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printPaste prints the settings for the fields of a tool. Everything but the texts is a comment.
func printPaste(cmd *cobra.Command, tool string, o install.Options, asJSON bool) error {
	var other []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"for", "agent-jar", "socket", "json"}, f.Name) {
			other = append(other, "--"+f.Name)
		}
	})
	if len(other) > 0 {
		return cli.Usage(fmt.Errorf("--for cannot be combined with %s: it only prints", strings.Join(other, ", ")))
	}
	all, err := install.PasteFor(tool, o)
	if err != nil {
		return cli.Usage(err)
	}
	if asJSON {
		return cli.PrintJSON(cmd, all)
	}
	for _, p := range all {
		fmt.Fprintf(cmd.OutOrStdout(), "# %s\n", p.Field)
		for line := range strings.Lines(p.Note) {
			fmt.Fprintf(cmd.OutOrStdout(), "#   %s\n", strings.TrimSpace(line))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n", p.Text)
	}
	return nil
}

// printInstall prints the report for people: the diffs in the form that patch(1) reads, and notes
// in lines that patch skips.
func printInstall(out io.Writer, r *install.Report, write, good bool) {
	for _, f := range r.Files {
		fmt.Fprint(out, f.Diff)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, "note:", n)
	}
	switch {
	case !good: // main prints the error
		return
	case !r.Changes():
		fmt.Fprintln(out, "nothing to change")
		return
	case write:
		fmt.Fprintln(out, "written")
	default:
		fmt.Fprintln(out, "nothing was written: to write, use --apply, or --remove without --dry-run")
	}
	var named []string
	for _, who := range r.Restart {
		if !slices.Contains(named, who) {
			named = append(named, who)
			fmt.Fprintln(out, "to restart:", who)
		}
	}
}
