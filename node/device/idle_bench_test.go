package device

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"penstock/core/depth"
	"penstock/node/blockfile"
)

// coldFile is a file without resident pages, and without readers.
type coldFile struct{}

func (coldFile) Query(_, _ int64) (blockfile.Pages, error) { return blockfile.Pages{}, nil }
func (coldFile) Stage(_, _ int64) error                    { return nil }
func (coldFile) Drain(_, _ int64) error                    { return nil }
func (coldFile) Deleted() bool                             { return false }
func (coldFile) Size() (int64, error)                      { return 128 * mib, nil }
func (coldFile) Space() (int64, error)                     { return 128 * mib, nil }
func (coldFile) Close() error                              { return nil }

type deaf struct{ sync.Mutex } // not empty: each value must have its own address

func (*deaf) Mark(uint32, int64) {}

// BenchmarkIdleStreams opens 4,096 streams of 64 applications on each of 24 devices, and waits
// until all of them are staged as far as possible. Then it measures the loops' CPU time while
// nothing happens.
func BenchmarkIdleStreams(b *testing.B) {
	const devices, streams, connections = 24, 4096, 8
	line := depth.Line{Fixed: time.Millisecond, PerMiB: time.Millisecond}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithCancel(b.Context())
	var loops sync.WaitGroup
	all := make([]*Loop, devices)
	for i := range all {
		l, err := New(Options{Name: fmt.Sprint("disk", i), Config: Config{Depth: depth.Config{Read: line, Write: line}}, Mode: Enforce,
			Policy: func(string) Rule { return Rule{Weight: 1, Mode: Enforce} }, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		all[i] = l
		loops.Go(func() { l.Run(ctx) })
	}
	defer loops.Wait()
	defer cancel()
	markers := make([]*deaf, connections)
	for i := range markers {
		markers[i] = &deaf{}
	}
	for _, l := range all {
		for i := range streams {
			l.Open(OpenRequest{Marker: markers[i%connections], ID: uint32(i), Flow: fmt.Sprintf("application_1_%04d", i%64), Block: coldFile{}, To: 128 * mib})
		}
	}
	for _, l := range all { // until each stream is staged as far ahead as possible
		for {
			snap, _ := l.Snapshot()
			ready := 0
			for _, f := range snap.Flows {
				ready += f.Queued
			}
			if ready == 0 && snap.Outstanding == 0 && len(snap.Flows) == 64 {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	time.Sleep(3 * time.Second) // until no flow counts as recently active
	runtime.GC()
	runtime.ReadMemStats(&after)
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	used, begin := cpu(), time.Now()
	for b.Loop() {
		time.Sleep(time.Second)
	}
	b.ReportMetric(float64(cpu()-used)/float64(time.Since(begin))*100, "%core")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/mib, "MiB")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(devices*streams), "B/stream")
}
