package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/e2e/internal/fixture"
	"penstock/lab/disk"
	"penstock/lab/hadoop"
	"penstock/lab/judge"
	"penstock/node/status"
)

// TestShortLivedFiles: a TeraSort that spills often writes everything to the local disk at least
// twice, and deletes it soon: the spills at the merge, the other files at its end. Most of these
// files never need the disk. Penstock, which drains what HDFS writes, does not force them to the
// disk.
func TestShortLivedFiles(t *testing.T) {
	const rows = 640_000
	ctx := shared.Begin(t, 4*time.Minute)
	shared.Remove(t, "/sorted")
	want, err := shared.Hadoop.WriteRows(ctx, "/sorted/input", hadoop.Rows{Rows: rows})
	fixture.Must(t, err)
	unhurried(t, shared.Disks[dataNodes])
	from := disk.Monotonic()
	sort, err := shared.Hadoop.Submit(ctx, hadoop.Job{Kind: hadoop.TeraSort, Input: "/sorted/input", Output: "/sorted/output", Queue: hadoop.QueueProtected,
		Settings: map[string]string{"mapreduce.task.io.sort.mb": "8"}})
	fixture.Must(t, err)
	if _, err := sort.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	var f status.Flow
	fixture.Eventually(t, "the job's files are drained or gone", func() bool {
		f = fixture.Flow(fixture.Device(t, shared.Look(t), shared.Disks[dataNodes]), sort.ID)
		return f.Streams == 0 && f.Queued == 0 && f.Lazy.Files == 0 && f.BacklogBytes == 0
	})
	counters, err := sort.Counters(ctx)
	fixture.Must(t, err)
	records, err := judge.ReadLog(shared.Disks[dataNodes])
	fixture.Must(t, err)
	var device int64
	for _, r := range records {
		if r.Op == disk.Write && r.Ended >= from {
			device += r.Length
		}
	}
	wrote := counters["FILE: Number of bytes written"]
	var streamed int64
	for _, k := range f.Kinds {
		if k.Kind == "intermediate" {
			streamed = k.Streamed.Written
		}
	}
	t.Logf("the tasks wrote %.1f MB, %.1f MB of it through Penstock's streams; the disk %.1f MB, %.1f MB drained; %.1f MB in %d files were deleted before",
		mb(wrote), mb(streamed), mb(device), mb(f.Bytes.Written), mb(f.Lazy.DroppedBytes), f.Lazy.DroppedFiles)
	if wrote < 2*rows*hadoop.RowBytes {
		t.Fatalf("the tasks wrote %d bytes: too little for a judgement", wrote)
	}
	if device > wrote/2 {
		t.Errorf("the disk wrote %d bytes of %d", device, wrote)
	}
	if off := f.Bytes.Written + f.Lazy.DroppedBytes - streamed; off > streamed/10 || off < -streamed/10 {
		t.Errorf("%d bytes drained and %d dropped of %d", f.Bytes.Written, f.Lazy.DroppedBytes, streamed)
	}
	if got, err := shared.Hadoop.VerifyRows(ctx, "/sorted/output", rows, false); err != nil || got != want {
		t.Errorf("TeraSort's output: %v, %v, want %v", got, err, want)
	}
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

// unhurried keeps the kernel from writing back the disk's dirty pages for the rest of the test. How
// many dirty pages the kernel allows a disk depends on what all disks have lately written.
func unhurried(t *testing.T, d *disk.Disk) {
	t.Helper()
	file := filepath.Join("/sys/block", filepath.Base(d.Device()), "bdi", "min_ratio")
	before, err := os.ReadFile(file)
	fixture.Must(t, err)
	fixture.Must(t, os.WriteFile(file, []byte("50"), 0))
	t.Cleanup(func() {
		fixture.Check(t, os.WriteFile(file, before, 0))
	})
}
