package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/stand"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	// patience bounds every wait for an event. Even a busy machine needs only a part of it.
	patience = 40 * time.Second

	nobody  = 65534 // an unprivileged user
	another = 65533 // and one more
)

// usual is the disks' speed unless a test sets another. The disks are so fast that a daemon without
// time for its disk is noticed.
var usual = disk.Model{BytesPerSecond: 40e6, SeekMin: time.Millisecond, SeekMax: 4 * time.Millisecond}

// crawl is a disk that hangs: it takes minutes for a quantum. To make it answer outstanding
// requests, a test must set the zero model.
var crawl = disk.Model{BytesPerSecond: 4096, Channels: 1}

// shared has the disks that the tests share. Each test starts its own daemon.
var shared fixture.Stand

func TestMain(m *testing.M) {
	fixture.Main(m, &shared, stand.Spec{
		Name:   "hostile",
		Public: true, // attackers without privileges must reach the socket
		Disks:  []disk.Options{{Name: "disk0", Size: 1024 * mib}, {Name: "disk1", Size: 1024 * mib}},
	}, makeDirectories, attackIfChild)
}

func makeDirectories(context.Context) error {
	for i, d := range shared.Disks {
		if err := os.Chmod(shared.Path(d.Name()), 0o755); err != nil {
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

// dataDir is a DataNode's directory on a disk, localDir the parent of tasks' directories, and
// attackersDir the directory of the unprivileged user.
func dataDir(i int) string      { return filepath.Join(shared.Disks[i].Mount(), "data") }
func localDir(i int) string     { return filepath.Join(shared.Disks[i].Mount(), "local") }
func attackersDir(i int) string { return filepath.Join(localDir(i), "attacker") }

const quantum = mib

// device is the device section of the settings: the reference latencies are the time of two
// requests.
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
	files   int // limit of the daemon's descriptors; 0: the limit of this process
	listen  string
	dir     string // one more directory that a DataNode may register
}

// startNode starts a daemon to which every user may connect for tasks. Its files are named after
// the test. It is stopped with the test.
func startNode(t *testing.T, o options) *node {
	t.Helper()
	n, err := tryNode(t, t.Name(), o)
	fixture.Must(t, err)
	t.Cleanup(func() {
		fixture.Check(t, n.Stop())
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
	n := &node{socket: filepath.Join(shared.Dir, strings.ReplaceAll(t.Name(), "/", "-")+".sock")}
	var err error
	n.Daemon, err = shared.Stand.StartDaemon(t.Context(), daemon.Options{
		Base: name, Socket: n.socket, Mode: "enforce", Device: fmt.Sprintf(device, o.stuck), Listen: o.listen, Weights: o.weights, By: by, Patience: 20 * time.Second,
		More: daemon.Believe + fmt.Sprintf("socket_mode: \"0666\"\ntask_users: [\"*\"]\ndata_dirs: [%s]\nlocal_dirs: [%s, %s]\n",
			strings.Join(data, ", "), localDir(0), localDir(1)),
	})
	return n, err
}

// setModel changes a disk's speed for the rest of the test.
func setModel(t *testing.T, i int, m disk.Model) {
	t.Helper()
	shared.Model(t, m, shared.Disks[i])
}

// cold makes a file whose pages are only on the device. It is removed with the test.
func cold(t *testing.T, path string, size int64, uid int) string {
	t.Helper()
	t.Cleanup(func() { os.Remove(path) })
	fixture.Must(t, errors.Join(write(path, size), os.Chown(path, uid, uid)))
	return path
}

// write makes a file of zeros without pages in the page cache.
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
	return errors.Join(err, disk.ForgetFile(path))
}

// resident returns how many bytes of a file are in the page cache.
func resident(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	fixture.Must(t, err)
	defer f.Close()
	var stat unix.Cachestat_t
	fixture.Must(t, unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &stat, 0))
	return int64(stat.Cache) * int64(os.Getpagesize())
}

// metric returns the value of one of the daemon's metrics.
func (n *node) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return fixture.Metric(t, n.Daemon, name, labels...)
}
