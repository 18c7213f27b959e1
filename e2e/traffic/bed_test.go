package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/stand"
	"penstock/node/status"
)

const (
	mib = 1 << 20
	// patience bounds every wait for an event; a busy machine needs a part of it.
	patience = 2 * time.Minute

	dataNodes = 3
	block     = 16 * mib
)

// bed is the node that the tests share: DataNodes on a modelled disk each, and one more
// for YARN's local directories, everything prepared by `penstock install`.
var bed struct {
	dir     string
	binary  string
	agent   string
	book    *ledger.Ledger
	disks   [dataNodes]*disk.Disk
	local   *disk.Disk
	file    string // that a program beside Hadoop uses, on the second of the disks
	daemon  *daemon.Daemon
	cluster *hadoop.Cluster
	clients *client.JVM
}

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	useIfChild()
	os.Exit(stand.Run(m, &bed.dir, setUp, tearDown))
}

func setUp(ctx context.Context) (err error) {
	if err := disk.Available(); err != nil {
		return fmt.Errorf("these tests need modelled disks: %w", err)
	}
	// Short, for the path of a Unix socket has 107 bytes at most.
	if bed.dir, err = os.MkdirTemp("", "penstock-traffic-"); err != nil {
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
	bed.binary, bed.agent = filepath.Join(root, "bin", "penstock"), filepath.Join(root, "bin", "penstock-agent.jar")
	for _, file := range []string{bed.binary, bed.agent} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("run make build first: %w", err)
		}
	}
	if bed.book, err = ledger.Open(bed.dir); err != nil {
		return err
	}
	// What the kernel writes out by itself, and when, is not the machine's to say.
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
	var nodes []hadoop.DataNode
	for i := range bed.disks {
		if bed.disks[i], err = disk.Start(ctx, disk.Options{Name: fmt.Sprintf("disk%d", i), RunDir: bed.dir, Size: 6 << 30}); err != nil {
			return err
		}
		nodes = append(nodes, hadoop.DataNode{Volumes: []hadoop.Volume{{Dir: filepath.Join(bed.disks[i].Mount(), "dfs")}}})
	}
	if bed.local, err = disk.Start(ctx, disk.Options{Name: "local", RunDir: bed.dir, Size: 4 << 30}); err != nil {
		return err
	}
	if bed.file, err = makeFile(bed.disks[1]); err != nil {
		return err
	}
	if err := startDaemon(ctx, bed.binary); err != nil {
		return err
	}
	user, err := whoami()
	if err != nil {
		return err
	}
	bed.cluster, err = hadoop.Start(ctx, hadoop.Config{
		RunDir: filepath.Join(bed.dir, "hadoop"), Lib: lib, Progress: say,
		DataNodes: nodes, BlockSize: block, LocalDirs: []string{filepath.Join(bed.local.Mount(), "yarn")},
		Governed: &hadoop.Governed{AgentJar: bed.agent, Socket: socket()},
		Settings: map[string]string{
			// A DataNode is dead after twice this and ten heartbeats, of a second each.
			"dfs.namenode.heartbeat.recheck-interval": "500",
			// For a client that reads past them.
			"dfs.block.local-path-access.user": user,
		},
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
	return agents(ctx, dataNodes+1)
}

func socket() string { return filepath.Join(bed.dir, "agent.sock") }

const usualWeights = "default: 1\n"

// rate of the DataNodes' disks, bytes a second, and what goes with it: alone on such a
// disk D comes to 3 to 4.
const (
	rate      = 20_000_000
	reference = "{fixed: 40ms, per_mib: 160ms}"
)

// startDaemon starts the daemon. The clients here are tasks by name only, which nobody
// is to refute.
func startDaemon(ctx context.Context, binary string) (err error) {
	name := func(d *disk.Disk) string { return filepath.Base(d.Device()) }
	more := &strings.Builder{}
	fmt.Fprintln(more, "identity: {mode: trust}\ndevices:")
	for _, d := range bed.disks {
		fmt.Fprintf(more, "  %s: {quantum: 1MiB, ahead: 4, depth: {start: 4, read: %s, write: %s}}\n", name(d), reference, reference)
	}
	bed.daemon, err = daemon.Start(ctx, daemon.Options{
		Book: bed.book, Binary: binary, Base: filepath.Join(bed.dir, "node"), Socket: socket(), Mode: "enforce",
		More: more.String(), Weights: usualWeights, LogLevel: "info", Patience: patience,
	})
	return err
}

// agents waits until that many servers' agents are connected.
func agents(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		doc, err := status.Fetch(ctx, bed.daemon.Address)
		if err != nil {
			return err
		}
		servers := 0
		for _, a := range doc.Agents {
			if a.Role == "datanode" || a.Role == "nodemanager" {
				servers++
			}
		}
		if servers >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d agents are connected: %w", servers, n, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var tearDown = sync.OnceValue(func() error {
	var errs []error
	if bed.clients != nil {
		bed.clients.Stop()
	}
	if bed.cluster != nil {
		errs = append(errs, bed.cluster.Stop())
	}
	if bed.daemon != nil && bed.daemon.Alive() {
		errs = append(errs, bed.daemon.Stop())
	}
	for _, d := range append(bed.disks[:], bed.local) {
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

// begin gives a test a running cluster, whatever an earlier one did, and a time limit.
func begin(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	if err := bed.cluster.Check(); err != nil {
		t.Fatal(err)
	}
	if err := agents(t.Context(), dataNodes+1); err != nil {
		t.Fatal(err)
	}
	// Not the test's own context, which ends before its clean-up begins.
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// again starts a DataNode that was ended, and waits for it and its agent.
func again(ctx context.Context, t *testing.T, i int) {
	t.Helper()
	if err := bed.cluster.StartDataNode(ctx, i); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all DataNodes live", func() bool { return live(ctx, t) == dataNodes })
	if err := agents(ctx, dataNodes+1); err != nil {
		t.Fatal(err)
	}
}

func live(ctx context.Context, t *testing.T) int {
	t.Helper()
	n, _, err := bed.cluster.LiveDataNodes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// slow turns the rate of the DataNodes' disks on for the rest of the test.
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

// weights puts a weights file into force for the rest of the test, and waits for it.
func weights(t *testing.T, text string) {
	t.Helper()
	put := func(text string) {
		before := look(t).Weights.Taken
		if err := bed.daemon.SetWeights(text); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the daemon takes its weights", func() bool { return look(t).Weights.Taken > before })
	}
	put(text)
	t.Cleanup(func() { put(usualWeights) })
}

// look is the daemon's status.
func look(t *testing.T) *status.Document {
	t.Helper()
	doc, err := status.Fetch(context.Background(), bed.daemon.Address)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// device is a disk's part of a status.
func device(t *testing.T, doc *status.Document, d *disk.Disk) status.Device {
	t.Helper()
	for _, s := range doc.Devices {
		if s.Name == filepath.Base(d.Device()) {
			return s
		}
	}
	t.Fatalf("the daemon has no device %s", d.Device())
	return status.Device{}
}

// flow is a flow's part of a device's status, empty if it is not there.
func flow(d status.Device, name string) status.Flow {
	for _, f := range d.Flows {
		if f.Name == name {
			return f
		}
	}
	return status.Flow{}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
