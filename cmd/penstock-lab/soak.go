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
		Short: "Kill, stop and confuse daemon and DataNodes under load, by a seed, and see what was lost",
		Long: `A campaign of faults, drawn from a seed, on a real Hadoop with two DataNodes on
modelled disks: kill -9 and stops of the daemon and of DataNodes, garbage in the
agents' socket, cut connections, the kill switch, broken weights, slow disks; while
TestDFSIO, TeraGen, TeraSort and TeraValidate run, and files of known content are
written and read. Nothing may be lost, and nobody may be held up by a dead daemon;
what a client feels is measured by a probe, and exactly by the agents.

With --phases only the daemon is killed, and only while a TeraSort runs whose local
files and shuffle are governed as well; what its tasks waited without a daemon is
told by the tasks themselves.

The same seed is the same sequence of faults (--plan prints it); when exactly each
hits a job differs. About six seconds a kill, and two or three minutes to start and
to end. With --resume, what was done is kept in a journal: after Ctrl-C, kill -9 or
a failure the same command goes on from there.

Needs root and /dev/fuse for the modelled disks, a JDK, and, the first time, Maven.

Exit codes: 0 all good; 1 something was found, or could not be done; 2 wrong flags;
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
	flags.IntVar(&kills, "kills", 20, "how many kill -9; other faults come in between")
	flags.BoolVar(&phases, "phases", false, "kill the daemon only, in the phases of TeraSorts that are governed in all they do")
	flags.BoolVar(&printPlan, "plan", false, "print the faults and do nothing")
	flags.StringVar(&q.Resume, "resume", "", "journal `FILE` of what was done; made if missing")
	flags.StringVar(&q.JSON, "json", "", "write everything to `FILE` (- for standard output)")
	flags.StringVar(&q.Report, "report", "", "write an HTML report to `FILE`")
	flags.StringVar(&release, "hadoop", hadoop.DefaultVersion, "Hadoop's version: "+strings.Join(hadoop.Versions, ", "))
	flags.BoolVar(&q.KeepLogs, "keep-logs", false, "keep the run folder with all logs also if all is good")
	at.register(flags)
	return cmd
}
