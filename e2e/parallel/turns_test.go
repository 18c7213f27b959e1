package parallel

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/daemon"
	"penstock/lab/hadoop"
	"penstock/lab/ledger"
	"penstock/lab/storage"
)

// TestTurns: the tasks of jobs take turns at the servers' disk. The daemon gives them, and the rows are right. After the
// daemon is killed, the next job is right without it. The hosts share this machine's disk, so one daemon stands for
// those of all hosts.
func TestTurns(t *testing.T) {
	m := storage.ForTest(t, cache, 3)
	m.Gluster(t, storage.GlusterOptions{})
	book, err := ledger.Open(t.TempDir())
	fixture.Must(t, err)
	t.Cleanup(func() { fixture.Check(t, book.Close()) })
	binary, err := filepath.Abs("../../bin/penstock")
	fixture.Must(t, err)
	jar, err := filepath.Abs("../../bin/penstock-agent.jar")
	fixture.Must(t, err)
	var names []string
	for _, h := range m.Hosts {
		names = append(names, h.Name, h.IP())
	}
	d, err := daemon.Start(t.Context(), daemon.Options{Book: book, Binary: binary, Base: filepath.Join(m.Dir, "node"), Socket: filepath.Join(m.Dir, "s"), Mode: "enforce",
		More:     fmt.Sprintf("storage: {directory: %s, names: [%s]}\n", m.Folders[0], strings.Join(names, ", ")) + daemon.Believe,
		Patience: time.Minute})
	fixture.Must(t, err)
	c := start(t, m, "gluster", func(cfg *hadoop.Config) {
		cfg.Jars = append(cfg.Jars, jar)
		cfg.Settings["penstock.sharedfs.turns"] = "true"
		cfg.Settings["penstock.socket"] = filepath.Join(m.Dir, "s")
	})
	counters(t, c.submit(t, hadoop.Job{Kind: hadoop.TeraGen, Rows: rows, Maps: maps, Output: "/input"}))
	want := c.check(t, 1, "input", hadoop.RowCheck{InOrder: true})
	sort := hadoop.Job{Kind: hadoop.TeraSort, Input: "/input", Output: "/output", Reduces: reduces, Settings: inPlace}
	counters(t, c.submit(t, sort))
	if sum := c.check(t, 2, "output", hadoop.RowCheck{Sorted: true}); sum != want {
		t.Errorf("the rows have the checksum %s, want %s", sum, want)
	}
	bytes, err := d.Metric(t.Context(), "turn_bytes_total")
	fixture.Must(t, err)
	t.Logf("turns for %.0f bytes", bytes)
	// The rows are written and read by TeraGen and by maps, read in place by reduces, and written by them.
	if bytes < 2*rows*hadoop.RowBytes {
		t.Errorf("turns for %.0f bytes; the jobs have %d bytes of rows, which are written and read several times", bytes, rows*hadoop.RowBytes)
	}

	fixture.Must(t, d.Kill())
	sort.Output = "/without"
	counters(t, c.submit(t, sort))
	if sum := c.check(t, 2, "without", hadoop.RowCheck{Sorted: true}); sum != want {
		t.Errorf("without the daemon, the rows have the checksum %s, want %s", sum, want)
	}
}
