package judge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/lab/disk"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	os.Exit(m.Run())
}

const mib = 1 << 20

// byFolder returns the owner of a file: the name of its top folder.
func byFolder(path string) string {
	name, _, _ := strings.Cut(path, "/")
	return name
}

// watcherOf returns a watcher with layouts given as "path from-to" lists, in bytes.
func watcherOf(layouts map[int64][]extent) *Watcher {
	w := NewWatcher("/root")
	for at := int64(0); at <= 1000; at++ {
		if extents, ok := layouts[at]; ok {
			files := map[string]mappedFile{}
			for i, e := range extents {
				e.path = filepath.Join("/root", e.path)
				files[fmt.Sprint(i)] = mappedFile{extents: []extent{e}}
			}
			w.layouts = append(w.layouts, newLayout(at, files))
		}
	}
	return w
}

// One place has three owners over time.
func TestWhoseItWasThen(t *testing.T) {
	w := watcherOf(map[int64][]extent{
		100: {{0, 100, "a/1"}, {100, 200, "b/1"}},
		200: {{0, 100, "b/2"}},
		300: {{50, 100, "c/1"}},
		400: {{50, 100, "c/1"}},
	})
	for _, c := range []struct {
		name     string
		op       disk.Op
		ended    int64
		from, to int64
		want     map[string]int64
	}{
		{"a read is of who had it before", disk.Read, 150, 0, 100, map[string]int64{"a": 100}},
		{"a write is of who has it after", disk.Write, 150, 0, 100, map[string]int64{"b": 100}},
		{"a write to a file deleted since", disk.Write, 150, 100, 200, map[string]int64{"b": 100}},
		{"a read before the first layout", disk.Read, 50, 0, 100, map[string]int64{"a": 100}},
		{"a write after the last", disk.Write, 500, 50, 100, map[string]int64{"c": 50}},
		{"two owners", disk.Read, 150, 50, 150, map[string]int64{"a": 50, "b": 50}},
		{"a file and nobody", disk.Read, 450, 0, 100, map[string]int64{FileSystem: 50, "c": 50}},
		{"nobody, ever", disk.Write, 150, 500, 600, map[string]int64{FileSystem: 100}},
		{"part of it was written later", disk.Write, 250, 0, 100, map[string]int64{"b": 50, "c": 50}},
	} {
		record := disk.Record{Op: c.op, Ended: c.ended, Offset: c.from, Length: c.to - c.from, Service: 1000}
		account := w.Judge([]disk.Record{record}, byFolder, Window{0, 1000})[0]
		for owner, bytes := range c.want {
			if got := account.Owners[owner]; got.Bytes() != bytes || got.Service != time.Duration(1000*bytes/record.Length) || got.Requests != 1 {
				t.Errorf("%s: %s got %+v, want %d bytes", c.name, owner, got, bytes)
			}
		}
		if len(account.Owners) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, account.Owners, c.want)
		}
	}
}

// A file that is renamed during a scan can be missing from the layout of that scan.
func TestALookThatMissesAFile(t *testing.T) {
	w := watcherOf(map[int64][]extent{
		100: {{0, 100, "a/1"}},
		200: {},
		300: {{0, 100, "a/1"}, {100, 200, "b/1"}},
		400: {{0, 100, "a/1"}, {100, 200, "b/1"}},
	})
	records := []disk.Record{
		{Op: disk.Write, Ended: 150, Offset: 0, Length: 100},
		{Op: disk.Read, Ended: 250, Offset: 0, Length: 100},
		{Op: disk.Write, Ended: 150, Offset: 100, Length: 100},
	}
	account := w.Judge(records, byFolder, Window{0, 1000})[0]
	if a, b := account.Owners["a"], account.Owners["b"]; a.Bytes() != 200 || b.Bytes() != 100 {
		t.Errorf("%+v, want 200 bytes of a and 100 of b", account.Owners)
	}
}

func TestWindows(t *testing.T) {
	w := watcherOf(map[int64][]extent{0: {{0, 100, "a/1"}}})
	records := []disk.Record{
		{Op: disk.Read, Ended: 9, Length: 10, Service: 1},
		{Op: disk.Write, Ended: 10, Length: 20, Service: 2},
		{Op: disk.Discard, Ended: 15, Length: 40},
		{Op: disk.Read, Ended: 25, Length: 80, Service: 4},
	}
	windows := Windows(Window{0, 25}, 10)
	if len(windows) != 2 {
		t.Fatalf("%d windows, want 2", len(windows))
	}
	accounts := w.Judge(records, byFolder, windows...)
	if got := accounts[0].Owners["a"]; got != (Usage{ReadBytes: 10, Requests: 1, Service: 1}) {
		t.Errorf("first window: %+v", got)
	}
	if got := accounts[1].Total(); got != (Usage{WriteBytes: 20, Requests: 1, Service: 2}) {
		t.Errorf("second window: %+v", got)
	}
}

func TestEqualLayoutsAreKeptOnce(t *testing.T) {
	w := NewWatcher(t.TempDir())
	for range 10 {
		if err := w.Look(); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.layouts) != 2 {
		t.Errorf("%d layouts of an empty folder, want the first and the last", len(w.layouts))
	}
}

// On a real modelled disk, every byte that the disk moved has an owner, and all bytes of each file
// belong to the file's owner.
func TestJudgeOnADisk(t *testing.T) {
	model := disk.Model{BytesPerSecond: 64 * mib, SeekMin: time.Millisecond, SeekMax: 5 * time.Millisecond}
	d, err := disk.Open(t.Context(), disk.Options{Name: "a", RunDir: t.TempDir(), Size: 256 * mib, Model: model})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := NewWatcher(d.Mount())
	if !d.Modelled() {
		if _, err := ReadLog(d); err == nil {
			t.Error("a plain folder has a request log")
		}
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- w.Run(ctx, 20*time.Millisecond) }()

	from := disk.Monotonic()
	sizes := map[string]int64{"wordcount": 12 * mib, "teragen": 20*mib + 4096}
	for owner, size := range sizes {
		if err := os.Mkdir(filepath.Join(d.Mount(), owner), 0o755); err != nil {
			t.Fatal(err)
		}
		writeOut(t, filepath.Join(d.Mount(), owner, "rbw"), size)
		// A DataNode does the same when a block is complete.
		if err := os.Rename(filepath.Join(d.Mount(), owner, "rbw"), filepath.Join(d.Mount(), owner, "finalized")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Look(); err != nil {
		t.Fatal(err)
	}
	wrote := disk.Monotonic()
	readBack(t, filepath.Join(d.Mount(), "wordcount", "finalized"))
	if err := os.Remove(filepath.Join(d.Mount(), "wordcount", "finalized")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-watched; err != nil {
		t.Fatal(err)
	}
	to := disk.Monotonic()

	records, err := ReadLog(d)
	if err != nil {
		t.Fatal(err)
	}
	accounts := w.Judge(records, byFolder, Window{from, wrote}, Window{wrote, to}, Window{from, to})
	for owner, size := range sizes {
		if got := accounts[0].Owners[owner].WriteBytes; got != size {
			t.Errorf("%s wrote %d, want %d", owner, got, size)
		}
	}
	if got := accounts[1].Owners["wordcount"].ReadBytes; got != sizes["wordcount"] {
		t.Errorf("wordcount read %d, want %d", got, sizes["wordcount"])
	}
	if got := accounts[1].Owners["teragen"].ReadBytes; got != 0 {
		t.Errorf("teragen read %d, want nothing", got)
	}
	var logged Usage
	for _, r := range records {
		switch {
		case r.Ended < from || r.Ended >= to:
		case r.Op == disk.Read:
			logged.ReadBytes += r.Length
			logged.Service += time.Duration(r.Service)
		case r.Op == disk.Write:
			logged.WriteBytes += r.Length
			logged.Service += time.Duration(r.Service)
		}
	}
	total := accounts[2].Total()
	if total.ReadBytes != logged.ReadBytes || total.WriteBytes != logged.WriteBytes {
		t.Errorf("accounted for %+v, logged %+v", total, logged)
	}
	// The division of a request's service is rounded.
	if diff := (total.Service - logged.Service).Abs(); diff > time.Millisecond {
		t.Errorf("accounted for %v of service, logged %v", total.Service, logged.Service)
	}
	if fs := accounts[2].Owners[FileSystem]; fs.WriteBytes == 0 || fs.Bytes() > 8*mib {
		t.Errorf("the file system's own: %+v, want a little", fs)
	}
}

func writeOut(t *testing.T, path string, size int64) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
}

// readBack reads the file from the disk instead of the page cache.
func readBack(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteTo(discard{}); err != nil {
		t.Fatal(err)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
