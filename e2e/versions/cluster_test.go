package versions

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/lab/client"
	"penstock/lab/daemon"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
)

const (
	mib      = 1 << 20
	nodes    = 2
	patience = time.Minute
)

// settings keep writers and readers waiting on a disk of 12 MB/s.
const settings = `  quantum: 1MiB
  backlog: 4MiB
  dirty: 8MiB
  run: 4MiB
  depth:
    read: {fixed: 20ms, per_mib: 180ms}
    write: {fixed: 20ms, per_mib: 180ms}
`

// cluster is a small one of one version, for one test.
type cluster struct {
	disks   [nodes]*disk.Disk
	rate    int64 // bytes per second, once limit was called
	hadoop  *hadoop.Cluster
	node    *daemon.Daemon
	clients *client.JVM
}

// fetch returns the folder of a version's jars.
func fetch(t *testing.T, version string) string {
	t.Helper()
	lib, err := hadoop.Fetch(t.Context(), filepath.Join("..", "..", ".cache"), version, t.Logf)
	if err == nil {
		lib, err = filepath.Abs(lib)
	}
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

func start(t *testing.T, version, lib string) *cluster {
	t.Helper()
	if err := disk.Available(); err != nil {
		t.Fatalf("this test needs modelled disks: %v", err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// Undone in reverse order: the folder goes last, and stays after a failure.
	dir, err := os.MkdirTemp("", "penstock-versions-") // short, as a Unix socket's path is
	must(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs are kept in %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must(err)
	binary, agent := filepath.Join(root, "bin", "penstock"), filepath.Join(root, "bin", "penstock-agent.jar")
	for _, built := range []string{binary, agent} {
		if _, err := os.Stat(built); err != nil {
			t.Fatalf("run make build first: %v", err)
		}
	}
	book, err := ledger.Open(dir)
	must(err)
	t.Cleanup(func() { check(t, book.Close()) })
	classes := filepath.Join(dir, "client")
	compiled := make(chan error, 1)
	go func() { compiled <- client.Compile(t.Context(), lib, classes) }()
	t.Cleanup(func() { <-compiled })

	c := &cluster{}
	socket := filepath.Join(dir, "agent.sock")
	cfg := hadoop.Config{Version: version, RunDir: filepath.Join(dir, "hadoop"), Lib: lib, NoYARN: true, Replication: nodes, Progress: t.Logf,
		// By default a volume takes no block once it has less than 1 GiB left.
		Settings: map[string]string{"dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": "0"}}
	for i := range c.disks {
		d, err := disk.Start(t.Context(), disk.Options{Name: fmt.Sprintf("disk%d", i), RunDir: dir, Size: 512 * mib})
		must(err)
		t.Cleanup(func() { check(t, d.Stop()) })
		c.disks[i] = d
		cfg.DataNodes = append(cfg.DataNodes, hadoop.DataNode{
			Volumes: []hadoop.Volume{{Dir: filepath.Join(d.Mount(), "dfs")}},
			JVMArgs: []string{"-javaagent:" + agent + "=socket=" + socket},
		})
	}
	c.node, err = daemon.Start(t.Context(), daemon.Options{Book: book, Binary: binary, Base: filepath.Join(dir, "node"),
		Socket: socket, Mode: "enforce", Device: settings, More: daemon.Believe, Patience: patience})
	must(err)
	t.Cleanup(func() { check(t, c.node.Stop()) })
	c.hadoop, err = hadoop.Start(t.Context(), cfg)
	must(err)
	t.Cleanup(func() { check(t, c.hadoop.Stop()) })
	err = <-compiled
	close(compiled)
	must(err)
	c.clients, err = client.Start(client.Options{Book: book, Lib: lib, Classes: classes, Conf: c.hadoop.ClientConfDir(),
		Temp: filepath.Join(dir, "hadoop", "tmp"), Log: filepath.Join(c.hadoop.LogDir(), "clients.log")})
	must(err)
	t.Cleanup(c.clients.Stop)
	c.await(t, "both agents connected", func() bool { return c.metric(t, "agent_connections") == nodes })
	return c
}

func check(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

// limit gives the disks their speed.
func (c *cluster) limit(t *testing.T) {
	t.Helper()
	c.rate = disk.HDDRate
	for _, d := range c.disks {
		if err := d.SetModel(disk.HDD(c.rate)); err != nil {
			t.Fatal(err)
		}
	}
}

// transfer is an application that writes or reads a file.
type transfer struct{ app, file int }

func (f transfer) path() string { return fmt.Sprintf("/file-%d", f.file) }

// all runs transfers at once, with further arguments of the operation, and waits
// until all have ended well, with the right bytes.
func (c *cluster) all(t *testing.T, operation, more string, transfers ...transfer) {
	t.Helper()
	failed := make(chan error, len(transfers))
	for _, f := range transfers {
		want := client.Sum(int64(f.file), fileBytes)
		args := fmt.Sprintf("path=%s attempt=%s bytes=%d seed=%d %s", f.path(), client.Attempt(f.app), fileBytes, f.file, more)
		c.clients.Do(operation, strings.TrimSpace(args), func(event, value string) {
			switch {
			case event == "done" && value == want:
				failed <- nil
			case event == "done" || event == "error":
				failed <- fmt.Errorf("%s of %s by application %d: %s (the checksum should be %s)", operation, f.path(), f.app, value, want)
			}
		})
	}
	late := time.After(patience)
	for range transfers {
		select {
		case err := <-failed:
			if err != nil {
				t.Fatal(err)
			}
		case <-late:
			t.Fatalf("%s of %v has not ended after %v", operation, transfers, patience)
		}
	}
}

// settle waits until the disks have all that was written, so that what is booked
// is all there is to book.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	c.await(t, "everything at rest", func() bool {
		return c.metric(t, "device_outstanding")+c.metric(t, "device_backlog_bytes")+
			c.metric(t, "flow_queued_requests")+c.metric(t, "flow_streams") == 0
	})
}

func (c *cluster) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not seen within %v: %s", patience, what)
		}
	}
}

func (c *cluster) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	v, err := c.node.Metric(t.Context(), name, labels...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// forget drops what the page cache has of the disks' files, and of no others.
func (c *cluster) forget(t *testing.T) {
	t.Helper()
	for _, d := range c.disks {
		if err := d.Forget(); err != nil {
			t.Fatal(err)
		}
	}
}

// agent is the MBean of the agent in a DataNode.
type agent struct {
	State         string
	WovenMethods  []string
	Missing       []string
	Connected     bool
	Mode          string
	GateWaits     int64
	GateBackstops int64
	FailedOpen    int64
	FramesDropped int64
	Suppressed    int64
}

func (c *cluster) agent(t *testing.T, i int) agent {
	t.Helper()
	resp, err := http.Get(c.hadoop.DataNodeURL(i) + "/jmx?qry=penstock:type=Agent")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mib))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Beans []agent }
	if err := json.Unmarshal(body, &doc); err != nil || len(doc.Beans) != 1 {
		t.Fatalf("DataNode %d shows no agent (%v): %s", i, err, body)
	}
	return doc.Beans[0]
}
