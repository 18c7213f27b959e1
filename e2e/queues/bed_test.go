package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/broker/applications"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/ports"
	"penstock/lab/stand"
	"penstock/lab/zookeeper"
	"penstock/node/status"
)

const (
	mib      = 1 << 20
	patience = 2 * time.Minute // bounds every wait for an event
	offered  = 100             // MB/s, by the NodeManager
)

// bed is what the tests share: a node with the scheduler's queues and bandwidth to ask for,
// its daemon, a broker that asks the two ResourceManagers, and a directory like the broker's.
var bed struct {
	dir       string
	policy    string // the broker's policy file
	book      *ledger.Ledger
	disk      *disk.Disk
	daemon    *daemon.Daemon
	broker    *daemon.Daemon
	zookeeper *zookeeper.Server
	cluster   *hadoop.Cluster
	directory *applications.Directory
	stop      func() // ends the directory's asking
}

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	os.Exit(stand.Run(m, &bed.dir, setUp, tearDown))
}

func setUp(ctx context.Context) (err error) {
	if err := disk.Available(); err != nil {
		return fmt.Errorf("these tests need modelled disks: %w", err)
	}
	if bed.dir, err = os.MkdirTemp("", "penstock-queues-"); err != nil {
		return err
	}
	// Containers run as other processes than this one and have to get at the disk.
	if err := os.Chmod(bed.dir, 0o755); err != nil {
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
	lib, err := hadoop.Fetch(ctx, filepath.Join(root, ".cache"), hadoop.DefaultVersion, say)
	if err != nil {
		return err
	}
	keeper, err := zookeeper.Fetch(ctx, filepath.Join(root, ".cache"), say)
	if err != nil {
		return err
	}
	if bed.zookeeper, err = zookeeper.Start(ctx, zookeeper.Options{Book: bed.book, Lib: keeper, Dir: filepath.Join(bed.dir, "zookeeper")}); err != nil {
		return err
	}
	if bed.disk, err = disk.Start(ctx, disk.Options{Name: "disk", RunDir: bed.dir, Size: 6 << 30}); err != nil {
		return err
	}
	address, err := ports.Address()
	if err != nil {
		return err
	}
	socket := filepath.Join(bed.dir, "agent.sock")
	bed.daemon, err = daemon.Start(ctx, daemon.Options{
		Book: bed.book, Binary: binary, Base: filepath.Join(bed.dir, "node"), Socket: socket, Mode: "enforce", LogLevel: "info", Patience: patience,
		More: fmt.Sprintf("broker: {addresses: [%q], node: node}\n", address),
	})
	if err != nil {
		return err
	}
	bed.cluster, err = hadoop.Start(ctx, hadoop.Config{
		RunDir: filepath.Join(bed.dir, "hadoop"), Lib: lib, Progress: say,
		DataNodes: []hadoop.DataNode{{Volumes: []hadoop.Volume{{Dir: filepath.Join(bed.disk.Mount(), "dfs")}}}},
		ZooKeeper: bed.zookeeper.Address,
		Queues:    []string{"root.etl.night", "root.adhoc"}, DiskBandwidth: offered,
		Governed: &hadoop.Governed{AgentJar: agent, Socket: socket},
	})
	if err != nil {
		return err
	}
	bed.policy = filepath.Join(bed.dir, "policy.yaml")
	if err := setPolicy("default: 1\n"); err != nil {
		return err
	}
	// The standby first, so that it is asked.
	managers := bed.cluster.ResourceManagerURLs()
	slices.Reverse(managers)
	bed.broker, err = daemon.Start(ctx, daemon.Options{Book: bed.book, Binary: binary, Base: filepath.Join(bed.dir, "broker"),
		Broker: []string{"--listen", address, "--policy", bed.policy, "--resource-manager", strings.Join(managers, ",")}, Patience: patience})
	if err != nil {
		return err
	}
	bed.directory, err = applications.New(applications.Options{ResourceManagers: managers, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { bed.directory.Run(ctx, func([]string) {}) })
	bed.stop = func() { cancel(); asking.Wait() }
	return nil
}

// setPolicy replaces the policy file as an editor does.
func setPolicy(text string) error {
	if err := os.WriteFile(bed.policy+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(bed.policy+".new", bed.policy)
}

var tearDown = sync.OnceValue(func() error {
	var errs []error
	if bed.stop != nil {
		bed.stop()
	}
	if bed.cluster != nil {
		errs = append(errs, bed.cluster.Stop())
	}
	for _, d := range []*daemon.Daemon{bed.daemon, bed.broker} {
		if d != nil {
			errs = append(errs, d.Stop())
		}
	}
	if bed.zookeeper != nil {
		errs = append(errs, bed.zookeeper.Stop())
	}
	if bed.disk != nil {
		errs = append(errs, bed.disk.Stop())
	}
	if bed.book != nil {
		errs = append(errs, bed.book.Close())
	}
	return errors.Join(errs...)
})

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// flow is what the node has of a flow; nothing: there is no such flow.
func flow(t *testing.T, name string) (f status.Flow) {
	t.Helper()
	doc, err := status.Fetch(t.Context(), bed.daemon.Address)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			if f.Name == name {
				return f
			}
		}
	}
	return f
}

func weight(t *testing.T, name string) int    { return flow(t, name).Weight }
func written(t *testing.T, name string) int64 { return flow(t, name).Bytes.Written }

// known is what the directory has of an application.
func known(flow string) (a applications.Application) {
	bed.directory.Facts(flow)
	for _, a := range bed.directory.List() {
		if a.Flow == flow {
			return a
		}
	}
	return a
}
