package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"penstock/e2e/internal/stand"
	"penstock/node/status"
	"penstock/testbed/client"
	"penstock/testbed/daemon"
	"penstock/testbed/disk"
	"penstock/testbed/hadoop"
	"penstock/testbed/ledger"
)

const (
	mib      = 1 << 20
	patience = 2 * time.Minute // bounds every wait for an event
	nodes    = 3
	block    = 16 * mib
	// rate of the disks, bytes a second; a quantum of a MiB takes 50 ms and a seek.
	rate = 20_000_000
)

// bed is what the tests share.
var bed struct {
	dir     string
	binary  string
	book    *ledger.Ledger
	disks   [nodes]*disk.Disk
	daemons [nodes]*daemon.Daemon
	broker  *daemon.Daemon
	address string // of the broker
	policy  string // its policy file
	cluster *hadoop.Cluster
	clients *client.JVM
}

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	os.Exit(stand.Run(m, &bed.dir, setUp, tearDown))
}

func setUp(ctx context.Context) (err error) {
	if err := disk.Available(); err != nil {
		return fmt.Errorf("these tests need modelled disks: %w", err)
	}
	if bed.dir, err = os.MkdirTemp("", "penstock-cluster-"); err != nil {
		return err
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	bed.binary = filepath.Join(root, "bin", "penstock")
	agent := filepath.Join(root, "bin", "penstock-agent.jar")
	for _, file := range []string{bed.binary, agent} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("run make build first: %w", err)
		}
	}
	if bed.book, err = ledger.Open(bed.dir); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, p := range []struct{ name, value string }{
		{"vm/dirty_bytes", "2147483648"}, {"vm/dirty_background_bytes", "1073741824"}, {"vm/dirty_expire_centisecs", "3000"},
	} {
		if _, err := ledger.SetSysctl(wait, bed.book, p.name, p.value); err != nil {
			return fmt.Errorf("the kernel's dirty limits: %w", err)
		}
	}
	lib, err := hadoop.Fetch(ctx, filepath.Join(root, ".cache"), hadoop.DefaultVersion, say)
	if err != nil {
		return err
	}
	bed.policy = filepath.Join(bed.dir, "policy.yaml")
	if err := setPolicy("default: 1\n"); err != nil {
		return err
	}
	if bed.address, err = freeAddress(); err != nil {
		return err
	}
	if err := startBroker(ctx); err != nil {
		return err
	}
	var dataNodes []hadoop.DataNode
	for i := range bed.disks {
		name := fmt.Sprintf("node%d", i)
		if bed.disks[i], err = disk.Start(ctx, disk.Options{Name: name, RunDir: bed.dir, Size: 6 << 30}); err != nil {
			return err
		}
		base := filepath.Join(bed.dir, "daemon-"+name)
		if bed.daemons[i], err = startDaemon(ctx, name, base); err != nil {
			return err
		}
		dataNodes = append(dataNodes, hadoop.DataNode{Socket: base + ".sock", Volumes: []hadoop.Volume{{Dir: filepath.Join(bed.disks[i].Mount(), "dfs")}}})
	}
	bed.cluster, err = hadoop.Start(ctx, hadoop.Config{
		RunDir: filepath.Join(bed.dir, "hadoop"), Lib: lib, Progress: say, NoYARN: true,
		DataNodes: dataNodes, BlockSize: block,
		Governed: &hadoop.Governed{AgentJar: agent, Socket: filepath.Join(bed.dir, "daemon-node0.sock")},
	})
	if err != nil {
		return err
	}
	classes := filepath.Join(bed.dir, "classes")
	if err := client.Compile(ctx, lib, classes); err != nil {
		return err
	}
	bed.clients, err = client.Start(client.Options{Book: bed.book, Lib: lib, Classes: classes, Conf: bed.cluster.ClientConfDir(),
		Temp: bed.dir, Log: filepath.Join(bed.dir, "clients.log")})
	if err != nil {
		return err
	}
	return connected(ctx)
}

// freeAddress is one on loopback that a broker can have, and have again.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func startBroker(ctx context.Context) (err error) {
	bed.broker, err = daemon.Start(ctx, daemon.Options{Book: bed.book, Binary: bed.binary, Base: filepath.Join(bed.dir, "broker"),
		Broker: []string{"--listen", bed.address, "--policy", bed.policy}, Patience: patience})
	return err
}

// startDaemon starts a node's. The clients are applications by name only, which nobody is
// to refute.
func startDaemon(ctx context.Context, name, base string) (*daemon.Daemon, error) {
	return daemon.Start(ctx, daemon.Options{
		Book: bed.book, Binary: bed.binary, Base: base, Socket: base + ".sock", Mode: "enforce", LogLevel: "info", Patience: patience,
		Device: "  quantum: 1MiB\n  ahead: 4\n  depth: {start: 2, read: {fixed: 20ms, per_mib: 105ms}, write: {fixed: 20ms, per_mib: 105ms}}\n",
		More:   fmt.Sprintf("%sbroker: {addresses: [%q], node: %s}\n", daemon.Believe, bed.address, name),
	})
}

// setPolicy replaces the policy file as an editor does.
func setPolicy(text string) error {
	if err := os.WriteFile(bed.policy+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(bed.policy+".new", bed.policy)
}

// connected waits until every DataNode's agent is.
func connected(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, d := range bed.daemons {
		for {
			doc, err := status.Fetch(ctx, d.Address)
			if err != nil {
				return err
			}
			if len(doc.Agents) > 0 {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("no agent at node %d: %w", i, ctx.Err())
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

var tearDown = sync.OnceValue(func() error {
	var errs []error
	if bed.clients != nil {
		bed.clients.Stop()
	}
	if bed.cluster != nil {
		errs = append(errs, bed.cluster.Stop())
	}
	for _, d := range append(bed.daemons[:], bed.broker) {
		if d != nil && d.Alive() {
			errs = append(errs, d.Stop())
		}
	}
	for _, d := range bed.disks {
		if d != nil {
			errs = append(errs, d.Stop())
		}
	}
	if bed.book != nil {
		errs = append(errs, bed.book.Close())
	}
	return errors.Join(errs...)
})

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// slow turns the disks' rate on for the rest of the test.
func slow(t *testing.T) {
	t.Helper()
	set := func(m disk.Model) (err error) {
		for _, d := range bed.disks {
			err = errors.Join(err, d.SetModel(m))
		}
		return err
	}
	t.Cleanup(func() {
		if err := set(disk.Model{}); err != nil {
			t.Error(err)
		}
	})
	if err := set(disk.HDD(rate)); err != nil {
		t.Fatal(err)
	}
}

func look(t *testing.T, node int) *status.Document {
	t.Helper()
	doc, err := status.Fetch(t.Context(), bed.daemons[node].Address)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
