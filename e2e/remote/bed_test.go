package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"penstock/broker/certs"
	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/netns"
	"penstock/lab/stand"
	"penstock/node/status"
)

const (
	mib      = 1 << 20
	patience = 2 * time.Minute // bounds every wait for an event

	// Of the broker, and of the nodes that answer.
	brokerPort, peersPort = 9717, 9718

	nobodysUID = 2_000_000_011
)

// bed is what the tests share: HDFS, its node and the broker are here; clients are on two
// other machines, the second of which has no Penstock.
var bed struct {
	dir, classes, lib, local string

	book    *ledger.Ledger
	network *netns.Network
	disk    *disk.Disk
	broker  *daemon.Daemon
	here    *daemon.Daemon
	there   *daemon.Daemon // of machine 0
	cluster *hadoop.Cluster
}

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	os.Exit(stand.Run(m, &bed.dir, setUp, tearDown))
}

func setUp(ctx context.Context) (err error) {
	if err := disk.Available(); err != nil {
		return fmt.Errorf("these tests need modelled disks: %w", err)
	}
	if bed.dir, err = os.MkdirTemp("", "penstock-remote-"); err != nil {
		return err
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	binary, agent := filepath.Join(root, "bin", "penstock"), filepath.Join(root, "bin", "penstock-agent.jar")
	for _, file := range []string{binary, agent} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("run make build first: %w", err)
		}
	}
	if bed.book, err = ledger.Open(bed.dir); err != nil {
		return err
	}
	if bed.network, err = netns.New(bed.book, 2); err != nil {
		return err
	}
	own, err := bed.network.Here()
	if err != nil {
		return err
	}
	keys := filepath.Join(bed.dir, "certs")
	if _, err := certs.Make(keys, []string{own.String(), "here", "there"}, nil); err != nil {
		return err
	}
	cert := func(name, ending string) string { return filepath.Join(keys, name+ending) }
	broker := fmt.Sprintf("%v:%d", own, brokerPort)
	bed.broker, err = daemon.Start(ctx, daemon.Options{Book: bed.book, Binary: binary, Base: filepath.Join(bed.dir, "broker"), Patience: patience,
		Broker: []string{"--listen", broker, "--ca", cert("ca", ".pem"), "--cert", cert(own.String(), ".pem"), "--key", cert(own.String(), ".key")}})
	if err != nil {
		return err
	}
	start := func(name, binary, peers, more string) (*daemon.Daemon, error) {
		base := filepath.Join(bed.dir, name)
		return daemon.Start(ctx, daemon.Options{Book: bed.book, Binary: binary, Base: base, Socket: base + ".sock", Mode: "enforce", Patience: patience,
			More: fmt.Sprintf("%sbroker: {addresses: [%q], node: %s, ca: %s, cert: %s, key: %s, peers: %q}\n", more, broker, name,
				cert("ca", ".pem"), cert(name, ".pem"), cert(name, ".key"), fmt.Sprintf("%s:%d", peers, peersPort))})
	}
	if bed.here, err = start("here", binary, own.String(), ""); err != nil {
		return err
	}
	// The NodeManager's directory is the other machine's. It is nobody's: processes are the same
	// on all machines here, and a NodeManager of another test would be taken for its writer.
	bed.local = filepath.Join(bed.dir, "nm-local")
	private := filepath.Join(bed.local, "nmPrivate")
	if err := os.MkdirAll(private, 0o755); err != nil {
		return err
	}
	if err := os.Chown(private, nobodysUID, -1); err != nil {
		return err
	}
	elsewhere := filepath.Join(bed.dir, "elsewhere")
	script := fmt.Sprintf("#!/bin/sh\nset -eu\nexec nsenter --net=%s -- %s \"$@\"\n", bed.network.Machines[0].Path(), binary)
	if err := os.WriteFile(elsewhere, []byte(script), 0o755); err != nil {
		return err
	}
	if bed.there, err = start("there", elsewhere, "0.0.0.0", fmt.Sprintf("local_dirs: [%s]\n", bed.local)); err != nil {
		return err
	}
	if bed.disk, err = disk.Start(ctx, disk.Options{Name: "dn", RunDir: bed.dir, Size: 2 << 30}); err != nil {
		return err
	}
	if bed.lib, err = hadoop.Fetch(ctx, filepath.Join(root, ".cache"), hadoop.DefaultVersion, say); err != nil {
		return err
	}
	bed.cluster, err = hadoop.Start(ctx, hadoop.Config{
		RunDir: filepath.Join(bed.dir, "hadoop"), Lib: bed.lib, Progress: say, NoYARN: true, Host: own.String(),
		DataNodes: []hadoop.DataNode{{Volumes: []hadoop.Volume{{Dir: filepath.Join(bed.disk.Mount(), "dfs")}}}},
		Governed:  &hadoop.Governed{AgentJar: agent, Socket: filepath.Join(bed.dir, "here.sock")},
	})
	if err != nil {
		return err
	}
	bed.classes = filepath.Join(bed.dir, "classes")
	if err := client.Compile(ctx, bed.lib, bed.classes); err != nil {
		return err
	}
	return ready(ctx)
}

// ready waits until the DataNode's agent and the broker are connected.
func ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		doc, err := status.Fetch(ctx, bed.here.Address)
		if err != nil {
			return err
		}
		if len(doc.Agents) > 0 && doc.Cluster.Broker != "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d agents, broker %q: %w", len(doc.Agents), doc.Cluster.Error, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var tearDown = sync.OnceValue(func() error {
	var errs []error
	if bed.cluster != nil {
		errs = append(errs, bed.cluster.Stop())
	}
	for _, d := range []*daemon.Daemon{bed.here, bed.there, bed.broker} {
		if d != nil && d.Alive() {
			errs = append(errs, d.Stop())
		}
	}
	if bed.disk != nil {
		errs = append(errs, bed.disk.Stop())
	}
	if bed.network != nil {
		errs = append(errs, bed.network.Close())
	}
	if bed.book != nil {
		errs = append(errs, bed.book.Close())
	}
	return errors.Join(errs...)
})

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
