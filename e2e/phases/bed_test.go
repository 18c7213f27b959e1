package phases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/spark"
	"penstock/lab/stand"
	"penstock/node/status"
)

const (
	mib = 1 << 20
	// patience bounds every wait for an event; a busy machine needs a part of it.
	patience = 2 * time.Minute
)

// bed is the node that the tests share: HDFS's and YARN's directories on one
// modelled disk, everything prepared by `penstock install`.
var bed struct {
	dir     string
	cache   string
	binary  string
	agent   string
	book    *ledger.Ledger
	disk    *disk.Disk
	daemon  *daemon.Daemon
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
	// Short, for the path of a Unix socket has 107 bytes at most.
	if bed.dir, err = os.MkdirTemp("", "penstock-phases-"); err != nil {
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
	bed.cache = filepath.Join(root, ".cache")
	bed.binary, bed.agent = filepath.Join(root, "bin", "penstock"), filepath.Join(root, "bin", "penstock-agent.jar")
	for _, file := range []string{bed.binary, bed.agent} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("run make build first: %w", err)
		}
	}
	if bed.book, err = ledger.Open(bed.dir); err != nil {
		return err
	}
	lib, err := hadoop.Fetch(ctx, bed.cache, hadoop.DefaultVersion, say)
	if err != nil {
		return err
	}
	bed.disk, err = disk.Start(ctx, disk.Options{Name: "disk", RunDir: bed.dir, Size: 6 << 30, Scheduler: "mq-deadline"})
	if err != nil {
		return err
	}
	if err := startDaemon(ctx); err != nil {
		return err
	}
	bed.cluster, err = hadoop.Start(ctx, hadoop.Config{
		RunDir: filepath.Join(bed.dir, "hadoop"), Lib: lib, Progress: say, Governed: governed(),
		DataNodes: []hadoop.DataNode{{Volumes: []hadoop.Volume{{Dir: filepath.Join(bed.disk.Mount(), "dfs")}}}},
		LocalDirs: []string{filepath.Join(bed.disk.Mount(), "local")},
		TaskSlots: 7, // a Spark executor is as large as three tasks
	})
	if err != nil {
		return err
	}
	return agents(ctx, 2)
}

func socket() string { return filepath.Join(bed.dir, "agent.sock") }

// sparkDir is where a standalone Spark keeps its executors' files.
func sparkDir() string { return filepath.Join(bed.disk.Mount(), "spark") }

func governed() *hadoop.Governed {
	return &hadoop.Governed{AgentJar: bed.agent, Socket: socket()}
}

const usualWeights = "default: 10\n"

func startDaemon(ctx context.Context) (err error) {
	bed.daemon, err = daemon.Start(ctx, daemon.Options{
		Book: bed.book, Binary: bed.binary, Base: filepath.Join(bed.dir, "node"), Socket: socket(), Mode: "enforce",
		More:    fmt.Sprintf("identity: {spark_dirs: [%s]}\nnetwork: {rate: 1000MiB}\n", spark.WorkDir(sparkDir())),
		Weights: usualWeights, LogLevel: "info", Patience: patience,
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
	if bed.cluster != nil {
		errs = append(errs, bed.cluster.Stop())
	}
	if bed.daemon != nil {
		errs = append(errs, bed.daemon.Stop())
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

// begin gives a test a running node, whatever an earlier one did, and a time limit.
func begin(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	if err := bed.cluster.Check(); err != nil {
		t.Fatal(err)
	}
	if !bed.daemon.Alive() {
		if err := startDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := agents(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// model turns the disk's rate on for the rest of the test.
func model(t testing.TB, m disk.Model) {
	t.Helper()
	if err := bed.disk.SetModel(m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.disk.SetModel(disk.Model{}); err != nil {
			t.Error(err)
		}
	})
}

// weights puts a weights file into force for the rest of the test, and waits for it.
func weights(t testing.TB, text string) {
	t.Helper()
	put := func(text string) {
		before := look(t).Weights.Taken
		if err := bed.daemon.SetWeights(text); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the daemon takes its weights", func() bool { return look(t).Weights.Taken > before })
	}
	put(text)
	t.Cleanup(func() {
		if bed.daemon.Alive() {
			put(usualWeights)
		}
	})
}

// look is the daemon's status.
func look(t testing.TB) *status.Document {
	t.Helper()
	doc, err := status.Fetch(context.Background(), bed.daemon.Address)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// settled waits until nothing is queued, in flight or, but for files that may still be
// deleted, in a backlog.
func settled(t testing.TB) *status.Document {
	t.Helper()
	var doc *status.Document
	eventually(t, "the devices are at rest", func() bool {
		doc = look(t)
		for _, d := range doc.Devices {
			if d.Outstanding > 0 {
				return false
			}
			for _, f := range d.Flows {
				if f.Queued > 0 || f.Streams > 0 {
					return false
				}
			}
		}
		return true
	})
	return doc
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// moved is what a flow's streams of one kind have read and written, on all devices.
func moved(doc *status.Document, flow, kind string) (sum status.Pair) {
	for _, d := range doc.Devices {
		for _, f := range d.Flows {
			for _, k := range f.Kinds {
				if f.Name == flow && k.Kind == kind {
					sum.Read += k.Streamed.Read
					sum.Written += k.Streamed.Written
				}
			}
		}
	}
	return sum
}

// submit starts a job and kills it should it still run when the test is over.
func submit(ctx context.Context, t testing.TB, job hadoop.Job) *hadoop.App {
	t.Helper()
	app, err := bed.cluster.Submit(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := app.Kill(ctx); err != nil {
			t.Error(err)
		}
	})
	return app
}

// remove deletes a path in HDFS when the test is over.
func remove(t testing.TB, path string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := bed.cluster.FS().Remove(ctx, path); err != nil {
			t.Error(err)
		}
	})
}

// newSpark prepares Spark, fetched the first time.
func newSpark(ctx context.Context, t *testing.T, standalone bool, settings map[string]string) *spark.Spark {
	t.Helper()
	home, err := spark.Fetch(ctx, bed.cache, say)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spark.Start(ctx, spark.Config{
		RunDir: filepath.Join(bed.dir, "spark"), Home: home, Cluster: bed.cluster, Standalone: standalone,
		LocalDir: sparkDir(), Governed: governed(), Settings: settings, Progress: say,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// script is the path of one of Spark's programs.
func script(t *testing.T, name string) string {
	t.Helper()
	path, err := spark.Script(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// forget writes back and drops what the page cache has of the disk's files.
func forget(t *testing.T) {
	t.Helper()
	if err := bed.disk.Forget(); err != nil {
		t.Fatal(err)
	}
}
