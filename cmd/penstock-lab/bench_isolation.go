package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/lab/bench/isolation"
	"penstock/lab/experiment/progress"
	"penstock/lab/hadoop"
)

func newBenchIsolation() *cobra.Command {
	var f isolationFlags
	cmd := &cobra.Command{
		Use:   "isolation",
		Short: "Measure how well a job is protected from another one on the same disks, and at what throughput",
		Long: `Repeats the isolation experiment of IBIS, sections 7.2 and 7.4, on a real Hadoop
with modelled disks. The protected job is WordCount, TeraSort or a TPC-H query of
Spark SQL; the aggressor is TeraGen, TeraSort, TeraValidate or WordCount. Phases:

  alone        the protected job by itself; aggressor-alone: the aggressor by itself
  floor        the aggressor's data on other modelled disks: only CPU is contended
  native       together under a kernel I/O scheduler: stands for native-mq-deadline,
               native-bfq and native-none
  throttler-N  together, the DataNodes' own throttler at N MB/s each, in the
               aggressor's direction; throttler stands for four caps
  cgroup-weights-N, cgroup-caps-N
               together, each side's containers in a cgroup of the blkio controller,
               version 1: weights N to 1 under bfq, or the aggressor capped at N MB/s
               on each disk; cgroup stands for 100 to 1 and for 1 MB/s
  drr-N        together under Penstock, deficit round robin, N requests outstanding;
               drr stands for one depth
  sfqd-N       together under Penstock, SFQ(D) with the depth fixed at N; sfqd stands
               for 1, 2, 4, 8 and 12
  sfqd2        together under Penstock, SFQ(D2)

"all" stands for all of them. The report names the best depth and the best cap.

Intermediate data (spills, shuffle) is on the contested disks, and governed there, if
the protected job is TeraSort or TPC-H, or with --intermediate; the cgroup phases
need this.
With --both the aggressor runs to completion, and the report compares the run times of
both sides with their run times alone.

Runs are interleaved. With --resume, a journal keeps finished runs: after Ctrl-C,
kill -9 or a failure the same command continues. It refuses a journal of another
set-up. A run takes one to two minutes. The protected job's output is checked after
every run, the aggressor's after the first run of each phase in the journal. Later
runs kill the aggressor when the protected job has ended, which saves half of the
time. With --check all or --both, the aggressor's output is checked after every run.

Needs root and /dev/fuse for the modelled disks; Java; the first time, Maven; and for
TPC-H, Python with pip.

Exit codes: 0 done; 1 a run, a check of outputs or the restoring of the machine
failed; 2 wrong flags; 130 interrupted.`,
		Example: `  penstock-lab bench isolation --against terasort --phases alone,floor,native,sfqd2 \
      --runs 5 --resume terasort.jsonl --json terasort.json --report terasort.html
  penstock-lab bench isolation --protected tpch-q21 --against terasort --weights 100:1 --both \
      --phases alone,aggressor-alone,floor,native-mq-deadline,cgroup,sfqd2 --runs 5
  penstock-lab bench isolation --disk ssd --weights 2:1 --phases all --runs 5 --resume ssd.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.perform(cmd) },
	}
	f.register(cmd, "alone,floor,native,sfqd2", 1, "", "first")
	return cmd
}

// isolationFlags are shared by `bench isolation` and `demo`.
type isolationFlags struct {
	request                            isolation.Request
	protected, against, disk, setup    string
	intermediate                       bool
	weights, hadoop, check             string
	phases                             []string
	protectedSize, aggressorSize, rate string
	applications                       int
}

func (f *isolationFlags) register(cmd *cobra.Command, phases string, runs int, report, check string) {
	flags, q := cmd.Flags(), &f.request
	flags.StringVar(&f.protected, "protected", isolation.Protecteds[0], "protected job: "+strings.Join(isolation.Protecteds, ", "))
	flags.StringVar(&f.against, "against", isolation.DefaultAggressor, "aggressor: "+strings.Join(isolation.Aggressors, ", "))
	flags.StringVar(&f.disk, "disk", isolation.HDD, "kind of the modelled disks: "+isolation.HDD+", "+isolation.SSD)
	flags.StringVar(&f.weights, "weights", "", "weights of the protected job and the aggressor (default 32:1)")
	flags.StringVar(&f.hadoop, "hadoop", "", "Hadoop's version: "+strings.Join(hadoop.Versions, ", ")+" (default "+hadoop.DefaultVersion+")")
	flags.StringVar(&q.Profile, "profile", "", "profile `FILE` of the disks, from penstock profile: costs and reference latencies")
	flags.StringVar(&f.check, "check", check, "runs after which the aggressor's output is checked: all, or the first of each phase")
	flags.StringSliceVar(&f.phases, "phases", strings.Split(phases, ","), "phases to run, in this order")
	flags.IntVar(&q.Runs, "runs", runs, "runs of each phase")
	flags.StringVar(&q.Resume, "resume", "", "journal `FILE` of finished runs; made if missing")
	flags.StringVar(&q.JSON, "json", "", "write the figures to `FILE` (- for standard output)")
	flags.StringVar(&q.Report, "report", report, "write the HTML report to `FILE`")
	flags.StringVar(&q.SVG, "svg", "", "write the main chart to `FILE`")
	flags.BoolVar(&q.KeepLogs, "keep-logs", false, "keep the run folder with all logs, even after success")
	flags.StringVar(&f.setup, "setup", "", "JSON `FILE` with fields of the setup to change, in the form of --json's \"setup\"")
	flags.BoolVar(&f.intermediate, "intermediate", false, "put intermediate data on the contested disks (default: if the protected job is not WordCount)")
	flags.BoolVar(&q.Setup.Both, "both", false, "let the aggressor run to completion on the limited disks, and compare both sides")
	flags.StringVar(&f.protectedSize, "protected-size", "", "the protected job's input (K, M, G: powers of 1024); TPC-H has a scale in --setup")
	flags.StringVar(&f.aggressorSize, "aggressor-size", "", "bytes of all the aggressor's applications together")
	flags.IntVar(&f.applications, "applications", 1, "number of TeraGen applications; each has an equal part of the bytes and of the 4 tasks, at least one task")
	flags.StringVar(&f.rate, "disk-rate", "", "rate of each modelled disk in bytes per second; an SSD's writes keep their proportion")
	flags.StringVar(&q.RunDir, "run-dir", "", "run folder (default: a new one in ./run)")
	flags.StringVar(&q.CacheDir, "cache-dir", ".cache", "folder for downloads, kept between runs")
	flags.StringVar(&q.AgentJar, "agent-jar", "", "penstock-agent.jar (default: beside this binary)")
}

// perform turns the flags into a request and carries it out.
func (f *isolationFlags) perform(cmd *cobra.Command) (err error) {
	q := &f.request
	if q.Runs < 1 {
		return cli.Usage(errors.New("--runs must be at least 1"))
	}
	if f.check != "all" && f.check != "first" {
		return cli.Usage(fmt.Errorf("--check %q: choose all or first", f.check))
	}
	q.CheckAll = f.check == "all"
	if err := f.fillSetup(cmd.Flags().Changed("intermediate")); err != nil {
		return cli.Usage(err)
	}
	if q.Phases, err = isolation.ParsePhases(f.phases, q.Setup); err != nil {
		return cli.Usage(err)
	}
	if err := f.fillPaths(); err != nil {
		return err
	}
	q.Build, q.Out = cli.Version, cmd.OutOrStdout()
	if q.JSON == "-" {
		q.Out = cmd.ErrOrStderr()
	}
	q.Progress = &progress.Log{Out: os.Stderr, Terminal: cli.IsTerminal(os.Stderr)}
	return isolation.Perform(cmd.Context(), *q)
}

func (f *isolationFlags) fillSetup(intermediate bool) error {
	s, err := isolation.DefaultSetup(f.protected, f.against, f.disk)
	if err != nil {
		return err
	}
	s.Both = f.request.Setup.Both
	if intermediate {
		s.SetIntermediate(f.intermediate)
	}
	if f.setup != "" {
		if err := s.Override(f.setup); err != nil {
			return err
		}
		s.Against = f.against
	}
	if f.weights != "" {
		if err := s.SetWeights(f.weights); err != nil {
			return err
		}
	}
	if f.hadoop != "" {
		s.Hadoop.Version = f.hadoop
	}
	if f.applications != 1 {
		if f.applications < 1 {
			return fmt.Errorf("--applications %d: at least 1", f.applications)
		}
		s.Aggressor.Divide(f.applications)
	}
	for _, size := range []struct {
		flag, text string
		set        func(int64)
	}{
		{"protected-size", f.protectedSize, func(n int64) { s.Protected.InputBytes = n }},
		{"aggressor-size", f.aggressorSize, func(n int64) { s.Aggressor.Bytes = n }},
		{"disk-rate", f.rate, s.Disk.SetRate},
	} {
		if size.text == "" {
			continue
		}
		n, err := cli.ParseBytes(size.text)
		if err != nil {
			return fmt.Errorf("--%s: %w", size.flag, err)
		}
		size.set(n)
	}
	f.request.Setup = s
	return s.Validate()
}

// fillPaths completes the request's paths.
func (f *isolationFlags) fillPaths() (err error) {
	q := &f.request
	if q.Binary, err = penstockBinary(); err != nil {
		return err
	}
	if q.AgentJar == "" {
		q.AgentJar = filepath.Join(filepath.Dir(q.Binary), "penstock-agent.jar")
	}
	for _, p := range []*string{&q.AgentJar, &q.CacheDir, &q.RunDir, &q.Profile} {
		if *p != "" {
			if *p, err = filepath.Abs(*p); err != nil {
				return err
			}
		}
	}
	if _, err := os.Stat(q.AgentJar); err != nil {
		return fmt.Errorf("the agent: %w (run make build, or name it with --agent-jar)", err)
	}
	return nil
}
