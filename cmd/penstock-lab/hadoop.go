package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"penstock/cmd/internal/cli"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/spark"
	"penstock/lab/stand"
)

func newHadoopCommand() *cobra.Command {
	var c cluster
	cmd := &cobra.Command{
		Use:   "hadoop [DIR]",
		Short: "Run a real Hadoop on this machine until interrupted",
		Long: `Starts NameNode, DataNodes, ResourceManager and NodeManagers, each a JVM of its
own, on free ports of 127.0.0.1, and prints how to reach them. With --mode it also
starts a daemon of Penstock, with its agents in Hadoop's JVMs.

DIR is the run folder; without it a temporary one is made. Ctrl-C stops everything;
logs stay in the folder. The first time, it downloads this version of Hadoop with Maven.`,
		Example: `  penstock-lab hadoop
  penstock-lab hadoop --hadoop 3.5.0 --nodemanagers 2
  penstock-lab hadoop --datanodes 2 --rate 12M --mode enforce`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args, func(context.Context, *stand.Stand, map[string]string) (string, func() error, error) {
				return "", func() error { return nil }, nil
			})
		},
	}
	c.register(cmd.Flags())
	return cmd
}

func newSparkCommand() *cobra.Command {
	var c cluster
	var standalone bool
	cmd := &cobra.Command{
		Use:   "spark [DIR]",
		Short: "Run a real Spark beside a real Hadoop on this machine until interrupted",
		Long: `Starts a Hadoop as "penstock-lab hadoop" does, prepares Spark for it, and prints how to
submit a program. Applications run on YARN, or with --standalone on a master and a worker
of Spark's own. With --mode the executors load Penstock's plug-in.

The first time it downloads Spark (455 MB) with pip, and Hadoop with Maven.`,
		Example: `  penstock-lab spark
  penstock-lab spark --standalone --rate 12M --mode enforce`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args, func(ctx context.Context, s *stand.Stand, facts map[string]string) (string, func() error, error) {
				return startSpark(ctx, s, standalone, facts)
			})
		},
	}
	c.settings = func(s *stand.Stand) string {
		return fmt.Sprintf("identity: {spark_dirs: [%s]}\n", spark.WorkDir(sparkLocalDir(s)))
	}
	c.register(cmd.Flags())
	cmd.Flags().BoolVar(&standalone, "standalone", false, "run applications on a master and a worker of Spark's own, not on YARN")
	return cmd
}

func sparkDir(s *stand.Stand) string { return s.Path("spark") }

// sparkLocalDir returns the folder where a standalone Spark keeps its executors' files.
func sparkLocalDir(s *stand.Stand) string { return filepath.Join(sparkDir(s), "work") }

// startSpark starts Spark and adds its addresses and folders to facts. It returns a text that
// explains how to submit a program, and a function that stops Spark.
func startSpark(ctx context.Context, s *stand.Stand, standalone bool, facts map[string]string) (usage string, stop func() error, err error) {
	home, err := spark.Fetch(ctx, s.Spec.Cache, spark.Version, s.Spec.Progress)
	if err != nil {
		return "", nil, err
	}
	cfg := spark.Config{RunDir: sparkDir(s), LocalDir: sparkLocalDir(s), Home: home, Cluster: s.Hadoop, Standalone: standalone, Progress: s.Spec.Progress}
	if len(s.Nodes) > 0 {
		cfg.Governed = s.Governed(0)
	}
	running, err := spark.Start(ctx, cfg)
	if err != nil {
		return "", nil, err
	}
	facts["spark_home"], facts["spark_conf"], facts["spark_master"] = home, running.ConfDir(), running.Master()
	usage = fmt.Sprintf("\nA Spark program:\n  SPARK_HOME=%[1]s SPARK_CONF_DIR=%[2]s HADOOP_CONF_DIR=%[3]s \\\n    %[1]s/bin/spark-submit --master %[4]s PROGRAM.py\n",
		home, running.ConfDir(), s.Hadoop.ClientConfDir(), running.Master())
	return usage, running.Stop, nil
}

// cluster is a Hadoop cluster as the flags describe it.
type cluster struct {
	hadoop                hadoop.Config
	dataNodes             int
	cache, mode           string
	blockSize, rate, size string
	dataNodeOptions       []string
	asJSON                bool
	settings              func(*stand.Stand) string // further settings of the daemon; nil: none
}

func (c *cluster) register(flags *pflag.FlagSet) {
	flags.StringVar(&c.hadoop.Version, "hadoop", hadoop.DefaultVersion, "version: "+strings.Join(hadoop.Versions, ", "))
	flags.IntVar(&c.dataNodes, "datanodes", 2, "number of DataNodes")
	flags.IntVar(&c.hadoop.NodeManagers, "nodemanagers", 1, "number of NodeManagers")
	flags.IntVar(&c.hadoop.Replication, "replication", 1, "replicas of each block")
	flags.IntVar(&c.hadoop.TaskSlots, "task-slots", 2, "tasks that each of the two queues runs at a time")
	flags.StringVar(&c.blockSize, "block-size", "64M", "size of a block")
	flags.StringVar(&c.cache, "cache", ".cache", "`FOLDER` for downloads, kept between runs")
	flags.StringArrayVar(&c.dataNodeOptions, "datanode-opts", nil, "option for the DataNodes' JVMs, as in HDFS_DATANODE_OPTS; may be given several times")
	flags.StringVar(&c.rate, "rate", "", "put each DataNode on a modelled disk of this many bytes per second (default: plain folders)")
	flags.StringVar(&c.size, "size", "4G", "size of each modelled disk")
	flags.StringVar(&c.mode, "mode", "off", "mode of Penstock: off (no daemon, no agents), observe or enforce")
	flags.BoolVar(&c.asJSON, "json", false, "print JSON")
}

// spec checks the flags and returns the stand that they describe.
func (c *cluster) spec(progress func(string, ...any)) (spec stand.Spec, model disk.Model, err error) {
	if err := hadoop.CheckVersion(c.hadoop.Version); err != nil {
		return spec, model, cli.Usage(fmt.Errorf("--hadoop: %w", err))
	}
	var rate, size int64
	for _, f := range []struct {
		flag, text string
		into       *int64
	}{{"--block-size", c.blockSize, &c.hadoop.BlockSize}, {"--rate", c.rate, &rate}, {"--size", c.size, &size}} {
		if f.text == "" {
			continue
		}
		if *f.into, err = cli.ParseBytes(f.text); err != nil {
			return spec, model, cli.Usage(fmt.Errorf("%s: %w", f.flag, err))
		}
	}
	switch {
	case c.dataNodes < 1:
		return spec, model, cli.Usage(fmt.Errorf("--datanodes %d: at least 1", c.dataNodes))
	case !slices.Contains([]string{"off", "observe", "enforce"}, c.mode):
		return spec, model, cli.Usage(fmt.Errorf("--mode %q: use off, observe or enforce", c.mode))
	}
	at := place{cache: c.cache}
	if err := at.resolve(); err != nil {
		return spec, model, err
	}
	spec = stand.Spec{Name: "hadoop", Binary: at.binary, AgentJar: at.agentJar, Cache: at.cache, Progress: progress, Public: true}
	if rate > 0 {
		for i := range c.dataNodes {
			spec.Disks = append(spec.Disks, disk.Options{Name: fmt.Sprintf("disk%d", i), Size: size})
		}
	}
	if c.mode != "off" {
		spec.Nodes = func(s *stand.Stand) []daemon.Options {
			o := daemon.Options{Mode: c.mode, Weights: "default: 1\n"}
			if c.settings != nil {
				o.More = c.settings(s)
			}
			return []daemon.Options{o}
		}
		spec.Agents = []int{c.dataNodes + c.hadoop.NodeManagers}
	}
	spec.Hadoop = func(s *stand.Stand) hadoop.Config {
		cfg := c.hadoop
		if rate > 0 {
			cfg.DataNodes = s.DataNodes("dfs")
		} else {
			cfg.DataNodes = make([]hadoop.DataNode, c.dataNodes)
		}
		for i := range cfg.DataNodes {
			cfg.DataNodes[i].JVMArgs = c.dataNodeOptions
		}
		if c.mode != "off" {
			cfg.Governed = s.Governed(0)
		}
		return cfg
	}
	return spec, disk.HDD(rate), nil
}

// run starts the cluster, and then the servers of more. It prints how to reach them, and waits
// until it is interrupted or a part fails.
func (c *cluster) run(cmd *cobra.Command, args []string, more func(context.Context, *stand.Stand, map[string]string) (usage string, stop func() error, err error)) (err error) {
	ctx, errs := cmd.Context(), cmd.ErrOrStderr()
	spec, model, err := c.spec(func(format string, args ...any) { fmt.Fprintf(errs, format+"\n", args...) })
	if err != nil {
		return err
	}
	if len(args) == 1 {
		if spec.Dir, err = filepath.Abs(args[0]); err != nil {
			return err
		}
		if err := os.MkdirAll(spec.Dir, 0o755); err != nil {
			return err
		}
	}
	s, err := stand.Up(ctx, spec)
	if err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(errs, "putting everything back")
		err = errors.Join(err, s.Down())
		fmt.Fprintln(errs, "logs:", s.Dir)
	}()
	if len(s.Disks) > 0 {
		if err := s.SetModel(model); err != nil { // until here, the disks had full speed
			return err
		}
	}
	facts := map[string]string{"version": s.Hadoop.Version(), "run_dir": s.Dir, "fs": s.Hadoop.DefaultFS(), "namenode": s.Hadoop.NameNodeURL(),
		"resourcemanager": s.Hadoop.ResourceManagerURL(), "conf": s.Hadoop.ClientConfDir(), "lib": s.Lib}
	if len(s.Nodes) > 0 {
		facts["daemon"], facts["weights"] = s.Nodes[0].Address, s.Nodes[0].Weights
	}
	usage, stop, err := more(ctx, s, facts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if c.asJSON {
		err = cli.PrintJSON(cmd, facts)
	} else {
		out := cmd.OutOrStdout()
		for _, name := range slices.Sorted(maps.Keys(facts)) {
			fmt.Fprintf(out, "%-16s %s\n", name, facts[name])
		}
		fmt.Fprintf(out, "\nA shell command:\n  java -cp '%s:%s/*' org.apache.hadoop.fs.FsShell -ls /\n%s", facts["conf"], facts["lib"], usage)
		if len(s.Nodes) > 0 {
			fmt.Fprintf(out, "\nWhat Penstock sees:\n  %s top --address %s\n", s.Spec.Binary, facts["daemon"])
		}
		_, err = fmt.Fprintln(out, "\nCtrl-C stops it.")
	}
	if err != nil {
		return err
	}
	check := time.NewTicker(time.Second)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-check.C:
			if err := s.Hadoop.Check(); err != nil {
				return err
			}
			if len(s.Nodes) > 0 && !s.Nodes[0].Alive() {
				return fmt.Errorf("the daemon has ended: see %s", s.Nodes[0].Log)
			}
		}
	}
}
