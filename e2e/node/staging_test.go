package node

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/node/blockfile"
)

func stagingDisk(t *testing.T, rate int64) (*disk.Disk, *blockfile.Dir) {
	t.Helper()
	return stagingDiskWith(t, rate, 0)
}

func stagingDiskWith(t *testing.T, rate int64, readaheadKB int) (*disk.Disk, *blockfile.Dir) {
	t.Helper()
	d, err := disk.Start(t.Context(), disk.Options{Name: "staging", RunDir: t.TempDir(), Size: 256 * fixture.MiB, ReadaheadKB: readaheadKB,
		Model: disk.Model{BytesPerSecond: rate, SeekMin: 3 * time.Millisecond, SeekMax: 14 * time.Millisecond}})
	if err != nil {
		t.Fatalf("this test needs a modelled disk: %v", err)
	}
	t.Cleanup(func() {
		fixture.Check(t, d.Stop())
	})
	dir, err := blockfile.OpenDir(d.Mount(), "/sys")
	fixture.Must(t, err)
	t.Cleanup(func() { dir.Close() })
	return d, dir
}

// cold makes a file whose pages are only on the device.
func cold(t *testing.T, name string, size int) {
	t.Helper()
	fixture.Must(t, os.WriteFile(name, make([]byte, size), 0o666))
	fixture.Must(t, disk.ForgetFile(name))
}

// open opens a file as the daemon does, for staging.
func open(t *testing.T, dir *blockfile.Dir, name string) *blockfile.File {
	t.Helper()
	f, err := dir.Open(name)
	fixture.Must(t, err)
	t.Cleanup(func() { f.Close() })
	fixture.Must(t, f.PrepareStaging())
	return f
}

// readBytes returns how many bytes the device has read. It polls until the number is steady and has
// reached least. The kernel counts a request only after it has woken the processes that wait for
// the pages, many milliseconds later on a busy machine.
func readBytes(t *testing.T, d *disk.Disk, least int64) int64 {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for last := int64(-1); ; time.Sleep(5 * time.Millisecond) {
		n, _, err := d.Counters()
		fixture.Must(t, err)
		if n == last && n >= least {
			return n
		}
		if time.Now().After(deadline) {
			t.Fatalf("the device counts %d bytes read, of at least %d", n, least)
		}
		last = n
	}
}

// TestStagedRangeIsWholeAndReadOnce: readahead(2) silently shortens requests that are larger than
// the device's largest request. So quanta larger than that are tested, too.
func TestStagedRangeIsWholeAndReadOnce(t *testing.T) {
	d, dir := stagingDisk(t, 0)
	for _, quantum := range []int64{64 << 10, 512 << 10, fixture.MiB, 2 * fixture.MiB, 8 * fixture.MiB} {
		const size = 16*fixture.MiB + 4321
		name := filepath.Join(d.Mount(), "blk")
		cold(t, name, size)
		f := open(t, dir, name)
		before := readBytes(t, d, 0)
		for at := int64(0); at < size; at += quantum {
			fixture.Must(t, f.Stage(at, quantum))
			n := min(quantum, size-at)
			pages, err := f.Query(at, n)
			fixture.Must(t, err)
			if pages.Resident < n {
				t.Fatalf("quantum %d at %d: %d bytes resident after staging", quantum, at, pages.Resident)
			}
		}
		staged := readBytes(t, d, before+size)
		if got := staged - before; got < size || got > size+fixture.MiB {
			t.Errorf("quantum %d: the device read %d bytes for %d", quantum, got, size)
		}
		// The DataNode's part: it reads sequentially, through its own descriptor, with the kernel's
		// readahead on.
		reader, err := os.Open(name)
		fixture.Must(t, err)
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, reader, make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
		reader.Close()
		if got := readBytes(t, d, staged) - staged; got != 0 {
			t.Errorf("quantum %d: reading the staged file moved %d bytes from the device", quantum, got)
		}
	}
}

// A reader that stays within the staged range causes no device I/O, however far the kernel would
// read ahead for it: the staged pages carry no readahead mark.
func TestReaderWithinTheStagedRangeMovesNothing(t *testing.T) {
	for _, readaheadKB := range []int{128, 1024, 2048, 8192} {
		d, dir := stagingDiskWith(t, 0, readaheadKB)
		name := filepath.Join(d.Mount(), "blk")
		cold(t, name, 32*fixture.MiB)
		f := open(t, dir, name)
		reader, err := os.Open(name)
		fixture.Must(t, err)
		defer reader.Close()
		before := readBytes(t, d, 0)
		for at := int64(0); at < 32*fixture.MiB; at += 4 * fixture.MiB {
			for _, half := range []int64{0, 2 * fixture.MiB} {
				fixture.Must(t, f.Stage(at+half, 2*fixture.MiB))
			}
			staged := readBytes(t, d, before+at+4*fixture.MiB)
			if staged > before+at+4*fixture.MiB+fixture.MiB/4 {
				t.Errorf("read_ahead_kb %d: staging %d MiB moved %d bytes", readaheadKB, (at+4*fixture.MiB)/fixture.MiB, staged-before)
			}
			if _, err := io.CopyN(io.Discard, reader, 4*fixture.MiB); err != nil {
				t.Fatal(err)
			}
			if got := readBytes(t, d, staged) - staged; got != 0 {
				t.Errorf("read_ahead_kb %d: reading the 4 MiB staged at %d MiB moved %d bytes", readaheadKB, at/fixture.MiB, got)
			}
			ahead, err := f.Query(at+4*fixture.MiB, 8*fixture.MiB)
			fixture.Must(t, err)
			if ahead.Resident != 0 {
				t.Errorf("read_ahead_kb %d: reading the 4 MiB staged at %d MiB brought in %d bytes after them", readaheadKB, at/fixture.MiB, ahead.Resident)
			}
		}
	}
}

func TestStagingAndDrainingReachTheDevicesRate(t *testing.T) {
	const rate, size = 24_000_000, 48 * fixture.MiB
	d, dir := stagingDisk(t, rate)
	name := filepath.Join(d.Mount(), "blk")
	cold(t, name, size)
	f := open(t, dir, name)
	measure := func(what string, do func(off, length int64) error) {
		begin := time.Now()
		for at := int64(0); at < size; at += 2 * fixture.MiB {
			fixture.Must(t, do(at, 2*fixture.MiB))
		}
		got := float64(size) / time.Since(begin).Seconds()
		t.Logf("%s one quantum of 2 MiB at a time: %.1f MB/s of %.1f", what, got/1e6, rate/1e6)
		if got < 0.7*rate || got > 1.1*rate {
			t.Errorf("%s at %.1f MB/s on a disk of %.1f MB/s", what, got/1e6, rate/1e6)
		}
	}
	measure("staging", f.Stage)

	writer, err := os.OpenFile(name, os.O_WRONLY, 0)
	fixture.Must(t, err)
	defer writer.Close()
	dirty := make([]byte, 2*fixture.MiB)
	measure("draining", func(off, length int64) error {
		// The writer is one quantum ahead of the drain and never syncs.
		if _, err := writer.WriteAt(dirty[:length], off); err != nil {
			return err
		}
		return f.Drain(off, length)
	})
	pages, err := f.Query(0, size)
	fixture.Must(t, err)
	if pages.Unsaved != 0 {
		t.Errorf("%d bytes unsaved after draining", pages.Unsaved)
	}
}
