package main

import (
	"strings"

	"penstock/cmd/internal/cli"

	"penstock/lab/bench/soak"
	"penstock/lab/experiment/progress"
	"penstock/lab/hadoop"

	"github.com/spf13/cobra"
)

func newSoakCommand() *cobra.Command {
	var (
		q         soak.Request
		at        place
		o         = &q.Options
		seed      uint64
		kills     int
		release   string
		phases    bool
		printPlan bool
	)
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Kill, stop and disturb the daemon and DataNodes under load, by a seed, and report losses",
		Long: `Injects faults, drawn from a seed, into a real Hadoop with two DataNodes on modelled
disks: kill -9 and stops of the daemon and of DataNodes, garbage in the agents'
socket, cut connections, the kill switch, broken weights, slow disks. Meanwhile
TestDFSIO, TeraGen, TeraSort and TeraValidate run, and files of known content are
written and read. No data may be lost, and a dead daemon may delay nobody. A probe
measures the delays of a client, and the agents measure them exactly.

With --phases only the daemon is killed, and only while a TeraSort runs; its local
files and its shuffle are governed as well. The tasks themselves report how long they
waited without a daemon.

The same seed gives the same sequence of faults (--plan prints it); the exact moment
of each fault within a job differs. A kill takes about six seconds, the start and the
end two or three minutes. With --resume, a journal keeps what was done: after Ctrl-C,
kill -9 or a failure the same command continues from there.

Needs root and /dev/fuse for the modelled disks, a JDK, and, the first time, Maven.

Exit codes: 0 all good; 1 a check failed, or a step could not be done; 2 wrong flags;
130 interrupted.`,
		Example: `  penstock-lab soak --seed 1 --kills 300 --resume soak.jsonl --json soak.json
  penstock-lab soak --phases --kills 50
  penstock-lab soak --seed 7 --kills 20 --plan`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			q.Setup = soak.DefaultSetup(seed, kills)
			if phases {
				q.Setup = soak.PhasesSetup(seed, kills)
			}
			q.Setup.Hadoop = release
			if err := q.Setup.Validate(); err != nil {
				return cli.Usage(err)
			}
			if printPlan {
				return q.Setup.Plan().Write(cmd.OutOrStdout())
			}
			if err := at.resolve(); err != nil {
				return err
			}
			o.Binary, o.AgentJar, o.CacheDir, o.RunDir = at.binary, at.agentJar, at.cache, at.runDir
			o.Progress = &progress.Log{Out: cmd.ErrOrStderr()}
			q.Build, q.Out = cli.Version, cmd.OutOrStdout()
			if q.JSON == "-" {
				q.Out = cmd.ErrOrStderr()
			}
			_, err = soak.Perform(cmd.Context(), q)
			return err
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&seed, "seed", 1, "seed of the random faults; the same seed gives the same faults")
	flags.IntVar(&kills, "kills", 20, "number of kill -9; other faults come in between")
	flags.BoolVar(&phases, "phases", false, "kill only the daemon, in the phases of TeraSorts with governed local files and shuffle")
	flags.BoolVar(&printPlan, "plan", false, "print the faults and do nothing")
	flags.StringVar(&q.Resume, "resume", "", "journal `FILE` of what was done; made if missing")
	flags.StringVar(&q.JSON, "json", "", "write everything to `FILE` (- for standard output)")
	flags.StringVar(&q.Report, "report", "", "write an HTML report to `FILE`")
	flags.StringVar(&release, "hadoop", hadoop.DefaultVersion, "Hadoop's version: "+strings.Join(hadoop.Versions, ", "))
	flags.BoolVar(&q.KeepLogs, "keep-logs", false, "keep the run folder with all logs, even if all is good")
	at.register(flags)
	return cmd
}
