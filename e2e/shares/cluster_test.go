package shares

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/lab/ledger"
	"penstock/lab/stand"
	"penstock/node/profile"
)

const mib = 1 << 20

// The disk of all tests: 12 MB/s with seeks, slow enough that any machine
// keeps it busy with CPU to spare. It is a slice of a disk of a common size, so
// that the files of a test, side by side, are near each other for its head.
var slow = disk.Model{BytesPerSecond: 12_000_000, SeekMin: 2 * time.Millisecond, SeekMax: 12 * time.Millisecond, CapacityBytes: 1e12}

// cluster is what all tests of this package run on, one after the other: a
// NameNode, a DataNode with the agent on a modelled disk, YARN, and the daemon.
type cluster struct {
	dir    string // private; kept when a test fails
	binary string // penstock
	lib    string // Hadoop's jars
	book   *ledger.Ledger
	disk   *disk.Disk
	hadoop *hadoop.Cluster
	node   *node
}

// shared is started by the first test that asks for it and stopped by TestMain.
var shared struct {
	cluster *cluster
	err     error
}

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	stand.Recover()
	code := m.Run()
	if c := shared.cluster; c != nil {
		if err := c.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "putting everything back:", err)
			code = max(code, 1)
		}
		if code == 0 {
			os.RemoveAll(c.dir)
		} else {
			fmt.Fprintln(os.Stderr, "logs are kept in", c.dir)
		}
	}
	os.Exit(code)
}

// start gives the running cluster, with the disk's rate off.
func start(t *testing.T) *cluster {
	t.Helper()
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = startCluster(t.Context(), t.Logf)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	c := shared.cluster
	if err := errors.Join(c.hadoop.Check(), c.node.check()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.disk.SetModel(disk.Model{}); err != nil {
			t.Error(err)
		}
	})
	return c
}

func startCluster(ctx context.Context, logf func(string, ...any)) (_ *cluster, err error) {
	if err := disk.Available(); err != nil {
		return nil, fmt.Errorf("shares are judged on a modelled disk and there can be none here: %w", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	binary, agent := filepath.Join(root, "bin", "penstock"), filepath.Join(root, "bin", "penstock-agent.jar")
	for _, built := range []string{binary, agent} {
		if _, err := os.Stat(built); err != nil {
			return nil, fmt.Errorf("run make build first: %w", err)
		}
	}
	// Short, for the path of a Unix socket has 107 bytes at most.
	dir, err := os.MkdirTemp("", "penstock-shares-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, binary: binary}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w (logs are kept in %s)", err, dir), c.stop())
		}
	}()
	if c.book, err = ledger.Open(dir); err != nil {
		return nil, err
	}
	if err := c.raiseDirtyLimits(ctx, logf); err != nil {
		return nil, err
	}
	if c.disk, err = disk.Start(ctx, disk.Options{Name: "disk", RunDir: dir, Size: 6 << 30, Scheduler: "mq-deadline"}); err != nil {
		return nil, err
	}
	if c.node, err = startNode(ctx, c.book, dir, binary, c.socket(), usual); err != nil {
		return nil, err
	}
	if c.lib, err = hadoop.Fetch(ctx, filepath.Join(root, ".cache"), hadoop.DefaultVersion, logf); err != nil {
		return nil, err
	}
	c.hadoop, err = hadoop.Start(ctx, hadoop.Config{
		RunDir: filepath.Join(dir, "hadoop"), Lib: c.lib, Progress: logf,
		DataNodes: []hadoop.DataNode{{
			Volumes: []hadoop.Volume{{Dir: c.dataDir()}},
			JVMArgs: []string{"-javaagent:" + agent + "=socket=" + c.socket()},
		}},
	})
	if err != nil {
		return nil, err
	}
	return c, c.connected(ctx)
}

func (c *cluster) socket() string { return filepath.Join(c.dir, "agent.sock") }

// dataDir is the DataNode's volume.
func (c *cluster) dataDir() string { return filepath.Join(c.disk.Mount(), "dfs") }

func (c *cluster) connected(ctx context.Context) error {
	return c.node.await(ctx, "connected to the agent", func(m metrics) error {
		if m["penstock_agent_connections"] != 1 {
			return fmt.Errorf("%v agents", m["penstock_agent_connections"])
		}
		return nil
	})
}

// retune restarts the daemon with another device section, for the rest of the
// test.
func (c *cluster) retune(t *testing.T, device tuning) {
	t.Helper()
	restart := func(ctx context.Context, device tuning) (err error) {
		if err := c.node.stop(); err != nil {
			return err
		}
		if c.node, err = startNode(ctx, c.book, c.dir, c.binary, c.socket(), device); err != nil {
			return err
		}
		return c.connected(ctx)
	}
	t.Cleanup(func() {
		if err := restart(context.Background(), usual); err != nil {
			t.Error(err)
		}
	})
	if err := restart(t.Context(), device); err != nil {
		t.Fatal(err)
	}
}

// profile writes a profile of the disk of all tests, by its own model, and gives its name.
func (c *cluster) profile(t *testing.T) string {
	t.Helper()
	device, err := profile.Identify("/sys", filepath.Base(c.disk.Device()))
	if err != nil {
		t.Fatal(err)
	}
	on := profile.Line{PerMiB: profile.Duration(time.Second * mib / time.Duration(slow.BytesPerSecond))}
	away := on
	away.Fixed = profile.Duration(slow.SeekMin)
	p := profile.Profile{
		Version: profile.Version, Device: device,
		Cost:      profile.Cost{Read: profile.Coefficients{Random: away, Sequential: on, Alone: away}},
		Reference: profile.Reference{Read: profile.Latency{Line: away, Concurrency: 1}},
		Quantum:   512 << 10,
	}
	text, err := p.Text()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(c.dir, "disk.profile")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// raiseDirtyLimits keeps the kernel's own writeback away: it is out of any
// scheduler's reach, and begins once the dirty pages of the whole machine, those
// of other programs included, are over a limit. What Penstock lets be dirty
// here, 8 MiB for each writer, is far below this one. Another run that has the
// limits is waited for: the two would disturb each other.
func (c *cluster) raiseDirtyLimits(ctx context.Context, logf func(string, ...any)) error {
	const patience = 10 * time.Minute
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	waiting := time.AfterFunc(time.Second, func() {
		logf("another run has changed the kernel's dirty limits: waiting for it to end, %v at most", patience)
	})
	defer waiting.Stop()
	for _, p := range []struct {
		name  string
		bytes int64
	}{{"vm/dirty_bytes", dirtyLimit}, {"vm/dirty_background_bytes", dirtyLimit / 2}} {
		if _, err := ledger.SetSysctl(wait, c.book, p.name, strconv.FormatInt(p.bytes, 10)); err != nil {
			return fmt.Errorf("raise the kernel's dirty limits: %w", err)
		}
	}
	return nil
}

const dirtyLimit = 512 * mib

// lowerDirtyLimits has the kernel write earlier for the rest of the test.
func (c *cluster) lowerDirtyLimits(t *testing.T, bytes int64) {
	t.Helper()
	set := func(ctx context.Context, name string, bytes int64) {
		if _, err := ledger.SetSysctl(ctx, c.book, name, strconv.FormatInt(bytes, 10)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		set(context.Background(), "vm/dirty_bytes", dirtyLimit)
		set(context.Background(), "vm/dirty_background_bytes", dirtyLimit/2)
	})
	set(t.Context(), "vm/dirty_background_bytes", bytes/2)
	set(t.Context(), "vm/dirty_bytes", bytes)
}

func (c *cluster) stop() error {
	var errs []error
	if c.hadoop != nil {
		errs = append(errs, c.hadoop.Stop())
	}
	if c.node != nil {
		errs = append(errs, c.node.stop())
	}
	if c.disk != nil {
		errs = append(errs, c.disk.Stop())
	}
	if c.book != nil {
		errs = append(errs, c.book.Close())
	}
	return errors.Join(errs...)
}

// limit turns the disk's rate on for the rest of the test.
func (c *cluster) limit(t *testing.T, model disk.Model) {
	t.Helper()
	if err := c.disk.SetModel(model); err != nil {
		t.Fatal(err)
	}
}

// write makes a file of one block, as fast as the machine can.
func (c *cluster) write(t *testing.T, path string, size int64) {
	t.Helper()
	c.create(t, path, zeros{}, size)
}

func (c *cluster) create(t *testing.T, path string, from io.Reader, size int64) {
	t.Helper()
	err := c.hadoop.FS().Create(t.Context(), path, io.LimitReader(from, size), hadoop.CreateOptions{BlockSize: size})
	if err != nil {
		t.Fatal(err)
	}
	c.remove(t, path)
}

// remove deletes a path when the test is over.
func (c *cluster) remove(t *testing.T, path string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.hadoop.FS().Remove(ctx, path); err != nil {
			t.Error(err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// forget writes back and drops what the page cache has of the disk's files: of
// this disk only, since others may be measuring on theirs.
func (c *cluster) forget(t *testing.T) {
	t.Helper()
	if err := c.disk.Forget(); err != nil {
		t.Fatal(err)
	}
}

// owners says which blocks are whose: of each flow, the HDFS paths that are
// its own.
func (c *cluster) owners(t *testing.T, paths map[string][]string) judge.Owner {
	t.Helper()
	owner := map[string]string{}
	for flow, below := range paths {
		for _, path := range below {
			blocks := blockName.FindAllString(c.fsck(t, path), -1)
			if len(blocks) == 0 {
				t.Fatalf("the NameNode knows no blocks of %s", path)
			}
			for _, b := range blocks {
				owner[b] = flow
			}
		}
	}
	return func(path string) string { return owner[blockName.FindString(filepath.Base(path))] }
}

// blockName is in the name of a block file (blk_12) and of its checksums'
// (blk_12_34.meta).
var blockName = regexp.MustCompile(`blk_\d+`)

// fsck asks the NameNode for the blocks below an HDFS path, files still being
// written included.
func (c *cluster) fsck(t *testing.T, path string) string {
	t.Helper()
	q := url.Values{"ugi": {"root"}, "path": {path}, "files": {"1"}, "blocks": {"1"}, "openforwrite": {"1"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.hadoop.NameNodeURL()+"/fsck?"+q.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16*mib))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("fsck %s: %s: %.200s: %v", path, resp.Status, body, err)
	}
	return string(body)
}

// judge says what every owner got in each window.
func (c *cluster) judge(t *testing.T, owner judge.Owner, windows ...judge.Window) []judge.Account {
	t.Helper()
	records, err := judge.ReadLog(c.disk)
	if err != nil {
		t.Fatal(err)
	}
	w := judge.NewWatcher(c.disk.Mount())
	if err := w.Look(); err != nil {
		t.Fatal(err)
	}
	return w.Judge(records, owner, windows...)
}
