package parallel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	// Each write is on the disk when its turn ends. What is left is the end of each file, which is too small for a turn.
	if dirty, total := pages(t, m.Folders); total != rows*hadoop.RowBytes || dirty > maps*2*smallest {
		t.Errorf("of %d bytes of rows on the servers, %d are not on the disk", total, dirty)
	}
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

// smallest is the size of the smallest write with a turn, in bytes.
const smallest = 64 << 10

// pages returns the bytes of the rows in the folders that are not on the disk, and of all rows.
func pages(t *testing.T, folders []string) (dirty, total int64) {
	t.Helper()
	for _, folder := range folders {
		fixture.Must(t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) { // other files are deleted meanwhile
				return nil
			}
			if err != nil || !e.Type().IsRegular() || filepath.Base(filepath.Dir(path)) != "input" || !strings.HasPrefix(e.Name(), "part-") {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return err
			}
			var stat unix.Cachestat_t
			if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &stat, 0); err != nil {
				return err
			}
			total += info.Size()
			dirty += int64(stat.Dirty+stat.Writeback) * int64(os.Getpagesize())
			return nil
		}))
	}
	return dirty, total
}
