package sim

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/lab/disk"
	"penstock/ops/measure"
)

// curves is a measurement by `penstock profile` on a modelled disk, through the file system, the
// page cache, the loop device and FUSE.
type curves struct {
	Commands []string        `json:"commands"`
	Model    disk.Model      `json:"model"`
	Points   []measure.Point `json:"points"`
}

const curveSpace = 256 << 20 // size of the measured area, in bytes

// simulated plays the load of a point on the simulator's disk, without any other layer, and returns
// bytes per second.
func simulated(t *testing.T, m disk.Model, p measure.Point) float64 {
	t.Helper()
	if m.CapacityBytes == 0 && m.Channels == 0 {
		m.CapacityBytes = 1 << 30 // the disk's size
	}
	v := disk.NewVirtual(m)
	random := rand.New(rand.NewPCG(1, uint64(p.Bytes)))
	op := disk.Read
	if p.Write {
		op = disk.Write
	}
	next, now := int64(0), int64(0)
	ask := func() {
		slot := random.Int64N(curveSpace / p.Bytes)
		if p.Sequential {
			slot = next % (curveSpace / p.Bytes)
			next++
		}
		v.Submit(now, op, slot*p.Bytes, p.Bytes, 0)
	}
	for range p.Concurrency {
		ask()
	}
	const requests = 400
	for range requests {
		at, any := v.Due()
		if !any {
			t.Fatal("the disk has nothing to do")
		}
		now = at
		if _, any := v.Take(now); !any {
			t.Fatal("a request that is due has not ended")
		}
		ask()
	}
	return requests * float64(p.Bytes) / time.Duration(now).Seconds()
}

// Limits on the relative difference between simulated and measured throughput: half of the points
// must be within middle, and nine in ten within most. The measured throughput is a little lower
// with a single small request in flight, because kernel and FUSE take time and the machine has
// other work.
const (
	middle = 0.15
	most   = 0.30
)

// compare checks that the throughput of the simulator's disk is close to the measured throughput at
// most of the points.
func compare(t *testing.T, m disk.Model, points []measure.Point) {
	t.Helper()
	var off []float64
	for _, p := range points {
		got := simulated(t, m, p)
		d := got/p.BytesPerSecond - 1
		off = append(off, math.Abs(d))
		t.Logf("write %-5v sequential %-5v %4d KiB %2d at a time: measured %5.1f MB/s, simulated %5.1f (%+.0f %%)",
			p.Write, p.Sequential, p.Bytes>>10, p.Concurrency, p.BytesPerSecond/1e6, got/1e6, 100*d)
	}
	mid, ninth := median(off), quantile(off, 0.9)
	t.Logf("half of the points are within %.1f %%, nine in ten within %.1f %%", 100*mid, 100*ninth)
	if mid > middle || ninth > most {
		t.Errorf("at most %.0f and %.0f %% are allowed", 100*middle, 100*most)
	}
}

// TestCurves: the simulator's disks behave as disks of the same models behaved in the measurement.
func TestCurves(t *testing.T) {
	files, err := filepath.Glob("testdata/curves/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files of curves: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c curves
			if err := json.Unmarshal(text, &c); err != nil || len(c.Points) < 20 {
				t.Fatalf("%d points: %v", len(c.Points), err)
			}
			compare(t, c.Model, c.Points)
		})
	}
}
