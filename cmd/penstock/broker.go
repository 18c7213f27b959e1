package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/broker"
	"penstock/broker/applications"
	"penstock/broker/audit"
	"penstock/broker/kerberos"
	"penstock/broker/leadership"
	"penstock/broker/roles"
	"penstock/broker/store"
	"penstock/settings"
	"penstock/settings/plain"
	"penstock/wire/cluster"
	"penstock/wire/orchestrator"
	"penstock/wire/web"
)

func newBrokerCommand() *cobra.Command {
	cmd := brokerRun() // the command also works without the subcommand "run"
	run := brokerRun()
	run.Use = "run"
	cmd.AddCommand(run)
	cmd.Long = `"penstock broker run" runs the cluster's broker; "penstock broker run --help" describes it.

"penstock broker" with the flags of "penstock broker run" is its former form and still works.`
	cmd.Example = "  penstock broker run --store /var/lib/penstock"
	hideFlags(cmd)
	return cmd
}

// maxApplicationSeries bounds --metrics-applications: each application has up to six series.
const maxApplicationSeries = 10_000

func brokerRun() *cobra.Command {
	var listen, metrics, policyFile, storeDir, format, level, auditFile, rolesFile, tokenFile string
	var limitAll bool
	var most broker.Limits
	var applicationSeries int
	var files cluster.Files
	var who applications.Options
	var several severalFlags
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run the cluster's broker, which adds up the service of all nodes",
		Long: `Run the cluster's broker. About once a second, each node daemon reports the service of
its devices and receives the totals of the applications that it serves. So each
application gets its share of the whole cluster, however unevenly its tasks and data are
distributed. The broker also sends what the policy gives each application. The newest
version of the policy is in force: operators apply versions ("penstock policy"), and each
change of --policy FILE also makes one. --store keeps versions over a restart.

Several brokers share a ZooKeeper (--zookeeper), which then keeps the versions. One of the
brokers leads and answers. When it fails, another one takes over within one and a half
sessions (--session), and nodes that know all the brokers' addresses connect to it.

Peers are authenticated by certificates of the cluster's own CA (--ca, --cert, --key;
"penstock certs" makes them). Without them the broker listens on loopback only. After a
restart of the broker, nodes report everything again. Without a broker, nodes continue with
local shares.

The broker needs no privileges except to listen on its port.`,
		Example: `  penstock broker run                                    # on this machine, in memory
  penstock broker run --store /var/lib/penstock --listen 0.0.0.0:9717 \
      --ca ca.pem --cert broker-1.pem --key broker-1.key --resource-manager http://rm:8088
  penstock broker run --zookeeper zk-1:2181,zk-2:2181,zk-3:2181/penstock --zookeeper-auth zk.auth \
      --listen 0.0.0.0:9717 --ca ca.pem --cert broker-1.pem --key broker-1.key
  penstock broker run ... --resource-manager https://rm1.example:8090,https://rm2.example:8090 --hadoop-ca hadoop-ca.pem \
      --kerberos-principal penstock@EXAMPLE.COM --kerberos-keytab /etc/penstock/penstock.keytab`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := cli.NewLogger(format, level)
			if err != nil {
				return cli.Usage(err)
			}
			for flag, n := range map[string]int{"address": most.PerAddress, "certificate": most.PerCertificate} {
				if n < 1 || n > broker.MaxConnections {
					return cli.Usage(fmt.Errorf("--connections-per-%s %d: use 1 to %d", flag, n, broker.MaxConnections))
				}
			}
			if applicationSeries < 0 || applicationSeries > maxApplicationSeries {
				return cli.Usage(fmt.Errorf("--metrics-applications %d: use 0 to %d", applicationSeries, maxApplicationSeries))
			}
			var secure *tls.Config
			if !files.Empty() {
				if secure, err = files.Server(); err != nil {
					return err
				}
			}
			if storeDir != "" && several.zookeeper != "" {
				return cli.Usage(errors.New("give --store or --zookeeper: one of them keeps the policy"))
			}
			if err := several.check(cmd, secure != nil); err != nil {
				return cli.Usage(err)
			}
			if err := needsResourceManager(cmd, len(who.ResourceManagers)); err != nil {
				return cli.Usage(err)
			}
			var rights *roles.File
			if rolesFile != "" {
				if rights, err = roles.Open(rolesFile, log); err != nil {
					return fmt.Errorf("--roles: %w", err)
				}
			}
			who.Log = log
			directory, err := applications.New(who)
			if err != nil {
				return cli.Usage(err)
			}
			o := broker.Options{Log: log, Roles: rights, LimitAll: limitAll, ApplicationSeries: applicationSeries, Facts: directory.Facts, State: directory.State, Progress: directory.Progress, Tasks: directory.Tasks,
				Life: func(flow string) broker.Life { return broker.Life(directory.RunOf(flow)) }}
			elect, err := several.open(cmd.Context(), &o, listen, files, log)
			if err != nil {
				return err
			}
			if o.Audit, err = audit.Open(auditFile, o.Name, log); err != nil {
				return fmt.Errorf("--audit: %w", err)
			}
			switch {
			case o.Store != nil:
			case storeDir == "":
				log.Warn("no --store: the policy's versions, the weights set for single applications and the history of forecasts are kept in memory, until this broker ends")
			default:
				kept, err := store.OpenFile(storeDir)
				if err != nil {
					return fmt.Errorf("--store: %w", err)
				}
				defer kept.Close()
				o.Store = kept
				if o.Leadership, err = leadership.OpenStandalone(storeDir, o.Name); err != nil {
					return fmt.Errorf("--store: %w", err)
				}
			}
			b, err := broker.New(cmd.Context(), o)
			if err != nil {
				return err
			}
			fingerprint := settings.Fingerprint(policyFile)
			if policyFile != "" {
				if err := b.ApplyFile(cmd.Context(), policyFile); errors.Is(err, store.ErrNotLeader) || errors.Is(err, broker.ErrCanary) {
					fingerprint = "" // applied when this broker becomes the leader, or when the canary has ended
				} else if err != nil {
					return err
				}
			}
			listener, err := listenFor(cmd.Context(), listen, secure != nil)
			if err != nil {
				return err
			}
			var token *web.Token
			if tokenFile != "" {
				if token, err = web.OpenToken(tokenFile); err != nil {
					return fmt.Errorf("--metrics-token: %w", err)
				}
			}
			watched, address, err := listenForMetrics(cmd, metrics, log)
			if err != nil {
				return err
			}
			parts := newParts(cmd.Context())
			parts.addServer(b, listener, secure, most)
			if watched != nil {
				parts.addMetrics(b, watched, token, log)
			}
			parts.add(b.Run)
			parts.add(elect)
			parts.add(func(ctx context.Context) { directory.Run(ctx, b.FactsChanged) })
			if policyFile != "" {
				parts.add(func(ctx context.Context) { b.FollowFile(ctx, policyFile, fingerprint) })
			}
			log.Info("ready", "metrics", address, "listen", listener.Addr().String(), "secure", secure != nil, "policy", policyFile)
			return parts.run()
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9717", "`ADDRESS` for nodes")
	cmd.Flags().StringVar(&policyFile, "policy", "", "policy `FILE` (YAML); each change makes a new version of the policy")
	cmd.Flags().StringVar(&storeDir, "store", "", "`FOLDER` for the policy's versions, the weights set for single applications and the history of forecasts (default: they are kept in memory)")
	cmd.Flags().BoolVar(&limitAll, "policy-force", false, "accept a --policy file with a rule that limits all applications")
	cmd.Flags().StringVar(&auditFile, "audit", "", "append each command of an operator to this `FILE`, also the refused ones (JSON lines; default: changes and refusals are logged)")
	cmd.Flags().StringVar(&rolesFile, "roles", "", "`FILE` (YAML) with the roles of operators; a change is in force at once (default: each operator may do everything)")
	addFiles(cmd, &files)
	addWho(cmd, &who)
	addHadoop(cmd, &who.Hadoop)
	cmd.Flags().StringVar(&metrics, "metrics", "127.0.0.1:9719", "`ADDRESS` of /metrics, host:port or unix:PATH; off for none")
	cmd.Flags().StringVar(&tokenFile, "metrics-token", "", "`FILE` with a token that readers of /metrics must send (default: they need none)")
	cmd.Flags().IntVar(&applicationSeries, "metrics-applications", 64, fmt.Sprintf("`NUMBER` of applications with metrics of their own, those with most service, 0 to %d; the others are added up", maxApplicationSeries))
	cmd.Flags().IntVar(&most.PerAddress, "connections-per-address", broker.PerAddress, "maximum number of connections from one address")
	cmd.Flags().IntVar(&most.PerCertificate, "connections-per-certificate", broker.PerCertificate, "maximum number of connections with one certificate")
	several.register(cmd)
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// addFiles adds the flags for the certificates of one side of an authenticated connection.
func addFiles(cmd *cobra.Command, files *cluster.Files) {
	cmd.Flags().StringVar(&files.CA, "ca", "", "certificate `FILE` of the cluster's CA (PEM)")
	cmd.Flags().StringVar(&files.Cert, "cert", "", "own certificate `FILE` (PEM)")
	cmd.Flags().StringVar(&files.Key, "key", "", "`FILE` with the private key of --cert's certificate (PEM)")
}

// addWho adds the flags that name the sources of facts about applications.
func addWho(cmd *cobra.Command, who *applications.Options) {
	cmd.Flags().StringSliceVar(&who.ResourceManagers, "resource-manager", nil, "`URL` of YARN's ResourceManager, which knows applications' queues, users and tags; for an HA pair give both")
	cmd.Flags().StringSliceVar(&who.SparkMasters, "spark-master", nil, "`URL` of the web page of Spark's standalone master; if there are several, give all")
	cmd.Flags().StringVar(&who.Resource, "bandwidth-resource", applications.DefaultResource, "`NAME` of the YARN resource type with which applications request bandwidth")
	k, m := &who.Kubernetes, &who.Mesos
	cmd.Flags().StringSliceVar(&k.URLs, "kubernetes", nil, "`URL` of the API server of Kubernetes, which knows the pods of applications")
	cmd.Flags().StringVar(&k.Access.CA, "kubernetes-ca", "", "certificate `FILE` of the API server's CA (PEM; default: the machine's authorities)")
	cmd.Flags().StringVar(&k.Access.TokenFile, "kubernetes-token-file", "", "`FILE` with the token of a service account that may list pods")
	cmd.Flags().StringVar(&k.Pods, "kubernetes-pods", applications.SparkPods, "label `SELECTOR` of the pods that are read; empty for all pods of the cluster")
	cmd.Flags().StringVar(&k.Resource, "kubernetes-resource", orchestrator.DefaultResource, "`NAME` of the extended resource with which pods request bandwidth, in MB/s")
	cmd.Flags().StringSliceVar(&m.URLs, "mesos-master", nil, "`URL` of a Mesos master, which knows the frameworks; if there are several, give all")
	cmd.Flags().StringVar(&m.Access.CA, "mesos-ca", "", "certificate `FILE` of the masters' CA (PEM; default: the machine's authorities)")
	cmd.Flags().StringVar(&m.Access.CredentialFile, "mesos-credential-file", "", "`FILE` with a principal and its secret, separated by a space")
	cmd.Flags().StringVar(&m.Resource, "mesos-resource", orchestrator.DefaultScalar, "`NAME` of the scalar resource with which tasks request bandwidth, in MB/s")
}

// addHadoop adds the flags for a secured Hadoop.
func addHadoop(cmd *cobra.Command, access *kerberos.Access) {
	flags := cmd.Flags()
	flags.StringVar(&access.Principal, "kerberos-principal", "", "`PRINCIPAL` as which Hadoop's web interfaces are asked, USER@REALM or USER/HOST@REALM, if they require Kerberos")
	flags.StringVar(&access.Keytab, "kerberos-keytab", "", "`FILE` with the principal's key, which other users cannot read")
	flags.StringVar(&access.Config, "kerberos-config", kerberos.DefaultConfig, "Kerberos' configuration `FILE`, which names the KDCs of the realm")
	flags.StringVar(&access.CA, "hadoop-ca", "", "certificate `FILE` of the CA of Hadoop's https:// servers (PEM; default: the machine's authorities)")
	flags.StringVar(&access.Cert, "hadoop-cert", "", "own certificate `FILE` for Hadoop's servers that require one (PEM)")
	flags.StringVar(&access.Key, "hadoop-key", "", "`FILE` with the private key of --hadoop-cert's certificate (PEM)")
}

// needsResourceManager refuses flags that have no effect without the address of a ResourceManager.
func needsResourceManager(cmd *cobra.Command, addresses int) error {
	for _, flag := range []string{"kerberos-principal", "kerberos-keytab", "kerberos-config", "hadoop-ca", "hadoop-cert", "hadoop-key"} {
		if addresses == 0 && cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s has no effect without --resource-manager", flag)
		}
	}
	return nil
}

// listenFor listens at the address. Without TLS it accepts only loopback addresses.
func listenFor(ctx context.Context, address string, secure bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--listen %q: give host:port", address))
	}
	if ip := net.ParseIP(host); !secure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, cli.Usage(fmt.Errorf("--listen %s would accept unauthenticated peers: give --ca, --cert and --key (`penstock certs` makes them), or listen on 127.0.0.1", address))
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", plain.Listen(address, err))
	}
	return l, nil
}

// listenForMetrics returns the listener for /metrics and its address, or nil and "off" if metrics
// are not served. If the default address is in use, for example by a second broker on the machine,
// the broker runs without metrics.
func listenForMetrics(cmd *cobra.Command, address string, log *slog.Logger) (net.Listener, string, error) {
	if address == "off" {
		return nil, address, nil
	}
	if err := web.CheckAddress(address); err != nil {
		return nil, "", cli.Usage(fmt.Errorf("--metrics %w", err))
	}
	l, err := web.Listen(cmd.Context(), address)
	if err != nil && !cmd.Flags().Changed("metrics") {
		log.Warn("metrics are not served: the default address is already in use; give another one with --metrics", "error", plain.Listen(address, err))
		return nil, "off", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("--metrics: %w", plain.Listen(address, err))
	}
	return l, web.Bound(l), nil
}
