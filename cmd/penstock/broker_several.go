package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"penstock/cmd/internal/cli"

	"github.com/spf13/cobra"

	"penstock/broker"
	"penstock/broker/leadership"
	"penstock/broker/store"
	"penstock/broker/zkclient"
	"penstock/wire/cluster"
)

// severalFlags are the flags of a broker that is one of several.
type severalFlags struct {
	zookeeper, auth, ca, advertise, name string
	unprotected                          bool
	session                              time.Duration
}

// rightsWait is how long a broker that starts waits for the rights of its znodes.
const rightsWait = 10 * time.Second

func (f *severalFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.zookeeper, "zookeeper", "", "`SERVERS` of the ZooKeeper that brokers share, host:port,...[/folder]; one of the brokers leads")
	flags.StringVar(&f.auth, "zookeeper-auth", "", "`FILE` with user:password for ZooKeeper (digest); nobody else can then read or change the brokers' data")
	flags.BoolVar(&f.unprotected, "zookeeper-open", false, "with --ca: accept that all clients of ZooKeeper can change the policy, without --zookeeper-auth")
	flags.StringVar(&f.ca, "zookeeper-ca", "", "certificate `FILE` of the CA of ZooKeeper's servers (PEM): their secure port is used, with --cert and --key if they are given")
	flags.DurationVar(&f.session, "session", 3*time.Second, "how long ZooKeeper waits for a silent leader: 500ms to 5m, and at least two of ZooKeeper's ticks")
	flags.StringVar(&f.advertise, "advertise", "", "this broker's `ADDRESS` as nodes have it in their settings (default: its name with the port of --listen)")
	flags.StringVar(&f.name, "name", "", "this broker's `NAME`, in logs and for operators (default: the host's)")
}

// check refuses flags that have no effect without --zookeeper, and a ZooKeeper without credentials beside certificates.
// secure: the broker has certificates.
func (f *severalFlags) check(cmd *cobra.Command, secure bool) error {
	if f.zookeeper != "" {
		switch {
		case f.auth != "" && f.unprotected:
			return errors.New("give --zookeeper-auth or --zookeeper-open, not both")
		case secure && f.auth == "" && !f.unprotected:
			return errors.New("--ca protects the broker, but all clients of ZooKeeper could change the policy: give --zookeeper-auth, or --zookeeper-open to accept that")
		}
		return nil
	}
	for _, flag := range []string{"zookeeper-auth", "zookeeper-open", "zookeeper-ca", "session", "advertise"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s has no effect without --zookeeper", flag)
		}
	}
	return nil
}

// open sets the broker's name in the options and, with --zookeeper, the store and the leadership.
// run takes part in the election until its context ends.
func (f *severalFlags) open(ctx context.Context, o *broker.Options, listen string, files cluster.Files, log *slog.Logger) (run func(context.Context), err error) {
	o.Name = f.name
	if o.Name == "" {
		if o.Name, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	address := f.advertise
	if address == "" {
		_, port, err := net.SplitHostPort(listen)
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--listen %q: give host:port", listen))
		}
		address = net.JoinHostPort(o.Name, port)
	}
	if f.zookeeper == "" {
		return func(context.Context) {}, nil
	}
	k := zkclient.Options{Servers: f.zookeeper, Auth: f.auth, Session: f.session, Log: log}
	if f.ca != "" {
		if k.TLS, err = cluster.Trusting(f.ca, files.Cert, files.Key); err != nil {
			return nil, fmt.Errorf("--zookeeper-ca: %w", err)
		}
	}
	kept, err := zkclient.Dial(k)
	if err != nil {
		return nil, cli.Usage(err)
	}
	within, cancel := context.WithTimeout(ctx, rightsWait)
	defer cancel()
	if err := kept.CheckRights(within, 2); err != nil {
		kept.Close()
		return nil, err
	}
	election, err := leadership.NewElection(kept, o.Name, address, log)
	if err != nil {
		kept.Close()
		return nil, cli.Usage(err)
	}
	o.Leadership = election
	versions := store.NewZooKeeper(kept, election, log)
	o.Store = versions
	return func(ctx context.Context) {
		election.Run(ctx) // returns after ctx has ended and the session is closed
		if err := versions.Close(); err != nil {
			log.Warn("the store could not be closed", "error", err)
		}
	}, nil
}
