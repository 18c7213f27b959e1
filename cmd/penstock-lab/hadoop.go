package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"penstock/cmd/internal/cli"

	"penstock/lab/disk"
	"penstock/lab/hadoop"

	"github.com/spf13/cobra"
)

func newHadoopCommand() *cobra.Command {
	var (
		cfg                          hadoop.Config
		dataNodes                    int
		cache, blockSize, rate, size string
		dataNodeOptions              []string
		asJSON                       bool
	)
	cmd := &cobra.Command{
		Use:   "hadoop [DIR]",
		Short: "Run a real Hadoop on this machine until interrupted",
		Long: `Starts NameNode, DataNodes, ResourceManager and NodeManagers, each a JVM of its
own, on free ports of 127.0.0.1, and prints how to reach them. DIR is the run
folder; without it a temporary one is made. Ctrl-C stops everything; logs stay
in the folder. The first time it fetches that version's jars with Maven.`,
		Example: `  penstock-lab hadoop
  penstock-lab hadoop --hadoop 3.5.0 --nodemanagers 2
  penstock-lab hadoop --datanodes 2 --rate 12M --datanode-opts -javaagent:$PWD/penstock-agent.jar=socket=/run/penstock/agent.sock`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			if err := hadoop.CheckVersion(cfg.Version); err != nil {
				return cli.Usage(fmt.Errorf("--hadoop: %w", err))
			}
			if cfg.BlockSize, err = cli.ParseBytes(blockSize); err != nil {
				return cli.Usage(fmt.Errorf("--block-size: %w", err))
			}
			var bytesPerSecond, bytes int64
			if rate != "" {
				if bytesPerSecond, err = cli.ParseBytes(rate); err != nil {
					return cli.Usage(fmt.Errorf("--rate: %w", err))
				}
			}
			if bytes, err = cli.ParseBytes(size); err != nil {
				return cli.Usage(fmt.Errorf("--size: %w", err))
			}
			if dataNodes < 1 {
				return cli.Usage(fmt.Errorf("--datanodes %d: at least 1", dataNodes))
			}
			if len(args) == 1 {
				if cfg.RunDir, err = filepath.Abs(args[0]); err != nil {
					return err
				}
			} else if cfg.RunDir, err = os.MkdirTemp("", "penstock-hadoop-"); err != nil {
				return err
			}
			cfg.Progress = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			if cfg.Lib, err = hadoop.Fetch(ctx, cache, cfg.Version, cfg.Progress); err != nil {
				return err
			}
			for i := range dataNodes {
				dn := hadoop.DataNode{JVMArgs: dataNodeOptions}
				if rate != "" {
					d, e := disk.Start(ctx, disk.Options{Name: fmt.Sprintf("disk%d", i), RunDir: cfg.RunDir, Size: bytes,
						Model: disk.Model{BytesPerSecond: bytesPerSecond, SeekMin: 3 * time.Millisecond, SeekMax: 14 * time.Millisecond}})
					if e != nil {
						return e
					}
					defer func() { err = errors.Join(err, d.Stop()) }()
					dn.Volumes = []hadoop.Volume{{Dir: filepath.Join(d.Mount(), "dfs")}}
				}
				cfg.DataNodes = append(cfg.DataNodes, dn)
			}
			c, err := hadoop.Start(ctx, cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.Stop()) }() // before the disks go
			if asJSON {
				err = cli.PrintJSON(cmd, map[string]any{"version": c.Version(), "run_dir": cfg.RunDir, "fs": c.DefaultFS(), "namenode": c.NameNodeURL(),
					"resourcemanager": c.ResourceManagerURL(), "conf": c.ClientConfDir(), "lib": cfg.Lib})
			} else {
				fmt.Fprintf(out, "file system      %s\nNameNode         %s\nResourceManager  %s\nlogs             %s\n\nA shell command:\n  java -cp '%s:%s/*' org.apache.hadoop.fs.FsShell -ls /\n\nCtrl-C stops it.\n",
					c.DefaultFS(), c.NameNodeURL(), c.ResourceManagerURL(), c.LogDir(), c.ClientConfDir(), cfg.Lib)
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
					if err := c.Check(); err != nil {
						return err
					}
				}
			}
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Version, "hadoop", hadoop.DefaultVersion, "version: "+strings.Join(hadoop.Versions, ", "))
	flags.IntVar(&dataNodes, "datanodes", 2, "number of DataNodes")
	flags.IntVar(&cfg.NodeManagers, "nodemanagers", 1, "number of NodeManagers")
	flags.IntVar(&cfg.Replication, "replication", 1, "replicas of each block")
	flags.IntVar(&cfg.TaskSlots, "task-slots", 2, "tasks that each of the two queues runs at a time")
	flags.StringVar(&blockSize, "block-size", "64M", "size of a block")
	flags.StringVar(&cache, "cache", ".cache", "where Hadoop's jars are kept")
	flags.StringArrayVar(&dataNodeOptions, "datanode-opts", nil, "option for the DataNodes' JVMs, as in HDFS_DATANODE_OPTS; may be given several times")
	flags.StringVar(&rate, "rate", "", "put each DataNode on a modelled disk of this many bytes per second (default: plain folders)")
	flags.StringVar(&size, "size", "4G", "size of each modelled disk")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
