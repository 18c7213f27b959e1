package failure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/lab/client"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/stand"
)

const (
	mib       = 1 << 20
	nodes     = 2
	diskBytes = 1024 * mib
	// patience bounds every wait for an event; a busy machine needs a part of it.
	patience = 90 * time.Second
)

// usual is the disks' speed unless a test sets another.
var usual = disk.Model{BytesPerSecond: 40e6, SeekMin: time.Millisecond, SeekMax: 4 * time.Millisecond}

// small is the HDFS that the tests share.
var small struct {
	dir     string
	socket  string
	binary  string
	book    *ledger.Ledger
	disks   [nodes]*disk.Disk
	cluster *hadoop.Cluster
	clients *client.JVM
}

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	os.Exit(stand.Run(m, &small.dir, setUp, tearDown))
}

func setUp(ctx context.Context) (err error) {
	if err := disk.Available(); err != nil {
		return fmt.Errorf("these tests need modelled disks: %w", err)
	}
	// Short, since a Unix socket's path is.
	if small.dir, err = os.MkdirTemp("", "penstock-failure-"); err != nil {
		return err
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	small.socket = filepath.Join(small.dir, "agent.sock")
	small.binary = filepath.Join(root, "bin", "penstock")
	agent := filepath.Join(root, "bin", "penstock-agent.jar")
	for _, file := range []string{small.binary, agent} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("run make build first: %w", err)
		}
	}
	if small.book, err = ledger.Open(small.dir); err != nil {
		return err
	}
	lib, err := hadoop.Fetch(ctx, filepath.Join(root, ".cache"), hadoop.DefaultVersion, say)
	if err != nil {
		return err
	}
	compiled, classes := make(chan error, 1), filepath.Join(small.dir, "client")
	go func() { compiled <- client.Compile(ctx, lib, classes) }()

	var dataNodes []hadoop.DataNode
	for i := range small.disks {
		small.disks[i], err = disk.Start(ctx, disk.Options{
			Name: fmt.Sprintf("disk%d", i), RunDir: small.dir, Size: diskBytes, Model: disk.Model{},
		})
		if err != nil {
			return errors.Join(err, <-compiled)
		}
		dataNodes = append(dataNodes, hadoop.DataNode{
			Volumes: []hadoop.Volume{{Dir: filepath.Join(small.disks[i].Mount(), "data")}},
			JVMArgs: []string{"-javaagent:" + agent + "=socket=" + small.socket},
		})
	}
	if err := <-compiled; err != nil {
		return err
	}
	small.cluster, err = hadoop.Start(ctx, hadoop.Config{
		RunDir: small.dir, Lib: lib, DataNodes: dataNodes, NoYARN: true, Progress: say,
		Settings: map[string]string{
			// By default a volume takes no block once it has less than 1 GiB left.
			"dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": "0",
			// A copy that met the stale replica of a DataNode's last life is tried
			// again after this, not after minutes.
			"dfs.namenode.reconstruction.pending.timeout-sec": "3",
			// A replica left unfinished, and reported while the block is still
			// written elsewhere, stands in the way of a new copy until the next
			// full report: by default, for hours.
			"dfs.blockreport.intervalMsec": "3000",
		},
	})
	if err != nil {
		return err
	}
	for _, d := range small.disks {
		if err := d.SetModel(usual); err != nil {
			return err
		}
	}
	small.clients, err = client.Start(client.Options{Book: small.book, Lib: lib, Classes: classes,
		Conf: small.cluster.ClientConfDir(), Temp: filepath.Join(small.dir, "tmp"),
		Log: filepath.Join(small.cluster.LogDir(), "clients.log")})
	return err
}

// tearDown puts everything back, once: an interrupt and the end of the tests that
// it breaks off both call it.
var tearDown = sync.OnceValue(func() error {
	var errs []error
	if small.clients != nil {
		small.clients.Stop()
	}
	if small.cluster != nil {
		errs = append(errs, small.cluster.Stop())
	}
	for _, d := range small.disks {
		if d != nil {
			errs = append(errs, d.Stop())
		}
	}
	if small.book != nil {
		errs = append(errs, small.book.Close())
	}
	return errors.Join(errs...)
})

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// begin gives a test its folder in HDFS, which is removed with it, disks of the
// usual speed, and a look at the cluster's processes at its end.
func begin(t *testing.T) (dir string) {
	t.Helper()
	started := time.Now()
	dir = "/" + t.Name()
	setModel(t, usual)
	for i := range nodes {
		eventually(t, "the NameNode knows of room on the disks", func() bool { return dataNode(t, i).Remaining > diskBytes/2 })
	}
	t.Cleanup(func() {
		setModel(t, disk.Model{}) // what is dirty is written back quickly
		if err := small.cluster.FS().Remove(context.Background(), dir); err != nil {
			t.Error(err)
		}
		if err := small.cluster.Check(); err != nil {
			t.Error(err)
		}
		t.Logf("%.1f s", time.Since(started).Seconds())
	})
	return dir
}

func setModel(t *testing.T, m disk.Model) {
	t.Helper()
	for _, d := range small.disks {
		if err := d.SetModel(m); err != nil {
			t.Fatal(err)
		}
	}
}

// eventually asks until the answer is yes; now says how it stands if that is
// too late.
func eventually(t *testing.T, what string, holds func() bool, now ...func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			for _, say := range now {
				what += "; " + say()
			}
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// evict writes out what the DataNodes hold and drops it from the page cache, so
// that it is read from the disks.
func evict(t *testing.T) {
	t.Helper()
	for _, d := range small.disks {
		eachBlockFile(t, d, func(path string) {
			f, err := os.Open(path)
			if errors.Is(err, fs.ErrNotExist) {
				return // deleted meanwhile
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func eachBlockFile(t *testing.T, d *disk.Disk, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(d.Mount(), "data"), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && e.Type().IsRegular() && strings.HasPrefix(e.Name(), "blk_") {
			visit(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// restartDataNode kills DataNode i with -9 unless that is done, and starts it.
func restartDataNode(t *testing.T, i int) {
	t.Helper()
	if small.cluster.DataNodePID(i) != 0 {
		small.cluster.KillDataNode(i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := small.cluster.StartDataNode(ctx, i); err != nil {
		t.Fatal(err)
	}
}
