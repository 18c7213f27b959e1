package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/stand"
	"penstock/node/status"
	"penstock/ops/doctor"
)

const (
	mib = 1 << 20
	// patience bounds every wait for an event; a busy machine needs a part of it.
	patience = 60 * time.Second
)

// bed is the node that the tests share. DataNode 0 is governed, 1 has no agent.
var bed struct {
	dir     string
	binary  string
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
	if bed.dir, err = os.MkdirTemp("", "penstock-tools-"); err != nil {
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
	lib, err := hadoop.Fetch(ctx, filepath.Join(root, ".cache"), hadoop.DefaultVersion, say)
	if err != nil {
		return err
	}
	bed.disk, err = disk.Start(ctx, disk.Options{Name: "disk", RunDir: bed.dir, Size: 1024 * mib})
	if err != nil {
		return err
	}
	if err := startDaemon(ctx); err != nil {
		return err
	}
	bed.cluster, err = hadoop.Start(ctx, hadoop.Config{
		RunDir: bed.dir, Lib: lib, NoYARN: true, Replication: 2, Progress: say,
		DataNodes: []hadoop.DataNode{
			{
				Volumes: []hadoop.Volume{{Dir: filepath.Join(bed.disk.Mount(), "data")}},
				JVMArgs: []string{"-javaagent:" + agent + "=socket=" + socket()},
			},
			{},
		},
		// By default a volume takes no block once it has less than 1 GiB left.
		Settings: map[string]string{"dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": "0"},
	})
	if err != nil {
		return err
	}
	return bed.disk.SetModel(disk.HDD(20e6))
}

func socket() string { return filepath.Join(bed.dir, "agent.sock") }

func startDaemon(ctx context.Context) (err error) {
	bed.daemon, err = daemon.Start(ctx, daemon.Options{
		Book: bed.book, Binary: bed.binary, Base: filepath.Join(bed.dir, "node"), Socket: socket(), Mode: "enforce",
		Device: "  quantum: 1MiB\n", Weights: "default: 7\n", Patience: patience,
	})
	return err
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

// run runs penstock and gives its output and exit code.
func run(t *testing.T, args ...string) (out []byte, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bed.binary, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Logf("%v: %s", args, errs.Bytes())
	}
	return out, cmd.ProcessState.ExitCode()
}

// top is one document of `penstock top`.
func top(t *testing.T) *status.Document {
	t.Helper()
	out, code := run(t, "top", "--once", "--json", "--address", bed.daemon.Address)
	doc, err := status.Parse(out)
	if err != nil || code != 0 {
		t.Fatalf("top --once --json: exit %d, %v: %s", code, err, out)
	}
	return doc
}

// diagnose is the report of `penstock doctor` on DataNode i.
func diagnose(t *testing.T, i int, args ...string) (*doctor.Report, int) {
	t.Helper()
	out, code := run(t, append([]string{
		"doctor", "--json", "--address", bed.daemon.Address, "--datanode", bed.cluster.DataNodeURL(i),
	}, args...)...)
	r := &doctor.Report{}
	if err := json.Unmarshal(out, r); err != nil {
		t.Fatalf("doctor --json: exit %d, %v: %s", code, err, out)
	}
	return r, code
}

// expect holds the worst verdict of each named check against the wanted one.
func expect(t *testing.T, r *doctor.Report, want map[string]doctor.Verdict) {
	t.Helper()
	order := map[doctor.Verdict]int{doctor.OK: 1, doctor.Warn: 2, doctor.Fail: 3}
	got := map[string]doctor.Verdict{}
	for _, s := range r.Results {
		if order[s.Verdict] > order[got[s.Check]] {
			got[s.Check] = s.Verdict
		}
	}
	for name, verdict := range want {
		if got[name] != verdict {
			t.Errorf("%s: %q, want %q\n%s", name, got[name], verdict, r.Text())
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
