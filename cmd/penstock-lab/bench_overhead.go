package main

import (
	"errors"
	"fmt"
	"io"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/lab/bench/overhead"
	"penstock/lab/experiment/runs"
	"penstock/lab/hadoop"
)

func newBenchOverhead() *cobra.Command {
	var f overheadFlags
	cmd := &cobra.Command{
		Use:   "overhead",
		Short: "Measure what Penstock costs an application that runs alone: CPU, memory, run time",
		Long: `Repeats the overhead experiment of IBIS, section 7.7, on a real HDFS with disks in
memory, which delay nobody. The variants are:

  native    the DataNode without the agent
  absent    with the agent, without a daemon
  observe   with agent and daemon; the daemon accounts and delays nobody
  enforce   with agent and daemon; streams wait at their marks
  marked    without the agent, on a file system that kernel control has marked; only if
            --variants names it

For each variant it measures the CPU seconds per GB of the DataNode and of the daemon
when writing, reading cold and reading from the page cache, at a given rate; MB/s at
full speed; run times of TeraGen and TeraSort; the daemon's memory. Each round starts two new
DataNodes, one with the agent and one without, warms both, and measures every
variant; ratios are taken within rounds and reported with 95 % confidence intervals.
At the end it prints which targets are met, which are missed, and which cannot be
decided because the interval is too wide.

With --yarn BYTES it measures instead what all of Penstock costs a MapReduce job: a
TeraSort of BYTES on YARN, natively and with everything enabled (the agent in DataNode
and NodeManager, the tasks' plug-in as penstock install sets it, a daemon that
enforces, the network governed, intermediate data on the governed disk). Two clusters
run side by side, each on its own disk; each round sorts on both. The figures are the
job's run time as the ResourceManager reports it, and the CPU seconds of DataNode,
NodeManager, containers and daemon until all data is on the disk. Before the first
round, a job on each cluster is validated, and one more round runs and is discarded.

With --resume, a journal keeps finished rounds: after Ctrl-C, kill -9 or a failure
the same command continues from there. It refuses a journal of another setup.
A round takes about a minute and a half, with --yarn 1G three minutes; nothing else
should run meanwhile.

Needs root and /dev/fuse for disks in memory (without them, both DataNodes use the
folder's own disk, and the output says so), a JDK, and, the first time, Maven.

Exit codes: 0 done, also when a target is missed; 1 failed; 2 wrong flags; 130
interrupted.`,
		Example: `  penstock-lab bench overhead --rounds 8 --bytes 20G --resume overhead.jsonl \
      --json overhead.json --report overhead.html
  penstock-lab bench overhead --yarn 1G --rounds 12 --resume yarn.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.perform(cmd) },
	}
	flags, q := cmd.Flags(), &f.request
	flags.IntVar(&q.Rounds, "rounds", 8, "rounds; use at least 5 for reliable figures")
	flags.StringVar(&f.bytes, "bytes", "20G", "bytes that each variant moves in all rounds, written twice and read three times (K, M, G: powers of 1024)")
	flags.StringVar(&f.warm, "warm", "3G", "bytes written, and read twice, on each DataNode before it is measured")
	flags.StringVar(&f.rate, "rate", "250M", "bytes per second of the streams whose CPU time is reported")
	flags.StringVar(&f.job, "job-bytes", "128M", "bytes that TeraGen writes and TeraSort sorts; 0: no jobs")
	flags.StringVar(&f.yarn, "yarn", "", "bytes that a TeraSort on YARN sorts, natively and with all of Penstock; 64M to 64G")
	flags.StringSliceVar(&f.variants, "variants", []string{"absent", "observe", "enforce"}, "variants to compare with native: absent, observe, enforce, marked")
	flags.StringVar(&f.hadoop, "hadoop", hadoop.DefaultVersion, "version of Hadoop")
	flags.BoolVar(&f.loopback, "loopback", false, "the agent uses the daemon's loopback port, as on Java before 16")
	flags.StringVar(&q.Resume, "resume", "", "journal `FILE` of finished rounds; made if missing")
	flags.StringVar(&f.json, "json", "", "write the figures to `FILE` (- for standard output, in place of the table)")
	flags.StringVar(&f.report, "report", "", "write the HTML report to `FILE`")
	flags.BoolVar(&q.KeepLogs, "keep-logs", false, "keep the run folder with all logs, even after success")
	f.at.register(flags)
	flags.StringArrayVar(&q.Options.JVMArgs, "datanode-opt", nil, "option for both DataNodes' JVMs, for example for a profiler; {place} becomes agent or native")
	return cmd
}

type overheadFlags struct {
	at                             place
	request                        overhead.Request[overhead.Setup]
	bytes, rate, warm, job, hadoop string
	yarn                           string
	yarnSetup                      overhead.YARNSetup
	variants                       []string
	loopback                       bool
	json, report                   string
}

func (f *overheadFlags) perform(cmd *cobra.Command) error {
	q := &f.request
	fill := f.fill
	if f.yarn != "" {
		fill = func() error { return f.fillYARN(cmd) }
	}
	if err := fill(); err != nil {
		return cli.Usage(err)
	}
	if err := f.at.resolve(); err != nil {
		return err
	}
	o := &q.Options
	o.Binary, o.AgentJar, o.CacheDir, o.RunDir = f.at.binary, f.at.agentJar, f.at.cache, f.at.runDir
	o.Say = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
	q.Build = cli.Version
	if f.yarn != "" {
		return f.performYARN(cmd)
	}
	res, err := overhead.Perform(cmd.Context(), *q)
	if res == nil {
		return err
	}
	err = errors.Join(err, writeResult(cmd, f.json, *res))
	if f.report != "" {
		err = errors.Join(err, res.WriteReportFile(f.report))
	}
	return err
}

func (f *overheadFlags) performYARN(cmd *cobra.Command) error {
	q := f.request
	res, err := overhead.PerformYARN(cmd.Context(), overhead.Request[overhead.YARNSetup]{Setup: f.yarnSetup, Rounds: q.Rounds,
		Options: q.Options, Build: q.Build, Resume: q.Resume, KeepLogs: q.KeepLogs})
	if res == nil {
		return err
	}
	return errors.Join(err, writeResult(cmd, f.json, *res))
}

// fillYARN does the work of fill for --yarn, and refuses the flags that have no meaning there.
func (f *overheadFlags) fillYARN(cmd *cobra.Command) error {
	for _, other := range []string{"bytes", "warm", "rate", "job-bytes", "variants", "loopback", "datanode-opt", "report"} {
		if cmd.Flags().Changed(other) {
			return fmt.Errorf("--%s has no meaning with --yarn: leave one of them out", other)
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	bytes, err := cli.ParseBytes(f.yarn)
	if err != nil {
		return fmt.Errorf("--yarn: %w", err)
	}
	f.yarnSetup = overhead.DefaultYARNSetup(bytes)
	f.yarnSetup.Hadoop = f.hadoop
	return f.yarnSetup.Validate()
}

// check checks the flags of both measurements.
func (f *overheadFlags) check() error {
	if n := f.request.Rounds; n < 1 || n > overhead.MaxRounds {
		return fmt.Errorf("--rounds %d: use 1 to %d", n, overhead.MaxRounds)
	}
	if err := hadoop.CheckVersion(f.hadoop); err != nil {
		return fmt.Errorf("--hadoop: %w", err)
	}
	return nil
}

// fill turns the flags into the request's setup and checks them.
func (f *overheadFlags) fill() (err error) {
	q, s := &f.request, overhead.DefaultSetup()
	if err := f.check(); err != nil {
		return err
	}
	var total int64
	for _, size := range []struct {
		flag, text string
		to         *int64
	}{{"bytes", f.bytes, &total}, {"rate", f.rate, &s.StreamRate}, {"warm", f.warm, &s.WarmBytes}, {"job-bytes", f.job, &s.JobBytes}} {
		if *size.to, err = cli.ParseBytes(size.text); err != nil {
			return fmt.Errorf("--%s: %w", size.flag, err)
		}
	}
	s.Hadoop, s.Loopback = f.hadoop, f.loopback
	s.StreamBytes = overhead.StreamBytesFor(total, q.Rounds)
	if s.Variants, err = overhead.ParseVariants(f.variants); err != nil {
		return fmt.Errorf("--variants: %w", err)
	}
	q.Setup = s
	return s.Validate()
}

// result holds the figures of a benchmark. It can be written as a table and as JSON.
type result interface {
	WriteTable(w io.Writer) error
	WriteJSON(w io.Writer) error
}

// writeResult prints the table, and the JSON to a file; "-" prints the JSON alone.
func writeResult(cmd *cobra.Command, file string, res result) error {
	switch file {
	case "-":
		return res.WriteJSON(cmd.OutOrStdout())
	case "":
		return res.WriteTable(cmd.OutOrStdout())
	}
	return errors.Join(runs.WriteFile(file, res.WriteJSON), res.WriteTable(cmd.OutOrStdout()))
}
