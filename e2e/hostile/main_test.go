package hostile

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

	"golang.org/x/sys/unix"

	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/ledger"
	"penstock/lab/stand"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	// patience bounds every wait for an event; a busy machine needs a part of it.
	patience = 40 * time.Second

	nobody  = 65534 // an unprivileged user
	another = 65533 // and one more
)

// usual is the disks' speed unless a test sets another: so fast that a daemon without time
// for its disk is seen.
var usual = disk.Model{BytesPerSecond: 40e6, SeekMin: time.Millisecond, SeekMax: 4 * time.Millisecond}

// crawl is a disk that hangs: it takes minutes for a quantum. Only the zero model has it answer
// what it was asked meanwhile.
var crawl = disk.Model{BytesPerSecond: 4096, Channels: 1}

// lab is what the tests share.
var lab struct {
	dir    string
	binary string
	book   *ledger.Ledger
	disks  [2]*disk.Disk
}

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	attackIfChild()
	os.Exit(stand.Run(m, &lab.dir, setUp, tearDown))
}

func setUp(ctx context.Context) (err error) {
	if err := disk.Available(); err != nil {
		return fmt.Errorf("these tests need modelled disks: %w", err)
	}
	// Short, since a Unix socket's path is.
	if lab.dir, err = os.MkdirTemp("", "penstock-hostile-"); err != nil {
		return err
	}
	// Attackers without privileges must reach the socket.
	if err := os.Chmod(lab.dir, 0o755); err != nil {
		return err
	}
	if lab.binary, err = filepath.Abs(filepath.Join("..", "..", "bin", "penstock")); err != nil {
		return err
	}
	if _, err := os.Stat(lab.binary); err != nil {
		return fmt.Errorf("run make build first: %w", err)
	}
	if lab.book, err = ledger.Open(lab.dir); err != nil {
		return err
	}
	for i := range lab.disks {
		lab.disks[i], err = disk.Start(ctx, disk.Options{Name: fmt.Sprintf("disk%d", i), RunDir: lab.dir, Size: 1024 * mib})
		if err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(lab.dir, fmt.Sprintf("disk%d", i)), 0o755); err != nil {
			return err
		}
		for _, dir := range []string{dataDir(i), localDir(i), attackersDir(i)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := os.Chown(attackersDir(i), nobody, nobody); err != nil {
			return err
		}
		if err := write(neighbourFile(i), neighbourBytes); err != nil {
			return err
		}
	}
	return nil
}

// tearDown puts everything back; it may be called twice.
var tearDown = sync.OnceValue(func() error {
	var errs []error
	for _, d := range lab.disks {
		if d != nil {
			errs = append(errs, d.Stop())
		}
	}
	if lab.book != nil {
		errs = append(errs, lab.book.Close())
	}
	return errors.Join(errs...)
})

// dataDir is a DataNode's directory on a disk, localDir what tasks have their own below,
// attackersDir that of the unprivileged user.
func dataDir(i int) string      { return filepath.Join(lab.disks[i].Mount(), "data") }
func localDir(i int) string     { return filepath.Join(lab.disks[i].Mount(), "local") }
func attackersDir(i int) string { return filepath.Join(localDir(i), "attacker") }

const quantum = mib

// device are the settings of the disks: reference latencies of two requests' time.
const device = `  quantum: 1MiB
  stuck_after: %s
  depth:
    read: {fixed: 10ms, per_mib: 50ms}
    write: {fixed: 10ms, per_mib: 50ms}
`

// node is a daemon under attack.
type node struct {
	*daemon.Daemon
	socket string
}

type options struct {
	stuck   string // default 12s
	weights string
	files   int // descriptors that it may have; 0: as this process
	listen  string
	dir     string // one more that a DataNode may register
}

// startNode starts a daemon that every user may connect to for tasks, with its files named
// after the test. It is stopped with the test.
func startNode(t *testing.T, o options) *node {
	t.Helper()
	n, err := tryNode(t, t.Name(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func tryNode(t *testing.T, name string, o options) (*node, error) {
	if o.stuck == "" {
		o.stuck = "12s"
	}
	data := []string{dataDir(0), dataDir(1)}
	if o.dir != "" {
		data = append(data, o.dir)
	}
	var by []string
	if o.files > 0 {
		by = []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", o.files, o.files)}
	}
	name = strings.ReplaceAll(name, "/", "-")
	n := &node{socket: filepath.Join(lab.dir, strings.ReplaceAll(t.Name(), "/", "-")+".sock")}
	var err error
	n.Daemon, err = daemon.Start(t.Context(), daemon.Options{
		Book: lab.book, Binary: lab.binary, Base: filepath.Join(lab.dir, name), Socket: n.socket,
		Mode: "enforce", Device: fmt.Sprintf(device, o.stuck), Listen: o.listen, Weights: o.weights, LogLevel: "info", By: by, Patience: 20 * time.Second,
		More: daemon.Believe + fmt.Sprintf("socket_mode: \"0666\"\ntask_users: [\"*\"]\ndata_dirs: [%s]\nlocal_dirs: [%s, %s]\n",
			strings.Join(data, ", "), localDir(0), localDir(1)),
	})
	return n, err
}

// setModel changes a disk's speed, until the test ends.
func setModel(t *testing.T, i int, m disk.Model) {
	t.Helper()
	if err := lab.disks[i].SetModel(m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.disks[i].SetModel(disk.Model{}); err != nil {
			t.Error(err)
		}
	})
}

// cold makes a file whose pages are on the device only. It is removed with the test.
func cold(t *testing.T, path string, size int64, uid int) string {
	t.Helper()
	t.Cleanup(func() { os.Remove(path) })
	if err := errors.Join(write(path, size), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
	return path
}

// write makes a file of zeros, which the page cache has nothing of.
func write(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	chunk := make([]byte, mib)
	for at := int64(0); at < size && err == nil; at += mib {
		_, err = f.Write(chunk[:min(mib, size-at)])
	}
	return errors.Join(err, f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// resident is what the page cache holds of a file, in bytes.
func resident(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var stat unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &stat, 0); err != nil {
		t.Fatal(err)
	}
	return int64(stat.Cache) * int64(os.Getpagesize())
}

// eventually asks until the answer is yes.
func eventually(t *testing.T, what string, within time.Duration, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// metric is a number of the daemon's.
func (n *node) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	v, err := n.Metric(t.Context(), name, labels...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
