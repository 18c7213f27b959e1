package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"penstock/broker"
	"penstock/broker/policyfile"
	"penstock/core/policy"
	"penstock/settings"
	"penstock/wire/cluster"
)

func newBrokerCommand() *cobra.Command {
	var listen, policyFile, format, level string
	var files cluster.Files
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run the cluster's broker, which nodes exchange their services through",
		Long: `Run the cluster's broker: node daemons report to it about once a second what
their devices serve, and get the totals of the applications that they serve, so that
each application has its share of what the whole cluster gives, however unevenly its
tasks and data lie. It also tells them what the policy gives each application.

Peers are authenticated by certificates of the cluster's own CA (--ca, --cert, --key;
"penstock certs" makes them). Without them the broker listens on loopback only. What it
knows of nodes they say anew when it is started again; without a broker they go on by
local shares.

Needs no rights but to listen on its port.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(format, level)
			if err != nil {
				return usageError{err}
			}
			var secure *tls.Config
			if !files.Empty() {
				if secure, err = files.Server(); err != nil {
					return err
				}
			}
			p := &policy.Policy{Default: 1}
			fingerprint := settings.Fingerprint(policyFile)
			if policyFile == "" {
				log.Warn("no policy (--policy): every application has a weight of 1 on all nodes")
			} else {
				if p, err = policyfile.Load(policyFile); err != nil {
					return err
				}
			}
			listener, err := listenFor(cmd.Context(), listen, secure != nil)
			if err != nil {
				return err
			}
			b := broker.New(p, func(flow string) policy.Facts { return policy.Facts{Flow: flow} }, log)
			if policyFile != "" {
				go b.Follow(cmd.Context(), policyFile, fingerprint)
			}
			log.Info("ready", "listen", listener.Addr().String(), "secure", secure != nil, "policy", policyFile)
			return serveBroker(cmd.Context(), b, listener, secure)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9717", "`ADDRESS` for nodes")
	cmd.Flags().StringVar(&policyFile, "policy", "", "policy `FILE` (YAML), taken again when it changes")
	addFiles(cmd, &files)
	cmd.Flags().StringVar(&format, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// addFiles gives a command the flags of one side of an authenticated connection.
func addFiles(cmd *cobra.Command, files *cluster.Files) {
	cmd.Flags().StringVar(&files.CA, "ca", "", "certificate `FILE` of the cluster's CA (PEM)")
	cmd.Flags().StringVar(&files.Cert, "cert", "", "own certificate `FILE` (PEM)")
	cmd.Flags().StringVar(&files.Key, "key", "", "key `FILE` of that (PEM)")
}

// listenFor listens; plain only on loopback.
func listenFor(ctx context.Context, address string, secure bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usageError{fmt.Errorf("--listen %q: give host:port", address)}
	}
	if ip := net.ParseIP(host); !secure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, usageError{fmt.Errorf("--listen %s would take anybody's word: give --ca, --cert and --key (`penstock certs` makes them), or listen on 127.0.0.1", address)}
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

// serveBroker serves until ctx ends; streams are then cut, as nodes expect of a broker.
func serveBroker(ctx context.Context, b *broker.Broker, listener net.Listener, secure *tls.Config) error {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(cluster.MaxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.MaxConcurrentStreams(16),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	server := grpc.NewServer(options...)
	cluster.RegisterNodesServer(server, b)
	go b.Run(ctx)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	}
}
