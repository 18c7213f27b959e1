package parallel

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"penstock/e2e/internal/fixture"
	"penstock/lab/hadoop"
	"penstock/lab/storage"
)

// cluster is a YARN whose file system is shared:, on three servers of a parallel file system.
type cluster struct {
	*hadoop.Cluster
	machines *storage.Machines
}

func start(t *testing.T, m *storage.Machines, layout string, settings map[string]string) *cluster {
	t.Helper()
	jar, err := filepath.Abs("../../bin/penstock-sharedfs.jar")
	fixture.Must(t, err)
	dist, err := hadoop.Fetch(t.Context(), cache, hadoop.DefaultVersion, t.Logf)
	fixture.Must(t, err)
	_, err = m.Network.Here()
	fixture.Must(t, err)
	root := filepath.Join(m.Mount, "hadoop")
	m.Run(t, 0, "mkdir", root)
	names := ""
	cfg := hadoop.Config{RunDir: filepath.Join(m.Dir, "cluster"), Lib: dist, Jars: []string{jar}, NoHDFS: true, Masters: m.Hosts[0], Progress: t.Logf,
		Settings: map[string]string{
			"fs.defaultFS":                                "shared:///",
			"fs.AbstractFileSystem.shared.impl":           "penstock.sharedfs.SharedFs",
			"penstock.sharedfs.mount":                     root,
			"penstock.sharedfs.layout":                    layout,
			"penstock.sharedfs.gluster.shard":             "0",
			"penstock.sharedfs.block-size":                "8m",
			"penstock.sharedfs.hosts":                     filepath.Join(m.Dir, "hosts"),
			"yarn.scheduler.capacity.node-locality-delay": "40",
		}}
	for _, h := range m.Hosts {
		cfg.Nodes = append(cfg.Nodes, hadoop.Node{Machine: h, LocalDirs: []string{filepath.Join(m.Mount, "local")}})
		names += fmt.Sprintf("%s %s\n", h.Name, h.IP())
	}
	for name, value := range settings {
		cfg.Settings[name] = value
	}
	fixture.Must(t, os.WriteFile(filepath.Join(m.Dir, "hosts"), []byte(names), 0o644))
	c, err := hadoop.Start(t.Context(), cfg)
	fixture.Must(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &cluster{c, m}
}

// run runs a job and returns its counters.
func (c *cluster) run(t *testing.T, job hadoop.Job) map[string]int64 {
	t.Helper()
	job.Queue = hadoop.QueueProtected
	app, err := c.Submit(t.Context(), job)
	fixture.Must(t, err)
	_, err = app.Wait(t.Context())
	fixture.Must(t, err)
	counters, err := app.Counters(t.Context())
	fixture.Must(t, err)
	return counters
}

// TestJobs: TeraGen, TeraSort and TeraValidate run without HDFS. The rows are right, and tasks run beside
// their data.
func TestJobs(t *testing.T) {
	each(t, func(t *testing.T, m *storage.Machines, layout string) {
		c := start(t, m, layout, nil)
		c.run(t, hadoop.Job{Kind: hadoop.TeraGen, Rows: rows, Maps: maps, Output: "/input"})
		counters := c.run(t, hadoop.Job{Kind: hadoop.TeraSort, Input: "/input", Output: "/output", Reduces: 2})
		local, all := counters["Data-local map tasks"], counters["Launched map tasks"]
		t.Logf("%d of %d maps were local", local, all)
		if all < maps || local < all/2 {
			t.Errorf("%d of %d maps were local", local, all)
		}
		c.run(t, hadoop.Job{Kind: hadoop.TeraValidate, Input: "/output", Output: "/report"})
		t.Log(m.Run(t, 1, "sh", "-c", "cat "+filepath.Join(m.Mount, "hadoop", "report", "part*")))
	})
}

const (
	rows = 480_000 // of 100 bytes
	maps = 6
)
