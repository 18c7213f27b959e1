package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/ops/doctor"
)

func newDoctorCommand() *cobra.Command {
	var (
		where  doctor.Where
		ignore []string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether Penstock works on this node, and show what to fix",
		Long: `Looks at the daemon, the DataNode, the NodeManager, what penstock install has
prepared, and the machine. It changes nothing. For each check it prints ok, warn (not
ideal, or perhaps intended) or fail (Penstock governs nothing, or I/O bypasses it), with
the meaning and what to do. Run it on the node, as root or as the daemon's user.

docs/reference/doctor.md describes the checks.

Exit codes: 0 no check failed; 1 a check failed; 2 wrong flags.`,
		Example: `  penstock doctor
  penstock doctor --datanode http://dn7.example:9864 --json | jq '.results[] | select(.verdict == "fail")'
  penstock doctor --datanode https://dn7.example:9865 --resource-manager https://rm1.example:8090 \
      --kerberos-principal penstock@EXAMPLE.COM --kerberos-keytab /etc/penstock/penstock.keytab
  penstock doctor --ignore short-circuit    # known and accepted`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range ignore {
				if !slices.Contains(doctor.Names(), name) {
					return cli.Usage(fmt.Errorf("--ignore %s: there is no such check; the checks are %s", name, strings.Join(doctor.Names(), ", ")))
				}
			}
			for flag, addresses := range map[string][]string{"datanode": {where.DataNode}, "nodemanager": {where.NodeManager}, "resource-manager": where.ResourceManagers} {
				for _, address := range addresses {
					if u, err := url.Parse(address); address != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
						return cli.Usage(fmt.Errorf("--%s: give http://HOST:PORT or https://HOST:PORT", flag))
					}
				}
			}
			report := doctor.Judge(doctor.Gather(cmd.Context(), where, cli.Version), ignore)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			if asJSON {
				if err := cli.PrintJSON(cmd, report); err != nil {
					return err
				}
			} else {
				fmt.Fprint(cmd.OutOrStdout(), report.Text())
			}
			if report.Failures > 0 {
				return fmt.Errorf("doctor: %d of %d checks failed", report.Failures, len(report.Results))
			}
			return nil
		},
	}
	flags := cmd.Flags()
	addressFlag(cmd, &where.Address)
	flags.StringVar(&where.DataNode, "datanode", "http://127.0.0.1:9864", "`URL` of the DataNode's web address")
	flags.StringVar(&where.NodeManager, "nodemanager", "", "`URL` of the NodeManager's web address (default: "+doctor.DefaultNodeManager+", if one answers)")
	flags.StringSliceVar(&where.ResourceManagers, "resource-manager", nil, "`URL` of a ResourceManager that the broker asks; for an HA pair give both (default: none is checked)")
	addHadoop(cmd, &where.Hadoop)
	flags.StringVar(&where.HadoopConf, "hadoop-conf", "", "Hadoop's configuration folder `DIR` (default: $HADOOP_CONF_DIR or /etc/hadoop/conf, if it is there)")
	flags.StringVar(&where.ExecutorJar, "executor-jar", "", "the agent's jar that Spark's executors on this machine load, if Spark's folder is elsewhere: `FILE`")
	flags.StringVar(&where.SparkConf, "spark-conf", "", "Spark's configuration folder `DIR` (default: $SPARK_CONF_DIR or /etc/spark/conf, if it is there)")
	flags.StringVar(&where.TezConf, "tez-conf", "", "Tez's configuration folder `DIR` (default: $TEZ_CONF_DIR or /etc/tez/conf, if it is there)")
	flags.StringSliceVar(&ignore, "ignore", nil, "report failures of these `CHECKS` as warnings")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
